"""As much as fits the tokens: a page of a list, what is cut off beginning the next; or a thing and
its parts. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from portico.errors import StaleCursor
from portico.json_text import json_codec
from portico.profiles.cards import Card
from portico.rendering.budget import pack
from portico.rendering.lines import compute_remaining_tokens
from portico.rendering.token_count import count_tokens

T = TypeVar("T")

UNLIMITED_TOKENS = 100_000
"""Asked for so many tokens, nothing is left out, whatever its size."""
_MAX_CHARACTERS_PER_TOKEN = 16
"""No text has more: what is longer need not be counted to be too long."""


@dataclass(frozen=True)
class PageRequest:
    """Which part of a list is wanted."""

    size: int
    page: int = 1
    offset: int | None = None
    """Begin exactly here, wherever a page would."""
    max_tokens: int = 4_000

    @property
    def start(self) -> int:
        """The first item."""
        if self.offset is not None:
            return self.offset
        return (self.page - 1) * self.size


@dataclass(frozen=True)
class PagedList:
    """A list that is read page by page: its address, with what it was filtered by, and the version
    it is of."""

    path: str
    version: str
    query: Mapping[str, Any]
    """Parameters that the next page's address has too; None stands for one that was not given."""

    def check_version(self, version: str | None) -> None:
        """Raise StaleCursor where the reader began with another version."""
        if version is not None and version != self.version:
            raise StaleCursor(
                "the list has changed since its first page", advice=f"Begin again: GET {self.url}"
            )

    def build_next_url(self, page_request: PageRequest, shown: int) -> str:
        """The address that goes on after so many items of a place."""
        going_on = {
            "offset": page_request.start + shown,
            "max_tokens": page_request.max_tokens,
            "version": self.version,
        }
        return self._build_url(going_on)

    @property
    def url(self) -> str:
        """Where it begins."""
        return self._build_url({})

    def _build_url(self, more: Mapping[str, Any]) -> str:
        given = {
            key: value
            for key, value in {**self.query, **more}.items()
            if value not in (None, (), "")
        }
        if given:
            return f"{self.path}?{urlencode(given, doseq=True)}"
        return self.path


def render_pagination(page_request: PageRequest, total: int) -> Card:
    """Where a page is among the others."""
    return {
        "page": page_request.start // page_request.size + 1,
        "page_size": page_request.size,
        "total_count": total,
        "total_pages": -(-total // page_request.size),
    }


def render_list_page(
    key: str,
    items: Sequence[T],
    render_card: Callable[[T], Card],
    page_request: PageRequest,
    listing: PagedList,
    head: Mapping[str, Any],
) -> Card:
    """A page of a list: as many cards as fit the tokens, what was left out of the page, and how to
    go on."""
    wanted = items[page_request.start : page_request.start + page_request.size]
    body: Card = {**head, key: [], "pagination": render_pagination(page_request, len(items))}
    longest = {
        **body,
        "left_out": page_request.size,
        "next": listing.build_next_url(page_request, page_request.size),
        "version": listing.version,
    }
    body[key] = take_fitting_cards(
        map(render_card, wanted),
        compute_remaining_tokens(page_request.max_tokens, to_json_text(longest)),
    )
    return add_continuation(
        body,
        page_request,
        listing,
        len(body[key]),
        len(wanted),
        page_request.start + len(body[key]) < len(items),
    )


def add_continuation(
    body: Card,
    page_request: PageRequest,
    listing: PagedList,
    shown: int,
    wanted: int,
    has_more: bool,
) -> Card:
    """A body with what was left out of its page, and the address that goes on."""
    if shown < wanted:
        body["left_out"] = wanted - shown
    if has_more:
        body["next"] = listing.build_next_url(page_request, shown)
    return {**body, "version": listing.version}


def take_fitting_cards(cards: Iterable[Card], tokens: int) -> list[Card]:
    """Cards in their order until the tokens are spent; the first is kept whatever its size."""
    made: list[Card] = []

    def render_texts() -> Iterable[str]:
        for card in cards:
            made.append(card)
            yield to_json_text(card)

    return made[: len(pack(render_texts(), tokens).texts)]


def fit_parts(
    always: Mapping[str, Any], parts: Mapping[str, Any], tokens: int, full_url: str
) -> Card:
    """`always`, and the parts in order of need as long as they fit; the others are named, with where they are."""
    there = {key: value for key, value in parts.items() if value not in ("", None, [], {})}
    if tokens >= UNLIMITED_TOKENS:
        return {**always, **there}
    costs = {key: _count_part_tokens(key, value, tokens) for key, value in there.items()}
    left = compute_remaining_tokens(tokens, to_json_text(always))
    if sum(costs.values()) <= left:
        return {**always, **there}
    kept, out = _split_by_cost(
        costs, left - count_tokens(to_json_text({"left_out": list(there), "whole": full_url}))
    )
    return {**always, **{key: there[key] for key in kept}, "left_out": out, "whole": full_url}


def _split_by_cost(costs: Mapping[str, int], left: int) -> tuple[Sequence[str], list[str]]:
    kept: list[str] = []
    for key, cost in costs.items():
        if cost <= left:
            kept.append(key)
            left -= cost
    return kept, [key for key in costs if key not in kept]


def _count_part_tokens(key: str, value: Any, tokens: int) -> int:
    text = to_json_text({key: value})
    if len(text) <= tokens * _MAX_CHARACTERS_PER_TOKEN:
        return count_tokens(text)
    return tokens


def to_json_text(value: Any) -> str:
    """A value as it is on the wire, to be counted."""
    return json_codec.dumps(value).decode()


def quote_path_segment(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")
