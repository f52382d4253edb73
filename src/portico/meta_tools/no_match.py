"""Response to a search that nothing fits: a verdict, the nearest servers, and its reliability.

Shared by agents and people. The nearest tools are still shown after it, because the verdict is an
estimate.
"""

from dataclasses import dataclass

from portico.catalog.snapshot import ServerEntry
from portico.catalog.visible_text import quote_text, sanitize_text
from portico.meta_tools.search_request import PreparedSearch
from portico.rendering.lines import format_count
from portico.rendering.prose import collapse_whitespace
from portico.search import Ranking

MAX_UNLIKELY = 3
"""Tools shown for a search that nothing fits."""
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
    if len(search.request.query.split()) == 1:
        similar = find_similar_names(search)
    else:
        similar = []
    return NoMatch(
        render_verdict(search), near, tuple(name for name in similar if name not in shown_ids)
    )


def render_verdict(search: PreparedSearch) -> str:
    """Render the verdict for a search with weak hits."""
    return f"No tool {search.scope_text or 'here'} seems to do {quote_text(search.request.query)}."


def render_unmatched(search: PreparedSearch) -> str:
    """Render the verdict for a query that has nothing in common with any tool."""
    return f"No tool {search.scope_text or 'here'} matches {quote_text(search.request.query)}."


def find_similar_names(search: PreparedSearch) -> list[str]:
    """Return the tools whose names are spelt most like the query."""
    snapshot = search.snapshot
    return [
        name
        for name in snapshot.index.find_nearest_names(search.request.query, MAX_NEAREST)
        if name in snapshot.tools
    ]


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
        if with_reason:
            reason = f": {index.encoder.problem}"
        else:
            reason = " here"
        return f"Only words were compared, because search by meaning is off{reason}."
    unencoded = count_unencoded(search)
    if unencoded:
        return f"Of {format_count(unencoded, 'tool')} only words were compared: not encoded yet."
    return ""


def count_unencoded(search: PreparedSearch) -> int:
    """Return the number of visible tools that have no embedding yet."""
    index = search.snapshot.index
    tools = search.snapshot.tools
    return sum(
        address in tools for group in index.list_unencoded_by_group().values() for address in group
    )
