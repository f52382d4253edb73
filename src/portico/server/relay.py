"""The way back to a client while its call runs: progress, log messages, and an upstream's questions to it."""

import contextlib
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import METHOD_NOT_FOUND
from pydantic import BaseModel, RootModel, ValidationError

from portico.errors import INTERNAL_ERROR, INVALID_PARAMS, RemoteError
from portico.server.passable import passable
from portico.upstream.backend import Era, Raw
from portico.upstream.envelope import LOG_LEVEL_KEY

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_CAPABILITY = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}


class _Message(BaseModel):
    """A request or notification as it is: the SDK types what it sends, this type says nothing."""

    method: str
    params: dict[str, Any] | None = None


class _Result(RootModel[dict[str, Any]]):
    """A result as it is."""


class ClientRelay:
    """Reaches the client through the request it made."""

    def __init__(
        self,
        ctx: ServerRequestContext[Any, Any],
        era: Era,
        origin: str,
        log_level: str | None,
        *,
        transparent: bool = False,
    ) -> None:
        self._ctx = ctx
        self._transparent = transparent
        self._era = era
        self._origin = origin
        self._log_level = _requested_level(ctx) if era == "modern" else log_level

    @property
    def origin(self) -> str:
        return self._origin

    async def notify(self, method: str, params: Raw) -> None:
        """Send a notification on the request's own stream."""
        if method == "notifications/message" and not self._wants(params.get("level")):
            return
        try:
            message: Any = _Message(method=method, params=passable(params, escaped=self._ctx.request is None))
        except RemoteError:
            return  # nobody waits for it
        # The way to the client is a library's: however it fails, the server works on and its answer is still wanted.
        with contextlib.suppress(Exception):
            await self._ctx.session.send_notification(message, related_request_id=self._ctx.request_id)

    async def pause(self) -> None:
        """Let go of the client's stream too where it looks through us; elsewhere it stays open for the answer."""
        if self._transparent and self._ctx.close_sse_stream is not None:
            await self._ctx.close_sse_stream()

    async def request(self, method: str, params: Raw) -> Raw:
        """Ask the client; raises RemoteError when it cannot or will not answer."""
        declared = self._ctx.session.client_capabilities
        capability = _CAPABILITY[method]
        if self._era == "modern" or declared is None or getattr(declared, capability, None) is None:
            raise RemoteError(METHOD_NOT_FOUND, f"the client that made this call does not offer {capability}")
        message: Any = _Message(method=method, params=passable(params, escaped=self._ctx.request is None))
        route = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        try:
            return (await self._ctx.session.send_request(message, _Result, metadata=route)).root
        except MCPError as error:
            raise RemoteError(error.error.code, error.error.message, error.error.data) from error
        except ValidationError as error:
            raise RemoteError(INVALID_PARAMS, f"the client's answer to {method} is not what that asks for") from error
        except Exception as error:  # whatever breaks the way to the client, the server must not wait
            raise RemoteError(INTERNAL_ERROR, f"the client could not be asked: {error}") from error

    def _wants(self, level: Any) -> bool:
        if self._log_level is None:
            return self._era == "legacy"
        return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(self._log_level)


def _requested_level(ctx: ServerRequestContext[Any, Any]) -> str | None:
    meta = (ctx.params or {}).get("_meta")
    level = meta.get(LOG_LEVEL_KEY) if isinstance(meta, dict) else None
    return level if level in LEVELS else None
