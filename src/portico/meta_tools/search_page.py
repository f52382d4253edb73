"""Search results as text: a page within its budget that always names a next step. Pure.

One entry is always shown whole, however small the budget.
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
    """A rendered page of search results."""

    text: str
    addresses: tuple[str, ...] = ()
    """Addresses on the page, best first."""
    weak: bool = False
    """Whether nothing fits and these are only the nearest."""


@dataclass(frozen=True)
class SearchPage:
    """The hits of one page, and the ranking that they are from."""

    hits: tuple[Hit, ...]
    ranking: Ranking
    offset: int = 0

    def has_more(self, count: int) -> bool:
        """Return whether there are tools after the first `count` places of this page."""
        return count < len(self.ranking.hits) or self.ranking.has_more


def rank_page(
    search: PreparedSearch, limit: int, offset: int = 0, *, max_unlikely: int | None = MAX_UNLIKELY
) -> SearchPage:
    """Return the places from `offset`; a weak search's first page has `max_unlikely` at most."""
    ranking = search.rank(limit, offset)
    is_shortened = ranking.is_weak and not offset
    return SearchPage(
        ranking.hits[:max_unlikely] if is_shortened else ranking.hits, ranking, offset
    )


def render_search_page(
    search: PreparedSearch,
    states: ServerStates,
    budget: int,
    meta_tools: Collection[str] = tool_definitions.META_TOOL_NAMES,
) -> RenderedSearchPage:
    """Render ranked tools, or the nearest if none fits; `meta_tools` are those of the caller."""
    request = search.request
    version = search.version
    # Without limit and detail, which may change from page to page.
    listing = f"search\0{request.query}\0{search.filters}"
    if request.cursor:
        offset = cursors.decode(request.cursor, listing, version)
    else:
        offset = 0
    page = rank_page(search, request.limit, offset)
    if not page.hits and offset:
        return RenderedSearchPage("No more matches.")
    if not page.hits:
        return RenderedSearchPage(_render_nothing_found(search, states, budget, meta_tools))
    foot = [
        *_render_next_steps(search, page, meta_tools),
        *render_unlisted_servers(search.snapshot, states),
    ]

    def render_more(shown_count: int) -> list[str]:
        after = cursors.encode(listing, version, offset + shown_count)
        if page.has_more(shown_count):
            return [f'More: the same search with cursor="{after}"']
        return []

    above = render_header(
        search, page, states, budget // 6, with_explanation=request.detail == "explain"
    )
    packed = pack(
        _render_entries(search, page),
        compute_remaining_tokens(budget, *above, *render_more(0), *foot),
    )
    places = len(packed.texts)
    shown = tuple(id_ for hit in page.hits[:places] for id_ in (hit.id, *hit.duplicates))
    return RenderedSearchPage(
        "\n".join([*above, *packed.texts, *render_more(places), *foot]),
        shown,
        page.ranking.is_weak,
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
    """Render what precedes the tools: what they are, or that nothing fits and where to look."""
    query = quote_text(search.request.query)
    filters = search.scope_text
    ranking = page.ranking
    no_match = detect_no_match(
        search, ranking, tuple(id_ for hit in page.hits for id_ in (hit.id, *hit.duplicates))
    )
    if with_explanation:
        explanation = [search_explanation.render_summary(search, ranking)]
    else:
        explanation = []
    if no_match is None:
        if ranking.is_unsure:
            kind = "Possible matches (not a sure one)"
        else:
            kind = "Best matches"
        return [f"{kind} for {query}{filters and ' '}{filters}:", *explanation]
    if page.offset:
        return [f"More that is unlikely to do {query}:", *explanation]
    nearest = pack(
        (render_server_line(entry, states) + render_tags(entry) for entry in no_match.servers),
        server_budget,
    ).texts
    if no_match.similar_names:
        similar = [f"Names spelt alike: {render_addresses(no_match.similar_names)}"]
    else:
        similar = []
    return [
        no_match.verdict,
        *([f"Nearest server{'s' if len(nearest) > 1 else ''}:", *nearest] if nearest else []),
        *similar,
        *explanation,
        "Unlikely, but the nearest tools:",
    ]


def _render_next_steps(
    search: PreparedSearch, page: SearchPage, meta_tools: Collection[str]
) -> list[str]:
    """Render how to continue from a page with tools."""
    if tool_definitions.CALL_TOOL in meta_tools:
        call = ["call_tool(name, arguments)"]
    else:
        call = []
    if tool_definitions.DESCRIBE_TOOLS in meta_tools and search.request.detail != "schema":
        describe = ["describe_tools(names)"]
    else:
        describe = []
    steps = ", or ".join([*call, *(f"{step} first" if call else step for step in describe)])
    if search.is_unmeasured:
        foot = [UNMEASURED_NOTE]
    else:
        foot = []
    if not page.ranking.is_weak:
        return [*([f"Next: {steps}."] if steps else []), *foot]
    if search.scope_text:
        alternatives = ["search without the filters"]
    else:
        alternatives = ["try other words for the same thing"]
    if tool_definitions.BROWSE_TOOLS in meta_tools:
        server = next(iter(page.ranking.nearest_groups), "")
        kind = search.snapshot.get_category(page.hits[0].id)
        near = [f'(server="{server}")' if server else "", f'(category="{kind}")' if kind else ""]
        alternatives += [f"browse_tools{' or '.join(filter(None, near))}"] if any(near) else []
    words_only = render_words_only_note(search)
    return [
        f"Next: {', or '.join(alternatives)}, or go on without a tool.",
        *([words_only] if words_only else []),
        *foot,
    ]


def _render_nothing_found(
    search: PreparedSearch, states: ServerStates, budget: int, meta_tools: Collection[str]
) -> str:
    server = next(iter(search.filters.groups or ()), None)
    if not search.scope_text:
        step = "Try other words for the same thing"
    elif search.scope_text == f"on {server}":
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
    words_only = render_words_only_note(search)
    foot = [
        f"{step}.",
        *kinds,
        *([words_only] if words_only else []),
        *render_unlisted_servers(search.snapshot, states),
    ]
    head = [render_unmatched(search)]
    if similar_names := find_similar_names(search):
        head.append("Nearest names:")
        head += pack(
            (render_brief(search.snapshot.tools[name]) for name in similar_names),
            compute_remaining_tokens(budget, *head, *foot),
        ).texts
    return "\n".join([*head, *foot])
