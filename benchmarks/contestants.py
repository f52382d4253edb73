"""The searches that are compared, each as one function of a query: Portico's as it ships, and
FastMCP's BM25."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.table import get_installed_version
from benchmarks.tool_sets import ToolSet
from portico.search import Boost, Encoder, Hit, Index, Ranking, SearchDocument, Vector

OURS = "portico"
DEPTH = 50
"""Places of a ranking that are looked at and written down."""
PAGE = 10
"""Places that a caller is shown, and that the clock is for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Describes what a search said."""

    ranked: Sequence[str]
    refused: bool
    """It said that nothing fits."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A search over one catalog."""

    label: str
    search: Callable[[str, int], Answer]
    """A query and how many tools to name."""
    page: int = PAGE
    """How many are asked for while the clock runs."""


def index_of(
    documents: Sequence[SearchDocument], encoder: Encoder | None, vectors: Mapping[str, Vector]
) -> Index:
    """Portico's index of these tools; without an encoder, of their words alone."""
    index = Index.build(documents, encoder=encoder)
    return index.with_vectors(vectors) if encoder is not None else index


def portico(index: Index, lifts: Callable[[str], Mapping[str, Boost]] | None = None) -> Contestant:
    """Portico's search; `lifts` is what use has taught about a query."""

    def search(query: str, limit: int) -> Answer:
        ranking = index.search(query, limit, boosts=lifts(query) if lifts else None)
        return Answer(ranked_ids(ranking)[:limit], ranking.is_weak)

    return Contestant(OURS, search)


def ranked_ids(ranking: Ranking) -> list[str]:
    """The ranking as ids, each once: the first page as it is shown, the twins of its hits, then hit
    by hit the rest.

    Twins have no place on the page, they stand behind a hit that says the same; so none takes a
    place from another hit among the first ten, and right after them come the tools that the page
    mentions without showing.
    """
    shown, rest = ranking.hits[:PAGE], ranking.hits[PAGE:]
    mentioned = (twin for hit in shown for twin in hit.duplicates)
    later = (id_ for hit in rest for id_ in _with_twins(hit))
    return list(dict.fromkeys((*(hit.id for hit in shown), *mentioned, *later)))


def fastmcp_version() -> str:
    """The version of FastMCP; empty where it is not installed."""
    return get_installed_version("fastmcp")


def fastmcp(tools: ToolSet) -> Contestant:
    """FastMCP's BM25 index, filled the way its search transform fills it; it refuses by naming
    nothing."""
    # Private, because FastMCP offers the index only inside a running server; the figures are of the
    # index alone.
    from fastmcp.server.transforms.search.base import (
        _extract_searchable_text as searchable_text,  # pyright: ignore[reportPrivateUsage]
    )
    from fastmcp.server.transforms.search.bm25 import _BM25Index as BM25Index  # pyright: ignore[reportPrivateUsage]
    from fastmcp.tools.base import Tool

    index = BM25Index()
    index.build(
        [
            searchable_text(
                # Not validated: names that are no MCP names are welcome here, thousands of warnings
                # are not.
                Tool.model_construct(
                    name=f"{tool['server']}_{tool['name']}" if tool.get("server") else tool["name"],
                    description=tool.get("description") or "",
                    parameters=tool.get("input_schema") or {},
                )
            )
            for tool in tools.tools
        ]
    )

    def search(query: str, limit: int) -> Answer:
        ranked = [tools.tools[place]["id"] for place in index.query(query, limit)]
        return Answer(ranked, refused=not ranked)

    # It scores and sorts all tools however few are asked for, so one question serves clock and
    # ranking.
    return Contestant(f"fastmcp {fastmcp_version()} BM25", search, page=DEPTH)


def _with_twins(hit: Hit) -> tuple[str, ...]:
    return hit.id, *hit.duplicates
