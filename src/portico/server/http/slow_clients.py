"""Connections over HTTP that do not keep up: they are ended, so that nobody else has to wait for
what they hold.

uvicorn gives a connection all the time and room it wants: for its headers, for its body, for
reading what it is sent. This is its protocol with bounds, after what Apache's `mod_reqtimeout`
does: a request has some seconds, and more for what has arrived of it, so that a large upload over a
slow line goes through and a drip does not. A client that leaves unread what it is sent is hung up
on: its call is cancelled as if it had gone.
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

from portico.server.http.callers import CallerQuota, identify_network
from portico.server.http.spooled_responses import CONNECTION_KEY
from portico.server.read_stall import ReadStallTimer

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 8_192
RESERVED_CONNECTIONS = 1_024
"""Connections that one address leaves for the others."""
RESERVED_FILES = 256
"""Files that servers, the record and the log need; connections get the others."""


@dataclass(frozen=True)
class ConnectionLimits:
    """How long a connection may take, and how much it may hold."""

    send_s: float = 60.0
    """For taking some of what it is sent."""
    request_s: float = 20.0
    """For the headers of a request, and again for its body."""
    min_bytes_per_s: int = 500
    """So many more bytes give a body a second more."""
    idle_s: float = 75.0
    """Before its first request."""
    max_head_bytes: int = 64 * 2**10
    """Address and headers of a request."""
    max_discarded_bytes: int = 64 * 2**20
    """Of a body that was refused: a client that is still sending may not see the refusal if it is
    cut off."""
    max_connections: int = MAX_CONNECTIONS
    min_taken_bytes: int = 16 * 2**10
    """What a client has to take of what it is sent, or all that is left, to be given its time
    again."""

    @property
    def check_interval_s(self) -> float:
        """How often a connection is looked at."""
        return min(5.0, max(0.02, min(self.send_s, self.request_s, self.idle_s) / 4))


def compute_max_connections() -> int:
    """As many as this process may have files for."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(16, min(MAX_CONNECTIONS, soft - RESERVED_FILES, max(16, soft // 2)))


