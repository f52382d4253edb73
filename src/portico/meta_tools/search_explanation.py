"""Explanation of a ranking: each hit's signals, and the rank of a tool that was expected. Pure.

Rendered as lines for a model or a person, or as data with stable keys for programs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portico.catalog.tool import quote_text, sanitize_text
from portico.meta_tools.search_request import PreparedSearch
from portico.rendering.one_line_tool import render_addresses
from portico.search import (
    Hit,
    MatchReason,
    MissingAction,
    Placement,
    Ranking,
    SearchFilters,
)


@dataclass(frozen=True)
class ExpectedToolRank:
    """Rank of an expected tool, relative to the page that was shown."""

    address: str
    placement: Placement
    place: int | None
    """Position on the page from 1; None if it is not on it."""
    shares_place_with: str | None
    """The better ranked duplicate under which it is listed."""
    hidden_by: str | None
    """`filter`, `scope`, or None if it is not hidden."""
    last_hit: Hit | None
    """The last hit of the page, whose score it would have to exceed."""
    has_vector: bool
    """Whether it has an embedding to compare."""


def rank_expected_tool(
    search: PreparedSearch, hits: Sequence[Hit], address: str, *, compares_meaning: bool
) -> ExpectedToolRank | None:
    """Return the rank of a tool for a search whose page has these hits; None if it is not indexed.

    `compares_meaning` is whether the search used embeddings.
    """
    placement = search.find_placement(address)
    if placement is None:
        return None
    place = next(
        (place for place, hit in enumerate(hits, 1) if address in (hit.id, *hit.duplicates)), None
    )
    shares_place_with = None
    if place and hits[place - 1].id != address:
        shares_place_with = hits[place - 1].id
    hidden = None
    if placement.is_filtered:
        hidden = "filter" if address in search.snapshot.tools else "scope"
    encoded = placement.hit.similarity is not None or not compares_meaning
    return ExpectedToolRank(
        address, placement, place, shares_place_with, hidden, hits[-1] if hits else None, encoded
    )


# --- as lines


def render_summary(search: PreparedSearch, ranking: Ranking) -> str:
    """Render what holds for all hits: confidence, signals compared, and filters."""
    compared = "words and meaning" if ranking.uses_embeddings else "words only"
    limits = f"; only tools {search.scope_text}" if search.scope_text else ""
    if ranking.missing_action is not None:
        limits = f"{limits}; {render_missing_action(ranking.missing_action)}"
    return (
        f"Confidence {ranking.confidence:.2f} (nothing fits below {ranking.weak_threshold:.2f}); "
        f"compared {compared}{limits}."
    )


def render_missing_action(missing: MissingAction) -> str:
    """Render what a product lacks: `slack has no tool to 'delete'`."""
    verb = "has" if len(missing.groups) == 1 else "have"
    return f"{render_addresses(missing.groups)} {verb} no tool to {quote_text(missing.word)}"


def render_hit_line(place: int, hit: Hit) -> str:
    return f"{place}. {_render_address(hit.id)}: {'; '.join(render_signals(hit))}"


def render_hit_lines(place: int, hit: Hit) -> list[str]:
    score, *rest = render_signals(hit)
    return [f"{place}. {_render_address(hit.id)}: {score}", *(f"   {line}" for line in rest)]


def render_signals(hit: Hit) -> Iterator[str]:
    """Yield each signal of a hit with its reason."""
    by_name = ", because the query is its name" if hit.is_name_match else ""
    yield f"score {hit.score:.3f}{by_name}"
    words = ", ".join(map(_render_reason, hit.reasons))
    yield f"words {hit.lexical_score:.2f} of a perfect match" + (f": {words}" if words else "")
    if hit.similarity is None:
        yield "meaning not compared"
    else:
        yield f"meaning {hit.similarity:.3f} (cosine)"
    if hit.boost is not None:
        yield f"learnt +{hit.boost.amount:.3f}: {', '.join(hit.boost.reasons)}"
    if hit.duplicates:
        yield f"also: {render_addresses(hit.duplicates)}"


def render_rank_lines(search: PreparedSearch, rank: ExpectedToolRank) -> list[str]:
    """Render where a tool ranked and why, in a few lines."""
    return [
        f"{_render_address(rank.address)}: {_render_rank(rank)}",
        *(f"   {line}" for line in _explain_rank(search, rank)),
    ]


def _render_rank(expected: ExpectedToolRank) -> str:
    placement = expected.placement
    if not placement.rank:
        return "matches neither by words nor by meaning"
    rank = f"{placement.rank:,} of {placement.total:,}"
    if expected.hidden_by:
        reason = {"filter": "hidden by the filters", "scope": "outside the profile"}
        return f"{reason[expected.hidden_by]}; it would stand at {rank} without it"
    if expected.shares_place_with:
        other = _render_address(expected.shares_place_with)
        return f"on the page, sharing place {expected.place} with {other}, which says the same"
    if expected.place:
        return f"on the page, at place {expected.place}"
    return f"stands at {rank}, after the page's end"


def _explain_rank(search: PreparedSearch, rank: ExpectedToolRank) -> Iterator[str]:
    hit = rank.placement.hit
    yield from render_signals(hit)
    if hit.missing_words:
        yield f"it lacks: {', '.join(map(sanitize_text, hit.missing_words))}"
    if not rank.has_vector:
        yield "it has no vector yet: only its words were compared"
    if rank.last_hit is not None and rank.place is None:
        last = rank.last_hit
        dense = "" if last.similarity is None else f", meaning {last.similarity:.3f}"
        yield (
            f"the page's last, {_render_address(last.id)}: score {last.score:.3f}, "
            f"words {last.lexical_score:.2f}{dense}"
        )


def _render_reason(reason: MatchReason) -> str:
    related = ""
    if reason.correction:
        related = f"taken for {sanitize_text(reason.correction)}; "
    if reason.is_synonym:
        related += "a related word; "
    return f"{sanitize_text(reason.word)} ({related}{', '.join(reason.fields).replace('_', ' ')})"


def _render_address(address: str) -> str:
    return render_addresses((address,))


# --- as data


def to_hit_data(place: int | None, hit: Hit) -> dict[str, Any]:
    """Return a hit's signals with stable keys."""
    return {
        "place": place,
        "score": round(hit.score, 4),
        "named": hit.is_name_match,
        "words": {
            "share": round(hit.lexical_score, 4),
            "hit": [
                {
                    "word": reason.word,
                    "fields": list(reason.fields),
                    "score": round(reason.score, 4),
                    "related": reason.is_synonym,
                    "taken_for": reason.correction or None,
                }
                for reason in hit.reasons
            ],
            "lacking": list(hit.missing_words),
        },
        "meaning": None if hit.similarity is None else round(hit.similarity, 4),
        "learnt": {
            "amount": round(hit.boost.amount, 4) if hit.boost else 0.0,
            "reasons": list(hit.boost.reasons) if hit.boost else [],
        },
        "twins": list(hit.duplicates),
    }


def to_rank_data(rank: ExpectedToolRank) -> dict[str, Any]:
    """Return a tool's rank with stable keys."""
    return {
        "name": rank.address,
        "rank": rank.placement.rank or None,
        "of": rank.placement.total,
        "place": rank.place,
        "shares_place_with": rank.shares_place_with,
        "hidden_by": rank.hidden_by,
        "encoded": rank.has_vector,
        "why": to_hit_data(rank.place, rank.placement.hit),
        "page_end": None
        if rank.last_hit is None
        else {"name": rank.last_hit.id, **to_hit_data(None, rank.last_hit)},
    }


def to_summary_data(ranking: Ranking) -> Mapping[str, Any]:
    """Return what holds for all hits, with stable keys."""
    return {
        "confidence": round(ranking.confidence, 4),
        "weak_below": ranking.weak_threshold,
        "meaning": ranking.uses_embeddings,
    }


def to_filters_data(filters: SearchFilters) -> dict[str, Any]:
    """Return the filters with stable keys."""
    return {
        "servers": sorted(filters.groups) if filters.groups is not None else None,
        "tags": list(filters.tags),
        "max_latency_ms": filters.max_latency_ms,
        "min_success_rate": filters.min_success_rate,
    }
