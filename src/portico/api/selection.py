"""Which tools pass filters when nothing is looked for: hottest first. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from portico.catalog.tool import Tool
from portico.disclosure.question import Question
from portico.disclosure.shelves import Shelves
from portico.disclosure.sight import Sight
from portico.observability.statistics import Statistics
from portico.search import Filters


@dataclass(frozen=True)
class Selection:
    """Tools that pass, and whether a limit on how calls went could tell any of them apart."""

    tools: Sequence[Tool]
    unmeasured: bool = False


def select(sight: Sight, question: Question) -> Selection:
    """The tools that pass a question's filters; raises UnknownName for a name that is not here."""
    filters = question.filters(sight.snapshot)
    measured = filters.max_latency_ms is not None or filters.min_success_rate is not None
    tools = _hottest_first(sight.shelves, filters)
    if filters.tags:
        tools = [tool for tool in tools if _tagged(sight, tool, filters)]
    if measured:
        used = sight.used
        tools = [tool for tool in tools if (use := used.get(tool.address)) is None or _sound(use, filters)]
        return Selection(tools, unmeasured=not used)
    return Selection(tools)


def _hottest_first(shelves: Shelves, filters: Filters) -> Sequence[Tool]:
    """The tools of the server or the category, or all; the narrowest list that is already in order is read."""
    if filters.groups:
        tools = [tool for name in filters.groups for tool in shelves.server(name)]
        wanted = set(filters.categories)
        category = shelves.snapshot.category
        return [tool for tool in tools if category(tool.address) in wanted] if wanted else tools
    if filters.categories:
        return [
            tool for key in filters.categories if key in shelves.categories for tool in shelves.categories[key].tools
        ]
    return shelves.everything


def _tagged(sight: Sight, tool: Tool, filters: Filters) -> bool:
    wanted = set(map(str.casefold, filters.tags))
    return not wanted.isdisjoint(map(str.casefold, (*sight.snapshot.servers[tool.server].tags, *tool.tags)))


def _sound(use: Statistics, filters: Filters) -> bool:
    quick = filters.max_latency_ms is None or use.p50_ms <= filters.max_latency_ms
    return quick and (filters.min_success_rate is None or use.success_rate >= filters.min_success_rate)
