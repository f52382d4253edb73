"""The ways in over HTTP: one for each door, opened and closed while the application runs.

A configuration that is taken over may bring a profile or take one away; clients of the other doors
notice nothing.

The sessions of a door are shared by callers (`server/http/callers.py`): only a request that
initialises one opens one, and where all places are taken, the caller that holds most gives way.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

import anyio
from mcp.server.streamable_http import EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from portico.errors import INTERNAL_ERROR
from portico.server.http.body_limit import is_long_lived
from portico.server.http.callers import identify_caller
from portico.server.http.json_first_transport import JsonFirstTransport, NoSessionTransport
from portico.server.http.large_values import PieceSender
from portico.server.http.replay import RecentEvents
from portico.server.profile_endpoint import ProfileEndpoint

RETRY_MS = 500
MAX_SESSIONS = 1_000
"""Sessions of one door."""
MAX_CALLER_SESSIONS = 800
"""Sessions of one caller (`server/http/callers.py`) at one door."""
SESSION_IDLE_S = 30 * 60.0
ENDPOINT_DRAIN_S = 30.0
"""How long requests under way at a door that is taken away may still take."""
SESSION_EVICTABLE_AFTER_S = 60.0
"""A session that has rested for so long is ended when its caller needs its place."""
SESSION_UNUSED_S = 2.0
"""The same for one that has made no request since it was opened."""
_HANDSHAKE_VERSIONS = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)


class SessionManager(StreamableHTTPSessionManager):
    """One door's clients: the SDK's manager of sessions, which asks for the event store once for
    each that opens."""

    @property
    def event_store(self) -> EventStore | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A store that no other session can be resumed from."""
        return RecentEvents()

    @event_store.setter
    def event_store(self, value: EventStore | None) -> None:
        """The base class sets the one that all would share."""

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose body is whole and not too large: the base class would copy it
        twice to find out."""
        await self._handle_request(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; one that names no session opens one only if it initialises it."""
        send = PieceSender(scope, send)
        if not _is_sessionless(scope):
            await self.handle_request(scope, receive, send)
            return
        sessionless = NoSessionTransport(self._open_session, self.security_settings)
        await sessionless.handle_request(scope, receive, send)

    async def _open_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = identify_caller(scope)
        if not await self._ensure_capacity(caller):
            error = {"code": INTERNAL_ERROR, "message": "Too many open sessions"}
            body = {"jsonrpc": "2.0", "id": None, "error": error}
            headers = {"Retry-After": str(max(1, int(SESSION_EVICTABLE_AFTER_S)))}
            await JSONResponse(body, 503, headers)(scope, receive, send)
            return
        key = uuid4().hex
        session = JsonFirstTransport(
            key,
            event_store=self.event_store,
            security_settings=self.security_settings,
            retry_interval=self.retry_interval,
            idle_timeout=self.session_idle_timeout,
        )
        session.caller = caller
        self._server_instances[key] = session

        async def send_and_discard_failed(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get(
                "more_body", False
            )
            if is_last and not session.is_initialized:  # before its client can know, and ask again
                await self._discard_session(key, session)
            await send(message)

        await self._serve_opening_request(session, scope, receive, send_and_discard_failed)

    async def _ensure_capacity(self, caller: str) -> bool:
        """Make room for one more session of a caller, ending another session if need be; whether
        there is room.

        A caller that has its share gives way to itself. Where all places are taken, the caller that
        holds most gives way: with its unused sessions first, then with those that have rested
        longest.
        """
        sessions = cast("Mapping[str, JsonFirstTransport]", self._server_instances)
        held = Counter(session.caller for session in sessions.values())
        if held[caller] < MAX_CALLER_SESSIONS and len(sessions) < MAX_SESSIONS:
            return True
        most = max(held, key=held.__getitem__)
        if held[caller] < MAX_CALLER_SESSIONS and held[most] > held[caller] + 1:
            candidates = [one for one in sessions.values() if one.caller == most]
        elif held[caller]:
            candidates = _find_idle(one for one in sessions.values() if one.caller == caller)
        else:
            candidates = _find_idle(sessions.values())
        if not candidates:
            return False
        ended = min(candidates, key=_rank_for_eviction)
        assert ended.mcp_session_id is not None
        await self._discard_session(ended.mcp_session_id, ended)
        return True


def _is_sessionless(scope: Scope) -> bool:
    """Whether a request of the handshake era names no session."""
    for name, value in scope["headers"]:
        if name == b"mcp-session-id" or (
            name == b"mcp-protocol-version" and value not in _HANDSHAKE_VERSIONS
        ):
            return False
    return True


def _find_idle(sessions: "Iterable[JsonFirstTransport]") -> list[JsonFirstTransport]:
    """Sessions that have rested for so long that their own caller may lose them."""
    now = anyio.current_time()
    unused_s = min(SESSION_UNUSED_S, SESSION_EVICTABLE_AFTER_S)
    return [
        one
        for one in sessions
        if now - _get_last_used(one) >= (SESSION_EVICTABLE_AFTER_S if one.is_used else unused_s)
    ]


def _rank_for_eviction(session: JsonFirstTransport) -> tuple[bool, float]:
    """Order by which sessions give way: unused ones first, and then the one that has rested
    longest."""
    return session.is_used, _get_last_used(session)


def _get_last_used(session: StreamableHTTPServerTransport) -> float:
    """When its last request ended; infinity while one is under way."""
    if session.idle_scope is not None:
        return session.idle_scope.deadline - SESSION_IDLE_S
    return anyio.current_time()


@dataclass(eq=False)
class _RunningEndpoint:
    """One door's sessions, held open by a task of their own: what opens them has to close them."""

    endpoint: ProfileEndpoint
    session_manager: SessionManager
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None
    in_flight: int = 0
    """Requests that are being answered."""
    stream_tasks: "set[asyncio.Task[Any]]" = field(default_factory=set)
    """Requests that only listen, for as long as their client wants."""

    async def run(self) -> None:
        async with self.session_manager.run():
            self.opened.set()
            await self.closing.wait()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.opened.is_set():
            await self.opened.wait()
        if is_long_lived(scope):
            await self._handle_stream(scope, receive, send)
            return
        self.in_flight += 1
        try:
            await self.session_manager.handle(scope, receive, send)
        finally:
            self.in_flight -= 1

    async def _handle_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        begun = False
        assert task is not None

        async def send_and_note_start(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        self.stream_tasks.add(task)
        try:
            await self.session_manager.handle(scope, receive, send_and_note_start)
        except asyncio.CancelledError:
            if not self.closing.is_set():
                raise
            task.uncancel()
            if begun:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.stream_tasks.discard(task)

    async def close(self, drain_s: float) -> None:
        """Let what is being answered be answered, end what only listens, and close."""
        deadline = asyncio.get_running_loop().time() + drain_s
        while self.in_flight and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        self.closing.set()
        for task in self.stream_tasks:
            task.cancel()
        if self.task is not None:
            await asyncio.wait({self.task})


class HttpEndpoints:
    """Every way in, by the name of its profile; the empty name is the front door."""

    def __init__(
        self, endpoints: Mapping[str, ProfileEndpoint], security: TransportSecuritySettings
    ) -> None:
        self._endpoints = dict(endpoints)
        self._security = security
        self._running_endpoints: dict[str, _RunningEndpoint] = {}
        self._is_running = False

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """While the application runs."""
        self._is_running = True
        self._start_missing()
        try:
            await self._wait_until_open()
            yield
        finally:
            self._is_running = False
            await asyncio.gather(
                *(entrance.close(0) for entrance in self._running_endpoints.values())
            )
            self._running_endpoints.clear()

    async def replace_endpoints(self, endpoints: Mapping[str, ProfileEndpoint]) -> None:
        """Have these doors and no others from now on."""
        self._endpoints = dict(endpoints)
        if not self._is_running:
            return
        gone = [
            name
            for name, one in self._running_endpoints.items()
            if self._endpoints.get(name) is not one.endpoint
        ]
        leaving = [self._running_endpoints.pop(name) for name in gone]
        self._start_missing()
        await self._wait_until_open()
        await asyncio.gather(*(entrance.close(ENDPOINT_DRAIN_S) for entrance in leaving))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope.get("path_params", {}).get("profile", "")
        entrance = self._running_endpoints.get(name)
        if entrance is not None:
            await entrance.handle(scope, receive, send)
            return
        there = ", ".join(f"/mcp/p/{one}" if one else "/mcp" for one in self._endpoints)
        refused = JSONResponse(
            {"error": f"there is no profile {name!r} here", "advice": f"There is: {there}."}, 404
        )
        await refused(scope, receive, send)

    def _start_missing(self) -> None:
        for name, door in self._endpoints.items():
            if name not in self._running_endpoints:
                self._running_endpoints[name] = entrance = _RunningEndpoint(
                    door, self._make_session_manager(door)
                )
                entrance.task = asyncio.create_task(
                    entrance.run(), name=f"door {name or 'at the front'}"
                )

    def _make_session_manager(self, endpoint: ProfileEndpoint) -> SessionManager:
        return SessionManager(
            endpoint.server,
            retry_interval=RETRY_MS,
            session_idle_timeout=SESSION_IDLE_S,
            security_settings=self._security,
        )

    async def _wait_until_open(self) -> None:
        for entrance in list(self._running_endpoints.values()):
            opening = asyncio.create_task(entrance.opened.wait())
            assert entrance.task is not None
            await asyncio.wait({opening, entrance.task}, return_when=asyncio.FIRST_COMPLETED)
            opening.cancel()
            if entrance.task.done():
                entrance.task.result()  # it could not be opened: that is why
