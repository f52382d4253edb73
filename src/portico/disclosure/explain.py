"""Why a search ranked as it did: each hit's signals, and where a tool stood that was missed. Pure.

As lines for a model or a person, and as data with stable keys for programs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portico.catalog.visible import shown
from portico.disclosure.question import Search
from portico.disclosure.render import addresses
from portico.search import Filters, Hit, Placement, Ranking, Reason


@dataclass(frozen=True)
class Standing:
    """Where a tool stands that somebody expected, beside the page that was shown."""

    address: str
    placement: Placement
    place: int | None
    """Its place on the page; None where it is not on it."""
    with_: str | None
    """The tool whose place it shares, where it says the same as a better one."""
    hidden_by: str | None
    """`filter` or `scope`."""
    last: Hit | None
    """The last hit of the page, which it would have to beat."""
    encoded: bool
    """Whether its meaning could be compared."""


def standing(search: Search, hits: Sequence[Hit], address: str, *, compared: bool) -> Standing | None:
    """Where a tool stands for a search whose page has these hits; None where nothing is known of it.

    `compared` is whether the search compared meaning at all.
    """
    placement = search.placement(address)
    if placement is None:
        return None
    place = next((place for place, hit in enumerate(hits, 1) if address in (hit.id, *hit.twins)), None)
    with_ = hits[place - 1].id if place and hits[place - 1].id != address else None
    hidden = None
    if placement.filtered:
        hidden = "filter" if address in search.snapshot.tools else "scope"
    encoded = placement.hit.dense is not None or not compared
    return Standing(address, placement, place, with_, hidden, hits[-1] if hits else None, encoded)


# --- as lines


def summary(search: Search, ranking: Ranking) -> str:
    """What holds for all hits: how sure it is, what was compared, and who could be found."""
    compared = "words and meaning" if ranking.dense else "words only"
    limits = f"; only tools {search.where}" if search.where else ""
    return f"Confidence {ranking.best:.2f} (nothing fits below {ranking.cut:.2f}); compared {compared}{limits}."


def hit_line(place: int, hit: Hit) -> str:
    """One hit in one line."""
    return f"{place}. {_address(hit.id)}: {'; '.join(signals(hit))}"


def hit_lines(place: int, hit: Hit) -> list[str]:
    """One hit in a few lines."""
    score, *rest = signals(hit)
    return [f"{place}. {_address(hit.id)}: {score}", *(f"   {line}" for line in rest)]


def signals(hit: Hit) -> Iterator[str]:
    """Each signal of a hit: what it says, and why."""
    yield f"score {hit.score:.3f}" + (", because the query is its name" if hit.named else "")
    words = ", ".join(map(_word, hit.reasons))
    yield f"words {hit.lexical:.2f} of a perfect match" + (f": {words}" if words else "")
    yield "meaning not compared" if hit.dense is None else f"meaning {hit.dense:.3f} (cosine)"
    if hit.lift is not None:
        yield f"learnt +{hit.lift.amount:.3f}: {', '.join(hit.lift.reasons)}"
    if hit.twins:
        yield f"also: {addresses(hit.twins)}"


def standing_lines(search: Search, one: Standing) -> list[str]:
    """Where a tool stood and why, in a few lines."""
    return [f"{_address(one.address)}: {_stands(one)}", *(f"   {line}" for line in _why(search, one))]


def _stands(one: Standing) -> str:
    placement = one.placement
    if not placement.rank:
        return "matches neither by words nor by meaning"
    rank = f"{placement.rank:,} of {placement.of:,}"
    if one.hidden_by:
        would = f"it would stand at {rank} without it"
        return f"hidden by the filters; {would}" if one.hidden_by == "filter" else f"outside the profile; {would}"
    if one.with_:
        return f"on the page, sharing place {one.place} with {_address(one.with_)}, which says the same"
    return f"on the page, at place {one.place}" if one.place else f"stands at {rank}, after the page's end"


def _why(search: Search, one: Standing) -> Iterator[str]:
    hit = one.placement.hit
    yield from signals(hit)
    if hit.lacking:
        yield f"it lacks: {', '.join(map(shown, hit.lacking))}"
    if not one.encoded:
        yield "it has no vector yet: only its words were compared"
    if one.last is not None and one.place is None:
        last, dense = one.last, "" if one.last.dense is None else f", meaning {one.last.dense:.3f}"
        yield f"the page's last, {_address(last.id)}: score {last.score:.3f}, words {last.lexical:.2f}{dense}"


def _word(reason: Reason) -> str:
    related = f"taken for {shown(reason.corrected)}; " if reason.corrected else ""
    related += "a related word; " if reason.kindred else ""
    return f"{shown(reason.word)} ({related}{', '.join(reason.fields).replace('_', ' ')})"


def _address(address: str) -> str:
    return addresses((address,))


# --- as data


def hit_data(place: int | None, hit: Hit) -> dict[str, Any]:
    """A hit's signals with stable keys."""
    return {
        "place": place,
        "score": round(hit.score, 4),
        "named": hit.named,
        "words": {
            "share": round(hit.lexical, 4),
            "hit": [
                {
                    "word": reason.word,
                    "fields": list(reason.fields),
                    "score": round(reason.score, 4),
                    "related": reason.kindred,
                    "taken_for": reason.corrected or None,
                }
                for reason in hit.reasons
            ],
            "lacking": list(hit.lacking),
        },
        "meaning": None if hit.dense is None else round(hit.dense, 4),
        "learnt": {
            "amount": round(hit.lift.amount, 4) if hit.lift else 0.0,
            "reasons": list(hit.lift.reasons) if hit.lift else [],
        },
        "twins": list(hit.twins),
    }


def standing_data(one: Standing) -> dict[str, Any]:
    """A tool's standing with stable keys."""
    return {
        "name": one.address,
        "rank": one.placement.rank or None,
        "of": one.placement.of,
        "place": one.place,
        "shares_place_with": one.with_,
        "hidden_by": one.hidden_by,
        "encoded": one.encoded,
        "why": hit_data(one.place, one.placement.hit),
        "page_end": None if one.last is None else {"name": one.last.id, **hit_data(None, one.last)},
    }


def summary_data(ranking: Ranking) -> Mapping[str, Any]:
    """What holds for all hits, with stable keys."""
    return {"confidence": round(ranking.best, 4), "weak_below": ranking.cut, "meaning": ranking.dense}


def filters_data(filters: Filters) -> dict[str, Any]:
    """Who could be found."""
    return {
        "servers": sorted(filters.groups) if filters.groups is not None else None,
        "tags": list(filters.tags),
        "max_latency_ms": filters.max_latency_ms,
        "min_success_rate": filters.min_success_rate,
    }
