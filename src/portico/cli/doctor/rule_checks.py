"""Checks rules, pins, profiles and budgets against the tools of the listed servers. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from portico.catalog.address import find_nearest_names
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool, sanitize_text
from portico.cli.doctor.finding import (
    ConfigLocation,
    ConfigLocations,
    DoctorFinding,
    join_names,
    warning,
)
from portico.config import BackendConfig, Config, ResolvedProfile
from portico.profiles.view_cost import measure_servers, sum_costs
from portico.rendering.listing_cost import DefinitionCosts
from portico.rendering.token_budget import TokenCounter, format_count
from portico.visibility import Scope

MAX_CLIENT_TOOLS = 128
"""The most that a widely used editor accepts in one request; another accepts 40."""


@dataclass(frozen=True)
class CatalogCost:
    """What the servers cost a client that is connected to them directly."""

    tools: int
    full: int
    """Tokens of definitions and instructions."""


def measure_catalog(snapshot: Snapshot, counter: TokenCounter) -> CatalogCost:
    """Measure it as `portico tokens` does."""
    total = sum_costs("total", measure_servers(snapshot, counter))
    return CatalogCost(total.tools, total.tokens)


def check_server_rules(
    name: str, server: BackendConfig, listed: Iterable[str], locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Yield rules of one server that match none of its listed tools."""
    own = list(listed)
    if not own:
        return
    rules = server.tools
    exposed = {*own, *(rules.get_exposed_name(tool) for tool in own)}
    patterns = [
        (section, position, glob, exposed)
        for section in ("allow", "deny", "read_only", "destructive")
        for position, glob in enumerate(getattr(rules, section))
    ]
    patterns += [("rename", old, old, set(own)) for old in rules.rename]
    patterns += [("override", glob, glob, exposed) for glob in rules.override]
    patterns += [("categories", glob, glob, exposed) for glob in rules.categories]
    for section, key, glob, tools in patterns:
        is_used = glob in tools if section == "rename" else _matches_any(glob, tools)
        if not is_used:
            yield warning(
                "rules.match_nothing",
                f"tools.{section}: {glob!r} matches none of its tools",
                _suggest(
                    find_nearest_names(glob, tools, 3),
                    "Correct it, or take it out; `portico browse SERVER` lists its tools.",
                ),
                locations.locate_server(name, "tools", section, key),
            )
    if not any(rules.permits(tool) for tool in own):
        yield warning(
            "rules.nothing_left",
            f"tools.allow and tools.deny leave none of its {len(own)} tools",
            f"Its tools: {', '.join(own[:8])}.",
            locations.locate_server(name, "tools"),
        )


