"""Messages to a client while its call runs: progress, log messages, and elicitations of servers.

The handshake era has requests to a client on the stream of its own request. The modern era has
none: there, a multi-round request is answered with the elicitation (`request_task`), and the relay
is attached to the request that brings the client's answers, and so on.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import METHOD_NOT_FOUND, REQUEST_TIMEOUT
from pydantic import RootModel, ValidationError

from portico.errors import INTERNAL_ERROR, INVALID_PARAMS, RemoteError
from portico.server.http.large_values import replace_large_members
from portico.server.requests.elicitation import (
    adapt_params,
    filter_elicitable,
    find_missing_capability,
    make_unsupported_error,
)
from portico.server.requests.wire_json import ensure_encodable
from portico.server.sessions import get_connection
from portico.upstream.backend import CallAlreadyEnded, Era, Raw
from portico.upstream.protocol.envelope import CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY
from portico.upstream.protocol.url_elicitations import ELICITATION_COMPLETE

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_CAPABILITIES_KEY = "portico.capabilities"

ElicitHandler = Callable[[str, Raw], Awaitable[Raw]]
RequestContext = ServerRequestContext[Any, Any]


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
        client_key: str,
        log_level: str | None,
        *,
        transparent: bool = False,
        elicitation_timeout_s: float | None = None,
    ) -> None:
        """`elicitation_timeout_s` limits how long a handshake-era client may take to answer."""
        self._first_ctx = ctx
        self._ctx: RequestContext | None = ctx
        self._transparent = transparent
        self._era: Era = era
        self._client_key = client_key
        self._log_level = _get_requested_level(ctx) if era == "modern" else log_level
        self._elicitation_timeout_s = elicitation_timeout_s
        self._elicit_handler: ElicitHandler | None = None
        self._capabilities: Mapping[str, Any] | None = None
        self._is_ended = False
        self._send_lock = asyncio.Lock()
        """Keeps notifications in order: a large one takes longer to encode than the next."""

    @property
    def client_key(self) -> str:
        return self._client_key

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The elicitation capabilities that the client declared."""
        if self._capabilities is None:
            self._capabilities = _read_capabilities(self._first_ctx, self._era)
        return self._capabilities

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

    def end(self) -> None:
        """Mark the request as ended."""
        self._is_ended = True

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
        async with self._send_lock:
            try:
                scope = ctx.request and ctx.request.scope
                encodable = await replace_large_members(params, scope, self._era)
            except RemoteError:
                return  # a notification has no answer
            message: Any = _UntypedMessage(method, encodable)
            # A URL elicitation may complete after its request has ended.
            if self._is_ended and method == ELICITATION_COMPLETE:
                stream = None
            else:
                stream = ctx.request_id
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
        if self._transparent and self._ctx is not None and self._ctx.close_sse_stream is not None:
            await self._ctx.close_sse_stream()

    async def request(self, method: str, params: Raw) -> Raw:
        """Send an elicitation to the client; raises RemoteError if it cannot or does not answer."""
        if missing := find_missing_capability(self.capabilities, method, params):
            raise make_unsupported_error(missing)
        if self._is_ended:
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
                f"a client cannot be asked anything while it waits for {self._method}",
            )
        return await self._elicit_handler(method, adapted)

    @property
    def _method(self) -> str:
        return self._first_ctx.method

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


def _read_capabilities(ctx: RequestContext, era: Era) -> Mapping[str, Any]:
    if era == "modern":
        return filter_elicitable(_get_meta(ctx).get(CLIENT_CAPABILITIES_KEY))
    state = get_connection(ctx).state
    declared = ctx.session.client_capabilities
    if _CAPABILITIES_KEY not in state:
        state[_CAPABILITIES_KEY] = filter_elicitable(
            declared and declared.model_dump(by_alias=True, exclude_none=True)
        )
    return state[_CAPABILITIES_KEY]


def _get_meta(ctx: RequestContext) -> Mapping[str, Any]:
    meta = (ctx.params or {}).get("_meta")
    if isinstance(meta, Mapping):
        return cast("Mapping[str, Any]", meta)
    return {}


def _get_requested_level(ctx: RequestContext) -> str | None:
    level = _get_meta(ctx).get(LOG_LEVEL_KEY)
    if level in LEVELS:
        return level
    return None
