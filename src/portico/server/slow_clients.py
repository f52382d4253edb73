"""Connections over HTTP that do not keep up: they are ended, so that nobody else has to wait for what they hold.

uvicorn gives a connection all the time and room it wants: for its headers, for its body, for reading what it is sent.
This is its protocol with bounds, after what Apache's `mod_reqtimeout` does: a request has some seconds, and more for
what has arrived of it, so that a large upload over a slow line goes through and a drip does not. A client that leaves
unread what it is sent is hung up on: its call is cancelled as if it had gone.
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

from portico.server.callers import CallerQuota, network_of
from portico.server.unread import Unread
from portico.server.unread_answers import CONNECTION

logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 8_192
LEFT_FOR_OTHERS = 1_024
"""Connections that one address leaves for the others."""
RESERVED_FILES = 256
"""Files that servers, the record and the log need; connections get the others."""


@dataclass(frozen=True)
class Patience:
    """How long a connection may take, and how much it may hold."""

    send_s: float = 60.0
    """For taking some of what it is sent."""
    request_s: float = 20.0
    """For the headers of a request, and again for its body."""
    bytes_per_s: int = 500
    """So many more bytes give a body a second more."""
    idle_s: float = 75.0
    """Before its first request."""
    head_bytes: int = 64 * 2**10
    """Address and headers of a request."""
    discarded_bytes: int = 64 * 2**20
    """Of a body that was refused: a client that is still sending may not see the refusal if it is cut off."""
    connections: int = MOST_CONNECTIONS
    taken_bytes: int = 16 * 2**10
    """What a client has to take of what it is sent, or all that is left, to be given its time again."""

    @property
    def glance_s(self) -> float:
        """How often a connection is looked at."""
        return min(5.0, max(0.02, min(self.send_s, self.request_s, self.idle_s) / 4))


def most_connections() -> int:
    """As many as this process may have files for."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(16, min(MOST_CONNECTIONS, soft - RESERVED_FILES, max(16, soft // 2)))


