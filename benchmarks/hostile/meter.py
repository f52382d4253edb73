"""The longest pauses of an event loop, measured in processor time, which other programs of the
machine do not add to.

Two things keep everybody waiting. A turn of the event loop: what its thread used from one look at
the sockets to the next. And the interpreter's lock held by another thread: a third one asks for it
every few milliseconds; how long it waited counts, but not for the loop's thread nor for a processor
that this one or the loop's lacked (where the system tells that apart), and no more than what other
threads computed meanwhile, nor than the longest time in which the loop did not turn.
"""

import asyncio
import asyncio.base_events
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ASK_S = 0.005
SCHEDULING = Path("/proc/thread-self/schedstat")
"""Linux: nanoseconds on a processor, waiting for one, and how often."""
LOOP_SCHEDULING = Path(f"/proc/self/task/{threading.main_thread().native_id}/schedstat")
"""The same of the loop's thread, which may hold the lock meanwhile."""


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
        self._turned_at = self._gap_s = 0.0

    def turned(self, seconds: float) -> None:
        """Note what one turn of the loop took."""
        self._turn_s = max(self._turn_s, seconds)
        now = time.perf_counter()
        self._gap_s = max(self._gap_s, now - self._turned_at)
        self._turned_at = now

    def watch_lock(self) -> None:
        """Ask for the interpreter's lock for ever; a thread's work. The loop runs in the main
        thread."""
        loop = time.pthread_getcpuclockid(threading.main_thread().ident or 0)
        while True:
            began = time.perf_counter() - _read_delays()
            self._gap_s = 0.0
            self._turned_at = time.perf_counter()
            loop_used, used = time.clock_gettime(loop), time.process_time()
            time.sleep(ASK_S)
            loop_used = time.clock_gettime(loop) - loop_used
            waited = time.perf_counter() - _read_delays() - began - ASK_S - loop_used
            computed = time.process_time() - used - loop_used
            gap = max(self._gap_s, time.perf_counter() - self._turned_at)
            self._lock_s = max(self._lock_s, min(waited, computed, gap))

    def take(self) -> Pauses:
        """The longest of each, and begin again."""
        pauses = Pauses(self._turn_s * 1000, self._lock_s * 1000)
        self._turn_s = self._lock_s = 0.0
        return pauses


def _read_delays() -> float:
    return read_run_delay() + read_run_delay(LOOP_SCHEDULING)


def read_run_delay(scheduling: Path = SCHEDULING) -> float:
    """Return how long a thread, this one by default, has been ready to run without a processor, in
    seconds; 0 where the system does not count it."""
    try:
        return int(scheduling.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


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
