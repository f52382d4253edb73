"""What a search answers, as text. Pure: a search in, a page out that fits its budget and is no dead
end.

One entry is always shown, whole, however small the budget.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from portico.catalog.visible_text import quote_text
from portico.meta_tools import search_explanation, tool_definitions
from portico.meta_tools.no_match import (
    MAX_UNLIKELY,
    detect_no_match,
    find_similar_names,
    render_tags,
    render_unmatched,
    render_words_only_note,
)
from portico.meta_tools.search_request import PreparedSearch
from portico.rendering import cursor as cursors
from portico.rendering.budget import pack
from portico.rendering.lines import (
    ServerStates,
    compute_remaining_tokens,
    render_server_line,
    render_unlisted_servers,
)
from portico.rendering.tool import render_addresses, render_brief, render_schema
from portico.search import Hit, Ranking

_MAX_CATEGORIES = 40
UNMEASURED_NOTE = "No calls are known yet, so no tool was left out for its latency or success."


@dataclass(frozen=True)
class RenderedSearchPage:
    """A page of a search."""

    text: str
    addresses: tuple[str, ...] = ()
    """The addresses on it, best first."""
    weak: bool = False
    """Nothing fits: these are only the nearest."""


@dataclass(frozen=True)
class SearchPage:
    """The hits of one page, and the ranking they are from."""

    hits: tuple[Hit, ...]
    ranking: Ranking
    offset: int = 0

    def has_more(self, count: int) -> bool:
        """Whether there are tools after the first so many places of this page."""
        return count < len(self.ranking.hits) or self.ranking.has_more


def rank_page(
    search: PreparedSearch, limit: int, offset: int = 0, *, max_unlikely: int | None = MAX_UNLIKELY
) -> SearchPage:
    """The places from `offset`; of a search that nothing fits, at first only `unlikely` ones."""
    ranking = search.rank(limit, offset)
    few = ranking.is_weak and not offset
    return SearchPage(ranking.hits[:max_unlikely] if few else ranking.hits, ranking, offset)


def render_search_page(
    search: PreparedSearch,
    states: ServerStates,
    budget: int,
    meta_tools: Collection[str] = tool_definitions.META_TOOL_NAMES,
) -> RenderedSearchPage:
    """Ranked tools, or what is nearest when none fits. `there` are the meta-tools that the asker
    has."""
    question = search.request
    version = search.version
    # Without limit and detail: who goes on may want more at once, or more of each.
    identity = f"search\0{question.query}\0{search.filters}"
    if question.cursor:
        offset = cursors.decode(question.cursor, identity, version)
    else:
        offset = 0
    found = rank_page(search, question.limit, offset)
    if not found.hits:
        return RenderedSearchPage(
            "No more matches."
            if offset
            else _render_nothing_found(search, states, budget, meta_tools)
        )
    foot = [
        *_render_next_steps(search, found, meta_tools),
        *render_unlisted_servers(search.snapshot, states),
    ]

    def render_more(shown_count: int) -> list[str]:
        after = cursors.encode(identity, version, offset + shown_count)
        if found.has_more(shown_count):
            return [f'More: the same search with cursor="{after}"']
        return []

    above = render_header(
        search, found, states, budget // 6, with_explanation=question.detail == "explain"
    )
    packed = pack(
        _render_entries(search, found),
        compute_remaining_tokens(budget, *above, *render_more(0), *foot),
    )
    places = len(packed.texts)
    shown = tuple(id_ for hit in found.hits[:places] for id_ in (hit.id, *hit.duplicates))
    return RenderedSearchPage(
        "\n".join([*above, *packed.texts, *render_more(places), *foot]),
        shown,
        found.ranking.is_weak,
    )


def _render_entries(search: PreparedSearch, page: SearchPage) -> Iterator[str]:
    if search.request.detail == "explain":
        yield from (
            search_explanation.render_hit_line(place, hit)
            for place, hit in enumerate(page.hits, page.offset + 1)
        )
    else:
        if search.request.detail == "brief":
            show = render_brief
        else:
            show = render_schema
        yield from (show(search.snapshot.tools[hit.id], hit.duplicates) for hit in page.hits)


def render_header(
    search: PreparedSearch,
    page: SearchPage,
    states: ServerStates,
    server_budget: int,
    *,
    with_explanation: bool,
) -> list[str]:
    """What comes before the tools of a page: what they are, or that nothing fits and where to look
    instead."""
    query = quote_text(search.request.query)
    where = search.scope_text
    ranking = page.ranking
    told = detect_no_match(
        search, ranking, tuple(id_ for hit in page.hits for id_ in (hit.id, *hit.duplicates))
    )
    if with_explanation:
        why = [search_explanation.render_summary(search, ranking)]
    else:
        why = []
    if told is None:
        if ranking.is_unsure:
            kind = "Possible matches (not a sure one)"
        else:
            kind = "Best matches"
        return [f"{kind} for {query}{where and ' '}{where}:", *why]
    if page.offset:
        return [f"More that is unlikely to do {query}:", *why]
    near = pack(
        (render_server_line(entry, states) + render_tags(entry) for entry in told.servers),
        server_budget,
    ).texts
    if told.similar_names:
        alike = [f"Names spelt alike: {render_addresses(told.similar_names)}"]
    else:
        alike = []
    return [
        told.verdict,
        *([f"Nearest server{'s' if len(near) > 1 else ''}:", *near] if near else []),
        *alike,
        *why,
        "Unlikely, but the nearest tools:",
    ]


def _render_next_steps(
    search: PreparedSearch, page: SearchPage, meta_tools: Collection[str]
) -> list[str]:
    """How to go on from a page with tools."""
    if tool_definitions.CALL_TOOL in meta_tools:
        call = ["call_tool(name, arguments)"]
    else:
        call = []
    if tool_definitions.DESCRIBE_TOOLS in meta_tools and search.request.detail != "schema":
        read = ["describe_tools(names)"]
    else:
        read = []
    steps = ", or ".join([*call, *(f"{step} first" if call else step for step in read)])
    if search.is_unmeasured:
        foot = [UNMEASURED_NOTE]
    else:
        foot = []
    if not page.ranking.is_weak:
        return [*([f"Next: {steps}."] if steps else []), *foot]
    if search.scope_text:
        ways = ["search without the filters"]
    else:
        ways = ["try other words for the same thing"]
    if tool_definitions.BROWSE_TOOLS in meta_tools:
        server = next(iter(page.ranking.nearest_groups), "")
        kind = search.snapshot.get_category(page.hits[0].id)
        near = [f'(server="{server}")' if server else "", f'(category="{kind}")' if kind else ""]
        ways += [f"browse_tools{' or '.join(filter(None, near))}"] if any(near) else []
    only = render_words_only_note(search)
    return [
        f"Next: {', or '.join(ways)}, or go on without a tool.",
        *([only] if only else []),
        *foot,
    ]


def _render_nothing_found(
    search: PreparedSearch, states: ServerStates, budget: int, meta_tools: Collection[str]
) -> str:
    server = next(iter(search.filters.groups or ()), None)
    if not search.scope_text:
        step = "Try other words for the same thing"
    else:
        if search.scope_text == f"on {server}":
            step = "Search all servers"
        else:
            step = "Search without the filters"
    kinds = list[str]()
    if tool_definitions.BROWSE_TOOLS in meta_tools:
        step += (
            f', or browse_tools(server="{server}")'
            if server
            else ", or browse_tools() to see every server"
        )
        if not search.filters.groups and (known := search.snapshot.categories):
            kinds = [
                f"Categories, for browse_tools(category=…): {', '.join(known[:_MAX_CATEGORIES])}."
            ]
    only = render_words_only_note(search)
    foot = [
        f"{step}.",
        *kinds,
        *([only] if only else []),
        *render_unlisted_servers(search.snapshot, states),
    ]
    head = [render_unmatched(search)]
    if near := find_similar_names(search):
        head.append("Nearest names:")
        head += pack(
            (render_brief(search.snapshot.tools[name]) for name in near),
            compute_remaining_tokens(budget, *head, *foot),
        ).texts
    return "\n".join([*head, *foot])
