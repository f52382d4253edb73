"""The REST application: routes, OpenAPI and error handlers. Imports FastAPI, so only `serve` loads
it."""

import base64
import hashlib
import logging
import re
import time
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico import __version__
from portico.api import responses
from portico.api.administration.client_routes import client_routes
from portico.api.administration.config_routes import config_routes
from portico.api.administration.people_routes import people_routes
from portico.api.administration.rule_routes import rule_routes
from portico.api.approval_routes import approval_routes
from portico.api.call_routes import call_routes
from portico.api.change_routes import change_routes
from portico.api.compression import Compression
from portico.api.daily_routes import daily_routes
from portico.api.event_routes import IS_HEAD_KEY, event_routes
from portico.api.gateway_services import GatewayServices
from portico.api.key_routes import key_routes
from portico.api.params import reject_repeated_params
from portico.api.registry_routes import REGISTRY_PREFIX, registry_routes
from portico.api.responses import (
    HOUR_S,
    MEDIA_TYPE,
    Clock,
    InvalidRequest,
    ProblemDetails,
    RenderedBody,
    ResponseCache,
    make_response,
)
from portico.api.server_routes import restart_routes, server_routes
from portico.api.sign_in_routes import sign_in_routes
from portico.api.tiers import V1
from portico.api.tool_routes import tool_routes
from portico.api.tool_search import ApiToolSearch
from portico.errors import PorticoError
from portico.meta_tools.search_tools import SearchService
from portico.profiles.profile_state import ProfileState
from portico.storage.gateway_store import GatewayStore

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font: 13px ui-monospace, monospace; } h2 { margin-top: 2.5rem; } \
table { border-collapse: collapse; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
@media (prefers-color-scheme: dark) { \
body { background: #16181c; color: #ddd; } a { color: #8ab4f8; } }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def render_docs_page(openapi: Mapping[str, Any]) -> str:
    """Render the page."""
    info = openapi["info"]
    parts: list[str] = []
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            parts += _render_operation(f"{method.upper()} {path}", operation)
    body = "\n".join(parts)
    title = escape(info["title"])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{title} API</title>"
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{title} API {escape(info['version'])}</h1>{_render_paragraphs(info['description'])}"
        '<p>For programs: <a href="/api/openapi.json">openapi.json</a>.</p>'
        f"{body}</body></html>\n"
    )


def _render_operation(title: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(title)}</code></h2><p><b>{escape(operation['summary'])}.</b></p>"
    yield _render_paragraphs(operation.get("description", ""))
    if parameters := operation.get("parameters"):
        rows = "".join(map(_render_parameter, parameters))
        header = "<tr><th>parameter</th><th>type</th><th>default</th><th></th></tr>"
        yield f"<table>{header}{rows}</table>"
    codes = (
        f"<li>{status}: {escape(response['description'])}</li>"
        for status, response in operation["responses"].items()
    )
    yield f"<ul>{''.join(codes)}</ul>"


def _render_parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter["schema"]
    kinds = [variant.get("type", "") for variant in schema.get("anyOf", [schema])]
    default = schema.get("default")
    cells = (
        f"<code>{escape(parameter['name'])}</code>",
        escape(" or ".join(kind for kind in kinds if kind and kind != "null")),
        escape("" if default is None or default == [] else str(default)),
        escape(parameter.get("description", "")),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _render_paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part.strip())


logger = logging.getLogger(__name__)

MAX_QUERY_PARAMS = 200
OPENAPI_PATH = "/api/openapi.json"
_CACHE_ONE_HOUR = f"private, max-age={HOUR_S}"
_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Vary": "Accept-Encoding, Authorization, Cookie, X-Portico-Proof",
}
_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")
_DESCRIPTION = """\
What clients of the gateway see, as JSON: tools in four tiers, each within a token budget, \
search with filters and reasons, servers, calls, use by day, and events as they happen. Seven \
routes change something: they call a tool, approve or deny a call, restart a server, sign in to \
one, make a key, revoke one, and trust what a server says now. Below `/v0.1` is a registry of MCP \
servers, for clients that take servers from one only.

Every answer that can be cached has an `ETag`; send it as `If-None-Match` and an unchanged one is \
a 304. Lists are read by following `next`. Wrong input gets a problem (RFC 9457) with advice. \
Where the gateway has a token or keys, send one as `Authorization: Bearer …`.
"""
_COMMON_RESPONSES: dict[int | str, dict[str, Any]] = {
    401: {"description": "The gateway has a token or keys, and none was sent."},
    403: {
        "description": "The key does not open this; or the request is of a web page that may not"
        " use the gateway (its Origin)."
    },
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
    services: GatewayServices | None = None,
    clock: Clock = time.monotonic,
) -> ASGIApp:
    """Build the API over one profile; the application that mounts it at `/api` authenticates.

    `services` are the parts of the gateway beyond that profile.
    """
    services = services or GatewayServices()
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
            InvalidRequest: responses.handle_portico_error,
            PorticoError: responses.handle_portico_error,
            HTTPException: responses.handle_http_error,
            RequestValidationError: responses.handle_validation_error,
            Exception: responses.handle_unexpected_error,
        },
    )
    for routes in (
        tool_routes(
            profile_state, ApiToolSearch(profile_state, search_service), response_cache, services
        ),
        server_routes(profile_state, store, response_cache),
        restart_routes(profile_state, services),
        call_routes(profile_state, store, services),
        daily_routes(profile_state, store, services),
        event_routes(profile_state, services),
        approval_routes(services),
        key_routes(services),
        change_routes(profile_state, services),
        rule_routes(services),
        config_routes(services),
        client_routes(services),
        people_routes(store),
        sign_in_routes(profile_state, services),
    ):
        api.include_router(
            routes,
            prefix=V1,
            responses=_COMMON_RESPONSES,
            dependencies=[Depends(reject_repeated_params)],
        )
    api.include_router(
        registry_routes(services),
        prefix=REGISTRY_PREFIX,
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

    return SecurityHeaders(Compression(QueryLimit(api)))


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
                is_described = status == "404" and "content" in response
                if not status.startswith("2") and not is_described:
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


class QueryLimit:
    """Refuses queries with more parameters than any route has, before they are looked at: five
    thousand unknown ones take half a second."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; other scopes (the lifespan) pass through."""
        app = self._app
        if scope["type"] == "http" and scope["query_string"].count(b"&") >= MAX_QUERY_PARAMS:
            app = responses.make_problem_response(
                422,
                f"the query has more than {MAX_QUERY_PARAMS} parameters",
                kind="invalid_parameters",
                advice=responses.SEE_DOCS,
            )
        await app(scope, receive, send)


class SecurityHeaders:
    """Adds headers to every response, answers HEAD by GET, and turns exceptions into problems."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; other scopes (the lifespan) pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"
        has_started = False
        has_ended = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started, has_ended
            if message["type"] == "http.response.start":
                has_started = True
                headers = MutableHeaders(raw=message["headers"])
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            elif message["type"] == "http.response.body":
                has_ended = not message.get("more_body", False)
                if is_head:
                    message = {**message, "body": b""}
            await send(message)

        # A copy: the HTTP server must still see that it was a HEAD.
        inner = {**scope, "method": "GET", IS_HEAD_KEY: True} if is_head else scope
        try:
            await self._app(inner, receive, send_with_headers)
        except Exception:
            # Starlette has answered with `handle_unexpected_error` and raises again.
            logger.exception("the API failed on %s", scope["path"])
            if not has_started:
                await responses.make_internal_error_response()(scope, receive, send_with_headers)
            elif not has_ended:
                raise
