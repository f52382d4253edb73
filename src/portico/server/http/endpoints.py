"""HTTP endpoints: one for each profile, opened and closed while the application runs.

A reload of the configuration may add or remove a profile without any effect on the clients of the
others.

The sessions of an endpoint are divided among callers (`server/http/auth.py`): only an
`initialize` request opens one, and where all places are taken, the caller with most sessions loses
one.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

import anyio
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from portico.auth.authenticator import Authenticator
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Principal
from portico.errors import INTERNAL_ERROR, INVALID_REQUEST
from portico.mcp_sdk_internals import HttpSessionManager
from portico.server.http.auth import identify_caller
from portico.server.http.body_limit import LONG_LIVED_KEY
from portico.server.http.json_first_transport import (
    JsonFirstTransport,
    NoSessionTransport,
    RecentEvents,
)
from portico.server.profile_endpoint import ProfileEndpoint

RETRY_MS = 500
MAX_SESSIONS = 1_000
"""Maximum number of sessions of one endpoint."""
MAX_CALLER_SESSIONS = 800
"""Maximum number of sessions of one caller (`server/http/auth.py`) at one endpoint."""
SESSION_IDLE_S = 30 * 60.0
STREAM_CHECK_S = 0.5
"""Seconds between looks for streams whose credential is no longer valid."""
ENDPOINT_DRAIN_S = 30.0
"""Seconds that requests in flight at a removed endpoint may still take."""
SESSION_EVICTABLE_AFTER_S = 60.0
"""Idle time after which a session may be evicted when its caller needs the place."""
SESSION_UNUSED_S = 2.0
"""The same for a session without any request since it was opened."""
_NO_SESSION = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {"code": INVALID_REQUEST, "message": "Session not found"},
}
_HANDSHAKE_VERSIONS = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)


class SessionManager(HttpSessionManager):
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; one without a session id opens a session only if it is `initialize`."""
        principal: Principal = scope.get(PRINCIPAL_KEY, LOCAL_USER)
        sessions = cast("Mapping[str, JsonFirstTransport]", self.transports)
        for name, value in scope["headers"]:
            if name == b"mcp-session-id":
                session = sessions.get(value.decode("latin-1"))
                if session is not None and session.principal != principal.id:
                    # As for a session that there is not: nothing is said about those of others.
                    await JSONResponse(_NO_SESSION, 404)(scope, receive, send)
                    return
            if name == b"mcp-session-id" or (
                name == b"mcp-protocol-version" and value not in _HANDSHAKE_VERSIONS
            ):
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
            RecentEvents(),  # its own, so that no session can be resumed from that of another
            security_settings=self.security_settings,
            retry_interval=self.retry_interval,
            idle_timeout=self.session_idle_timeout,
        )
        session.caller = caller
        session.principal = scope.get(PRINCIPAL_KEY, LOCAL_USER).id

        async def send_and_discard_failed(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get(
                "more_body", False
            )
            # Before the client has the answer, and can try again.
            if is_last and not session.is_initialized:
                await self.close_session(key, session)
            await send(message)

        await self.open_session(key, session, scope, receive, send_and_discard_failed)

    async def _ensure_capacity(self, caller: str) -> bool:
        """Free a place for one more session of a caller, evicting another if need be.

        Returns whether there is a place. A caller at its own limit loses a session of its own.
        Where all places are taken, the caller with most sessions loses one: unused ones first, then
        the one that has been idle longest.
        """
        sessions = cast("Mapping[str, JsonFirstTransport]", self.transports)
        counts = Counter(session.caller for session in sessions.values())
        if counts[caller] < MAX_CALLER_SESSIONS and len(sessions) < MAX_SESSIONS:
            return True
        largest = max(counts, key=counts.__getitem__)
        if counts[caller] < MAX_CALLER_SESSIONS and counts[largest] > counts[caller] + 1:
            candidates = [session for session in sessions.values() if session.caller == largest]
        elif counts[caller]:
            own = [session for session in sessions.values() if session.caller == caller]
            candidates = _find_idle(own)
        else:
            candidates = _find_idle(sessions.values())
        if not candidates:
            return False
        evicted = min(candidates, key=_rank_for_eviction)
        assert evicted.mcp_session_id is not None
        await self.close_session(evicted.mcp_session_id, evicted)
        return True


def _find_idle(sessions: "Iterable[JsonFirstTransport]") -> list[JsonFirstTransport]:
    """Return the sessions that have been idle long enough to be evicted for their own caller."""
    now = anyio.current_time()
    unused_s = min(SESSION_UNUSED_S, SESSION_EVICTABLE_AFTER_S)
    idle: list[JsonFirstTransport] = []
    for session in sessions:
        min_idle_s = SESSION_EVICTABLE_AFTER_S if session.is_used else unused_s
        if now - _get_last_used(session) >= min_idle_s:
            idle.append(session)
    return idle


def _rank_for_eviction(session: JsonFirstTransport) -> tuple[bool, float]:
    """Sort key of eviction: unused sessions first, then the one that has been idle longest."""
    return session.is_used, _get_last_used(session)


def _get_last_used(session: StreamableHTTPServerTransport) -> float:
    """Return when the last request of a session ended; now, while one is in flight."""
    if session.idle_scope is not None:
        return session.idle_scope.deadline - SESSION_IDLE_S
    return anyio.current_time()


@dataclass(eq=False)
class _RunningEndpoint:
    """One endpoint and its open sessions.

    A task of its own opens and closes the session manager, which must happen in one task.
    """

    endpoint: ProfileEndpoint
    session_manager: SessionManager
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None
    in_flight: int = 0
    """Number of requests being answered, without streams."""
    stream_tasks: "dict[asyncio.Task[Any], Principal]" = field(default_factory=dict)
    """Tasks of long-lived requests, which end with their client, and on whose behalf."""

    async def run(self) -> None:
        async with self.session_manager.run():
            self.opened.set()
            await self.closing.wait()

    async def handle_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        has_started = False
        assert task is not None

        async def send_and_note_start(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        principal: Principal = scope.get(PRINCIPAL_KEY, LOCAL_USER)
        self.stream_tasks[task] = principal
        try:
            await self.session_manager.handle(scope, receive, send_and_note_start)
        except asyncio.CancelledError:
            if not self.closing.is_set() and task in self.stream_tasks:
                raise
            task.uncancel()
            if has_started:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.stream_tasks.pop(task, None)

    def end_streams(self, is_ended: Callable[[Principal], bool]) -> None:
        """End the long-lived requests on behalf of these principals."""
        for task in [task for task, owner in self.stream_tasks.items() if is_ended(owner)]:
            del self.stream_tasks[task]
            task.cancel()

    async def close(self, drain_s: float) -> None:
        """Wait up to `drain_s` seconds for requests in flight, end the streams, and close."""
        deadline = asyncio.get_running_loop().time() + drain_s
        while self.in_flight and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        self.closing.set()
        for task in self.stream_tasks:
            task.cancel()
        if self.task is not None:
            await asyncio.wait({self.task})


class HttpEndpoints:
    """ASGI application over all endpoints, by profile name; the empty name is the default
    profile."""

    def __init__(
        self, endpoints: Mapping[str, ProfileEndpoint], security: TransportSecuritySettings
    ) -> None:
        self._endpoints = dict(endpoints)
        self._security = security
        self._running_endpoints: dict[str, _RunningEndpoint] = {}
        self._is_running = False

    async def end_refused_streams(self, authenticator: Authenticator) -> None:
        """End streams whose credential expired or was revoked, until cancelled."""
        while True:
            await asyncio.sleep(STREAM_CHECK_S)
            for running in self._running_endpoints.values():
                running.end_streams(lambda principal: not authenticator.accepts(principal))

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Keep all endpoints open for the duration of the context."""
        self._is_running = True
        self._start_missing()
        try:
            await self._wait_until_open()
            yield
        finally:
            self._is_running = False
            await asyncio.gather(
                *(running.close(0) for running in self._running_endpoints.values())
            )
            self._running_endpoints.clear()

    async def replace_endpoints(self, endpoints: Mapping[str, ProfileEndpoint]) -> None:
        """Replace the set of endpoints; removed ones are drained for up to `ENDPOINT_DRAIN_S`."""
        self._endpoints = dict(endpoints)
        if not self._is_running:
            return
        removed: list[_RunningEndpoint] = []
        for name, running in list(self._running_endpoints.items()):
            if self._endpoints.get(name) is not running.endpoint:
                removed.append(self._running_endpoints.pop(name))
        self._start_missing()
        await self._wait_until_open()
        await asyncio.gather(*(running.close(ENDPOINT_DRAIN_S) for running in removed))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope.get("path_params", {}).get("profile", "")
        running = self._running_endpoints.get(name)
        if running is None:
            await self._refuse_profile(name)(scope, receive, send)
            return
        if not running.opened.is_set():
            await running.opened.wait()
        if LONG_LIVED_KEY in scope:
            await running.handle_stream(scope, receive, send)
            return
        running.in_flight += 1
        try:
            await running.session_manager.handle(scope, receive, send)
        finally:
            running.in_flight -= 1

    def _refuse_profile(self, name: str) -> JSONResponse:
        paths = ", ".join(f"/mcp/p/{profile}" if profile else "/mcp" for profile in self._endpoints)
        return JSONResponse(
            {"error": f"there is no profile {name!r} here", "advice": f"There is: {paths}."}, 404
        )

    def _start_missing(self) -> None:
        for name, endpoint in self._endpoints.items():
            if name not in self._running_endpoints:
                self._running_endpoints[name] = running = _RunningEndpoint(
                    endpoint, self._make_session_manager(endpoint)
                )
                running.task = asyncio.create_task(
                    running.run(), name=f"endpoint {name or 'default'}"
                )

    def _make_session_manager(self, endpoint: ProfileEndpoint) -> SessionManager:
        return SessionManager(
            endpoint.server,
            retry_interval=RETRY_MS,
            session_idle_timeout=SESSION_IDLE_S,
            security_settings=self._security,
        )

    async def _wait_until_open(self) -> None:
        for running in list(self._running_endpoints.values()):
            opening = asyncio.create_task(running.opened.wait())
            assert running.task is not None
            await asyncio.wait({opening, running.task}, return_when=asyncio.FIRST_COMPLETED)
            opening.cancel()
            if running.task.done():
                running.task.result()  # raises the reason why it could not be opened
