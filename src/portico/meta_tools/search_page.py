"""Search results as text: a page within its budget that always names a next step. Pure.

One entry is always shown whole, however small the budget. Where nothing fits, the page says so
first; the nearest tools are still shown, because that verdict is an estimate.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import quote_text, sanitize_text
from portico.meta_tools import search_explanation, tool_definitions
from portico.meta_tools.search_request import PreparedSearch
from portico.rendering import cursor as cursors
from portico.rendering.one_line_tool import render_addresses, render_brief
from portico.rendering.prose import collapse_whitespace
from portico.rendering.server_lines import (
    ServerStates,
    mark_unusable,
    render_server_line,
    render_unlisted_servers,
)
from portico.rendering.token_budget import (
    compute_remaining_tokens,
    count_tokens,
    format_count,
    pack,
)
from portico.rendering.tool import render_schema
from portico.search import Hit, Ranking

_MAX_CATEGORIES = 40
_BROWSE_ALL = ", or browse_tools() to see every server"
UNMEASURED_NOTE = "Tools that were never called have no latency or success rate: left out."
MAX_UNLIKELY = 3
"""Tools shown for a search that nothing fits."""
MAX_TYPED = 3
"""Tools shown with their parameters where those are asked for; the others are one line each."""
_TYPED_SCORE_SHARE = 0.9
"""Share of the first hit's score from which the next ones are shown with their parameters."""
_MAX_TYPED_TOKENS = 300
"""Tokens above which only the first hit is shown with its parameters."""
_LOWER_SENTENCE_TOKENS = 12
"""Tokens of the description of a hit after the first `MAX_TYPED`."""
MAX_SERVERS = 3
MAX_NEAREST = 5


@dataclass(frozen=True)
class NoMatch:
    """The verdict that nothing fits, with hints."""

    verdict: str
    servers: tuple[ServerEntry, ...]
    """The servers of the nearest tools."""
    similar_names: tuple[str, ...]
    """Tools not on the page whose names are spelt like the query."""


def detect_no_match(
    search: PreparedSearch, ranking: Ranking, shown_ids: tuple[str, ...]
) -> NoMatch | None:
    """Return what to show before the hits of a weak search; None if something fits."""
    if not ranking.is_weak:
        return None
    servers = search.snapshot.servers
    near = tuple(servers[name] for name in ranking.nearest_groups[:MAX_SERVERS] if name in servers)
    # A single word may be a misspelt name; a sentence resembles a name only by chance.
    similar: list[str] = []
    if len(search.request.query.split()) == 1:
        similar = [name for name in find_similar_names(search) if name not in shown_ids]
    query = quote_text(search.request.query)
    verdict = f"No tool {search.scope_text or 'here'} seems to do {query}."
    if ranking.missing_action is not None:
        verdict = f"{verdict} {search_explanation.render_missing_action(ranking.missing_action)}."
    return NoMatch(verdict, near, tuple(similar))


def render_unmatched(search: PreparedSearch) -> str:
    """Render the verdict for a query that has nothing in common with any tool."""
    return f"No tool {search.scope_text or 'here'} matches {quote_text(search.request.query)}."


def find_similar_names(search: PreparedSearch) -> list[str]:
    """Return the tools whose names are spelt most like the query."""
    return search.snapshot.index.find_nearest_names(
        search.request.query, MAX_NEAREST, search.visible
    )


def render_tags(entry: ServerEntry) -> str:
    """Render a server's tags, for the end of its line."""
    if entry.tags:
        return f" (tags: {collapse_whitespace(sanitize_text(', '.join(entry.tags)))})"
    return ""


def render_words_only_note(search: PreparedSearch, *, with_reason: bool = False) -> str:
    """Render that embeddings were not compared, or not for every tool; empty if they were.

    `with_reason` adds why, for people.
    """
    index = search.snapshot.index
    if index.encoder is None:
        return ""
    if index.encoder.problem:
        reason = f": {index.encoder.problem}" if with_reason else " here"
        return f"Only words were compared, because search by meaning is off{reason}."
    if unencoded := count_unencoded(search):
        return f"Of {format_count(unencoded, 'tool')} only words were compared: not encoded yet."
    return ""


