"""Query parameters of all routes with their limits, and answers in pages within a token budget."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Path, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field

from portico.errors import StaleCursor
from portico.json_text import json_codec
from portico.profiles.json_objects import JsonObject
from portico.rendering.token_budget import compute_remaining_tokens, count_tokens, pack

T = TypeVar("T")

UNLIMITED_TOKENS = 100_000
"""With this budget nothing is left out, whatever its size."""
_MAX_CHARACTERS_PER_TOKEN = 16
"""Upper bound of any text: a longer one is known to be too long without counting."""
MAX_PAGE_SIZE = 100
_MAX_OFFSET = 1_000_000
_MAX_QUERY_CHARS = 4_000
_REPEATABLE_PARAMS = {"tags"}

NameInPath = Annotated[
    str, Path(max_length=1_024, description="Its name; other spellings are accepted.")
]


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


def render_list_page(
    key: str,
    items: Sequence[T],
    render_card: Callable[[T], JsonObject],
    page_request: PageRequest,
    listing: PagedList,
    head: Mapping[str, Any],
) -> JsonObject:
    """Render a page of a list that is known completely."""
    start = page_request.start
    wanted = items[start : start + page_request.size]
    return render_page(
        key,
        wanted,
        render_card,
        page_request,
        listing,
        head,
        {"total_count": len(items), "total_pages": -(-len(items) // page_request.size)},
        lambda shown: start + shown < len(items),
    )


def render_page(
    key: str,
    items: Sequence[T],
    render_card: Callable[[T], JsonObject],
    page_request: PageRequest,
    listing: PagedList,
    head: Mapping[str, Any],
    totals: Mapping[str, int],
    has_more: Callable[[int], bool],
) -> JsonObject:
    """Render the items of a page: cards that fit the tokens, how many do not, and the next URL.

    `has_more` tells whether the list goes on after so many of them.
    """
    position = {"page": page_request.start // page_request.size + 1, "page_size": page_request.size}
    body: JsonObject = {**head, key: [], "pagination": {**position, **totals}}
    longest = {
        **body,
        "left_out": page_request.size,
        "next": listing.build_next_url(page_request, page_request.size),
        "version": listing.version,
    }
    remaining = compute_remaining_tokens(page_request.max_tokens, to_json_text(longest))
    body[key] = take_fitting_cards(map(render_card, items), remaining)
    shown = len(body[key])
    if shown < len(items):
        body["left_out"] = len(items) - shown
    if has_more(shown):
        body["next"] = listing.build_next_url(page_request, shown)
    return {**body, "version": listing.version}


def take_fitting_cards(cards: Iterable[JsonObject], tokens: int) -> list[JsonObject]:
    """Take cards in order until the tokens are spent; the first is kept whatever its size."""
    rendered: list[JsonObject] = []

    def render_texts() -> Iterable[str]:
        for card in cards:
            rendered.append(card)
            yield to_json_text(card)

    return rendered[: len(pack(render_texts(), tokens).texts)]


def fit_parts(
    always: Mapping[str, Any], parts: Mapping[str, Any], tokens: int, full_url: str
) -> JsonObject:
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


def reject_repeated_params(request: Request) -> None:
    """Raise RequestValidationError for a repeated parameter: one of two values would be ignored."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    repeated = [name for name in counts if counts[name] > 1 and name not in _REPEATABLE_PARAMS]
    if repeated:
        error = {"type": "repeated", "msg": "It is given more than once"}
        raise RequestValidationError([{**error, "loc": ("query", name)} for name in repeated])


def parameter(default: Any, description: str, **limits: Any) -> Any:
    """Return a query parameter with its default, description and limits."""
    return Field(default=default, description=description, **limits)


class QueryParams(BaseModel):
    """Base of query parameters: unknown ones are errors, so that no misspelt filter is ignored."""

    model_config = ConfigDict(extra="forbid")


class NoParams(QueryParams):
    """No parameters."""


class BudgetParams(QueryParams):
    """Token budget of an answer."""

    max_tokens: int = Field(
        default=4_000,
        ge=300,
        le=UNLIMITED_TOKENS,
        description="Tokens that the answer may have. What does not fit is named, "
        f"with where it is; at {UNLIMITED_TOKENS}, nothing is left out.",
    )


