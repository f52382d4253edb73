"""Responses: cached answers with ETags, and problem details (RFC 9457) with advice."""

import hashlib
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from portico.api.models import optional
from portico.catalog.address import find_nearest_names
from portico.catalog.tool import quote_text, sanitize_text
from portico.errors import (
    AlreadyDecided,
    ApprovalRequired,
    InvalidArguments,
    PermissionDenied,
    PorticoError,
    StaleCursor,
    UnknownName,
)
from portico.json_text import json_codec
from portico.rendering.token_budget import truncate

MEDIA_TYPE = "application/problem+json"
DOCS = "/api/docs"
SEE_DOCS = f"GET {DOCS} lists every route and parameter."
_MAX_PROBLEMS = 8
HOUR_S = 3_600
NO_STORE = "no-store"
REVALIDATE = "private, max-age=0, must-revalidate"
MAX_BODIES = 512
MAX_BYTES = 32 * 2**20
_ETAG_PATTERN = re.compile(r'(?:W/)?("[^"]*")')

Clock = Callable[[], float]


class ProblemDetails(BaseModel):
    """What is wrong, and what to do about it (RFC 9457)."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "type": "about:blank",
                    "title": "Not Found",
                    "status": 404,
                    "detail": "there is no tool 'github.create_isue' here",
                    "kind": "unknown_name",
                    "advice": "Did you mean github.create_issue?",
                    "nearest": ["github.create_issue"],
                }
            ]
        },
    )

    type: str = Field(
        description="Always `about:blank`: the status says what kind of problem it is, `kind` more."
    )
    title: str = Field(description="The status in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What is wrong.")
    kind: str = optional("", "A word for programs, such as `unknown_name`.")
    advice: str = optional("", "What to do about it.")
    nearest: list[str] = optional([], "What may have been meant.")
    problems: list[str] = optional([], "Each parameter that is wrong, and why.")
    approval: str = optional("", "The approval that a call waits for.")
    stderr: list[str] = optional([], "The last lines that a server wrote before it failed.")


class InvalidRequest(Exception):
    """Wraps an error that is the client's fault here, whatever status it has elsewhere."""

    def __init__(self, error: PorticoError, status: int = 422) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = status


def make_problem_response(
    status: int, detail: str, headers: Mapping[str, str] = MappingProxyType({}), **more: Any
) -> Response:
    """Build a response with problem details; `more` are other fields of `ProblemDetails`."""
    problem = ProblemDetails(
        type="about:blank", title=HTTPStatus(status).phrase, status=status, detail=detail, **more
    )
    return Response(
        json_codec.dumps(problem.model_dump(exclude_defaults=True)),
        status,
        {"Cache-Control": "no-store", **headers},
        MEDIA_TYPE,
    )


def make_internal_error_response() -> Response:
    """Build the response to an unexpected error, whose details are only logged."""
    advice = "Request something else; the operator of the gateway can look there."
    return make_problem_response(
        500, "the gateway failed on this; its log says why", kind="internal", advice=advice
    )


async def handle_unexpected_error(_: Request, __: Exception) -> Response:
    """Answer 500."""
    return make_internal_error_response()


async def handle_portico_error(_: Request, error: Exception) -> Response:
    """Answer 422 for unusable parameters or arguments, 403 for what a key does not allow, 404 for
    an unknown name, 409 for a stale cursor or a decided approval, 503 for anything else."""
    status = 503
    if isinstance(error, InvalidRequest):
        status = error.status
        error = error.error
    elif isinstance(error, PermissionDenied):
        status = 403
    elif isinstance(error, InvalidArguments):
        status = 422
    elif isinstance(error, UnknownName):
        status = 404
    elif isinstance(error, StaleCursor | AlreadyDecided):
        status = 409
    assert isinstance(error, PorticoError)
    nearest = error.nearest if isinstance(error, UnknownName) else ()
    return make_problem_response(
        status,
        error.message,
        kind=error.kind,
        advice=_rewrite_advice(error.advice),
        nearest=[sanitize_text(name) for name in nearest],
        approval=error.approval_id if isinstance(error, ApprovalRequired) else "",
    )


def _rewrite_advice(advice: str) -> str:
    """Replace meta-tools in advice by routes."""
    advice = advice.replace("Use search_tools to find one.", "GET /api/v1/tools?query=… finds one.")
    return advice.replace(
        "browse_tools without arguments lists them.",
        "GET /api/v1/servers and tools/categories list them.",
    )


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Answer an unknown route, or one without that method."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        detail = f"there is no {quote_text(request.url.path)} here"
        return make_problem_response(404, detail, kind="unknown_route", advice=SEE_DOCS)
    if error.status_code != 405:
        return make_problem_response(error.status_code, str(error.detail), headers, advice=SEE_DOCS)
    listed = headers.get("Allow", headers.get("allow", "GET"))
    allowed = {name.strip() for name in listed.split(",")}
    reason = "it does something"
    advice = f"Use {', '.join(sorted(allowed))}."
    if "GET" in allowed:
        allowed.add("HEAD")
        reason = "this route only shows"
        advice = "Use GET."
    detail = f"{quote_text(request.method, 20)} is not for this: {reason}"
    headers = {"Allow": ", ".join(sorted(allowed))}
    return make_problem_response(405, detail, headers, kind="method", advice=advice)


