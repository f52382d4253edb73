"""The ways in over HTTP: one for each door, opened and closed while the application runs.

A configuration that is taken over may bring a profile or take one away; clients of the other doors notice nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from portico.server.door import Door
from portico.server.prompt_answers import PromptTransport
from portico.server.replay import RecentEvents
from portico.server.whole_body import lasting

RETRY_MS = 500
MAX_SESSIONS = 1_000
SESSION_IDLE_S = 30 * 60.0
LEAVING_S = 30.0
"""How long requests under way at a door that is taken away may still take."""
SESSION_RESTED_S = 60.0
"""A session that has rested for so long is ended when its place is needed."""


class Visitors(StreamableHTTPSessionManager):
    """One door's clients: the SDK's manager of sessions, which asks for the event store once for each that opens."""

    @property
    def event_store(self) -> EventStore | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A store that no other session can be resumed from."""
        return RecentEvents()

    @event_store.setter
    def event_store(self, value: EventStore | None) -> None:
        """The base class sets the one that all would share."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """A place for a new session, or None where there is no room; the base class has sessions of its own kind."""
        if self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            return None
        key = uuid4().hex
        session = PromptTransport(
            key,
            event_store=self.event_store,
            security_settings=self.security_settings,
            retry_interval=self.retry_interval,
            idle_timeout=self.session_idle_timeout,
        )
        if requestor is not None:
            self._session_owners[key] = requestor
        self._server_instances[key] = session
        return session

    async def receive(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; where no session can be opened, say when to come again."""
        headers = {name for name, _ in scope["headers"]}
        if b"mcp-session-id" in headers or b"mcp-protocol-version" in headers:
            await self.handle_request(scope, receive, send)
            return

        async def with_advice(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.SERVICE_UNAVAILABLE:
                message["headers"] = [*message["headers"], (b"retry-after", str(int(SESSION_RESTED_S)).encode())]
            await send(message)

        await self._make_room()
        await self.handle_request(scope, receive, with_advice)

    async def _make_room(self) -> None:
        """When no other session can be opened, end the one that has rested longest.

        A client that crashes and comes back leaves one behind each time; they must not lock others out for long.
        """
        sessions, most = self._server_instances, self.max_sessions
        if most is None or len(sessions) < most:
            return
        deadlines = {key: one.idle_scope.deadline for key, one in sessions.items() if one.idle_scope is not None}
        oldest = min(deadlines, key=deadlines.__getitem__, default=None)
        if oldest is not None and deadlines[oldest] - SESSION_IDLE_S + SESSION_RESTED_S <= anyio.current_time():
            await self._discard_session(oldest, sessions[oldest])


@dataclass(eq=False)
class _Entrance:
    """One door's sessions, held open by a task of their own: what opens them has to close them."""

    door: Door
    visitors: Visitors
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    held: "asyncio.Task[None] | None" = None
    inside: int = 0
    """Requests that are being answered."""
    streams: "set[asyncio.Task[Any]]" = field(default_factory=set)
    """Requests that only listen, for as long as their client wants."""

    async def hold(self) -> None:
        async with self.visitors.run():
            self.opened.set()
            await self.closing.wait()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.opened.is_set():
            await self.opened.wait()
        if lasting(scope):
            await self._stream(scope, receive, send)
            return
        self.inside += 1
        try:
            await self.visitors.receive(scope, receive, send)
        finally:
            self.inside -= 1

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        task, begun = asyncio.current_task(), False
        assert task is not None

        async def noticed(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        self.streams.add(task)
        try:
            await self.visitors.receive(scope, receive, noticed)
        except asyncio.CancelledError:
            if not self.closing.is_set():
                raise
            task.uncancel()
            if begun:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.streams.discard(task)

    async def leave(self, patience_s: float) -> None:
        """Let what is being answered be answered, end what only listens, and close."""
        deadline = asyncio.get_running_loop().time() + patience_s
        while self.inside and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        self.closing.set()
        for task in self.streams:
            task.cancel()
        if self.held is not None:
            await asyncio.wait({self.held})


class Entrances:
    """Every way in, by the name of its profile; the empty name is the front door."""

    def __init__(self, doors: Mapping[str, Door], security: TransportSecuritySettings, max_request_bytes: int) -> None:
        self._wanted = dict(doors)
        self._security = security
        self._max_request_bytes = max_request_bytes
        self._open: dict[str, _Entrance] = {}
        self._running = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """While the application runs."""
        self._running = True
        self._begin()
        try:
            await self._ready()
            yield
        finally:
            self._running = False
            await asyncio.gather(*(entrance.leave(0) for entrance in self._open.values()))
            self._open.clear()

    async def show(self, doors: Mapping[str, Door]) -> None:
        """Have these doors and no others from now on."""
        self._wanted = dict(doors)
        if not self._running:
            return
        gone = [name for name, one in self._open.items() if self._wanted.get(name) is not one.door]
        leaving = [self._open.pop(name) for name in gone]
        self._begin()
        await self._ready()
        await asyncio.gather(*(entrance.leave(LEAVING_S) for entrance in leaving))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope.get("path_params", {}).get("profile", "")
        entrance = self._open.get(name)
        if entrance is not None:
            await entrance.answer(scope, receive, send)
            return
        there = ", ".join(f"/mcp/p/{one}" if one else "/mcp" for one in self._wanted)
        refused = JSONResponse({"error": f"there is no profile {name!r} here", "advice": f"There is: {there}."}, 404)
        await refused(scope, receive, send)

    def _begin(self) -> None:
        for name, door in self._wanted.items():
            if name not in self._open:
                self._open[name] = entrance = _Entrance(door, self._visitors(door))
                entrance.held = asyncio.create_task(entrance.hold(), name=f"door {name or 'at the front'}")

    def _visitors(self, door: Door) -> Visitors:
        return Visitors(
            door.server,
            retry_interval=RETRY_MS,
            max_sessions=MAX_SESSIONS,
            session_idle_timeout=SESSION_IDLE_S,
            security_settings=self._security,
            max_request_body_size=self._max_request_bytes,
        )

    async def _ready(self) -> None:
        for entrance in list(self._open.values()):
            opening = asyncio.create_task(entrance.opened.wait())
            assert entrance.held is not None
            await asyncio.wait({opening, entrance.held}, return_when=asyncio.FIRST_COMPLETED)
            opening.cancel()
            if entrance.held.done():
                entrance.held.result()  # it could not be opened: that is why
