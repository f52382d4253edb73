"""Checks what the tools cost against the budgets, and against what clients accept. Pure."""

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
"""The most that a widely used editor accepts in one request; another accepts 40."""


@dataclass(frozen=True)
class CatalogCost:
    """The cost of the tools, listed in full and through the meta-tools."""

    tools: int
    full: int
    meta: int


def measure_catalog(
    config: Config, entries: Mapping[str, ServerEntry], costs: DefinitionCosts
) -> CatalogCost:
    """Measure a listing of every tool, and of the meta-tools instead."""
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
        sum(count_listed_tokens(definition, get_best_counter().count) for definition in meta),
    )


def check(
    config: Config,
    entries: Mapping[str, ServerEntry],
    costs: DefinitionCosts,
    locations: ConfigLocations,
) -> Iterator[DoctorFinding]:
    """Yield budgets that are too small for the tools, and listings that are too large for
    clients.
    """
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
    where: tuple[str, ...] = ()
    prefix = ""
    if name:
        where = ("profiles", name)
        prefix = f"profile {name}: "
    if view.exposure == "full" and len(tools) > MAX_CLIENT_TOOLS:
        catalog_cost = measure_catalog(config, entries, costs)
        yield DoctorFinding(
            "exposure.too_many_tools",
            "warning",
            f"{prefix}exposure full lists {len(tools)} tools (about {costs.measure_all(tools):,} "
            f"tokens); clients take {MAX_CLIENT_TOOLS} at most, some only 40",
            f"Write exposure: meta (about {catalog_cost.meta:,} tokens), or a profile with "
            "fewer servers.",
            **locations.locate(*where, "exposure"),
        )
    expensive = [
        tool.address
        for tool in tools
        if view.listing_budget and costs.measure(tool) > view.listing_budget
    ]
    if view.exposure == "semantic" and expensive:
        exceeds_all = len(expensive) == len(tools)
        yield DoctorFinding(
            "budget.listing_small",
            "warning" if exceeds_all else "note",
            f"{prefix}budgets.listing ({view.listing_budget:,} tokens) is less than "
            f"{format_count(len(expensive), 'tool')} cost{'s' if len(expensive) == 1 else ''}, "
            f"so an intent never lists {join_names(expensive, 3)}",
            f"Write budgets: {{listing: {max(map(costs.measure, tools)):,}}}".replace(",", "_"),
            **locations.locate(*where, "budgets", "listing"),
        )
    large = [tool.address for tool in tools if costs.measure(tool) > view.discovery_budget]
    if large and (name or view.discovery_budget < 1_000):
        yield _make_discovery_finding(
            prefix,
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
        f"{prefix}budgets.discovery ({view.discovery_budget:,} tokens) is less than the "
        f"definition of {format_count(len(large), 'tool')} ({join_names(large, 3)}): "
        "answers about them are shortened",
        "Write budgets: {discovery: 2000} (the default) or more.",
        **at,  # pyright: ignore[reportArgumentType]
    )
