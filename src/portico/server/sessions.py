"""Who is connected, and telling them what changed.

Handshake-era clients have a connection that can be told; modern ones ask with `subscriptions/listen`. A burst of
changes is one notification.
"""

import asyncio
import contextlib
import secrets
from dataclasses import dataclass, field
from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

DEBOUNCE_S = 0.1
SLOW_CLIENT_S = 5.0


@dataclass(eq=False)
class Session:
    """One handshake-era client, or one connection over stdio."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    log_level: str | None = None
    subscribed: dict[str, str] = field(default_factory=dict)
    """Outer URI of a resource → the URI the client asked for it by."""


class Watchers:
    """Which sessions watch which resources, at every door: a server all share is left only by the last of them."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], set[str]] = {}

    def add(self, resource: tuple[str, str], session: str) -> None:
        """A session watches a resource of a server."""
        self._sessions.setdefault(resource, set()).add(session)

    def remove(self, resource: tuple[str, str], session: str) -> None:
        """A session watches it no longer."""
        self._sessions.get(resource, set()).discard(session)

    def forget(self, session: str) -> None:
        """A session has ended."""
        self._sessions = {resource: left for resource, them in self._sessions.items() if (left := them - {session})}

    def of(self, server: str) -> list[tuple[str, set[str]]]:
        """The URIs of a server that are watched, each with the sessions that do."""
        return [(uri, them) for (owner, uri), them in self._sessions.items() if owner == server and them]

    def others(self, resource: tuple[str, str], session: str) -> bool:
        """Whether anybody else watches it."""
        return bool(self._sessions.get(resource, set()) - {session})


_KEY = "portico.session"


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """The connection behind a request.

    The SDK keeps per-connection state and teardown there but gives handlers no way to it: the one private attribute of
    the SDK this project leans on.
    """
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


def session_of(ctx: ServerRequestContext[Any, Any]) -> Session:
    """The session a request belongs to; a modern request over HTTP is a session of its own."""
    state = connection_of(ctx).state
    if _KEY not in state:
        state[_KEY] = Session()
    return state[_KEY]


class Sessions:
    """The clients of one view."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._connected: dict[Connection, Session] = {}
        self._pending: set[str] = set()
        self._telling: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._connected)

    def add(self, connection: Connection, session: Session) -> None:
        """Remember a client until its connection closes."""
        self._connected[connection] = session
        connection.exit_stack.callback(self._connected.pop, connection, None)

    def changed(self, *kinds: str) -> None:
        """Tell everyone, soon, that `tools`, `resources` or `prompts` changed."""
        self._pending.update(kinds)
        if self._pending and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell_soon(), name="tell clients")

    def updated(self, uri: str) -> None:
        """Tell those who subscribed that a resource changed."""
        self.changed(f"resource {uri}")

    async def close(self) -> None:
        """Stop telling."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait({self._telling})

    async def _tell_soon(self) -> None:
        while self._pending:
            await asyncio.sleep(DEBOUNCE_S)
            kinds, self._pending = self._pending, set()
            for kind in sorted(kinds):
                await self._tell(kind)

    async def _tell(self, kind: str) -> None:
        uri = kind.removeprefix("resource ") if kind.startswith("resource ") else None
        event: ServerEvent
        if uri is not None:
            event, method = ResourceUpdated(uri), "notifications/resources/updated"
        else:
            event = {"tools": ToolsListChanged, "resources": ResourcesListChanged, "prompts": PromptsListChanged}[
                kind
            ]()
            method = f"notifications/{kind}/list_changed"
        await self.bus.publish(event)
        told = [
            _bounded(connection.notify(method, {"uri": session.subscribed[uri]} if uri is not None else None))
            for connection, session in self._connected.items()
            if uri is None or uri in session.subscribed
        ]
        await asyncio.gather(*told)


async def _bounded(notifying: Any) -> None:
    # A client that does not read must not keep the others from hearing.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(notifying, SLOW_CLIENT_S)
