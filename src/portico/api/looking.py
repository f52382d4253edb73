"""A search over REST: the same ranking that agents get, as data, within its tokens."""

from dataclasses import dataclass, replace

from portico.access import Caller
from portico.api.paging import List, Place, continued, fitting
from portico.api.tiers import card_of
from portico.catalog.visible import shown
from portico.disclosure import results
from portico.disclosure.cards import Card
from portico.disclosure.lines import one_paragraph, room
from portico.disclosure.misfit import misfit, spelt_alike, unmatched
from portico.disclosure.question import Question, Search
from portico.disclosure.searching import Searching
from portico.disclosure.sight import Sight
from portico.events import Searched
from portico.upstream import jsontext

CALLER = Caller(name="rest")
_ALSO = 5
_DESCRIBED = 30


@dataclass(frozen=True)
class Looking:
    """Searches on behalf of whoever uses the API."""

    sight: Sight
    searching: Searching

    async def find(self, question: Question, place: Place, listing: List) -> Card:
        """A page of tools, best first; whoever learns from searches hears of it."""
        vector, search = await self.searching.prepared(self.sight.snapshot, question, CALLER)
        if self.sight.insight is not None:
            # The figures that the answer shows, so that no tool passes with one that it should not.
            search = replace(search, facts=self.sight.insight.usage.facts)
        body, found = _page(self.sight, search, place, listing)
        bus = self.searching.bus
        if found and bus is not None and bus.asked_for(Searched):
            bus.publish(Searched(question.query, found, CALLER, vector))
        return body


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
    left = room(place.max_tokens, jsontext.dumps(longest).decode(), listing.version)

    def card(place: int) -> Card:
        hit = page.hits[place]
        twins = [shown(name) for name in hit.twins[:_ALSO]]
        return {**card_of(sight, search.snapshot.tools[hit.id]), **({"also": twins} if twins else {})}

    cards = fitting(map(card, range(len(page.hits))), left)
    body: Card = {"tools": cards, **head, "pagination": where}
    found = tuple(name for hit in page.hits[: len(cards)] for name in (hit.id, *hit.twins))
    return continued(body, place, listing, len(cards), len(page.hits), page.more(len(cards)) and bool(cards)), found