class BoundedConnection(HttpToolsProtocol):
    """One client's connection; `patience` is set by `bounded`."""

    patience = Patience()
    places = CallerQuota(MOST_CONNECTIONS, LEFT_FOR_OTHERS)
    """Of connections, by the network they come from."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._now = self.loop.time
        self._since = self._now()
        """When what it is doing now began: being idle, a request's headers, its body."""
        self._arrived = 0
        """Bytes of that; of a body, without what is around it."""
        self._around = 0
        """Bytes that came since the last of a body: trailers, what is said of a chunk."""
        self._of_body = 0
        self._headed = False
        self._asked: deque[Any] = deque()
        """What it asked and was not answered, which may be several requests at once."""
        self._doing = "idle"
        self._unread: Unread | None = None
        self._network = network_of(self.client)
        self._unwanted = not self.places.has_room(self._network)
        if not self._unwanted:
            self.places.enter(self._network)
        self._glance: asyncio.TimerHandle | None = self.loop.call_later(self.patience.glance_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._glance is not None:
            self._glance.cancel()
            self._glance = None
            if not self._unwanted:
                self.places.leave(self._network)
        super().connection_lost(exc)
        # uvicorn tells the request that came last, which may be none of those that are being answered.
        for cycle in self._asked:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._asked.clear()
        self.pipeline.clear()

    def resume_writing(self) -> None:
        super().resume_writing()
        # It took most of what waited: more may be written before the next look, and look as if it took nothing.
        self._unread = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._unwanted:
            # Not before it has asked: an answer to nothing is often not read.
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open", "retry-after: 2\r\n")
            return
        if self._doing in ("idle", "answer"):
            self._settle("head")
        self._of_body = 0
        super().data_received(data)
        self._settle(self._phase())
        if self._doing == "body":
            self._arrived += self._of_body
            self._around = 0 if self._of_body else self._around + len(data)
        else:
            self._arrived += len(data)
        if self._around > self.patience.head_bytes:
            why = f"what is around the body has more than {self.patience.head_bytes} bytes"
            self._cut_off(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why)
        elif self._doing == "head" and self._arrived > self.patience.head_bytes:
            why = f"the headers have more than {self.patience.head_bytes} bytes"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why)
        elif self._doing == "refused" and self._arrived > self.patience.discarded_bytes:
            self.transport.abort()

    def _phase(self) -> str:
        """What is arriving; nothing, while a request is being answered."""
        cycle: Any = self.cycle
        if cycle is None:
            return "head"
        if cycle.response_complete:
            # What comes after an answer to half a body is the other half, and nobody wants it.
            return "refused" if cycle.more_body else "head"
        return "body" if cycle.more_body else "answer"

    def _settle(self, doing: str) -> None:
        if doing != self._doing:
            self._doing, self._since, self._arrived, self._around = doing, self._now(), 0, 0

    # --- what the parser finds

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._headed = False
        cast("dict[str, Any]", self.scope)[CONNECTION] = self

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers must not become headers (RFC 9110 §6.5.1), and there is no end to them.
        if not self._headed:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._headed = True
        while self._asked and self._asked[0].response_complete:
            self._asked.popleft()
        self._asked.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._of_body += len(body)

    def _should_upgrade_to_ws(self) -> bool:
        return False  # another protocol would take the connection over, and these bounds would not hold for it

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever asks for another protocol gets this one, which is no news."""

    # --- looking after it

    def _look(self) -> None:
        self._glance = self.loop.call_later(self.patience.glance_s, self._look)
        if self.transport.is_closing():
            # It said goodbye, but what was written may still wait for its client.
            self._look_at_answer()
        elif not self._look_at_answer():
            self._look_at_request()

    def _look_at_answer(self) -> bool:
        """Whether it was hung up on because it does not read."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting:
            self._unread = None
            return False
        now = self._now()
        if self._unread is None:
            self._unread = Unread(waiting, now, self.patience.taken_bytes)
        elif (seconds := self._unread.seconds(waiting, now)) >= self.patience.send_s:
            logger.warning(
                "a client at %s has left %s bytes unread for %.0f s and was hung up on", self._whose, waiting, seconds
            )
            self.transport.abort()
            return True
        return False

    def _look_at_request(self) -> None:
        phase = self._phase()
        if self._doing in ("body", "answer"):
            # An answer that ended meanwhile begins a pause, for which uvicorn has its own timer.
            self._settle("idle" if phase == "head" else phase)
        patience, elapsed = self.patience, self._now() - self._since
        if self._unwanted or (self._doing == "idle" and not self.cycle and elapsed > patience.idle_s):
            self.transport.close()
        elif self._doing == "refused" and elapsed > patience.request_s:
            self.transport.abort()
        elif self._doing == "head" and elapsed > patience.request_s:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the headers did not arrive in time")
        elif self._doing == "body" and elapsed > patience.request_s + self._arrived / patience.bytes_per_s:
            # While we do not read, it cannot send.
            if self.flow.read_paused:
                self._since = self._now()
            else:
                self._cut_off(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time")

    @property
    def _whose(self) -> str:
        return self.client[0] if self.client else "a socket"

    def _cut_off(self, status: HTTPStatus, why: str) -> None:
        """End a request in the middle of its body."""
        if self.cycle.response_started:
            self.transport.abort()
        else:
            self._refuse(status, why)

    def _refuse(self, status: HTTPStatus, why: str, headers: str = "") -> None:
        """Say why, and close: whoever drips would go on for ever."""
        body = f'{{"error":"{why}"}}'
        with contextlib.suppress(RuntimeError):
            self.transport.write(
                f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n{headers}connection: close\r\n\r\n{body}".encode()
            )
        self.transport.close()


def bounded(patience: Patience) -> type[BoundedConnection]:
    """The protocol with these bounds, as uvicorn wants it: a class."""
    places = CallerQuota(patience.connections, LEFT_FOR_OTHERS)
    return type("BoundedConnection", (BoundedConnection,), {"patience": patience, "places": places})
