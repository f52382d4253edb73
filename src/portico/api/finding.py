"""Which tools a question finds: the ranking that agents get where something is looked for, else the hottest first."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from portico.access import Caller
from portico.api.fitting import List, Place, continued, fitting, paged, text_of
from portico.api.tiers import card_of
from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.disclosure import results
from portico.disclosure.cards import Card
from portico.disclosure.lines import one_paragraph, room
from portico.disclosure.misfit import misfit, spelt_alike, unmatched
from portico.disclosure.question import Question, Search
from portico.disclosure.searching import Searching
from portico.disclosure.shelves import Shelves
from portico.disclosure.sight import Sight
from portico.events import Searched, SearchEnded
from portico.observability.statistics import Statistics
from portico.search import Filters

CALLER = Caller(name="rest")
_ALSO = 5
_DESCRIBED = 30


@dataclass(frozen=True)
class Finding:
    """Finds tools for whoever uses the API."""

    sight: Sight
    searching: Searching

    async def page(self, question: Question, place: Place, listing: List) -> Card:
        """A page of the tools that a question finds; raises UnknownName for a filter's name that is not here."""
        if question.query:
            return await self._ranked(question, place, listing)
        return self._listed(question, place, listing)

    async def _ranked(self, question: Question, place: Place, listing: List) -> Card:
        started = time.perf_counter()
        vector, search = await self.searching.prepared(self.sight.snapshot, question, CALLER)
        if self.sight.insight is not None:
            # The figures that the answer shows, so that no tool passes with one that it should not.
            search = replace(search, facts=self.sight.insight.usage.facts)
        body, found = _page(self.sight, search, place, listing)
        bus = self.searching.bus
        if bus is not None:
            bus.publish(SearchEnded(time.perf_counter() - started, bool(found)))
        if found and bus is not None and bus.asked_for(Searched):
            bus.publish(Searched(question.query, found, CALLER, vector))
        return body

    def _listed(self, question: Question, place: Place, listing: List) -> Card:
        filters, head = question.filters(self.sight.snapshot), Card()
        tools = _hottest_first(self.sight.shelves, filters)
        if filters.tags:
            wanted = set(map(str.casefold, filters.tags))
            tools = [tool for tool in tools if not wanted.isdisjoint(map(str.casefold, self._tags(tool)))]
        if filters.max_latency_ms is not None or filters.min_success_rate is not None:
            used = self.sight.used
            head = {} if used else {"note": results.UNMEASURED}
            tools = [tool for tool in tools if (use := used.get(tool.address)) is None or _sound(use, filters)]
        return paged("tools", tools, lambda tool: card_of(self.sight, tool), place, listing, head)

    def _tags(self, tool: Tool) -> tuple[str, ...]:
        return (*self.sight.snapshot.servers[tool.server].tags, *tool.tags)


def _page(sight: Sight, search: Search, place: Place, listing: List) -> tuple[Card, tuple[str, ...]]:
    page = results.page(search, place.size, place.start)
    ranking = page.ranking
    head: Card = {"fit": "none" if ranking.weak or not ranking.total else "unsure" if ranking.unsure else "good"}
    told = misfit(search, ranking, tuple(name for hit in page.hits for name in (hit.id, *hit.twins)))
    if told is not None:
        near = [{"server": one.name, "description": one_paragraph(one.description, _DESCRIBED)} for one in told.servers]
        head |= {"verdict": told.verdict, "near_servers": near, "nearest": [shown(name) for name in told.names]}
    elif not ranking.total:
        head |= {"verdict": unmatched(search), "nearest": [shown(name) for name in spelt_alike(search)]}
    if search.unmeasured:
        head["note"] = results.UNMEASURED
    head = {key: value for key, value in head.items() if value}
    where = {"page": place.start // place.size + 1, "page_size": place.size, "total_count": ranking.total}
    longest = {**head, "tools": [], "pagination": where, "left_out": 100, "next": listing.after(place, place.size)}
    left = room(place.max_tokens, text_of(longest), listing.version)

    def card(place: int) -> Card:
        hit = page.hits[place]
        twins = [shown(name) for name in hit.twins[:_ALSO]]
        return {**card_of(sight, search.snapshot.tools[hit.id]), **({"also": twins} if twins else {})}

    cards = fitting(map(card, range(len(page.hits))), left)
    body: Card = {"tools": cards, **head, "pagination": where}
    found = tuple(name for hit in page.hits[: len(cards)] for name in (hit.id, *hit.twins))
    return continued(body, place, listing, len(cards), len(page.hits), page.more(len(cards)) and bool(cards)), found


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


def _sound(use: Statistics, filters: Filters) -> bool:
    quick = filters.max_latency_ms is None or use.p50_ms <= filters.max_latency_ms
    return quick and (filters.min_success_rate is None or use.success_rate >= filters.min_success_rate)
