"""Messages to a client while its call runs: progress, log messages, and elicitations that its
capabilities allow.

The handshake era has requests to a client on the stream of its own request. The modern era has
none: there, a multi-round request is answered with the elicitation (`pending_requests`), and the
relay is attached to the request that brings the client's answers, and so on.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY, REQUEST_TIMEOUT
from pydantic import RootModel, ValidationError

from portico.errors import INTERNAL_ERROR, INVALID_PARAMS, RemoteError
from portico.profiles.profile_state import ProfileState
from portico.server.http.large_values import ensure_encodable, replace_large_members
from portico.server.sessions import Session
from portico.upstream.backend import CallAlreadyEnded, Era, Raw
from portico.upstream.protocol.envelope import CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY
from portico.upstream.protocol.extensions import EXTENSIONS, Extensions, read_extensions
from portico.upstream.protocol.server_requests import ELICITATION_COMPLETE

CAPABILITY_BY_METHOD: Mapping[str, str] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
_NO_CAPABILITIES: Mapping[str, Any] = {}
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

ElicitHandler = Callable[[str, Raw], Awaitable[Raw]]
RequestContext = ServerRequestContext[Any, Any]


def filter_relayed(declared: Any) -> Raw:
    """Return the declared capabilities that are relayed: to be asked, and extensions."""
    known = _NO_CAPABILITIES
    if isinstance(declared, Mapping):
        known = cast("Mapping[str, Any]", declared)
    relayed = {
        name: known[name]
        for name in CAPABILITY_BY_METHOD.values()
        if isinstance(known.get(name), Mapping)
    }
    if extensions := read_extensions(known):
        relayed[EXTENSIONS] = extensions
    return relayed


def find_missing_capability(
    capabilities: Mapping[str, Any], method: str, params: Mapping[str, Any]
) -> Raw:
    """Return the capability that an elicitation requires and the client lacks; empty if it has
    it."""
    name = CAPABILITY_BY_METHOD.get(method)
    if name is None:
        return {method: {}}
    offered = capabilities.get(name)
    if not isinstance(offered, Mapping):
        return {name: {}}
    options = cast("Mapping[str, Any]", offered)
    if method == "elicitation/create":
        mode = params.get("mode") or "form"
        # Without a declared mode, forms are supported.
        modes = tuple(options) if options.keys() & {"form", "url"} else ("form",)
        if mode in modes:
            return {}
        return {name: {str(mode): {}}}
    if (
        method == "sampling/createMessage"
        and (params.get("tools") or params.get("toolChoice"))
        and "tools" not in options
    ):
        return {name: {"tools": {}}}
    return {}


def make_unsupported_error(missing: Mapping[str, Any]) -> RemoteError:
    """Build the error for a server whose elicitation the client does not support."""
    ((name, part),) = missing.items()
    if name not in CAPABILITY_BY_METHOD.values():
        return RemoteError(METHOD_NOT_FOUND, f"a client cannot be asked {name}")
    message = f"the client that made this call does not offer {name}"
    if part:
        return RemoteError(INVALID_PARAMS, f"{message} with {next(iter(part))}")
    return RemoteError(METHOD_NOT_FOUND, message)


def make_missing_capability_error(missing: Mapping[str, Any]) -> RemoteError:
    """Build the error for a client that lacks a capability which the server requires."""
    ((name, part),) = missing.items()
    what = f"{name} with {next(iter(part))}" if part else name
    return RemoteError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"the server needs to ask its client for {what}, which this client does not declare",
        {"requiredCapabilities": dict(missing)},
    )


def adapt_params(method: str, params: Raw, era: Era) -> Raw:
    """Adapt params to the client's era: only the handshake era has an id for URL elicitations."""
    if method != "elicitation/create" or params.get("mode") != "url":
        return params
    if era == "modern":
        return {key: value for key, value in params.items() if key != "elicitationId"}
    if params.get("elicitationId"):
        return params
    return {**params, "elicitationId": secrets.token_hex(16)}


def list_input_requests(result: Mapping[str, Any]) -> list[tuple[str, Raw]]:
    """Return the elicitations in a result, each as a method and its params."""
    requests: Any = result.get("inputRequests")
    if not isinstance(requests, dict):
        return []
    found: list[tuple[str, Raw]] = []
    for request in cast(Raw, requests).values():
        if isinstance(request, dict):
            params = cast(Raw, request).get("params")
            found.append((str(request.get("method")), params if isinstance(params, dict) else {}))
    return found


class _UntypedMessage:
    """A raw request or notification in the shape of the SDK's typed models."""

    def __init__(self, method: str, params: Raw) -> None:
        self.method = method
        self._params = params

    def model_dump(self, **_: Any) -> Raw:
        """Return the message as the SDK sends it."""
        return {"method": self.method, "params": self._params}


class _UntypedResult(RootModel[dict[str, Any]]):
    """A raw result."""


