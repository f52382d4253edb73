"""Error responses: problem details (RFC 9457) with advice, never a stack trace."""

import logging
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from portico.catalog.address import find_nearest_names
from portico.catalog.visible_text import quote_text, sanitize_text
from portico.errors import PorticoError, StaleCursor, UnknownName
from portico.json_text import json_codec
from portico.rendering.budget import truncate

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
DOCS = "/api/docs"
_SEE_DOCS = f"GET {DOCS} lists every route and parameter."
_MAX_PROBLEMS = 8


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
    kind: str = Field(default="", description="A word for programs, such as `unknown_name`.")
    advice: str = Field(default="", description="What to do about it.")
    nearest: list[str] = Field(default=[], description="What may have been meant.")
    problems: list[str] = Field(default=[], description="Each parameter that is wrong, and why.")
    stderr: list[str] = Field(
        default=[], description="The last lines that a server wrote before it failed."
    )


class InvalidRequest(Exception):
    """Wraps an error that is the client's fault here, whatever status it has elsewhere."""

    def __init__(self, error: PorticoError) -> None:
        super().__init__(error.message)
        self.error = error


def make_problem_response(
    status: int,
    detail: str,
    *,
    kind: str = "",
    advice: str = "",
    nearest: Sequence[str] = (),
    problems: Sequence[str] = (),
    stderr: Sequence[str] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    """Build a response with problem details; empty fields are left out."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "kind": kind,
        "advice": advice,
        "nearest": [sanitize_text(name) for name in nearest],
        "problems": list(problems),
        "stderr": [sanitize_text(line) for line in stderr],
    }
    filled = {key: value for key, value in body.items() if value not in ("", [])}
    return Response(
        json_codec.dumps(filled),
        status,
        {"Cache-Control": "no-store", **(headers or {})},
        MEDIA_TYPE,
    )


def make_internal_error_response() -> Response:
    """Build the response to an unexpected error, whose details are only logged."""
    advice = "Ask for something else; whoever runs the gateway can look there."
    return make_problem_response(
        500, "the gateway failed on this; its log says why", kind="internal", advice=advice
    )


async def handle_unexpected_error(_: Request, __: Exception) -> Response:
    """Answer 500."""
    return make_internal_error_response()


async def handle_invalid_request(_: Request, error: Exception) -> Response:
    """Answer 422 for parameters that cannot be used."""
    assert isinstance(error, InvalidRequest)
    return make_error_response(error.error, 422)


async def handle_portico_error(_: Request, error: Exception) -> Response:
    """Answer 404 for an unknown name, 409 for a stale cursor, 503 for anything else."""
    assert isinstance(error, PorticoError)
    if isinstance(error, UnknownName):
        status = 404
    elif isinstance(error, StaleCursor):
        status = 409
    else:
        status = 503
    return make_error_response(error, status)


def make_error_response(error: PorticoError, status: int) -> Response:
    """Build the response to a PorticoError."""
    return make_problem_response(
        status,
        error.message,
        kind=error.kind,
        advice=_rewrite_advice(error.advice),
        nearest=error.nearest if isinstance(error, UnknownName) else (),
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
    if error.status_code == 405:
        allowed = {
            name.strip() for name in headers.get("Allow", headers.get("allow", "GET")).split(",")
        }
        if "GET" in allowed:
            allowed.add("HEAD")
            reason = "the API only shows; tools are called over MCP"
            advice = "Use GET."
        else:
            reason = "it does something"
            advice = f"Use {', '.join(sorted(allowed))}."
        headers = {"Allow": ", ".join(sorted(allowed))}
        detail = f"{quote_text(request.method, 20)} is not for this: {reason}"
        return make_problem_response(405, detail, kind="method", advice=advice, headers=headers)
    if error.status_code == 404:
        return make_problem_response(
            404,
            f"there is no {quote_text(request.url.path)} here",
            kind="unknown_route",
            advice=_SEE_DOCS,
        )
    return make_problem_response(
        error.status_code, str(error.detail), advice=_SEE_DOCS, headers=headers
    )


async def handle_validation_error(request: Request, error: Exception) -> Response:
    """Answer 422 for parameters that are not as documented."""
    assert isinstance(error, RequestValidationError)
    errors = list(error.errors())
    unknown = [str(item["loc"][-1]) for item in errors if item["type"] == "extra_forbidden"]
    known = _list_query_params(request)
    nearest: list[str] = []
    for name in unknown[:_MAX_PROBLEMS]:
        nearest += find_nearest_names(name, known, 2)
    advice = _SEE_DOCS
    if unknown and known:
        advice = f"Parameters here: {', '.join(known)}."
    return make_problem_response(
        422,
        "the request has parameters that cannot be used",
        kind="invalid_parameters",
        advice=advice,
        nearest=list(dict.fromkeys(nearest)),
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
