"""The application: the routes, their OpenAPI, and what bad input gets. Loads FastAPI, so only `serve` imports it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from portico import __version__
from portico.api import problems
from portico.api.bodies import HOUR, Bodies, Body, Clock, answer
from portico.api.docs import POLICY, page
from portico.api.finding import Finding
from portico.api.house import house_routes
from portico.api.manners import Manners
from portico.api.params import once
from portico.api.problems import MEDIA_TYPE, Problem, Refused
from portico.api.restarting import restart_routes
from portico.api.tiers import V1
from portico.api.tools import tool_routes
from portico.disclosure.searching import Searching
from portico.disclosure.sight import Sight
from portico.errors import PorticoError
from portico.observability.audit import Audit
from portico.storage.record import Record
from portico.upstream.supervisor import Upstream

OPENAPI = "/api/openapi.json"
_KEPT = f"private, max-age={HOUR}"
_ABOUT = """\
What the gateway's front door shows, as JSON: tools in four tiers, each within a token budget, search with filters,
servers, calls and figures. No tool is called here; tools are called over MCP, at `/mcp`. One route does something: it
starts a server anew.

Every answer that can be kept has an `ETag`; send it as `If-None-Match` and an unchanged one is a 304. Lists are read by
following `next`. Wrong input gets a problem (RFC 9457) with advice. Where the gateway has a token, send it as
`Authorization: Bearer …`.
"""
_ALWAYS: dict[int | str, dict[str, Any]] = {
    401: {"description": "The gateway has a token, and it was not sent."},
    403: {"description": "The request is of a web page that may not use the gateway (its Origin)."},
    421: {"description": "The request is for another host (its Host)."},
    422: {"description": "Parameters that cannot be used."},
    429: {"description": "Too many wrong tokens came from this address."},
    503: {"description": "The record cannot be read now."},
}


def make_api(
    sight: Sight,
    searching: Searching,
    record: Record,
    *,
    upstreams: Mapping[str, Upstream] | None = None,
    audit: Callable[[], Audit | None] = lambda: None,
    clock: Clock = time.monotonic,
) -> ASGIApp:
    """The API over what one profile sees. Who may come in is decided by whoever mounts it, at `/api`.

    `upstreams` are the servers that may be started anew, as they are when that is asked for; `audit` is the log that
    it is written to.
    """
    bodies = Bodies(clock)
    api = FastAPI(
        title="Portico",
        version=__version__,
        description=_ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # What is told about requests, and to whom, is the gateway's business alone.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
        exception_handlers={
            Refused: problems.on_refused,
            PorticoError: problems.on_portico_error,
            HTTPException: problems.on_http_error,
            RequestValidationError: problems.on_invalid,
            Exception: problems.on_failed,
        },
    )
    shown = (tool_routes(sight, Finding(sight, searching), bodies), house_routes(sight, record))
    for routes in (*shown, restart_routes(sight, upstreams or {}, audit)):
        api.include_router(routes, prefix=V1, responses=_ALWAYS, dependencies=[Depends(once)])
    description = Body.of(_described(api.openapi()))
    people = page(api.openapi())

    @api.get(OPENAPI, include_in_schema=False)
    async def openapi(request: Request) -> Response:
        return answer(request, description, _KEPT)

    @api.get("/api/docs", include_in_schema=False)
    async def docs() -> Response:
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": _KEPT}
        return Response(people, headers=headers, media_type="text/html; charset=utf-8")

    return Manners(api)


def _described(found: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI with what FastAPI cannot know: that problems are problems, and what a kept copy gets."""
    refused = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path in found["paths"].values():
        for method, operation in path.items():
            responses = operation["responses"]
            for status, response in responses.items():
                if not status.startswith("2"):
                    response["content"] = refused
            if method == "get":
                responses["304"] = {"description": "The client has the answer already (`If-None-Match`)."}
            operation["responses"] = dict(sorted(responses.items()))
    components = found["components"]
    components["schemas"]["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"token": []}, {}]
    return found
