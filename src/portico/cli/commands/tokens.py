"""`portico tokens`: what tools cost a client in tokens, directly and through Portico.

--json: `{"ok", "counter" ("o200k_base" or "estimate"), "tools", "direct": {"definitions",
"instructions", "tokens"}, "servers": [{"name", "tools", "definitions", "instructions", "tokens"}]
(the dearest first), "exposures": [{"exposure", "tools", "listing", "instructions", "tokens",
"saved" (share of the direct cost)}], "ways": [{"way", "tiers": [{"tier", "asked", "tokens",
"together", "budget", "over"}]}], "over": [text], "unlisted": [server]}`. `together` adds up the
tiers before; `ok` is whether every tier keeps its budget; what is unlisted could not be counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from rich.text import Text

from portico.cli.columns import Column, numbers, show_rows, texts
from portico.cli.exit import EXIT_FAILED, EXIT_OK
from portico.cli.look_commands import TokensOptions
from portico.cli.screen import Screen
from portico.cli.setup import Setup, note_starting_servers, open_gateway, select_unlisted_servers
from portico.cli.tier_costs import TierChannel, measure_channels
from portico.config import Exposure
from portico.errors import PorticoError
from portico.gateway import GatewayRuntime
from portico.profiles.profile_state import ProfileState
from portico.profiles.view import ProfileView
from portico.profiles.view_cost import (
    DirectCost,
    ViewCost,
    measure_servers,
    measure_view,
    sum_costs,
)
from portico.rendering.listing_cost import TIER_TITLES, DefinitionCosts, compute_saved_share
from portico.rendering.token_budget import TokenCounter, format_count, get_best_counter

_MAX_SERVER_ROWS = 10
_EXPOSURES: tuple[Exposure, ...] = get_args(Exposure)


@dataclass(frozen=True)
class ExposureCost:
    """The cost of one exposure for a client before its first request."""

    exposure: Exposure
    cost: ViewCost


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
        return sum_costs("total", self.servers)


async def run_tokens(options: TokensOptions) -> int:
    """Measure and show costs; with `verify`, exit code 1 if a tier is over its budget."""
    setup, screen = options.load()
    select_servers = None if options.offline else select_unlisted_servers
    async with open_gateway(setup, screen, select_servers) as gateway:
        await gateway.load_usage()
        with screen.show_spinner("Counting …"):
            report = await _measure(gateway, setup, get_best_counter())
        note_starting_servers(gateway)
    if options.verify and not report.direct.tools:
        advice = "`portico status` shows what the servers do."
        if options.offline:
            advice += " Or try without --offline."
        raise PorticoError("no tool is known, so there is nothing to verify", advice=advice)
    over = list(describe_exceeded_budgets(report.channels))
    if screen.as_json:
        screen.write_json(_to_data(report, over))
    else:
        _show(screen, report, over)
    if options.verify and over:
        return EXIT_FAILED
    return EXIT_OK


def describe_exceeded_budgets(channels: Sequence[TierChannel]) -> Iterator[str]:
    """Describe each tier that exceeds its budget."""
    for channel in channels:
        for size in channel.sizes:
            if size.is_over_budget:
                yield (
                    f"{TIER_TITLES[size.response.tier]} is over its budget by {channel.name}: "
                    f"{size.response.request} makes "
                    f"{size.cumulative_tokens:,} tokens together, {size.budget:,} are allowed"
                )


def _make_view(gateway: GatewayRuntime, setup: Setup, exposure: Exposure) -> ProfileView:
    """Return the profile's view with another exposure; without an event bus, as no client sees
    it.
    """
    settings = replace(gateway.get_view(setup.profile).settings, exposure=exposure)
    state = ProfileState(settings, gateway.catalog, gateway.upstreams, gateway.usage_data)
    return ProfileView(state, gateway.calls)


async def _measure(gateway: GatewayRuntime, setup: Setup, counter: TokenCounter) -> TokenReport:
    view = gateway.get_view(setup.profile)
    costs = DefinitionCosts(counter.count)
    snapshot = view.snapshot
    exposures: list[ExposureCost] = []
    for exposure in _EXPOSURES:
        # Without an intent, exposure `semantic` cannot be measured.
        if exposure != "semantic" or view.settings.intent:
            exposed = _make_view(gateway, setup, exposure)
            exposures.append(ExposureCost(exposure, await measure_view(exposed, counter)))
    # Always with exposure `meta`, because `full` has no tiers to measure.
    meta = _make_view(gateway, setup, "meta")
    return TokenReport(
        counter,
        tuple(measure_servers(snapshot, counter)),
        tuple(exposures),
        await measure_channels(meta, gateway.store, counter, costs),
        tuple(sorted(name for name, entry in snapshot.servers.items() if not entry.is_listed)),
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
        "servers": [{**asdict(one), "tokens": one.tokens} for one in report.servers],
        "exposures": [
            {
                "exposure": one.exposure,
                **asdict(one.cost),
                "tokens": one.cost.tokens,
                "saved": round(compute_saved_share(direct.tokens, one.cost.tokens), 4),
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
    method = "estimated, not counted"
    if report.counter.name == "o200k_base":
        method = "counted with o200k_base"
    servers = format_count(len(report.servers), "server")
    screen.write_text(f"{format_count(direct.tools, 'tool')} on {servers}. Tokens are {method}.")
    _show_section(
        screen,
        "Connected directly, a client pays for every tool's definition, every time:",
        (Column("server", style="cyan", no_wrap=True), *numbers("tools", "tokens", "share")),
        [
            (
                cost.name,
                f"{cost.tools:,}",
                f"{cost.tokens:,}",
                f"{cost.tokens / (direct.tokens or 1):.1%}",
            )
            for cost in _select_server_rows(report)
        ],
    )
    _show_section(
        screen,
        "Through Portico, it pays at the start:",
        (Column("exposure", style="cyan"), *numbers("tools listed", "tokens", "saved")),
        [
            (
                one.exposure,
                f"{one.cost.tools:,}",
                f"{one.cost.tokens:,}",
                f"{compute_saved_share(direct.tokens, one.cost.tokens):.1%}",
            )
            for one in report.exposures
        ],
    )
    meta = [one for one in report.exposures if one.exposure == "meta"]
    if direct.tools and all(one.cost.tokens >= direct.tokens for one in meta):
        screen.write_text("So few tools cost less listed than searched: exposure full is for them.")
    _show_channels(screen, report.channels)
    screen.write_text("")
    if report.unlisted:
        names = ", ".join(report.unlisted)
        screen.write_text(Text(f"Not counted, because not listed yet: {names}", style="yellow"))
    screen.write_text(*(Text(f"{line}.", style="red") for line in over))
    if not over:
        screen.write_text(Text("Every level of detail keeps its budget.", style="green"))


def _show_channels(screen: Screen, channels: Sequence[TierChannel]) -> None:
    _show_section(
        screen,
        "And for what it asks, at worst:",
        (
            Column("by"),
            Column("detail", style="cyan"),
            *numbers("tokens", "together", "allowed"),
            *texts("asked for"),
        ),
        [
            (
                channel.name,
                TIER_TITLES[size.response.tier],
                f"{size.response.tokens:,}",
                f"{size.cumulative_tokens:,}",
                f"{size.budget:,}",
                size.response.request,
            )
            for channel in channels
            for size in channel.sizes
        ],
    )


def _show_section(
    screen: Screen, heading: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> None:
    screen.write_text("", Text(heading, style="bold"))
    show_rows(screen, columns, rows)


def _select_server_rows(report: TokenReport) -> list[DirectCost]:
    shown = list(report.servers[:_MAX_SERVER_ROWS])
    rest = report.servers[_MAX_SERVER_ROWS:]
    if rest:
        shown.append(sum_costs(f"{len(rest)} others", rest))
    if len(report.servers) > 1:
        shown.append(report.direct)
    return shown