class ClientRelay:
    """Sends messages to the client through the request it made."""

    def __init__(
        self,
        ctx: RequestContext,
        era: Era,
        session: Session,
        profile_state: ProfileState,
        elicitation_timeout_s: float | None = None,
    ) -> None:
        """`elicitation_timeout_s` limits how long a handshake-era client may take to answer."""
        self._first_ctx = ctx
        self._ctx: RequestContext | None = ctx
        self._profile_state = profile_state
        self._era: Era = era
        self.client_key = session.id
        self._session = session
        self._log_level = _get_requested_level(ctx) if era == "modern" else session.log_level
        self._elicitation_timeout_s = elicitation_timeout_s
        self._elicit_handler: ElicitHandler | None = None
        self.is_ended = False
        """Whether the request has ended."""
        self.has_notified = False
        """Whether a notification was sent, or is being sent: then `flush` before the answer."""
        self._send_lock = asyncio.Lock()
        """Keeps notifications in order: a large one takes longer to encode than the next."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declared and that are relayed to servers."""
        if self._era == "modern":
            return filter_relayed(_get_meta(self._first_ctx).get(CLIENT_CAPABILITIES_KEY))
        session = self._session
        if session.capabilities is None:
            declared = self._first_ctx.session.client_capabilities
            session.capabilities = filter_relayed(
                declared and declared.model_dump(by_alias=True, exclude_none=True)
            )
        return session.capabilities

    @property
    def extensions(self) -> Extensions:
        """The extensions that the client declared."""
        return self.capabilities.get(EXTENSIONS, {})

    def set_elicit_handler(self, handler: ElicitHandler) -> None:
        """Send elicitations of servers to this handler."""
        self._elicit_handler = handler

    def detach(self) -> None:
        """Drop notifications from now on: the request was answered with an elicitation."""
        self._ctx = None

    def attach(self, ctx: RequestContext) -> None:
        """Send notifications through `ctx`, the request with which the client came back."""
        self._ctx = ctx
        self._log_level = _get_requested_level(ctx)

    async def notify(self, method: str, params: Raw) -> None:
        """Send a notification on the request's own stream."""
        if (ctx := self._ctx) is None or (method == ELICITATION_COMPLETE and self._era == "modern"):
            return
        if method == "notifications/message" and not self._is_level_wanted(params.get("level")):
            return
        if method == "notifications/progress" and ctx is not self._first_ctx:
            # A later round has a progress token of its own.
            if (token := _get_meta(ctx).get("progressToken")) is None:
                return
            params = {**params, "progressToken": token}
        self.has_notified = True
        async with self._send_lock:
            try:
                scope = ctx.request and ctx.request.scope
                encodable = await replace_large_members(params, scope, self._era)
            except RemoteError:
                return  # a notification has no answer
            message: Any = _UntypedMessage(method, encodable)
            # A URL elicitation may complete after its request has ended.
            is_late = self.is_ended and method == ELICITATION_COMPLETE
            stream = None if is_late else ctx.request_id
            # However the SDK's transport fails, the call goes on and its answer is wanted.
            with contextlib.suppress(Exception):
                await ctx.session.send_notification(message, related_request_id=stream)

    async def flush(self) -> None:
        """Wait until notifications are sent; what comes after the answer would be lost."""
        async with self._send_lock:
            pass

    async def pause(self) -> None:
        """Close the client's stream in a transparent profile; elsewhere it stays open for the
        answer."""
        ctx = self._ctx
        if ctx is None or ctx.close_sse_stream is None:
            return
        if self._profile_state.transparent_server is not None:
            await ctx.close_sse_stream()

    async def request(self, method: str, params: Raw) -> Raw:
        """Send an elicitation to the client; raises RemoteError if it cannot or does not answer."""
        if missing := find_missing_capability(self.capabilities, method, params):
            raise make_unsupported_error(missing)
        if self.is_ended:
            raise CallAlreadyEnded
        if self._era == "legacy":
            return await self._send_request(method, adapt_params(method, params, self._era))
        adapted = adapt_params(
            method,
            ensure_encodable(params, allow_surrogates=self._first_ctx.request is None),
            self._era,
        )
        if self._elicit_handler is None:
            raise RemoteError(
                METHOD_NOT_FOUND,
                f"a client cannot be asked anything while it waits for {self._first_ctx.method}",
            )
        return await self._elicit_handler(method, adapted)

    async def _send_request(self, method: str, params: Raw) -> Raw:
        scope = self._first_ctx.request and self._first_ctx.request.scope
        message: Any = _UntypedMessage(
            method, await replace_large_members(params, scope, self._era)
        )
        metadata = ServerMessageMetadata(related_request_id=self._first_ctx.request_id)
        try:
            answer = await self._first_ctx.session.send_request(
                message, _UntypedResult, self._elicitation_timeout_s, metadata=metadata
            )
            return answer.root
        except MCPError as error:
            if error.error.code == REQUEST_TIMEOUT and self._elicitation_timeout_s is not None:
                reason = (
                    f"the client did not answer {method} within {self._elicitation_timeout_s:g} s"
                )
                raise RemoteError(INTERNAL_ERROR, reason) from error
            raise RemoteError(error.error.code, error.error.message, error.error.data) from error
        except ValidationError as error:
            raise RemoteError(
                INVALID_PARAMS, f"the client's answer to {method} is not what that asks for"
            ) from error
        except Exception as error:  # however the transport fails, the server must not wait
            raise RemoteError(INTERNAL_ERROR, f"the client could not be asked: {error}") from error

    def _is_level_wanted(self, level: Any) -> bool:
        if self._log_level is None:
            return self._era == "legacy"
        return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(self._log_level)


def _get_meta(ctx: RequestContext) -> Mapping[str, Any]:
    meta = (ctx.params or {}).get("_meta")
    if isinstance(meta, Mapping):
        return cast("Mapping[str, Any]", meta)
    return {}


def _get_requested_level(ctx: RequestContext) -> str | None:
    level = _get_meta(ctx).get(LOG_LEVEL_KEY)
    return level if level in LEVELS else None
