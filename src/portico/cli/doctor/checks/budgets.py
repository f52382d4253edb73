"""What the tools cost against what answers may cost, and against what clients can take. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from portico.access import Scope
from portico.catalog.snapshot import ServerEntry
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding, join_names
from portico.config import Config, ResolvedProfile
from portico.meta_tools import tool_definitions
from portico.rendering.lines import format_count
from portico.rendering.listing_cost import DefinitionCosts, count_listed_tokens
from portico.rendering.token_count import get_best_counter

MAX_CLIENT_TOOLS = 128
"""What a widely used editor takes in one request; another takes 40."""


@dataclass(frozen=True)
class CatalogCost:
    """What the tools cost, listed whole and through the meta-tools."""

    tools: int
    full: int
    meta: int


def measure_catalog(
    config: Config, entries: Mapping[str, ServerEntry], costs: DefinitionCosts
) -> CatalogCost:
    """What every tool costs a client that lists them all, and what it pays instead."""
    tools = [tool for entry in entries.values() for tool in entry.tools.values()]
    names = config.resolve_profile().metatools
    meta = tool_definitions.build_definitions(
        names,
        dict.fromkeys(entries, ""),
        tool_definitions.MetaToolOptions(languages=config.code.languages),
    )
    return CatalogCost(
        len(tools),
        costs.measure_all(tools),
        sum(count_listed_tokens(one, get_best_counter().count) for one in meta),
    )


def check(
    config: Config,
    entries: Mapping[str, ServerEntry],
    costs: DefinitionCosts,
    locations: ConfigLocations,
) -> Iterator[DoctorFinding]:
    """What is too small for what is there, or too large for clients."""
    views = {
        "": config.resolve_profile(),
        **{name: config.resolve_profile(name) for name in config.profiles},
    }
    for name, view in views.items():
        yield from _check_view(name, view, config, entries, costs, locations)


def _check_view(
    name: str,
    view: ResolvedProfile,
    config: Config,
    entries: Mapping[str, ServerEntry],
    costs: DefinitionCosts,
    locations: ConfigLocations,
) -> Iterator[DoctorFinding]:
    scope = Scope(view.servers, view.tools)
    tools = [
        tool
        for entry in entries.values()
        for tool in entry.tools.values()
        if scope.can_see_tool(tool.address)
    ]
    if not tools:
        return
    if name:
        where = ("profiles", name)
    else:
        where = ()
    if name:
        who = f"profile {name}: "
    else:
        who = ""
    if view.exposure == "full" and len(tools) > MAX_CLIENT_TOOLS:
        whole = measure_catalog(config, entries, costs)
        yield DoctorFinding(
            "exposure.too_many_tools",
            "warning",
            f"{who}exposure full lists {len(tools)} tools (about {costs.measure_all(tools):,} tokens); "
            f"clients take {MAX_CLIENT_TOOLS} at most, some only 40",
            f"Write exposure: meta (about {whole.meta:,} tokens), or a profile with fewer servers.",
            **locations.locate(*where, "exposure"),
        )
    dear = [
        tool.address
        for tool in tools
        if view.listing_budget and costs.measure(tool) > view.listing_budget
    ]
    if view.exposure == "semantic" and dear:
        all_of_them = len(dear) == len(tools)
        yield DoctorFinding(
            "budget.listing_small",
            "warning" if all_of_them else "note",
            f"{who}budgets.listing ({view.listing_budget:,} tokens) is less than {format_count(len(dear), 'tool')} "
            f"cost{'s' if len(dear) == 1 else ''}, so an intent never lists {join_names(dear, 3)}",
            f"Write budgets: {{listing: {max(map(costs.measure, tools)):,}}}".replace(",", "_"),
            **locations.locate(*where, "budgets", "listing"),
        )
    large = [tool.address for tool in tools if costs.measure(tool) > view.discovery_budget]
    if large and (name or view.discovery_budget < 1_000):
        yield _make_discovery_finding(
            who,
            view,
            large,
            costs.measure_all(tools) // len(tools),
            locations.locate(*where, "budgets", "discovery"),
        )


def _make_discovery_finding(
    prefix: str, view: ResolvedProfile, large: list[str], mean: int, at: Mapping[str, object]
) -> DoctorFinding:
    return DoctorFinding(
        "budget.discovery_small",
        "warning" if mean > view.discovery_budget else "note",
        f"{prefix}budgets.discovery ({view.discovery_budget:,} tokens) is less than the definition of "
        f"{format_count(len(large), 'tool')} ({join_names(large, 3)}): answers about them are shortened",
        "Write budgets: {discovery: 2000} (the default) or more.",
        **at,  # pyright: ignore[reportArgumentType]
    )
