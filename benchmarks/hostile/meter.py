"""The longest pauses of an event loop, measured in processor time, which other programs of the
machine do not add to.

Two things keep everybody waiting. A turn of the event loop: what its thread used from one look at
the sockets to the next. And the interpreter's lock held by another thread: a third one asks for it
every few milliseconds; how long it waited counts, but no more than what threads other than the
loop's computed meanwhile, and less where the loop turned: it may have waited for a processor only.
"""

import asyncio
import asyncio.base_events
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

ASK_S = 0.005


@dataclass(frozen=True)
class Pauses:
    """The longest pauses of a time, in milliseconds."""

    turn_ms: float = 0.0
    lock_ms: float = 0.0

    @property
    def longest(self) -> float:
        return max(self.turn_ms, self.lock_ms)


class Meter:
    """The longest pauses since they were taken last."""

    def __init__(self) -> None:
        self._turn_s = self._lock_s = 0.0
        self._turns = 0

    def turned(self, seconds: float) -> None:
        """Note what one turn of the loop took."""
        self._turns += 1
        self._turn_s = max(self._turn_s, seconds)

    def watch_lock(self) -> None:
        """Ask for the interpreter's lock for ever; a thread's work. The loop runs in the main
        thread."""
        loop = time.pthread_getcpuclockid(threading.main_thread().ident or 0)
        while True:
            began, turns = time.perf_counter(), self._turns
            used = time.process_time() - time.clock_gettime(loop)
            time.sleep(ASK_S)
            waited = time.perf_counter() - began - ASK_S
            computed = time.process_time() - time.clock_gettime(loop) - used
            held = min(waited, computed) / (1 + self._turns - turns)
            self._lock_s = max(self._lock_s, held)

    def take(self) -> Pauses:
        """The longest of each, and begin anew."""
        pauses = Pauses(self._turn_s * 1000, self._lock_s * 1000)
        self._turn_s = self._lock_s = 0.0
        return pauses


METER = Meter()
"""That of this process."""


class MeasuredLoop(asyncio.SelectorEventLoop):
    """A loop whose turns are measured."""

    def _run_once(self) -> None:
        began = time.thread_time()
        base: Any = asyncio.base_events.BaseEventLoop
        base._run_once(self)
        METER.turned(time.thread_time() - began)

    def _make_socket_transport(self, sock: socket.socket, *args: Any, **options: Any) -> Any:
        # As uvloop has it: asyncio leaves out sockets that were made without naming the protocol.
        if sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        base: Any = asyncio.SelectorEventLoop
        return base._make_socket_transport(self, sock, *args, **options)
