"""A search as somebody puts it of whom nothing is known: what the tests of catalogs and answers ask."""

from collections.abc import Collection

from portico.catalog.snapshot import Snapshot
from portico.disclosure import metatools, results
from portico.disclosure.lines import States
from portico.disclosure.question import PAGE, Question, Search
from portico.search import Ranking


def search(
    snapshot: Snapshot,
    states: States,
    budget: int,
    query: str,
    server: str | None = None,
    limit: int = PAGE,
    detail: str = "brief",
    cursor: str | None = None,
    there: Collection[str] = metatools.NAMES,
) -> str:
    """Ranked tools as somebody is told of whom nothing is known. `there` are the meta-tools that the asker has."""
    question = Question(query, server, limit=limit, detail=detail, cursor=cursor)
    return results.answer(Search(snapshot, question, question.filters(snapshot)), states, budget, there).text


def rank(snapshot: Snapshot, query: str, server: str | None = None, limit: int = PAGE, offset: int = 0) -> Ranking:
    """The addresses that match best among those the snapshot's scope sees."""
    question = Question(query, server)
    return Search(snapshot, question, question.filters(snapshot)).ranking(limit, offset)
