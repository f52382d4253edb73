"""How it is told that nothing here does what is asked: a verdict, where the nearest are, and how
far it can be trusted.

One place for agents and people. The nearest tools are shown after it all the same: the verdict is a
guess.
"""

from dataclasses import dataclass

from portico.catalog.snapshot import ServerEntry
from portico.catalog.visible_text import quote_text, sanitize_text
from portico.meta_tools.search_request import PreparedSearch
from portico.rendering.lines import format_count
from portico.rendering.prose import collapse_whitespace
from portico.search import Ranking

MAX_UNLIKELY = 3
"""Tools shown of a search that nothing fits."""
MAX_SERVERS = 3
MAX_NEAREST = 5


@dataclass(frozen=True)
class NoMatch:
    """That nothing fits."""

    verdict: str
    servers: tuple[ServerEntry, ...]
    """Where to look: the servers of the nearest tools."""
    similar_names: tuple[str, ...]
    """Tools that are not shown, but spelt like the query."""


def detect_no_match(
    search: PreparedSearch, ranking: Ranking, shown_ids: tuple[str, ...]
) -> NoMatch | None:
    """What to say before the hits of a search that nothing fits; None where something does."""
    if not ranking.is_weak:
        return None
    servers = search.snapshot.servers
    near = tuple(servers[name] for name in ranking.nearest_groups[:MAX_SERVERS] if name in servers)
    # One word may be a name that was spelt wrong; a sentence is like some name only by chance.
    if len(search.request.query.split()) == 1:
        alike = find_similar_names(search)
    else:
        alike = []
    return NoMatch(
        render_verdict(search), near, tuple(name for name in alike if name not in shown_ids)
    )


def render_verdict(search: PreparedSearch) -> str:
    """The sentence that everything else follows."""
    return f"No tool {search.scope_text or 'here'} seems to do {quote_text(search.request.query)}."


def render_unmatched(search: PreparedSearch) -> str:
    """The same for a query that has nothing in common with any tool."""
    return f"No tool {search.scope_text or 'here'} matches {quote_text(search.request.query)}."


def find_similar_names(search: PreparedSearch) -> list[str]:
    """The tools whose names are spelt most like the query."""
    snapshot = search.snapshot
    return [
        name
        for name in snapshot.index.find_nearest_names(search.request.query, MAX_NEAREST)
        if name in snapshot.tools
    ]


def render_tags(entry: ServerEntry) -> str:
    """A server's tags, for the end of its line."""
    if entry.tags:
        return f" (tags: {collapse_whitespace(sanitize_text(', '.join(entry.tags)))})"
    return ""


def render_words_only_note(search: PreparedSearch, *, with_reason: bool = False) -> str:
    """That meaning was not searched, or not of every tool; empty where it was. People also want the
    reason."""
    index = search.snapshot.index
    if index.encoder is None:
        return ""
    if index.encoder.problem:
        if with_reason:
            why = f": {index.encoder.problem}"
        else:
            why = " here"
        return f"Only words were compared, because search by meaning is off{why}."
    waiting = count_unencoded(search)
    if waiting:
        return f"Of {format_count(waiting, 'tool')} only words were compared: not encoded yet."
    return ""


def count_unencoded(search: PreparedSearch) -> int:
    """How many of the tools that are seen have no vector yet."""
    index = search.snapshot.index
    tools = search.snapshot.tools
    return sum(
        address in tools for group in index.list_unencoded_by_group().values() for address in group
    )
