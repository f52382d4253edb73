"""One request of a client: the object that passes through all middlewares, those that only look
at it, and the form of its result in each era.

A middleware is `(request, call_next) -> awaitable result`. One that has nothing to do after the
handler is a plain function that returns `call_next(request)`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH, METHOD_NOT_FOUND
from mcp_types import methods as spec
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Caller, Principal
from portico.calls.elicitation import MULTI_ROUND_METHODS
from portico.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    ApprovalRequired,
    PorticoError,
    RemoteError,
)
from portico.mcp_sdk_internals import get_connection
from portico.observability.tracing import mark_failed, start_request_span
from portico.profiles.profile_state import ProfileSettings, ProfileState
from portico.profiles.tasks import TASK_METHODS
from portico.server.client_relay import ClientRelay
from portico.server.http.large_values import ensure_encodable
from portico.server.sessions import Session
from portico.upstream.backend import Era, Raw
from portico.upstream.protocol.envelope import SERVER_INFO_KEY

_SESSION_KEY = "portico.session"
LIST_TTL_MS = 60_000
_TTL_BY_METHOD = {
    "server/discover": LIST_TTL_MS,
    "tools/list": LIST_TTL_MS,
    "prompts/list": LIST_TTL_MS,
    "resources/list": LIST_TTL_MS,
    "resources/templates/list": LIST_TTL_MS,
    "resources/read": 0,
}
_MODERN_ONLY_KEYS = ("resultType", "ttlMs", "cacheScope")


@dataclass(slots=True, eq=False)
class Request:
    """One request, built once. Middlewares fill in what they find out."""

    ctx: ServerRequestContext[Any, Any]
    """The SDK's context."""
    method: str
    params: Raw
    era: Era
    session: Session
    caller: Caller
    settings: ProfileSettings
    """Settings of the profile when the request arrived."""
    relay: ClientRelay
    is_multi_round: bool
    """Whether elicitations of servers are answered by further requests."""
    queued_s: float = 0.0
    """Seconds spent in the admission queue; deducted from the timeouts of a call."""


Handler = Callable[[Request], Awaitable[Mapping[str, Any]]]


class Middleware(Protocol):
    """A step that every request passes."""

    def __call__(self, request: Request, call_next: Handler) -> Awaitable[Mapping[str, Any]]: ...


def make_request(
    ctx: ServerRequestContext[Any, Any], profile_state: ProfileState, elicitation_timeout_s: float
) -> Request:
    """Build the request of an SDK context."""
    params = dict(ctx.params or {})
    era: Era = "modern" if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"
    info = ctx.session.client_params
    name = info.client_info.name if info else ""
    if ctx.method == "initialize":
        # The SDK knows the version and the client's name only from the next request on.
        era = "legacy"
        client_info = params.get("clientInfo")
        name = str(client_info.get("name", "")) if isinstance(client_info, dict) else ""
    settings = profile_state.settings
    session = get_session(ctx)
    principal = LOCAL_USER
    if ctx.request is not None:
        principal: Principal = ctx.request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
    if era == "legacy" or ctx.request is None:
        caller = session.caller
        if caller is None or caller.name != name or caller.principal != principal:
            caller = session.caller = Caller(session.id, name, settings.profile, principal)
    else:
        # A modern request over HTTP has no session. Its principal decides whose limits it counts
        # against, and gives access to no stored state.
        caller = Caller("", name, settings.profile, principal)
    relay = ClientRelay(ctx, era, session, profile_state, elicitation_timeout_s)
    is_multi_round = era == "modern" and ctx.method in MULTI_ROUND_METHODS
    return Request(ctx, ctx.method, params, era, session, caller, settings, relay, is_multi_round)


def get_session(ctx: ServerRequestContext[Any, Any]) -> Session:
    """Return the session of a request; a modern request over HTTP gets one of its own."""
    state = get_connection(ctx).state
    if _SESSION_KEY not in state:
        stdio_session = ctx.lifespan_context
        if isinstance(stdio_session, Session) and ctx.request is None:
            state[_SESSION_KEY] = stdio_session
        else:
            state[_SESSION_KEY] = Session()
    return state[_SESSION_KEY]


def compose(middlewares: Sequence[Middleware], handler: Handler) -> Handler:
    """Return `handler` inside the middlewares, the first of them outermost."""
    for middleware in reversed(middlewares):
        handler = partial(middleware, call_next=handler)
    return handler


async def run_in_span(request: Request, call_next: Handler) -> Mapping[str, Any]:
    ctx = request.ctx
    attributes = {
        "mcp.protocol.version": str(ctx.protocol_version),
        "jsonrpc.request.id": str(ctx.request_id)[:100],
        "network.transport": "pipe",
    }
    if ctx.request is not None:
        attributes |= {"network.transport": "tcp", "network.protocol.name": "http"}
    if ctx.request is None or get_connection(ctx).session_id:
        # The gateway's own id: the one that the client sends authenticates its session.
        attributes["mcp.session.id"] = request.session.id
    headers = getattr(ctx.request, "headers", None)
    with start_request_span(request.method, ctx.params, attributes, headers) as span:
        result = await call_next(request)
        if request.method == "tools/call" and result.get("isError"):
            mark_failed(span, "tool_error")
        return result