class BoundedConnection(HttpToolsProtocol):
    """One client's connection; `patience` is set by `bounded`."""

    limits = ConnectionLimits()
    quota = CallerQuota(MAX_CONNECTIONS, RESERVED_CONNECTIONS)
    """Of connections, by the network they come from."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._now = self.loop.time
        self._phase_started_at = self._now()
        """When what it is doing now began: being idle, a request's headers, its body."""
        self._phase_bytes = 0
        """Bytes of that; of a body, without what is around it."""
        self._overhead_bytes = 0
        """Bytes that came since the last of a body: trailers, what is said of a chunk."""
        self._body_bytes = 0
        self._are_headers_complete = False
        self._open_cycles: deque[Any] = deque()
        """What it asked and was not answered, which may be several requests at once."""
        self._current_phase = "idle"
        self._read_stall: ReadStallTimer | None = None
        self._network = identify_network(self.client)
        self._is_over_quota = not self.quota.has_capacity(self._network)
        if not self._is_over_quota:
            self.quota.acquire(self._network)
        self._check_timer: asyncio.TimerHandle | None = self.loop.call_later(
            self.limits.check_interval_s, self._check
        )

    def connection_lost(self, exc: Exception | None) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None
            if not self._is_over_quota:
                self.quota.release(self._network)
        super().connection_lost(exc)
        # uvicorn tells the request that came last, which may be none of those that are being
        # answered.
        for cycle in self._open_cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._open_cycles.clear()
        self.pipeline.clear()

    def resume_writing(self) -> None:
        super().resume_writing()
        # It took most of what waited: more may be written before the next look, and look as if it
        # took nothing.
        self._read_stall = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_over_quota:
            # Not before it has asked: an answer to nothing is often not read.
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
                self._overhead_bytes = self._overhead_bytes + len(data)
        else:
            self._phase_bytes += len(data)
        if self._overhead_bytes > self.limits.max_head_bytes:
            why = f"what is around the body has more than {self.limits.max_head_bytes} bytes"
            self._abort_body(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why)
        elif self._current_phase == "head" and self._phase_bytes > self.limits.max_head_bytes:
            why = f"the headers have more than {self.limits.max_head_bytes} bytes"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why)
        elif (
            self._current_phase == "refused" and self._phase_bytes > self.limits.max_discarded_bytes
        ):
            self.transport.abort()

    def _determine_phase(self) -> str:
        """What is arriving; nothing, while a request is being answered."""
        cycle: Any = self.cycle
        if cycle is None:
            return "head"
        if cycle.response_complete:
            # What comes after an answer to half a body is the other half, and nobody wants it.
            if cycle.more_body:
                return "refused"
            return "head"
        if cycle.more_body:
            return "body"
        return "answer"

    def _enter_phase(self, phase: str) -> None:
        if phase != self._current_phase:
            self._current_phase = phase
            self._phase_started_at = self._now()
            self._phase_bytes = 0
            self._overhead_bytes = 0

    # --- what the parser finds

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._are_headers_complete = False
        cast("dict[str, Any]", self.scope)[CONNECTION_KEY] = self

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers must not become headers (RFC 9110 §6.5.1), and there is no end to them.
        if not self._are_headers_complete:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._are_headers_complete = True
        while self._open_cycles and self._open_cycles[0].response_complete:
            self._open_cycles.popleft()
        self._open_cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._body_bytes += len(body)

    def _should_upgrade_to_ws(self) -> bool:
        return False  # another protocol would take the connection over, and these bounds would not hold for it

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever asks for another protocol gets this one, which is no news."""

    # --- looking after it

    def _check(self) -> None:
        self._check_timer = self.loop.call_later(self.limits.check_interval_s, self._check)
        if self.transport.is_closing():
            # It said goodbye, but what was written may still wait for its client.
            self._check_response()
        elif not self._check_response():
            self._check_request()

    def _check_response(self) -> bool:
        """Whether it was hung up on because it does not read."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting:
            self._read_stall = None
            return False
        now = self._now()
        if self._read_stall is None:
            self._read_stall = ReadStallTimer(waiting, now, self.limits.min_taken_bytes)
        elif (seconds := self._read_stall.measure(waiting, now)) >= self.limits.send_s:
            logger.warning(
                "a client at %s has left %s bytes unread for %.0f s and was hung up on",
                self._client_address,
                waiting,
                seconds,
            )
            self.transport.abort()
            return True
        return False

    def _check_request(self) -> None:
        phase = self._determine_phase()
        if self._current_phase in ("body", "answer"):
            # An answer that ended meanwhile begins a pause, for which uvicorn has its own timer.
            self._enter_phase("idle" if phase == "head" else phase)
        patience = self.limits
        elapsed = self._now() - self._phase_started_at
        if self._is_over_quota or (
            self._current_phase == "idle" and not self.cycle and elapsed > patience.idle_s
        ):
            self.transport.close()
        elif self._current_phase == "refused" and elapsed > patience.request_s:
            self.transport.abort()
        elif self._current_phase == "head" and elapsed > patience.request_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the headers did not arrive in time")
        elif (
            self._current_phase == "body"
            and elapsed > patience.request_s + self._phase_bytes / patience.min_bytes_per_s
        ):
            # While we do not read, it cannot send.
            if self.flow.read_paused:
                self._phase_started_at = self._now()
            else:
                self._abort_body(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time")

    @property
    def _client_address(self) -> str:
        if self.client:
            return self.client[0]
        return "a socket"

    def _abort_body(self, status: HTTPStatus, reason: str) -> None:
        """End a request in the middle of its body."""
        if self.cycle.response_started:
            self.transport.abort()
        else:
            self._refuse(status, reason)

    def _refuse(self, status: HTTPStatus, reason: str, headers: str = "") -> None:
        """Say why, and close: whoever drips would go on for ever."""
        body = f'{{"error":"{reason}"}}'
        with contextlib.suppress(RuntimeError):
            self.transport.write(
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n{headers}connection: close\r\n\r\n{body}".encode()
            )
        self.transport.close()


def make_protocol_class(limits: ConnectionLimits) -> type[BoundedConnection]:
    """The protocol with these bounds, as uvicorn wants it: a class."""
    places = CallerQuota(limits.max_connections, RESERVED_CONNECTIONS)
    return type("BoundedConnection", (BoundedConnection,), {"patience": limits, "places": places})