def count_unencoded(search: PreparedSearch) -> int:
    """Return the number of visible tools that have no embedding yet."""
    index = search.snapshot.index
    tools = search.snapshot.tools
    return sum(
        address in tools for group in index.list_unencoded_by_group().values() for address in group
    )


@dataclass(frozen=True)
class RenderedSearchPage:
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
    unlisted: Sequence[str] | None = None,
) -> RenderedSearchPage:
    """Render ranked tools, or the nearest if none fits.

    `meta_tools` are those of the caller, `unlisted` the servers to name as not searched (default:
    all that were never listed).
    """
    if unlisted is None:
        unlisted = search.snapshot.unlisted_servers
    request = search.request
    version = search.version
    # Without limit and detail, which may change from page to page.
    listing = f"search\0{request.query}\0{search.filters}"
    offset = cursors.decode(request.cursor, listing, version) if request.cursor else 0
    page = rank_page(search, request.limit, offset)
    if not page.hits and offset:
        return RenderedSearchPage("No more matches.")
    if not page.hits:
        return RenderedSearchPage(
            _render_nothing_found(search, states, budget, meta_tools, unlisted)
        )
    typed = _render_typed(search, page)
    foot = [
        *_render_next_steps(search, page, typed, meta_tools),
        *render_unlisted_servers(unlisted, states),
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
        _render_entries(search, page, typed, states),
        compute_remaining_tokens(budget, *above, *render_more(0), *foot),
    )
    places = len(packed.texts)
    shown = tuple(id_ for hit in page.hits[:places] for id_ in (hit.id, *hit.duplicates))
    return RenderedSearchPage(
        "\n".join([*above, *packed.texts, *render_more(places), *foot]),
        shown,
        page.ranking.is_weak,
    )


def _render_entries(
    search: PreparedSearch, page: SearchPage, typed: Mapping[str, str], states: ServerStates
) -> Iterator[str]:
    if search.request.detail == "explain":
        yield from (
            search_explanation.render_hit_line(place, hit)
            for place, hit in enumerate(page.hits, page.offset + 1)
        )
        return
    for place, hit in enumerate(page.hits, page.offset):
        tool = search.snapshot.tools[hit.id]
        if hit.id in typed:
            text = typed[hit.id]
        elif place < MAX_TYPED:
            text = render_brief(tool, hit.duplicates)
        else:
            text = render_brief(tool, hit.duplicates, _LOWER_SENTENCE_TOKENS)
        yield search.add_figures(mark_unusable(text, tool, states), hit.id)


def _render_typed(search: PreparedSearch, page: SearchPage) -> dict[str, str]:
    """Render the parameters of the first hits that are about equally good, if they were asked for.

    One that follows a worse one, is much longer than most, or is unlikely to fit is left out.
    """
    typed: dict[str, str] = {}
    if search.request.detail != "schema" or page.offset or page.ranking.is_weak:
        return typed
    for hit in page.hits[:MAX_TYPED]:
        if hit.score < page.hits[0].score * _TYPED_SCORE_SHARE:
            break
        text = render_schema(search.snapshot.tools[hit.id], hit.duplicates)
        if not typed or count_tokens(text) <= _MAX_TYPED_TOKENS:
            typed[hit.id] = text
    return typed


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
    explanation: list[str] = []
    if with_explanation:
        explanation.append(search_explanation.render_summary(search, ranking))
    if no_match is None:
        kind = "Possible matches (not a sure one)" if ranking.is_unsure else "Best matches"
        return [f"{kind} for {query}{filters and ' '}{filters}:", *explanation]
    if page.offset:
        return [f"More that is unlikely to do {query}:", *explanation]
    nearest = pack(
        (render_server_line(entry, states) + render_tags(entry) for entry in no_match.servers),
        server_budget,
    ).texts
    lines = [no_match.verdict]
    if nearest:
        lines += [f"Nearest server{'s' if len(nearest) > 1 else ''}:", *nearest]
    if no_match.similar_names:
        lines.append(f"Names spelt alike: {render_addresses(no_match.similar_names)}")
    return [*lines, *explanation, "Unlikely, but the nearest tools:"]