async def handle_validation_error(request: Request, error: Exception) -> Response:
    """Answer 422 for parameters that are not as documented."""
    assert isinstance(error, RequestValidationError)
    errors = list(error.errors())
    unknown = [str(item["loc"][-1]) for item in errors if item["type"] == "extra_forbidden"]
    known = _list_query_params(request)
    nearest: list[str] = []
    for name in unknown[:_MAX_PROBLEMS]:
        nearest += find_nearest_names(name, known, 2)
    advice = SEE_DOCS
    if unknown and known:
        advice = f"Parameters here: {', '.join(known)}."
    return make_problem_response(
        422,
        "the request has parameters that cannot be used",
        kind="invalid_parameters",
        advice=advice,
        nearest=[sanitize_text(name) for name in dict.fromkeys(nearest)],
        problems=list(_describe_errors(errors)),
    )


def _describe_errors(errors: Sequence[Any]) -> Iterable[str]:
    for error in errors[:_MAX_PROBLEMS]:
        name = quote_text(str(error["loc"][-1]), 40)[1:-1]
        is_unknown = error["type"] == "extra_forbidden"
        reason = "there is no such parameter" if is_unknown else error["msg"]
        yield truncate(f"{name}: {reason}", 60)
    if len(errors) > _MAX_PROBLEMS:
        yield f"… and {len(errors) - _MAX_PROBLEMS} more"


def _list_query_params(request: Request) -> list[str]:
    """Return the query parameters of the matched route."""
    route = request.scope.get("route")
    names: list[str] = []
    for param in getattr(getattr(route, "dependant", None), "query_params", ()):
        model = param.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names += model.model_fields
    return names


@dataclass(frozen=True, slots=True)
class RenderedBody:
    """An answer as bytes, and its ETag."""

    content: bytes
    etag: str

    @classmethod
    def from_value(cls, value: Any) -> "RenderedBody":
        """Render a value as JSON."""
        content = json_codec.dumps(value)
        return cls(content, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"')


@dataclass(frozen=True, slots=True)
class _CachedBody:
    body: RenderedBody
    expires_at: float


class ResponseCache:
    """Caches answers until they expire; the least recently used are dropped above the limits."""

    def __init__(
        self,
        clock: Clock = time.monotonic,
        max_entries: int = MAX_BODIES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, _CachedBody] = OrderedDict()
        self._bytes = 0
        self.requests: Counter[Hashable] = Counter()
        self.hits: Counter[Hashable] = Counter()

    def get_or_render(
        self, key: tuple[Hashable, ...], ttl_s: float, render: Callable[[], Any]
    ) -> RenderedBody:
        """Return the cached answer of `key`, or render one and cache it for `ttl_s` seconds.

        Requests and hits are counted for the first part of the key.
        """
        now = self._clock()
        cached = self._entries.get(key)
        self.requests[key[0]] += 1
        if cached is not None and now < cached.expires_at:
            self.hits[key[0]] += 1
            self._entries.move_to_end(key)
            return cached.body
        body = RenderedBody.from_value(render())
        self._remove(key)
        self._entries[key] = _CachedBody(body, now + ttl_s)
        self._bytes += len(body.content)
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))
        return body

    def _remove(self, key: Hashable) -> None:
        if (cached := self._entries.pop(key, None)) is not None:
            self._bytes -= len(cached.body.content)

    def __len__(self) -> int:
        return len(self._entries)


def make_response(request: Request, body: RenderedBody, cache_control: str) -> Response:
    """Build the response of a body; 304 without it if the client's ETag matches."""
    headers = {"Cache-Control": cache_control, "ETag": body.etag}
    if has_matching_etag(request.headers.getlist("if-none-match"), body.etag):
        return Response(status_code=304, headers=headers)
    return Response(body.content, headers=headers, media_type="application/json")


def make_uncached_response(answer: BaseModel | Mapping[str, Any]) -> Response:
    """Build a JSON response that must not be cached; fields without a value are left out."""
    if isinstance(answer, BaseModel):
        answer = answer.model_dump(exclude_defaults=True)
    return Response(
        json_codec.dumps(answer), headers={"Cache-Control": NO_STORE}, media_type="application/json"
    )


def has_matching_etag(if_none_match: list[str], etag: str) -> bool:
    """Return whether `If-None-Match` contains this ETag; weak tags match too (RFC 9110 §13.1.2)."""
    listed = ", ".join(if_none_match).strip()
    return listed == "*" or etag in _ETAG_PATTERN.findall(listed)
