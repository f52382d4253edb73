"""How it is told that nothing here does what is asked: a verdict, where the nearest are, and how far it can be trusted.

One place for agents and people. The nearest tools are shown after it all the same: the verdict is a guess.
"""

from dataclasses import dataclass

from portico.catalog.snapshot import ServerEntry
from portico.catalog.visible import quoted, shown
from portico.disclosure.lines import counted
from portico.disclosure.prose import flat
from portico.disclosure.question import Search
from portico.search import Ranking

UNLIKELY = 3
"""Tools shown of a search that nothing fits."""
SERVERS = 3
NEAREST = 5


@dataclass(frozen=True)
class Misfit:
    """That nothing fits."""

    verdict: str
    servers: tuple[ServerEntry, ...]
    """Where to look: the servers of the nearest tools."""
    names: tuple[str, ...]
    """Tools that are not shown, but spelt like the query."""


def misfit(search: Search, ranking: Ranking, shown_ids: tuple[str, ...]) -> Misfit | None:
    """What to say before the hits of a search that nothing fits; None where something does."""
    if not ranking.weak:
        return None
    servers = search.snapshot.servers
    near = tuple(servers[name] for name in ranking.near[:SERVERS] if name in servers)
    # One word may be a name that was spelt wrong; a sentence is like some name only by chance.
    alike = spelt_alike(search) if len(search.question.query.split()) == 1 else []
    return Misfit(verdict(search), near, tuple(name for name in alike if name not in shown_ids))


def verdict(search: Search) -> str:
    """The sentence that everything else follows."""
    return f"No tool {search.where or 'here'} seems to do {quoted(search.question.query)}."


def unmatched(search: Search) -> str:
    """The same for a query that has nothing in common with any tool."""
    return f"No tool {search.where or 'here'} matches {quoted(search.question.query)}."


def spelt_alike(search: Search) -> list[str]:
    """The tools whose names are spelt most like the query."""
    snapshot = search.snapshot
    return [name for name in snapshot.index.nearest_names(search.question.query, NEAREST) if name in snapshot.tools]


def tagged(entry: ServerEntry) -> str:
    """A server's tags, for the end of its line."""
    return f" (tags: {flat(shown(', '.join(entry.tags)))})" if entry.tags else ""


def words_only(search: Search, *, reason: bool = False) -> str:
    """That meaning was not searched, or not of every tool; empty where it was. People also want the reason."""
    index = search.snapshot.index
    if index.encoder is None:
        return ""
    if index.encoder.problem:
        why = f": {index.encoder.problem}" if reason else " here"
        return f"Only words were compared, because search by meaning is off{why}."
    waiting = unencoded(search)
    return f"Of {counted(waiting, 'tool')} only words were compared: not encoded yet." if waiting else ""


def unencoded(search: Search) -> int:
    """How many of the tools that are seen have no vector yet."""
    index, tools = search.snapshot.index, search.snapshot.tools
    return sum(address in tools for group in index.unencoded_groups().values() for address in group)
