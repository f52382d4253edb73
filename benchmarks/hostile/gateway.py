"""`portico`, on an event loop that measures its pauses: `python -m benchmarks.hostile.gateway serve …`.

Two things keep everybody waiting, and both are measured in processor time, which other programs of the machine do not
add to. A turn of the event loop: what its thread used from one look at the sockets to the next. And the interpreter's
lock held by any thread: another thread asks for it every few milliseconds; how long it waited counts, but no more than
what the whole process computed meanwhile. Who connects to the socket $PORTICO_METER gets the longest of each since the
last time as JSON. With $PORTICO_METER_STACKS, SIGUSR2 writes the stack of the loop's thread to that file, whoever has
the lock. Nothing of this is in the product.
"""

import asyncio
import asyncio.base_events
import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import uvloop

ASK_S = 0.005


class Meter:
    """The longest pauses since it was read last, in milliseconds."""

    def __init__(self) -> None:
        self._turn_ms = 0.0
        self._lock_ms = 0.0

    def turned(self, seconds: float) -> None:
        """Note what one turn of the loop took."""
        self._turn_ms = max(self._turn_ms, seconds * 1000)

    def watch_lock(self) -> None:
        """Ask for the interpreter's lock for ever."""
        while True:
            began, used = time.perf_counter(), time.process_time()
            time.sleep(ASK_S)
            waited = time.perf_counter() - began - ASK_S
            computed = time.process_time() - used
            self._lock_ms = max(self._lock_ms, min(waited, computed) * 1000)

    def answer(self, listening: socket.socket) -> None:
        """Tell whoever connects, and begin anew, for ever."""
        while True:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                told = {"turn_ms": self._turn_ms, "lock_ms": self._lock_ms}
                self._turn_ms = self._lock_ms = 0.0
                connection.sendall(json.dumps(told).encode())


METER = Meter()


class MeasuredLoop(asyncio.SelectorEventLoop):
    """A loop whose turns are measured."""

    def _run_once(self) -> None:
        began = time.thread_time()
        base: Any = asyncio.base_events.BaseEventLoop
        base._run_once(self)
        METER.turned(time.thread_time() - began)

    def _make_socket_transport(self, sock: socket.socket, *args: Any, **options: Any) -> Any:
        # As uvloop has it: asyncio leaves out sockets that were made without naming the protocol.
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        base: Any = asyncio.SelectorEventLoop
        return base._make_socket_transport(self, sock, *args, **options)


def main() -> int:
    """Measure, and be `portico`."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.environ["PORTICO_METER"])
    listening.listen()
    threading.Thread(target=METER.answer, args=(listening,), daemon=True).start()
    threading.Thread(target=METER.watch_lock, daemon=True).start()
    if path := os.environ.get("PORTICO_METER_STACKS"):
        stacks = open(path, "a")  # noqa: SIM115 - it must stay open
        faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=False)
    uvloop.new_event_loop = MeasuredLoop
    from portico.cli.main import main as portico

    return portico()


if __name__ == "__main__":
    sys.exit(main())
