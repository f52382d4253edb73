"""The REST application: routes, OpenAPI and error handlers. Imports FastAPI, so only `serve` loads
it."""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from portico import __version__
from portico.api import problems
from portico.api.docs import CONTENT_SECURITY_POLICY, render_docs_page
from portico.api.params import reject_repeated_params
from portico.api.problems import MEDIA_TYPE, InvalidRequest, ProblemDetails
from portico.api.response_cache import HOUR_S, Clock, RenderedBody, ResponseCache, make_response
from portico.api.restart_routes import restart_routes
from portico.api.security_headers import SecurityHeaders
from portico.api.server_routes import server_routes
from portico.api.tiers import V1
from portico.api.tool_routes import tool_routes
from portico.api.tool_search import ApiToolSearch
from portico.errors import PorticoError
from portico.meta_tools.search_tools import SearchService
from portico.observability.audit import AuditLog
from portico.profiles.profile_state import ProfileState
from portico.storage.gateway_store import GatewayStore
from portico.upstream.lifecycle.supervisor import Upstream

OPENAPI_PATH = "/api/openapi.json"
_CACHE_ONE_HOUR = f"private, max-age={HOUR_S}"
_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")
_DESCRIPTION = """\
What the gateway's front door shows, as JSON: tools in four tiers, each within a token budget, \
search with filters,
servers, calls and figures. No tool is called here; tools are called over MCP, at `/mcp`. \
One route does something: it
starts a server anew.

Every answer that can be kept has an `ETag`; send it as `If-None-Match` and an unchanged one is \
a 304. Lists are read by
following `next`. Wrong input gets a problem (RFC 9457) with advice. Where the gateway has a \
token, send it as
`Authorization: Bearer …`.
"""
_COMMON_RESPONSES: dict[int | str, dict[str, Any]] = {
    401: {"description": "The gateway has a token, and it was not sent."},
    403: {"description": "The request is of a web page that may not use the gateway (its Origin)."},
    421: {"description": "The request is for another host (its Host)."},
    422: {"description": "Parameters that cannot be used."},
    429: {"description": "Too many wrong tokens came from this address."},
    503: {"description": "The record cannot be read now."},
}


def make_api(
    profile_state: ProfileState,
    search_service: SearchService,
    store: GatewayStore,
    *,
    upstreams: Mapping[str, Upstream] | None = None,
    audit: Callable[[], AuditLog | None] = lambda: None,
    clock: Clock = time.monotonic,
) -> ASGIApp:
    """Build the API over one profile; the application that mounts it at `/api` authenticates.

    `upstreams` are the servers that may be restarted; restarts are written to the log that `audit`
    returns.
    """
    response_cache = ResponseCache(clock)
    api = FastAPI(
        title="Portico",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # The gateway traces and measures requests itself.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
        exception_handlers={
            InvalidRequest: problems.handle_invalid_request,
            PorticoError: problems.handle_portico_error,
            HTTPException: problems.handle_http_error,
            RequestValidationError: problems.handle_validation_error,
            Exception: problems.handle_unexpected_error,
        },
    )
    read_only = (
        tool_routes(profile_state, ApiToolSearch(profile_state, search_service), response_cache),
        server_routes(profile_state, store),
    )
    for routes in (*read_only, restart_routes(profile_state, upstreams or {}, audit)):
        api.include_router(
            routes,
            prefix=V1,
            responses=_COMMON_RESPONSES,
            dependencies=[Depends(reject_repeated_params)],
        )
    description = RenderedBody.from_value(_complete_openapi(api.openapi()))
    docs_page = render_docs_page(api.openapi())

    @api.get(OPENAPI_PATH, include_in_schema=False)
    async def get_openapi(request: Request) -> Response:
        return make_response(request, description, _CACHE_ONE_HOUR)

    @api.get("/api/docs", include_in_schema=False)
    async def get_docs() -> Response:
        headers = {
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            "Cache-Control": _CACHE_ONE_HOUR,
        }
        return Response(docs_page, headers=headers, media_type="text/html; charset=utf-8")

    return SecurityHeaders(api)


def _complete_openapi(openapi: dict[str, Any]) -> dict[str, Any]:
    """Add to the OpenAPI what FastAPI cannot know: the problem schema, and 304 responses.

    Descriptions are docstrings: what the source wraps becomes one line for each paragraph.
    """
    problem_content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path in openapi["paths"].values():
        for method, operation in path.items():
            _unwrap_description(operation)
            responses = operation["responses"]
            for status, response in responses.items():
                if not status.startswith("2"):
                    response["content"] = problem_content
            if method == "get":
                responses["304"] = {
                    "description": "The client has the answer already (`If-None-Match`)."
                }
            operation["responses"] = dict(sorted(responses.items()))
    components = openapi["components"]
    for schema in components["schemas"].values():
        _unwrap_description(schema)
    components["schemas"]["Problem"] = ProblemDetails.model_json_schema(
        ref_template="#/components/schemas/{model}"
    )
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    openapi["security"] = [{"token": []}, {}]
    return openapi


def _unwrap_description(described: dict[str, Any]) -> None:
    if "description" in described:
        described["description"] = _LINE_BREAK.sub(" ", described["description"])
