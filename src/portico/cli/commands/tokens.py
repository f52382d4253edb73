"""`portico tokens`: what tools cost a client in tokens, directly and through Portico.

--json: `{"ok", "counter" ("o200k_base" or "estimate"), "tools", "direct": {"definitions",
"instructions", "tokens"}, "servers": [{"name", "tools", "definitions", "instructions", "tokens"}]
(the dearest first), "exposures": [{"exposure", "tools", "listing", "instructions", "tokens",
"saved" (share of the direct cost)}], "ways": [{"way", "tiers": [{"tier", "asked", "tokens",
"together", "budget", "over"}]}], "over": [text], "unlisted": [server]}`. `together` adds up the
tiers before; `ok` is whether every tier keeps its budget; what is unlisted could not be counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from rich.text import Text

from portico.app import GatewayRuntime
from portico.calls.pipeline import DEFAULT_CONTEXT
from portico.catalog.snapshot import Snapshot
from portico.cli.columns import Column, show_rows
from portico.cli.commands.browse import note_starting_servers
from portico.cli.exit import EXIT_FAILED, EXIT_OK
from portico.cli.screen import Screen
from portico.cli.setup import Setup, open_gateway, select_no_servers, select_unlisted_servers
from portico.cli.tier_costs import TierChannel, measure_channels
from portico.config import Exposure
from portico.errors import PorticoError
from portico.profiles.view import ProfileView
from portico.rendering.lines import format_count
from portico.rendering.listing_cost import DefinitionCosts, compute_saved_share, count_listed_tokens
from portico.rendering.token_count import TokenCounter, get_best_counter

_MAX_SERVER_ROWS = 10
_EXPOSURES: tuple[Exposure, ...] = get_args(Exposure)


@dataclass(frozen=True)
class DirectCost:
    """The cost of one server, or all, for a client that is connected without Portico."""

    name: str
    tools: int
    definitions: int
    instructions: int

    @property
    def tokens(self) -> int:
        return self.definitions + self.instructions


@dataclass(frozen=True)
class ExposureCost:
    """The cost of one exposure for a client before its first request."""

    exposure: Exposure
    tools: int
    listing: int
    instructions: int

    @property
    def tokens(self) -> int:
        return self.listing + self.instructions


@dataclass(frozen=True)
class TokenReport:
    """All measured costs."""

    counter: TokenCounter
    servers: tuple[DirectCost, ...]
    exposures: tuple[ExposureCost, ...]
    channels: tuple[TierChannel, ...]
    unlisted: tuple[str, ...]

    @property
    def direct(self) -> DirectCost:
        """The sum over all servers."""
        return DirectCost(
            "total",
            sum(server.tools for server in self.servers),
            sum(server.definitions for server in self.servers),
            sum(server.instructions for server in self.servers),
        )


async def show_tokens(setup: Setup, screen: Screen, *, offline: bool, verify: bool) -> int:
    """Measure and show costs; with `verify`, exit code 1 if a tier is over its budget."""
    counter = get_best_counter()
    async with open_gateway(
        setup, screen, select_no_servers if offline else select_unlisted_servers
    ) as gateway:
        await gateway.load_usage()
        with screen.show_spinner("Counting …"):
            report = await _measure(gateway, setup, counter)
        note_starting_servers(gateway)
    if verify and not report.direct.tools:
        raise PorticoError(
            "no tool is known, so there is nothing to verify",
            advice="`portico status` tells what the servers do."
            + (" Or try without --offline." if offline else ""),
        )
    over = list(describe_exceeded_budgets(report.channels))
    if screen.as_json:
        screen.write_json(_to_data(report, over))
    else:
        _show(screen, report, over)
    if verify and over:
        return EXIT_FAILED
    return EXIT_OK


def describe_exceeded_budgets(channels: Sequence[TierChannel]) -> Iterator[str]:
    """Describe each tier that exceeds its budget."""
    for channel in channels:
        for size in channel.sizes:
            if size.is_over_budget:
                yield (
                    f"{size.response.tier} is over its budget by {channel.name}: "
                    f"{size.response.request} makes "
                    f"{size.cumulative_tokens:,} tokens together, {size.budget:,} are allowed"
                )


def _make_view(gateway: GatewayRuntime, setup: Setup, exposure: Exposure) -> ProfileView:
    """Return the profile's view with another exposure; without an event bus, as no client sees
    it.
    """
    settings = replace(gateway.get_view(setup.profile).settings, exposure=exposure)
    return ProfileView(
        settings, gateway.catalog, gateway.calls, gateway.upstreams, usage_data=gateway.usage_data
    )


async def _measure(gateway: GatewayRuntime, setup: Setup, counter: TokenCounter) -> TokenReport:
    view = gateway.get_view(setup.profile)
    costs = DefinitionCosts(counter.count)
    snapshot = view.snapshot
    # Without an intent, exposure `semantic` cannot be measured.
    exposures: list[Exposure] = [
        exposure for exposure in _EXPOSURES if exposure != "semantic" or view.settings.intent
    ]
    return TokenReport(
        counter,
        tuple(_measure_servers(snapshot, costs, counter)),
        tuple(
            [
                await _measure_exposure(_make_view(gateway, setup, exposure), exposure, counter)
                for exposure in exposures
            ]
        ),
        # Always with exposure `meta`, because `full` has no tiers to measure.
        await measure_channels(_make_view(gateway, setup, "meta"), gateway.store, counter, costs),
        tuple(sorted(name for name, entry in snapshot.servers.items() if not entry.is_listed)),
    )


def _measure_servers(
    snapshot: Snapshot, costs: DefinitionCosts, counter: TokenCounter
) -> list[DirectCost]:
    server_costs = [
        DirectCost(
            entry.name,
            len(entry.tools),
            costs.measure_all(entry.tools.values()),
            counter.count(entry.initialize_info.instructions) if entry.initialize_info else 0,
        )
        for entry in snapshot.servers.values()
        if entry.is_listed
    ]
    return sorted(server_costs, key=lambda bill: (-bill.tokens, bill.name))


async def _measure_exposure(
    view: ProfileView, exposure: Exposure, counter: TokenCounter
) -> ExposureCost:
    number = listing = 0
    cursor: str | None = None
    while True:
        page = await view.handle(
            "tools/list", {"cursor": cursor} if cursor else {}, DEFAULT_CONTEXT, "modern"
        )
        number += len(page["tools"])
        listing += sum(count_listed_tokens(tool, counter.count) for tool in page["tools"])
        cursor = page.get("nextCursor")
        if cursor is None:
            return ExposureCost(
                exposure, number, listing, counter.count(view.render_instructions())
            )


def _to_data(report: TokenReport, over: Sequence[str]) -> dict[str, Any]:
    direct = report.direct
    return {
        "ok": not over,
        "counter": report.counter.name,
        "tools": direct.tools,
        "direct": {
            "definitions": direct.definitions,
            "instructions": direct.instructions,
            "tokens": direct.tokens,
        },
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
                "saved": round(compute_saved_share(direct.tokens, one.tokens), 4),
            }
            for one in report.exposures
        ],
        "ways": [
            {
                "way": channel.name,
                "tiers": [
                    {
                        "tier": size.response.tier,
                        "asked": size.response.request,
                        "tokens": size.response.tokens,
                        "together": size.cumulative_tokens,
                        "budget": size.budget,
                        "over": size.is_over_budget,
                    }
                    for size in channel.sizes
                ],
            }
            for channel in report.channels
        ],
        "over": list(over),
        "unlisted": list(report.unlisted),
    }


def _show(screen: Screen, report: TokenReport, over: Sequence[str]) -> None:
    direct = report.direct
    if report.counter.name == "o200k_base":
        method = "counted with o200k_base"
    else:
        method = "estimated, not counted"
    summary = (
        f"{format_count(direct.tools, 'tool')} on {format_count(len(report.servers), 'server')}"
    )
    screen.write_text(f"{summary}. Tokens are {method}.")
    screen.write_text(
        "",
        Text(
            "Connected directly, a client pays for every tool's definition, every time:",
            style="bold",
        ),
    )
    tokens_column = Column("tokens", align_right=True)
    server_column = Column("server", style="cyan", no_wrap=True)
    show_rows(
        screen,
        (
            server_column,
            Column("tools", align_right=True),
            tokens_column,
            Column("share", align_right=True),
        ),
        _build_server_rows(report),
    )
    screen.write_text("", Text("Through Portico, it pays at the start:", style="bold"))
    show_rows(
        screen,
        (
            Column("exposure", style="cyan"),
            Column("tools listed", align_right=True),
            tokens_column,
            Column("saved", align_right=True),
        ),
        [
            (
                one.exposure,
                f"{one.tools:,}",
                f"{one.tokens:,}",
                f"{compute_saved_share(direct.tokens, one.tokens):.1%}",
            )
            for one in report.exposures
        ],
    )
    if direct.tools and all(
        one.tokens >= direct.tokens for one in report.exposures if one.exposure == "meta"
    ):
        screen.write_text("So few tools cost less listed than searched: exposure full is for them.")
    screen.write_text("", Text("And for what it asks, at worst:", style="bold"))
    show_rows(
        screen,
        (
            Column("by"),
            Column("tier", style="cyan"),
            tokens_column,
            Column("together", align_right=True),
            Column("allowed", align_right=True),
            Column("asked for"),
        ),
        [
            (
                channel.name,
                size.response.tier,
                f"{size.response.tokens:,}",
                f"{size.cumulative_tokens:,}",
                f"{size.budget:,}",
                size.response.request,
            )
            for channel in report.channels
            for size in channel.sizes
        ],
    )
    screen.write_text("")
    if report.unlisted:
        screen.write_text(
            Text(
                f"Not counted, because not listed yet: {', '.join(report.unlisted)}", style="yellow"
            )
        )
    screen.write_text(*(Text(f"{line}.", style="red") for line in over))
    if not over:
        screen.write_text(Text("Every tier keeps its budget.", style="green"))


def _build_server_rows(report: TokenReport) -> Iterator[tuple[str, str, str, str]]:
    direct = report.direct
    first = report.servers[:_MAX_SERVER_ROWS]
    rest = report.servers[_MAX_SERVER_ROWS:]
    shown = [
        *first,
        *([DirectCost(f"{len(rest)} others", *_sum_costs(rest))] if rest else ()),
        *([direct] if len(report.servers) > 1 else ()),
    ]
    for cost in shown:
        if direct.tokens:
            share = cost.tokens / direct.tokens
        else:
            share = 0.0
        yield cost.name, f"{cost.tools:,}", f"{cost.tokens:,}", f"{share:.1%}"


def _sum_costs(costs: Sequence[DirectCost]) -> tuple[int, int, int]:
    return (
        sum(cost.tools for cost in costs),
        sum(cost.definitions for cost in costs),
        sum(cost.instructions for cost in costs),
    )
