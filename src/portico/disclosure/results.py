"""What a search answers, as text. Pure: a search in, a page out that fits its budget and is no dead end.

One entry is always shown, whole, however small the budget.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from portico.catalog.visible import quoted
from portico.disclosure import cursor as cursors
from portico.disclosure import explain, metatools
from portico.disclosure.budget import pack
from portico.disclosure.lines import States, room, server_line, unlisted
from portico.disclosure.misfit import UNLIKELY, misfit, spelt_alike, tagged, unmatched, words_only
from portico.disclosure.question import Search
from portico.disclosure.render import addresses, brief, schema
from portico.search import Hit, Ranking

_CATEGORIES = 40
UNMEASURED = "No calls are known yet, so no tool was left out for its latency or success."


@dataclass(frozen=True)
class Answer:
    """A page of a search."""

    text: str
    shown: tuple[str, ...] = ()
    """The addresses on it, best first."""
    weak: bool = False
    """Nothing fits: these are only the nearest."""


@dataclass(frozen=True)
class Page:
    """The hits of one page, and the ranking they are from."""

    hits: tuple[Hit, ...]
    ranking: Ranking
    offset: int = 0

    def more(self, places: int) -> bool:
        """Whether there are tools after the first so many places of this page."""
        return places < len(self.ranking.hits) or self.ranking.more


def page(search: Search, limit: int, offset: int = 0, *, unlikely: int | None = UNLIKELY) -> Page:
    """The places from `offset`; of a search that nothing fits, at first only `unlikely` ones."""
    ranking = search.ranking(limit, offset)
    few = ranking.weak and not offset
    return Page(ranking.hits[:unlikely] if few else ranking.hits, ranking, offset)


def answer(search: Search, states: States, budget: int, there: Collection[str] = metatools.NAMES) -> Answer:
    """Ranked tools, or what is nearest when none fits. `there` are the meta-tools that the asker has."""
    question, version = search.question, search.version
    # Without limit and detail: who goes on may want more at once, or more of each.
    identity = f"search\0{question.query}\0{search.filters}"
    offset = cursors.decode(question.cursor, identity, version) if question.cursor else 0
    found = page(search, question.limit, offset)
    if not found.hits:
        return Answer("No more matches." if offset else _nothing(search, states, budget, there))
    foot = [*_next(search, found, there), *unlisted(search.snapshot, states)]

    def more(places: int) -> list[str]:
        after = cursors.encode(identity, version, offset + places)
        return [f'More: the same search with cursor="{after}"'] if found.more(places) else []

    above = head(search, found, states, budget // 6, explained=question.detail == "explain")
    packed = pack(_entries(search, found), room(budget, *above, *more(0), *foot))
    places = len(packed.texts)
    shown = tuple(id_ for hit in found.hits[:places] for id_ in (hit.id, *hit.twins))
    return Answer("\n".join([*above, *packed.texts, *more(places), *foot]), shown, found.ranking.weak)


def _entries(search: Search, found: Page) -> Iterator[str]:
    if search.question.detail == "explain":
        yield from (explain.hit_line(place, hit) for place, hit in enumerate(found.hits, found.offset + 1))
    else:
        show = brief if search.question.detail == "brief" else schema
        yield from (show(search.snapshot.tools[hit.id], hit.twins) for hit in found.hits)


def head(search: Search, found: Page, states: States, for_servers: int, *, explained: bool) -> list[str]:
    """What comes before the tools of a page: what they are, or that nothing fits and where to look instead."""
    query, where, ranking = quoted(search.question.query), search.where, found.ranking
    told = misfit(search, ranking, tuple(id_ for hit in found.hits for id_ in (hit.id, *hit.twins)))
    why = [explain.summary(search, ranking)] if explained else []
    if told is None:
        kind = "Possible matches (not a sure one)" if ranking.unsure else "Best matches"
        return [f"{kind} for {query}{where and ' '}{where}:", *why]
    if found.offset:
        return [f"More that is unlikely to do {query}:", *why]
    near = pack((server_line(entry, states) + tagged(entry) for entry in told.servers), for_servers).texts
    alike = [f"Names spelt alike: {addresses(told.names)}"] if told.names else []
    return [
        told.verdict,
        *([f"Nearest server{'s' if len(near) > 1 else ''}:", *near] if near else []),
        *alike,
        *why,
        "Unlikely, but the nearest tools:",
    ]


def _next(search: Search, found: Page, there: Collection[str]) -> list[str]:
    """How to go on from a page with tools."""
    call = ["call_tool(name, arguments)"] if metatools.CALL in there else []
    read = ["describe_tools(names)"] if metatools.DESCRIBE in there and search.question.detail != "schema" else []
    steps = ", or ".join([*call, *(f"{step} first" if call else step for step in read)])
    foot = [UNMEASURED] if search.unmeasured else []
    if not found.ranking.weak:
        return [*([f"Next: {steps}."] if steps else []), *foot]
    ways = ["search without the filters"] if search.where else ["try other words for the same thing"]
    if metatools.BROWSE in there:
        server, kind = next(iter(found.ranking.near), ""), search.snapshot.category(found.hits[0].id)
        near = [f'(server="{server}")' if server else "", f'(category="{kind}")' if kind else ""]
        ways += [f"browse_tools{' or '.join(filter(None, near))}"] if any(near) else []
    only = words_only(search)
    return [f"Next: {', or '.join(ways)}, or go on without a tool.", *([only] if only else []), *foot]


def _nothing(search: Search, states: States, budget: int, there: Collection[str]) -> str:
    server = next(iter(search.filters.groups or ()), None)
    if not search.where:
        step = "Try other words for the same thing"
    else:
        step = "Search all servers" if search.where == f"on {server}" else "Search without the filters"
    kinds = list[str]()
    if metatools.BROWSE in there:
        step += f', or browse_tools(server="{server}")' if server else ", or browse_tools() to see every server"
        if not search.filters.groups and (known := search.snapshot.categories):
            kinds = [f"Categories, for browse_tools(category=…): {', '.join(known[:_CATEGORIES])}."]
    only = words_only(search)
    foot = [f"{step}.", *kinds, *([only] if only else []), *unlisted(search.snapshot, states)]
    head = [unmatched(search)]
    if near := spelt_alike(search):
        head.append("Nearest names:")
        head += pack((brief(search.snapshot.tools[name]) for name in near), room(budget, *head, *foot)).texts
    return "\n".join([*head, *foot])
