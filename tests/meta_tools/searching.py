"""A search as somebody puts it of whom nothing is known: what the tests of catalogs and answers
ask."""

from collections.abc import Collection

from portico.catalog.snapshot import Snapshot
from portico.meta_tools import search_page, tool_definitions
from portico.meta_tools.search_request import DEFAULT_LIMIT, PreparedSearch, SearchRequest
from portico.rendering.server_lines import ServerStates
from portico.search import Ranking


def search(
    snapshot: Snapshot,
    states: ServerStates,
    budget: int,
    query: str,
    server: str | None = None,
    limit: int = DEFAULT_LIMIT,
    detail: str = "brief",
    cursor: str | None = None,
    there: Collection[str] = tool_definitions.META_TOOL_NAMES,
) -> str:
    """Render ranked tools for a caller without history. `there` are the meta-tools that
    the asker has."""
    question = SearchRequest(query, server, limit=limit, detail=detail, cursor=cursor)
    return search_page.render_search_page(
        PreparedSearch(snapshot, question, question.build_filters(snapshot)), states, budget, there
    ).text


def rank(
    snapshot: Snapshot,
    query: str,
    server: str | None = None,
    limit: int = DEFAULT_LIMIT,
    offset: int = 0,
) -> Ranking:
    """The addresses that match best among those the snapshot's scope sees."""
    question = SearchRequest(query, server)
    return PreparedSearch(snapshot, question, question.build_filters(snapshot)).rank(limit, offset)
