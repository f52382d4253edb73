"""`portico tokens`: what the tools cost a client in tokens, directly and through Portico, measured on what is served.

--json: `{"ok", "counter" ("o200k_base" or "estimate"), "tools", "direct": {"definitions", "instructions", "tokens"},
"servers": [{"name", "tools", "definitions", "instructions", "tokens"}] (the dearest first), "exposures": [{"exposure",
"tools", "listing", "instructions", "tokens", "saved" (share of the direct cost)}], "ways": [{"way", "tiers": [{"tier",
"asked", "tokens", "together", "budget", "over"}]}], "over": [text], "unlisted": [server]}`. `together` adds up the
tiers before; `ok` is whether every tier keeps its budget; what is unlisted could not be counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from rich.text import Text

from portico.app import Gateway
from portico.catalog.snapshot import Snapshot
from portico.cli.columns import Column, show_rows
from portico.cli.discover import name_late
from portico.cli.ending import DONE, FAILED
from portico.cli.opening import Setup, none, opened, unlisted
from portico.cli.screen import Screen
from portico.cli.tiers_served import Way, ways
from portico.config import Exposure
from portico.disclosure.cost import Costs, listed_tokens, saved_share
from portico.disclosure.lines import counted
from portico.disclosure.tokens import Counter, best_counter
from portico.disclosure.view import View
from portico.errors import PorticoError
from portico.execution.call import NOBODY

_TOP = 10
_EXPOSURES: tuple[Exposure, ...] = get_args(Exposure)


@dataclass(frozen=True)
class Bill:
    """What one server, or all, costs a client that is connected without Portico."""

    name: str
    tools: int
    definitions: int
    instructions: int

    @property
    def tokens(self) -> int:
        return self.definitions + self.instructions


@dataclass(frozen=True)
class Start:
    """What a client pays through one exposure before its first word."""

    exposure: Exposure
    tools: int
    listing: int
    instructions: int

    @property
    def tokens(self) -> int:
        return self.listing + self.instructions


@dataclass(frozen=True)
class Report:
    """Everything that was measured."""

    counter: Counter
    servers: tuple[Bill, ...]
    starts: tuple[Start, ...]
    ways: tuple[Way, ...]
    unlisted: tuple[str, ...]

    @property
    def direct(self) -> Bill:
        """All servers together."""
        return Bill(
            "total",
            sum(one.tools for one in self.servers),
            sum(one.definitions for one in self.servers),
            sum(one.instructions for one in self.servers),
        )


async def tokens(setup: Setup, screen: Screen, *, offline: bool, verify: bool) -> int:
    """Measure and show; with `verify`, exit code 1 when a tier is over its budget."""
    counter = best_counter()
    async with opened(setup, screen, none if offline else unlisted) as gateway:
        await gateway.recall()
        with screen.busy("Counting …"):
            report = await _measured(gateway, setup, counter)
        name_late(gateway)
    if verify and not report.direct.tools:
        raise PorticoError(
            "no tool is known, so there is nothing to verify",
            advice="`portico status` tells what the servers do." + (" Or try without --offline." if offline else ""),
        )
    over = list(over_budget(report.ways))
    if screen.as_json:
        screen.data(_data(report, over))
    else:
        _show(screen, report, over)
    return FAILED if verify and over else DONE


def over_budget(measured: Sequence[Way]) -> Iterator[str]:
    """Each tier that costs more than it may, in words."""
    for way in measured:
        for size in way.sizes:
            if size.over:
                yield (
                    f"{size.served.tier} is over its budget by {way.name}: {size.served.asked} makes "
                    f"{size.together:,} tokens together, {size.budget:,} are allowed"
                )


def _view(gateway: Gateway, setup: Setup, exposure: Exposure) -> View:
    """What the profile would show through an exposure. It tells nobody: what is measured was shown to no client."""
    face = replace(gateway.view(setup.profile).face, exposure=exposure)
    return View(face, gateway.catalog, gateway.calls, gateway.upstreams, insight=gateway.insight)


async def _measured(gateway: Gateway, setup: Setup, counter: Counter) -> Report:
    view, costs = gateway.view(setup.profile), Costs(counter.count)
    snapshot = view.snapshot
    # What an intent brings cannot be told where none is written.
    exposures: list[Exposure] = [one for one in _EXPOSURES if one != "semantic" or view.face.intent]
    return Report(
        counter,
        tuple(_bills(snapshot, costs, counter)),
        tuple([await _start(_view(gateway, setup, one), one, counter) for one in exposures]),
        # Through the meta-tools, whatever the profile's own exposure: in `full` there are no tiers to measure.
        await ways(_view(gateway, setup, "meta"), gateway.record, counter, costs),
        tuple(sorted(name for name, entry in snapshot.servers.items() if not entry.known)),
    )


def _bills(snapshot: Snapshot, costs: Costs, counter: Counter) -> list[Bill]:
    bills = [
        Bill(
            entry.name,
            len(entry.tools),
            costs.total(entry.tools.values()),
            counter.count(entry.hello.instructions) if entry.hello else 0,
        )
        for entry in snapshot.servers.values()
        if entry.known
    ]
    return sorted(bills, key=lambda bill: (-bill.tokens, bill.name))


async def _start(view: View, exposure: Exposure, counter: Counter) -> Start:
    number = listing = 0
    cursor: str | None = None
    while True:
        page = await view.handle("tools/list", {"cursor": cursor} if cursor else {}, NOBODY, "modern")
        number += len(page["tools"])
        listing += sum(listed_tokens(tool, counter.count) for tool in page["tools"])
        cursor = page.get("nextCursor")
        if cursor is None:
            return Start(exposure, number, listing, counter.count(view.instructions()))


def _data(report: Report, over: Sequence[str]) -> dict[str, Any]:
    direct = report.direct
    return {
        "ok": not over,
        "counter": report.counter.name,
        "tools": direct.tools,
        "direct": {"definitions": direct.definitions, "instructions": direct.instructions, "tokens": direct.tokens},
        "servers": [
            {
                "name": one.name,
                "tools": one.tools,
                "definitions": one.definitions,
                "instructions": one.instructions,
                "tokens": one.tokens,
            }
            for one in report.servers
        ],
        "exposures": [
            {
                "exposure": one.exposure,
                "tools": one.tools,
                "listing": one.listing,
                "instructions": one.instructions,
                "tokens": one.tokens,
                "saved": round(saved_share(direct.tokens, one.tokens), 4),
            }
            for one in report.starts
        ],
        "ways": [
            {
                "way": way.name,
                "tiers": [
                    {
                        "tier": size.served.tier,
                        "asked": size.served.asked,
                        "tokens": size.served.tokens,
                        "together": size.together,
                        "budget": size.budget,
                        "over": size.over,
                    }
                    for size in way.sizes
                ],
            }
            for way in report.ways
        ],
        "over": list(over),
        "unlisted": list(report.unlisted),
    }


def _show(screen: Screen, report: Report, over: Sequence[str]) -> None:
    direct = report.direct
    how = "counted with o200k_base" if report.counter.name == "o200k_base" else "estimated, not counted"
    known = f"{counted(direct.tools, 'tool')} on {counted(len(report.servers), 'server')}"
    screen.text(f"{known}. Tokens are {how}.")
    screen.text("", Text("Connected directly, a client pays for every tool's definition, every time:", style="bold"))
    number, left = Column("tokens", right=True), Column("server", style="cyan", whole=True)
    show_rows(screen, (left, Column("tools", right=True), number, Column("share", right=True)), _bill_rows(report))
    screen.text("", Text("Through Portico, it pays at the start:", style="bold"))
    show_rows(
        screen,
        (Column("exposure", style="cyan"), Column("tools listed", right=True), number, Column("saved", right=True)),
        [
            (one.exposure, f"{one.tools:,}", f"{one.tokens:,}", f"{saved_share(direct.tokens, one.tokens):.1%}")
            for one in report.starts
        ],
    )
    if direct.tools and all(one.tokens >= direct.tokens for one in report.starts if one.exposure == "meta"):
        screen.text("So few tools cost less listed than searched: exposure full is for them.")
    screen.text("", Text("And for what it asks, at worst:", style="bold"))
    show_rows(
        screen,
        (
            Column("by"),
            Column("tier", style="cyan"),
            number,
            Column("together", right=True),
            Column("allowed", right=True),
            Column("asked for"),
        ),
        [
            (
                way.name,
                size.served.tier,
                f"{size.served.tokens:,}",
                f"{size.together:,}",
                f"{size.budget:,}",
                size.served.asked,
            )
            for way in report.ways
            for size in way.sizes
        ],
    )
    screen.text("")
    if report.unlisted:
        screen.text(Text(f"Not counted, because not listed yet: {', '.join(report.unlisted)}", style="yellow"))
    screen.text(*(Text(f"{line}.", style="red") for line in over))
    if not over:
        screen.text(Text("Every tier keeps its budget.", style="green"))


def _bill_rows(report: Report) -> Iterator[tuple[str, str, str, str]]:
    direct, first, rest = report.direct, report.servers[:_TOP], report.servers[_TOP:]
    shown = [
        *first,
        *([Bill(f"{len(rest)} others", *_sums(rest))] if rest else ()),
        *([direct] if len(report.servers) > 1 else ()),
    ]
    for one in shown:
        share = one.tokens / direct.tokens if direct.tokens else 0.0
        yield one.name, f"{one.tools:,}", f"{one.tokens:,}", f"{share:.1%}"


def _sums(bills: Sequence[Bill]) -> tuple[int, int, int]:
    return (
        sum(one.tools for one in bills),
        sum(one.definitions for one in bills),
        sum(one.instructions for one in bills),
    )
