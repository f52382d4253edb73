"""HTTP connections with time and size limits, so that slow clients do not hold resources.

uvicorn sets no bounds on a connection: for its headers, its body, or for reading responses. This is
its protocol with bounds like those of Apache's `mod_reqtimeout`: a request has some seconds, and
more for the bytes that have arrived, so that a large upload over a slow line succeeds and a drip
does not. A client that leaves responses unread is disconnected and its call cancelled.
"""

import asyncio
import contextlib
import logging
import sys
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from portico.server.http.auth import CallerQuota, identify_network
from portico.server.http.spooled_responses import CONNECTION_KEY
from portico.server.line_reader import ReadStallTimer

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 8_192
RESERVED_CONNECTIONS = 1_024
"""Connections that one address leaves for the others."""
RESERVED_FILES = 256
"""File descriptors reserved for servers, the databases and the log."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Time and size limits of a connection."""

    send_s: float = 60.0
    """Seconds without progress in reading a response."""
    request_s: float = 20.0
    """Seconds for the headers of a request, and again for its body."""
    min_bytes_per_s: int = 500
    """Each time this many bytes of a body have arrived, it gets one second more."""
    idle_s: float = 75.0
    """Seconds before the first request, and between two. Clients and proxies keep an idle
    connection for 5 to 60 s; if the server closed it first, a request sent meanwhile would be lost.
    """
    max_head_bytes: int = 64 * 2**10
    """Maximum size of request line and headers."""
    max_discarded_bytes: int = 64 * 2**20
    """Maximum rest of a refused body that is read: a client that is still sending may not see the
    refusal if it is disconnected."""
    max_connections: int = MAX_CONNECTIONS
    min_taken_bytes: int = 16 * 2**10
    """Bytes that a client has to read (or all that is left) to restart `send_s`."""


