"""`portico`, on an event loop that measures its pauses: `python -m benchmarks.hostile.gateway serve
…`.

Who connects to the socket $PORTICO_METER gets the longest pauses since the last time, as JSON. With
$PORTICO_METER_STACKS, SIGUSR2 writes the stack of the loop's thread to that file, a client that has the
interpreter's lock. Nothing of this is in the product.
"""  # noqa: E501

import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import threading
from dataclasses import asdict
from typing import Any

from benchmarks.hostile.meter import METER, MeasuredLoop


def answer(listening: socket.socket) -> None:
    """Tell anyone who connects, for ever."""
    while True:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(json.dumps(asdict(METER.take())).encode())


def main() -> int:
    """Measure, and be `portico`."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.environ["PORTICO_METER"])
    listening.listen()
    threading.Thread(target=answer, args=(listening,), daemon=True).start()
    threading.Thread(target=METER.watch_lock, daemon=True).start()
    if path := os.environ.get("PORTICO_METER_STACKS"):
        stacks = open(path, "a")  # noqa: SIM115 - it must stay open
        faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=False)
    with contextlib.suppress(ImportError):
        import uvloop

        replaced: Any = uvloop
        replaced.new_event_loop = MeasuredLoop
    from portico.cli.main import main as portico

    return portico()


if __name__ == "__main__":
    sys.exit(main())
