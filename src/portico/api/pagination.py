"""Lists in pages, and objects in parts, within a token budget. Pure."""

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
"""With this budget nothing is left out, whatever its size."""
_MAX_CHARACTERS_PER_TOKEN = 16
"""Upper bound of any text: a longer one is known to be too long without counting."""


@dataclass(frozen=True)
class PageRequest:
    """The requested part of a list."""

    size: int
    page: int = 1
    offset: int | None = None
    """Exact start, instead of that of `page`."""
    max_tokens: int = 4_000

    @property
    def start(self) -> int:
        """Index of the first item."""
        if self.offset is not None:
            return self.offset
        return (self.page - 1) * self.size


@dataclass(frozen=True)
class PagedList:
    """A list that is read page by page: its path, filters and version."""

    path: str
    version: str
    query: Mapping[str, Any]
    """Parameters that are repeated in the next page's URL; None stands for one that was not
    given."""

    def check_version(self, version: str | None) -> None:
        """Raise StaleCursor if the reader began with another version."""
        if version is not None and version != self.version:
            raise StaleCursor(
                "the list has changed since its first page", advice=f"Begin again: GET {self.url}"
            )

    def build_next_url(self, page_request: PageRequest, shown: int) -> str:
        """Return the URL that continues after `shown` items of a page."""
        position = {
            "offset": page_request.start + shown,
            "max_tokens": page_request.max_tokens,
            "version": self.version,
        }
        return self._build_url(position)

    @property
    def url(self) -> str:
        """URL of the first page."""
        return self._build_url({})

    def _build_url(self, more: Mapping[str, Any]) -> str:
        params = {
            key: value
            for key, value in {**self.query, **more}.items()
            if value not in (None, (), "")
        }
        if params:
            return f"{self.path}?{urlencode(params, doseq=True)}"
        return self.path


def render_pagination(page_request: PageRequest, total: int) -> Card:
    """Render the position of a page in its list."""
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
    """Render a page: as many cards as fit the tokens, how many were left out, and the next URL."""
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
    """Add to a body how many items were left out, the next URL and the version."""
    if shown < wanted:
        body["left_out"] = wanted - shown
    if has_more:
        body["next"] = listing.build_next_url(page_request, shown)
    return {**body, "version": listing.version}


def take_fitting_cards(cards: Iterable[Card], tokens: int) -> list[Card]:
    """Take cards in order until the tokens are spent; the first is kept whatever its size."""
    rendered: list[Card] = []

    def render_texts() -> Iterable[str]:
        for card in cards:
            rendered.append(card)
            yield to_json_text(card)

    return rendered[: len(pack(render_texts(), tokens).texts)]


def fit_parts(
    always: Mapping[str, Any], parts: Mapping[str, Any], tokens: int, full_url: str
) -> Card:
    """Return `always` and the parts that fit, in order of need; name the others and their URL."""
    present = {key: value for key, value in parts.items() if value not in ("", None, [], {})}
    if tokens >= UNLIMITED_TOKENS:
        return {**always, **present}
    costs = {key: _count_part_tokens(key, value, tokens) for key, value in present.items()}
    left = compute_remaining_tokens(tokens, to_json_text(always))
    if sum(costs.values()) <= left:
        return {**always, **present}
    included, left_out = _split_by_cost(
        costs, left - count_tokens(to_json_text({"left_out": list(present), "whole": full_url}))
    )
    return {
        **always,
        **{key: present[key] for key in included},
        "left_out": left_out,
        "whole": full_url,
    }


def _split_by_cost(costs: Mapping[str, int], left: int) -> tuple[Sequence[str], list[str]]:
    included: list[str] = []
    for key, cost in costs.items():
        if cost <= left:
            included.append(key)
            left -= cost
    return included, [key for key in costs if key not in included]


def _count_part_tokens(key: str, value: Any, tokens: int) -> int:
    text = to_json_text({key: value})
    if len(text) <= tokens * _MAX_CHARACTERS_PER_TOKEN:
        return count_tokens(text)
    return tokens


def to_json_text(value: Any) -> str:
    """Return a value as its JSON text, to be counted."""
    return json_codec.dumps(value).decode()


def quote_path_segment(text: str) -> str:
    """Quote a name as one segment of a path."""
    return quote(text, safe="")