_Version = Annotated[
    str | None,
    Field(
        max_length=100,
        description="The list's version that the reader began with; another is a 409.",
    ),
]
_Server = Annotated[str | None, Field(max_length=200, description="Only tools of this server.")]


class OffsetParams(QueryParams):
    """An offset into the categories."""

    offset: int = parameter(0, "Begin after so many, as `next` does.", ge=0, le=_MAX_OFFSET)
    version: _Version = None


class _PositionParams(QueryParams):
    """Where a page begins, and its budget."""

    page: int = parameter(
        1, "Counted from 1; a page beyond the end is empty.", ge=1, le=_MAX_OFFSET
    )
    offset: int | None = parameter(
        None,
        "Begin after so many items instead of at a page, as `next` does.",
        ge=0,
        le=_MAX_OFFSET,
    )
    max_tokens: int = parameter(4_000, "Tokens that the answer may have.", ge=300, le=20_000)
    version: _Version = None


class PageParams(_PositionParams):
    """A page of a list."""

    page_size: int = parameter(20, "Items of a page.", ge=1, le=MAX_PAGE_SIZE)

    @property
    def page_request(self) -> PageRequest:
        """The requested page."""
        return PageRequest(self.page_size, self.page, self.offset, self.max_tokens)


class ToolFilters(_PositionParams):
    """Search query, filters and page."""

    query: str | None = parameter(
        None,
        "What is to be done, in words. Without it: all tools, hottest first.",
        max_length=_MAX_QUERY_CHARS,
    )
    server: _Server = None
    category: str | None = parameter(None, "Only tools of this category.", max_length=200)
    tags: list[str] = parameter(
        [], "Only tools of servers that have one of these tags; may be repeated.", max_length=20
    )
    max_latency_ms: float | None = Field(
        default=None, gt=0, le=1e9, allow_inf_nan=False,
        description="Only tools whose median latency is not above; not those never called.",
    )  # fmt: skip
    min_success_rate: float | None = Field(
        default=None, ge=0, le=1, allow_inf_nan=False,
        description="Only tools with at least this share of successful calls; "
        "not those never called.",
    )  # fmt: skip
    limit: int = parameter(20, "Tools of a page.", ge=1, le=MAX_PAGE_SIZE)
    explain: bool = parameter(False, "Say of each tool why it ranks where it does.")
    expect: str | None = parameter(
        None, "The address of a tool that should be found: where it ranks, and why.",
        max_length=1_024,
    )  # fmt: skip

    @property
    def page_request(self) -> PageRequest:
        """The requested page."""
        return PageRequest(self.limit, self.page, self.offset, self.max_tokens)


class CallFilters(QueryParams):
    """Filters of calls."""

    limit: int = parameter(50, "How many.", ge=1, le=500)
    before: int | None = parameter(None, "Only calls before the one with this id.", ge=1, le=2**62)
    server: _Server = None
    tool: str | None = parameter(None, "Only calls of this tool, by its address.", max_length=1_024)
    ok: bool | None = parameter(None, "Only successful calls, or only failed ones.")
    client: str | None = parameter(None, "Only of this client, by its name.", max_length=200)
    person: str | None = parameter(
        None, "Only on behalf of this person, as `person` has it.", max_length=300
    )
    since: float | None = Field(
        default=None, ge=0, le=4e9, allow_inf_nan=False,
        description="Only calls from this time on, in seconds since 1970.",
    )  # fmt: skip
    until: float | None = Field(
        default=None, ge=0, le=4e9, allow_inf_nan=False,
        description="Only calls before this time.",
    )  # fmt: skip


class LogParams(QueryParams):
    """Where a reader of a log goes on."""

    after: int = parameter(0, "Only lines after this number.", ge=0, le=2**53)


class DaysParams(QueryParams):
    """A number of days."""

    days: int = parameter(30, "How many days, today included.", ge=1, le=366)


class SessionLimitParams(QueryParams):
    """Number of sessions."""

    limit: int = parameter(20, "How many sessions, the latest.", ge=1, le=200)