def _render_next_steps(
    search: PreparedSearch,
    page: SearchPage,
    typed: Mapping[str, str],
    meta_tools: Collection[str],
) -> list[str]:
    """Render how to continue from a page with tools."""
    foot = [UNMEASURED_NOTE] if search.filters.has_usage_limits else []
    foot += _render_used_servers(search, page)
    if not page.ranking.is_weak:
        steps: list[str] = []
        if tool_definitions.CALL_TOOL in meta_tools:
            steps.append("call_tool(name, arguments)")
        elif tool_definitions.CALL_TOOL_READ in meta_tools:
            steps.append("call_tool_read, _write or _destructive(name, arguments)")
        if tool_definitions.DESCRIBE_TOOLS in meta_tools and len(typed) < len(page.hits):
            when = " of others" if typed else " first"
            steps.append(f"describe_tools(names){when if steps else ''}")
        return [f"Next: {', or '.join(steps)}.", *foot] if steps else foot
    alternatives = ["try other words for the same thing"]
    if search.scope_text:
        alternatives = ["search without the filters"]
    if tool_definitions.BROWSE_TOOLS in meta_tools:
        server = next(iter(page.ranking.nearest_groups), "")
        category = search.snapshot.get_category(page.hits[0].id)
        scopes = {"server": server, "category": category}
        near = [f'({name}="{value}")' for name, value in scopes.items() if value]
        if near:
            alternatives.append(f"browse_tools{' or '.join(near)}")
    lines = [f"Next: {', or '.join(alternatives)}, or go on without a tool."]
    if words_only := render_words_only_note(search):
        lines.append(words_only)
    return [*lines, *foot]


def _render_used_servers(search: PreparedSearch, page: SearchPage) -> list[str]:
    """Render whether the first hit's server was preferred, if others are on the page too."""
    shown = [id_ for hit in page.hits for id_ in (hit.id, *hit.duplicates)]
    first, *others = dict.fromkeys(search.snapshot.tools[id_].server for id_ in shown)
    if first in search.used_servers and others:
        return [f"Preferred, as used before: {first}."]
    return []


def _render_nothing_found(
    search: PreparedSearch,
    states: ServerStates,
    budget: int,
    meta_tools: Collection[str],
    unlisted: Sequence[str],
) -> str:
    server = next(iter(search.filters.groups or ()), None)
    if not search.scope_text:
        step = "Try other words for the same thing"
    elif search.scope_text == f"on {server}":
        step = "Search all servers"
    else:
        step = "Search without the filters"
    foot: list[str] = []
    if tool_definitions.BROWSE_TOOLS in meta_tools:
        step += f', or browse_tools(server="{server}")' if server else _BROWSE_ALL
        if not search.filters.groups and (known := search.snapshot.categories):
            kinds = ", ".join(known[:_MAX_CATEGORIES])
            foot.append(f"Categories, for browse_tools(category=…): {kinds}.")
    if words_only := render_words_only_note(search):
        foot.append(words_only)
    if search.filters.has_usage_limits:
        foot.append(UNMEASURED_NOTE)
    foot = [f"{step}.", *foot, *render_unlisted_servers(unlisted, states)]
    head = [render_unmatched(search)]
    if similar_names := find_similar_names(search):
        head.append("Nearest names:")
        head += pack(
            (render_brief(search.snapshot.tools[name]) for name in similar_names),
            compute_remaining_tokens(budget, *head, *foot),
        ).texts
    return "\n".join([*head, *foot])
