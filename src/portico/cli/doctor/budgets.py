"""What the tools cost against what answers may cost, and against what clients can take. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from portico.access import Scope
from portico.catalog.snapshot import ServerEntry
from portico.cli.doctor.finding import Finding, Places, several
from portico.config import Config, View
from portico.disclosure import metatools
from portico.disclosure.cost import Costs, listed_tokens
from portico.disclosure.lines import counted
from portico.disclosure.tokens import best_counter

MOST_TOOLS = 128
"""What a widely used editor takes in one request; another takes 40."""


@dataclass(frozen=True)
class Cost:
    """What the tools cost, listed whole and through the meta-tools."""

    tools: int
    full: int
    meta: int


def cost(config: Config, entries: Mapping[str, ServerEntry], costs: Costs) -> Cost:
    """What every tool costs a client that lists them all, and what it pays instead."""
    tools = [tool for entry in entries.values() for tool in entry.tools.values()]
    names = config.view().metatools
    meta = metatools.definitions(names, dict.fromkeys(entries, ""), metatools.Offer(languages=config.code.languages))
    return Cost(len(tools), costs.total(tools), sum(listed_tokens(one, best_counter().count) for one in meta))


def check(config: Config, entries: Mapping[str, ServerEntry], costs: Costs, places: Places) -> Iterator[Finding]:
    """What is too small for what is there, or too large for clients."""
    views = {"": config.view(), **{name: config.view(name) for name in config.profiles}}
    for name, view in views.items():
        yield from _of_view(name, view, config, entries, costs, places)


def _of_view(
    name: str, view: View, config: Config, entries: Mapping[str, ServerEntry], costs: Costs, places: Places
) -> Iterator[Finding]:
    scope = Scope(view.servers, view.tools)
    tools = [tool for entry in entries.values() for tool in entry.tools.values() if scope.sees(tool.address)]
    if not tools:
        return
    where = ("profiles", name) if name else ()
    who = f"profile {name}: " if name else ""
    if view.exposure == "full" and len(tools) > MOST_TOOLS:
        whole = cost(config, entries, costs)
        yield Finding(
            "exposure.too_many_tools",
            "warning",
            f"{who}exposure full lists {len(tools)} tools (about {costs.total(tools):,} tokens); "
            f"clients take {MOST_TOOLS} at most, some only 40",
            f"Write exposure: meta (about {whole.meta:,} tokens), or a profile with fewer servers.",
            **places.at(*where, "exposure"),
        )
    dear = [tool.address for tool in tools if view.listing_budget and costs.of(tool) > view.listing_budget]
    if view.exposure == "semantic" and dear:
        all_of_them = len(dear) == len(tools)
        yield Finding(
            "budget.listing_small",
            "warning" if all_of_them else "note",
            f"{who}budgets.listing ({view.listing_budget:,} tokens) is less than {counted(len(dear), 'tool')} "
            f"cost{'s' if len(dear) == 1 else ''}, so an intent never lists {several(dear, 3)}",
            f"Write budgets: {{listing: {max(map(costs.of, tools)):,}}}".replace(",", "_"),
            **places.at(*where, "budgets", "listing"),
        )
    large = [tool.address for tool in tools if costs.of(tool) > view.discovery_budget]
    if large and (name or view.discovery_budget < 1_000):
        yield _discovery_small(
            who, view, large, costs.total(tools) // len(tools), places.at(*where, "budgets", "discovery")
        )


def _discovery_small(who: str, view: View, large: list[str], mean: int, at: Mapping[str, object]) -> Finding:
    return Finding(
        "budget.discovery_small",
        "warning" if mean > view.discovery_budget else "note",
        f"{who}budgets.discovery ({view.discovery_budget:,} tokens) is less than the definition of "
        f"{counted(len(large), 'tool')} ({several(large, 3)}): answers about them are shortened",
        "Write budgets: {discovery: 2000} (the default) or more.",
        **at,  # pyright: ignore[reportArgumentType]
    )