def check_overrides(entry: ServerEntry, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Yield overrides that do not fit what a server lists now."""
    for problem in entry.override_problems:
        yield warning(
            "rules.override_misfit",
            sanitize_text(problem),
            f"`portico describe --original {entry.name}.TOOL` shows what the server says now; the"
            " rest of the overrides is applied.",
            locations.locate_server(entry.name, "tools", "override"),
        )


def _matches_any(glob: str, tools: Iterable[str]) -> bool:
    return any(fnmatchcase(tool, glob) for tool in tools)


def _suggest(near: tuple[str, ...], otherwise: str) -> str:
    if near:
        return f"Did you mean {', '.join(near)}?"
    return otherwise


def check_gateway_rules(
    config: Config, entries: Mapping[str, ServerEntry], locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Yield pins and profiles without a tool, as far as they concern listed servers."""
    tools = {tool.address for entry in entries.values() for tool in entry.tools.values()}
    for position, pin in enumerate(config.pins):
        server, dot, _ = pin.partition(".")
        if (server in entries and pin not in tools) or not dot:
            yield warning(
                "pin.unknown",
                f"the pin {pin!r} names no tool",
                _suggest(
                    find_nearest_names(pin, tools, 3),
                    "`portico browse` lists the tools; write server.tool.",
                ),
                locations.locate("pins", position),
            )
    enabled = {name for name, server in config.servers.items() if not server.disabled}
    unlisted = enabled - set(entries)
    for name, profile in config.profiles.items():
        scope = Scope(profile.servers, profile.tools)
        sees_any = any(map(scope.can_see_tool, tools)) or any(map(scope.can_see_server, unlisted))
        if entries and not sees_any:
            yield warning(
                "profile.empty",
                f"the profile {name} shows no tool",
                "Correct its `servers` and `tools`; a pattern is a tool's name or "
                "server.tool, and may have *.",
                locations.locate("profiles", name),
            )


def check_budgets(
    config: Config,
    entries: Mapping[str, ServerEntry],
    costs: DefinitionCosts,
    locations: ConfigLocations,
) -> Iterator[DoctorFinding]:
    """Yield budgets that are too small for the tools, and listings that are too large for
    clients.
    """
    for name in ("", *config.profiles):
        profile = config.resolve_profile(name or None)
        scope = Scope(profile.servers, profile.tools)
        every_tool = (tool for entry in entries.values() for tool in entry.tools.values())
        tools = [tool for tool in every_tool if scope.can_see_tool(tool.address)]
        if not tools:
            continue
        where = ("profiles", name) if name else ()
        prefix = f"profile {name}: " if name else ""
        if profile.exposure == "full" and len(tools) > MAX_CLIENT_TOOLS:
            yield warning(
                "exposure.too_many_tools",
                f"{prefix}exposure full lists {len(tools)} tools (about "
                f"{costs.measure_all(tools):,} tokens); clients take {MAX_CLIENT_TOOLS} at most, "
                "some only 40",
                "Write exposure: meta, or a profile with fewer servers; `portico tokens` compares "
                "what they cost.",
                locations.locate(*where, "exposure"),
            )
        listing_at = locations.locate(*where, "budgets", "listing")
        yield from _check_listing_budget(prefix, profile, tools, costs, listing_at)
        if name or profile.discovery_budget < 1_000:
            discovery_at = locations.locate(*where, "budgets", "discovery")
            yield from _check_discovery_budget(prefix, profile, tools, costs, discovery_at)


def _check_listing_budget(
    prefix: str,
    profile: ResolvedProfile,
    tools: list[Tool],
    costs: DefinitionCosts,
    at: ConfigLocation,
) -> Iterator[DoctorFinding]:
    budget = profile.listing_budget
    if profile.exposure != "semantic" or not budget:
        return
    expensive = [tool.address for tool in tools if costs.measure(tool) > budget]
    if expensive:
        cost = "costs" if len(expensive) == 1 else "cost"
        yield DoctorFinding(
            "budget.listing_small",
            "warning" if len(expensive) == len(tools) else "note",
            f"{prefix}budgets.listing ({budget:,} tokens) is less than "
            f"{format_count(len(expensive), 'tool')} {cost}, "
            f"so an intent never lists {join_names(expensive, 3)}",
            f"Write budgets: {{listing: {max(map(costs.measure, tools)):_}}}",
            at,
        )


def _check_discovery_budget(
    prefix: str,
    profile: ResolvedProfile,
    tools: list[Tool],
    costs: DefinitionCosts,
    at: ConfigLocation,
) -> Iterator[DoctorFinding]:
    budget = profile.discovery_budget
    large = [tool.address for tool in tools if costs.measure(tool) > budget]
    if large:
        yield DoctorFinding(
            "budget.discovery_small",
            "warning" if costs.measure_all(tools) // len(tools) > budget else "note",
            f"{prefix}budgets.discovery ({budget:,} tokens) is less than the "
            f"definition of {format_count(len(large), 'tool')} ({join_names(large, 3)}): "
            "answers about them are shortened",
            "Write budgets: {discovery: 2000} (the default) or more.",
            at,
        )
