"""Query parameters of all routes, with their limits."""

from collections import Counter
from typing import Annotated

from fastapi import Path, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field

from portico.api.pagination import UNLIMITED_TOKENS, PageRequest

MAX_PAGE_SIZE = 100
_MAX_OFFSET = 1_000_000
_MAX_QUERY_CHARS = 4_000
_REPEATABLE_PARAMS = {"tags"}

NameInPath = Annotated[
    str, Path(max_length=1_024, description="By its name; other spellings are understood.")
]


def reject_repeated_params(request: Request) -> None:
    """Raise RequestValidationError for a repeated parameter: one of two values would be ignored."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    repeated = [name for name in counts if counts[name] > 1 and name not in _REPEATABLE_PARAMS]
    if repeated:
        error = {"type": "repeated", "msg": "It is given more than once"}
        raise RequestValidationError([{**error, "loc": ("query", name)} for name in repeated])


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


class PageParams(QueryParams):
    """A page of a list."""

    page: int = Field(
        default=1,
        ge=1,
        le=_MAX_OFFSET,
        description="Counted from 1; a page beyond the end is empty.",
    )
    page_size: int = Field(default=20, ge=1, le=MAX_PAGE_SIZE, description="Items of a page.")
    offset: int | None = Field(
        default=None,
        ge=0,
        le=_MAX_OFFSET,
        description="Begin after so many items instead of at a page, as `next` does.",
    )
    max_tokens: int = Field(
        default=4_000, ge=300, le=20_000, description="Tokens that the answer may have."
    )
    version: str | None = Field(
        default=None,
        max_length=100,
        description="The list's version that the reader began with; another is a 409.",
    )

    @property
    def page_request(self) -> PageRequest:
        """The requested page."""
        return PageRequest(self.page_size, self.page, self.offset, self.max_tokens)


class OffsetParams(QueryParams):
    """An offset into the categories."""

    offset: int = Field(
        default=0, ge=0, le=_MAX_OFFSET, description="Begin after so many, as `next` does."
    )
    version: str | None = Field(default=None, max_length=100, description="As in other lists.")


class ToolFilters(QueryParams):
    """Search query, filters and page."""

    query: str | None = Field(
        default=None,
        max_length=_MAX_QUERY_CHARS,
        description="What is to be done, in words. Without it: all tools, hottest first.",
    )
    server: str | None = Field(
        default=None, max_length=200, description="Only this server's tools."
    )
    category: str | None = Field(
        default=None, max_length=200, description="Only tools of this category."
    )
    tags: list[str] = Field(
        default=[],
        max_length=20,
        description="Only tools of servers that have one of these tags; may be repeated.",
    )
    max_latency_ms: float | None = Field(
        default=None, gt=0, le=1e9, allow_inf_nan=False,
        description="Only tools whose median latency is not above; those never called pass.",
    )  # fmt: skip
    min_success_rate: float | None = Field(
        default=None, ge=0, le=1, allow_inf_nan=False,
        description="Only tools of whose calls this share or more went well; "
        "those never called pass.",
    )  # fmt: skip
    limit: int = Field(default=20, ge=1, le=MAX_PAGE_SIZE, description="Tools of a page.")
    page: int = Field(
        default=1,
        ge=1,
        le=_MAX_OFFSET,
        description="Counted from 1; a page beyond the end is empty.",
    )
    offset: int | None = Field(
        default=None, ge=0, le=_MAX_OFFSET, description="Begin after so many tools, as `next` does."
    )
    max_tokens: int = Field(
        default=4_000, ge=300, le=20_000, description="Tokens that the answer may have."
    )
    version: str | None = Field(default=None, max_length=100, description="As in other lists.")

    @property
    def page_request(self) -> PageRequest:
        """The requested page."""
        return PageRequest(self.limit, self.page, self.offset, self.max_tokens)


class CallFilters(QueryParams):
    """Filters of calls."""

    limit: int = Field(default=50, ge=1, le=500, description="How many.")
    before: int | None = Field(
        default=None, ge=1, le=2**62, description="Only calls before the one with this id."
    )
    server: str | None = Field(
        default=None, max_length=200, description="Only calls of this server's tools."
    )
    tool: str | None = Field(
        default=None, max_length=1_024, description="Only calls of this tool, by its address."
    )
    ok: bool | None = Field(
        default=None, description="Only calls that went well, or only those that did not."
    )


class SessionLimitParams(QueryParams):
    """Number of sessions."""

    limit: int = Field(default=20, ge=1, le=200, description="How many sessions, the latest.")