def validate_request(request: Request, call_next: Handler) -> Awaitable[Mapping[str, Any]]:
    """Repeat the checks that the SDK makes before its own handlers. Raises RemoteError."""
    if request.era == "legacy" and request.ctx.session.client_params is None:
        raise RemoteError(INVALID_REQUEST, "the first request must be initialize")
    if request.method in TASK_METHODS:
        _check_task_header(request)
    if request.method == "tools/call":
        # Without a model: validating large arguments against one costs more than the call.
        if not isinstance(request.params.get("name"), str) or not isinstance(
            request.params.get("arguments", {}), dict | None
        ):
            raise RemoteError(INVALID_PARAMS, "tools/call takes a name and an object of arguments")
    elif request.method in spec.SPEC_CLIENT_METHODS:
        try:
            spec.validate_client_request(
                request.method, request.ctx.protocol_version, request.ctx.params
            )
        except KeyError:
            raise RemoteError(METHOD_NOT_FOUND, "Method not found", request.method) from None
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, problem["loc"]))
            reason = f"{place}: {problem['msg']}" if place else problem["msg"]
            raise RemoteError(
                INVALID_PARAMS, f"Invalid params of {request.method}: {reason}"
            ) from None
    return call_next(request)


def _check_task_header(request: Request) -> None:
    """Check a header that the SDK checks for the methods it knows. Raises RemoteError."""
    http_request = request.ctx.request
    if request.era == "legacy" or http_request is None:
        return
    task_id = request.params.get("taskId")
    if isinstance(task_id, str) and (
        decode_header_value(http_request.headers.get(MCP_NAME_HEADER)) != task_id
    ):
        raise RemoteError(
            HEADER_MISMATCH, "the header mcp-name does not match the request body's 'taskId'"
        )


# --- results and errors, as clients of each era get them; pure


def to_modern_result(result: Mapping[str, Any], method: str, server_info: Mapping[str, Any]) -> Raw:
    """Return a result with the fields that the modern era requires."""
    wrapped = dict(result)
    wrapped.setdefault("resultType", "complete")
    if method in _TTL_BY_METHOD and wrapped["resultType"] == "complete":
        wrapped.setdefault("ttlMs", _TTL_BY_METHOD[method])
        wrapped.setdefault("cacheScope", "private")
    meta = wrapped.get("_meta")
    if meta is None or (isinstance(meta, Mapping) and meta.get(SERVER_INFO_KEY) is None):
        wrapped["_meta"] = {**(meta or {}), SERVER_INFO_KEY: dict(server_info)}
    return wrapped


def to_legacy_result(result: Mapping[str, Any], method: str) -> Raw:
    """Return a result without the fields that the handshake era does not know."""
    if (kind := result.get("resultType", "complete")) != "complete":
        what = f"answered with a result of the type {kind!r}"
        if kind == "input_required":
            what = "needs an answer from the user in the middle of this call"
        raise RemoteError(
            INVALID_REQUEST, f"the server {what}, which this client's protocol version cannot carry"
        )
    wrapped = {key: value for key, value in result.items() if key not in _MODERN_ONLY_KEYS}
    meta = wrapped.get("_meta")
    if isinstance(meta, Mapping) and SERVER_INFO_KEY in meta:
        del wrapped["_meta"]
        if len(meta) > 1:
            wrapped["_meta"] = {key: meta[key] for key in meta if key != SERVER_INFO_KEY}
    if method == "tools/list":
        wrapped["tools"] = [_to_legacy_tool(tool) for tool in wrapped["tools"]]
    return wrapped


def _to_legacy_tool(tool: Raw) -> Raw:
    """Drop an output schema that is not an object: a strict legacy client would reject the list."""
    schema = tool.get("outputSchema")
    if schema is None or schema.get("type") == "object":
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}


class _ExplicitNull(RootModel[None]):
    """A null that is sent: the SDK omits an error's `data` if it is None."""


_EXPLICIT_NULL = _ExplicitNull(None)


def to_mcp_error(error: PorticoError, *, allow_surrogates: bool) -> MCPError:
    """Return the JSON-RPC error that a client gets for an error of ours."""
    if isinstance(error, RemoteError):
        try:
            message, data = ensure_encodable(
                [error.message, error.data], allow_surrogates=allow_surrogates
            )
        except RemoteError:
            message = ensure_encodable(error.message, allow_surrogates=allow_surrogates)
            data = "what came with this error cannot be passed on"
        if error.has_data and data is None:
            data = _EXPLICIT_NULL
        return MCPError(code=error.code, message=message, data=data)
    details: Raw = {"kind": error.kind, "retryable": error.retryable}
    if error.retry_after_s is not None:
        details["retry_after_s"] = error.retry_after_s
    if isinstance(error, ApprovalRequired):
        details["approval"] = error.approval_id
        if error.url:
            details["url"] = error.url
    return MCPError(code=error.code, message=str(error), data=details)
