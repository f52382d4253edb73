"""As much as fits the tokens: a page of a list, what is cut off beginning the next; or a thing and its parts. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from portico.disclosure.budget import pack
from portico.disclosure.cards import Card
from portico.disclosure.lines import room
from portico.disclosure.tokens import count
from portico.errors import StaleCursor
from portico.upstream import jsontext

T = TypeVar("T")

EVERYTHING = 100_000
"""Asked for so many tokens, nothing is left out, whatever its size."""
_CHARACTERS_A_TOKEN = 16
"""No text has more: what is longer need not be counted to be too long."""


@dataclass(frozen=True)
class Place:
    """Which part of a list is wanted."""

    size: int
    page: int = 1
    offset: int | None = None
    """Begin exactly here, wherever a page would."""
    max_tokens: int = 4_000

    @property
    def start(self) -> int:
        """The first item."""
        return self.offset if self.offset is not None else (self.page - 1) * self.size


@dataclass(frozen=True)
class List:
    """A list that is read page by page: its address, with what it was filtered by, and the version it is of."""

    path: str
    version: str
    query: Mapping[str, Any]
    """Parameters that the next page's address has too; None stands for one that was not given."""

    def check(self, version: str | None) -> None:
        """Raise StaleCursor where the reader began with another version."""
        if version is not None and version != self.version:
            raise StaleCursor("the list has changed since its first page", advice=f"Begin again: GET {self.address}")

    def after(self, place: Place, shown: int) -> str:
        """The address that goes on after so many items of a place."""
        going_on = {"offset": place.start + shown, "max_tokens": place.max_tokens, "version": self.version}
        return self._address(going_on)

    @property
    def address(self) -> str:
        """Where it begins."""
        return self._address({})

    def _address(self, more: Mapping[str, Any]) -> str:
        given = {key: value for key, value in {**self.query, **more}.items() if value not in (None, (), "")}
        return f"{self.path}?{urlencode(given, doseq=True)}" if given else self.path


def pages(place: Place, total: int) -> Card:
    """Where a page is among the others."""
    return {
        "page": place.start // place.size + 1,
        "page_size": place.size,
        "total_count": total,
        "total_pages": -(-total // place.size),
    }


def paged(
    key: str, items: Sequence[T], card: Callable[[T], Card], place: Place, listing: List, head: Mapping[str, Any]
) -> Card:
    """A page of a list: as many cards as fit the tokens, what was left out of the page, and how to go on."""
    wanted = items[place.start : place.start + place.size]
    body: Card = {**head, key: [], "pagination": pages(place, len(items))}
    longest = {**body, "left_out": place.size, "next": listing.after(place, place.size), "version": listing.version}
    body[key] = fitting(map(card, wanted), room(place.max_tokens, text_of(longest)))
    return continued(body, place, listing, len(body[key]), len(wanted), place.start + len(body[key]) < len(items))


def continued(body: Card, place: Place, listing: List, shown: int, wanted: int, more: bool) -> Card:
    """A body with what was left out of its page, and the address that goes on."""
    if shown < wanted:
        body["left_out"] = wanted - shown
    if more:
        body["next"] = listing.after(place, shown)
    return {**body, "version": listing.version}


def fitting(cards: Iterable[Card], tokens: int) -> list[Card]:
    """Cards in their order until the tokens are spent; the first is kept whatever its size."""
    made: list[Card] = []

    def texts() -> Iterable[str]:
        for card in cards:
            made.append(card)
            yield text_of(card)

    return made[: len(pack(texts(), tokens).texts)]


def fitted(always: Mapping[str, Any], parts: Mapping[str, Any], tokens: int, where: str) -> Card:
    """`always`, and the parts in order of need as long as they fit; the others are named, with where they are."""
    there = {key: value for key, value in parts.items() if value not in ("", None, [], {})}
    if tokens >= EVERYTHING:
        return {**always, **there}
    costs = {key: _cost(key, value, tokens) for key, value in there.items()}
    left = room(tokens, text_of(always))
    if sum(costs.values()) <= left:
        return {**always, **there}
    kept, out = _split(costs, left - count(text_of({"left_out": list(there), "whole": where})))
    return {**always, **{key: there[key] for key in kept}, "left_out": out, "whole": where}


def _split(costs: Mapping[str, int], left: int) -> tuple[Sequence[str], list[str]]:
    kept: list[str] = []
    for key, cost in costs.items():
        if cost <= left:
            kept.append(key)
            left -= cost
    return kept, [key for key in costs if key not in kept]


def _cost(key: str, value: Any, tokens: int) -> int:
    text = text_of({key: value})
    return count(text) if len(text) <= tokens * _CHARACTERS_A_TOKEN else tokens


def text_of(value: Any) -> str:
    """A value as it is on the wire, to be counted."""
    return jsontext.dumps(value).decode()


def segment(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")