def compute_max_connections() -> int:
    """Return the maximum number of connections that the file descriptor limit allows."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(16, min(MAX_CONNECTIONS, soft - RESERVED_FILES, max(16, soft // 2)))


class BoundedConnection(HttpToolsProtocol):
    """One client's connection; `limits` and `quota` are set by `make_protocol_class`."""

    limits = ConnectionLimits()
    check_interval_s = 5.0
    """Seconds between two checks of a connection."""
    quota = CallerQuota(MAX_CONNECTIONS, RESERVED_CONNECTIONS)
    """Connections by the network they come from."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._phase_started_at = self.loop.time()
        """When the current phase (idle, headers, body) began."""
        self._phase_bytes = 0
        """Bytes received in this phase; of a body without its framing."""
        self._overhead_bytes = 0
        """Bytes since the last of a body: trailers, chunk extensions."""
        self._body_bytes = 0
        self._open_cycles: deque[Any] = deque()
        """Unanswered requests; pipelining allows several."""
        self._current_phase = "idle"
        self._read_stall: ReadStallTimer | None = None
        self._network = identify_network(self.client)
        self._is_over_quota = not self.quota.try_acquire(self._network)
        self._check_timer: asyncio.TimerHandle | None = self.loop.call_later(
            self.check_interval_s, self._check
        )

    def connection_lost(self, exc: Exception | None) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None
            if not self._is_over_quota:
                self.quota.release(self._network)
        super().connection_lost(exc)
        # uvicorn notifies only the last request, which may not be one of those being answered.
        for cycle in self._open_cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._open_cycles.clear()
        self.pipeline.clear()

    def resume_writing(self) -> None:
        super().resume_writing()
        # The client read most of the buffer. Without a reset, what is written before the next
        # check could hide that progress.
        self._read_stall = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_over_quota:
            # Not before it has sent a request: clients often do not read an earlier response.
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too many connections are open",
                "retry-after: 2\r\n",
            )
            return
        if self._current_phase in ("idle", "answer"):
            self._enter_phase("head")
        self._body_bytes = 0
        super().data_received(data)
        self._enter_phase(self._determine_phase())
        if self._current_phase == "body":
            self._phase_bytes += self._body_bytes
            if self._body_bytes:
                self._overhead_bytes = 0
            else:
                self._overhead_bytes += len(data)
        else:
            self._phase_bytes += len(data)
        if self._overhead_bytes > self.limits.max_head_bytes:
            reason = f"what is around the body has more than {self.limits.max_head_bytes} bytes"
            self._abort_body(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
        elif self._current_phase == "head" and self._phase_bytes > self.limits.max_head_bytes:
            reason = f"the headers have more than {self.limits.max_head_bytes} bytes"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
        elif (
            self._current_phase == "refused" and self._phase_bytes > self.limits.max_discarded_bytes
        ):
            self.transport.abort()

    def _determine_phase(self) -> str:
        """Return what is being received; `answer` while a request is being answered."""
        cycle: Any = self.cycle
        if cycle is None:
            return "head"
        if cycle.response_complete:
            # After an early response, the rest of the body is discarded.
            return "refused" if cycle.more_body else "head"
        return "body" if cycle.more_body else "answer"

    def _enter_phase(self, phase: str) -> None:
        if phase != self._current_phase:
            self._current_phase = phase
            self._phase_started_at = self.loop.time()
            self._phase_bytes = 0
            self._overhead_bytes = 0

    # --- callbacks of the parser

    def on_headers_complete(self) -> None:
        cast("dict[str, Any]", self.scope)[CONNECTION_KEY] = self
        super().on_headers_complete()
        # Trailers must not become headers (RFC 9110 §6.5.1): they are appended to another list.
        self.headers = []
        while self._open_cycles and self._open_cycles[0].response_complete:
            self._open_cycles.popleft()
        self._open_cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._body_bytes += len(body)

    def _should_upgrade_to_ws(self) -> bool:
        return False  # after an upgrade these limits would not apply

    def _unsupported_upgrade_warning(self) -> None:
        """Do not warn: requests to upgrade are ignored."""

    # --- periodic checks

    def _check(self) -> None:
        self._check_timer = self.loop.call_later(self.check_interval_s, self._check)
        if self.transport.is_closing():
            # Closing, but written data may still wait for the client to read it.
            self._check_response()
        elif not self._check_response():
            self._check_request()

    def _check_response(self) -> bool:
        """Disconnect a client that does not read; return whether it was disconnected."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting:
            self._read_stall = None
            return False
        now = self.loop.time()
        if self._read_stall is None:
            self._read_stall = ReadStallTimer(waiting, now, self.limits.min_taken_bytes)
        elif (seconds := self._read_stall.measure(waiting, now)) >= self.limits.send_s:
            logger.warning(
                "a client at %s has left %s bytes unread for %.0f s and was disconnected",
                self.client[0] if self.client else "a socket",
                waiting,
                seconds,
            )
            self.transport.abort()
            return True
        return False

    def _check_request(self) -> None:
        phase = self._determine_phase()
        if self._current_phase in ("body", "answer"):
            # After a response the connection is idle, for which uvicorn has its own timer.
            self._enter_phase("idle" if phase == "head" else phase)
        limits = self.limits
        elapsed = self.loop.time() - self._phase_started_at
        if self._is_over_quota or (
            self._current_phase == "idle" and not self.cycle and elapsed > limits.idle_s
        ):
            self.transport.close()
        elif self._current_phase == "refused" and elapsed > limits.request_s:
            self.transport.abort()
        elif self._current_phase == "head" and elapsed > limits.request_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the headers did not arrive in time")
        elif (
            self._current_phase == "body"
            and elapsed > limits.request_s + self._phase_bytes / limits.min_bytes_per_s
        ):
            # While reading is paused, the client cannot send.
            if self.flow.read_paused:
                self._phase_started_at = self.loop.time()
            else:
                self._abort_body(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time")

    def _abort_body(self, status: HTTPStatus, reason: str) -> None:
        """End a request in the middle of its body."""
        if self.cycle.response_started:
            self.transport.abort()
        else:
            self._refuse(status, reason)

    def _refuse(self, status: HTTPStatus, reason: str, headers: str = "") -> None:
        """Send an error and close the connection."""
        body = f'{{"error":"{reason}"}}'
        with contextlib.suppress(RuntimeError):
            self.transport.write(
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n{headers}connection: close\r\n\r\n{body}".encode()
            )
        self.transport.close()


def make_protocol_class(limits: ConnectionLimits) -> type[BoundedConnection]:
    """Return a protocol class with these limits, as uvicorn takes a class."""
    quota = CallerQuota(limits.max_connections, RESERVED_CONNECTIONS)
    shortest_s = min(limits.send_s, limits.request_s, limits.idle_s)
    check_interval_s = min(5.0, max(0.02, shortest_s / 4))
    attributes = {"limits": limits, "quota": quota, "check_interval_s": check_interval_s}
    return type("BoundedConnection", (BoundedConnection,), attributes)
