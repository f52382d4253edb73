"""The way back to a client while its call runs: progress, log messages, and an upstream's questions to it.

The handshake era has requests to a client on the stream of its own request. The modern era has none: there, a request
that can be answered in rounds is asked by its answer (`handling`), and the relay then leads to the request that brings
the client's answers, and so on.
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
from portico.server.large_text import shorten
from portico.server.passable import passable
from portico.server.questions import askable, lacking, refused, worded
from portico.server.sessions import connection_of
from portico.upstream.backend import CallOver, Era, Raw
from portico.upstream.elicited import COMPLETE
from portico.upstream.envelope import CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_CAPABILITIES = "portico.capabilities"

Ask = Callable[[str, Raw], Awaitable[Raw]]
Context = ServerRequestContext[Any, Any]


class _Message:
    """A request or notification as it is: the SDK types what it sends, this type says nothing."""

    def __init__(self, method: str, params: Raw) -> None:
        self.method = method
        self._params = params

    def model_dump(self, **_: Any) -> Raw:
        """What the SDK sends."""
        return {"method": self.method, "params": self._params}


class _Result(RootModel[dict[str, Any]]):
    """A result as it is."""


class ClientRelay:
    """Reaches the client through the request it made."""

    def __init__(
        self,
        ctx: Context,
        era: Era,
        origin: str,
        log_level: str | None,
        *,
        transparent: bool = False,
        question_s: float | None = None,
    ) -> None:
        """`question_s` is how long a client of the handshake era may take to answer."""
        self._first = ctx
        self._ctx: Context | None = ctx
        self._transparent = transparent
        self._era: Era = era
        self._origin = origin
        self._log_level = _requested_level(ctx) if era == "modern" else log_level
        self._question_s = question_s
        self._ask: Ask | None = None
        self._capabilities: Mapping[str, Any] | None = None
        self._over = False
        self._telling = asyncio.Lock()
        """Held while something is told: a large message takes longer to encode than the next one."""

    @property
    def origin(self) -> str:
        return self._origin

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client can be asked, as it declared it."""
        if self._capabilities is None:
            self._capabilities = _declared(self._first, self._era)
        return self._capabilities

    def asks(self, ask: Ask) -> None:
        """From now on, questions of servers go this way."""
        self._ask = ask

    def detach(self) -> None:
        """The request was answered with a question; until the client comes back, there is nobody to tell anything."""
        self._ctx = None

    def attach(self, ctx: Context) -> None:
        """The client has come back: this request leads to it now."""
        self._ctx = ctx
        self._log_level = _requested_level(ctx)

    def end(self) -> None:
        """The request is done with."""
        self._over = True

    async def notify(self, method: str, params: Raw) -> None:
        """Send a notification on the request's own stream."""
        if (ctx := self._ctx) is None or (method == COMPLETE and self._era == "modern"):
            return
        if method == "notifications/message" and not self._wants(params.get("level")):
            return
        if method == "notifications/progress" and ctx is not self._first:
            # The token of the request that began it means nothing to the one that goes on with it.
            if (token := _meta(ctx).get("progressToken")) is None:
                return
            params = {**params, "progressToken": token}
        async with self._telling:
            try:
                message: Any = _Message(method, await shorten(params, ctx.request and ctx.request.scope, self._era))
            except RemoteError:
                return  # nobody waits for it
            # A visit may end after the request that it was for.
            stream = None if self._over and method == COMPLETE else ctx.request_id
            # The way to the client is a library's: however it fails, the server works on and its answer is wanted.
            with contextlib.suppress(Exception):
                await ctx.session.send_notification(message, related_request_id=stream)

    async def flush(self) -> None:
        """Wait until the client was told what is being told; what comes after an answer is lost."""
        async with self._telling:
            pass

    async def pause(self) -> None:
        """Let go of the client's stream too where it looks through us; elsewhere it stays open for the answer."""
        if self._transparent and self._ctx is not None and self._ctx.close_sse_stream is not None:
            await self._ctx.close_sse_stream()

    async def request(self, method: str, params: Raw) -> Raw:
        """Ask the client; raises RemoteError when it cannot or will not answer."""
        if missing := lacking(self.capabilities, method, params):
            raise refused(missing)
        if self._over:
            raise CallOver
        if self._era == "legacy":
            return await self._pushed(method, worded(method, params, self._era))
        asked = worded(method, passable(params, escaped=self._first.request is None), self._era)
        if self._ask is None:
            raise RemoteError(METHOD_NOT_FOUND, f"a client cannot be asked anything while it waits for {self._method}")
        return await self._ask(method, asked)

    @property
    def _method(self) -> str:
        return self._first.method

    async def _pushed(self, method: str, params: Raw) -> Raw:
        scope = self._first.request and self._first.request.scope
        message: Any = _Message(method, await shorten(params, scope, self._era))
        route = ServerMessageMetadata(related_request_id=self._first.request_id)
        try:
            answer = await self._first.session.send_request(message, _Result, self._question_s, metadata=route)
            return answer.root
        except MCPError as error:
            if error.error.code == REQUEST_TIMEOUT and self._question_s is not None:
                reason = f"the client did not answer {method} within {self._question_s:g} s"
                raise RemoteError(INTERNAL_ERROR, reason) from error
            raise RemoteError(error.error.code, error.error.message, error.error.data) from error
        except ValidationError as error:
            raise RemoteError(INVALID_PARAMS, f"the client's answer to {method} is not what that asks for") from error
        except Exception as error:  # whatever breaks the way to the client, the server must not wait
            raise RemoteError(INTERNAL_ERROR, f"the client could not be asked: {error}") from error

    def _wants(self, level: Any) -> bool:
        if self._log_level is None:
            return self._era == "legacy"
        return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(self._log_level)


def _declared(ctx: Context, era: Era) -> Mapping[str, Any]:
    if era == "modern":
        return askable(_meta(ctx).get(CLIENT_CAPABILITIES_KEY))
    state, declared = connection_of(ctx).state, ctx.session.client_capabilities
    if _CAPABILITIES not in state:
        state[_CAPABILITIES] = askable(declared and declared.model_dump(by_alias=True, exclude_none=True))
    return state[_CAPABILITIES]


def _meta(ctx: Context) -> Mapping[str, Any]:
    meta = (ctx.params or {}).get("_meta")
    return cast("Mapping[str, Any]", meta) if isinstance(meta, Mapping) else {}


def _requested_level(ctx: Context) -> str | None:
    level = _meta(ctx).get(LOG_LEVEL_KEY)
    return level if level in LEVELS else None
