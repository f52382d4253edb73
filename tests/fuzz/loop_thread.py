"""A gateway on a loop of its own thread: a loop that stands still, or a call that hangs, is noticed
from outside."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings

from tests.gateways import ContextHolder

T = TypeVar("T")
TIMEOUT_S = 240.0
"""Longer than anything takes on a busy machine; what takes longer hangs."""
FACTOR = float(os.environ.get("PORTICO_FUZZ") or 0.3)
"""`.ci/run` sets 1; the default finds what breaks often, in a third of the time."""


def examples(few: int, *, shrink: bool = True) -> settings:
    """So many examples, or more where asked for. Where each is a gateway of its own, shrinking
    takes too long."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    phases = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if shrink else [])]
    return settings(
        max_examples=max(5, round(few * FACTOR)),
        deadline=None,
        suppress_health_check=slow,
        phases=phases,
    )


class Running:
    """A loop that runs in a thread, and what is held open on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.holder = ContextHolder()
        self.complaints = Complaints()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what comes of it; raises TimeoutError if nothing does."""
        doing = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return doing.result(TIMEOUT_S)
        except TimeoutError:
            doing.cancel()
            raise


class Complaints(logging.Handler):
    """Describes what the gateway logged that it never should: errors, and whatever has a
    traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self._found.append(
                logging.Formatter("%(name)s %(levelname)s %(message)s").format(record)
            )

    def taken(self) -> list[str]:
        """Those since it was asked last."""
        found, self._found = self._found, []
        return found


@contextmanager
def running() -> Generator[Running]:
    """A loop in a thread; what its holder holds is left in the end."""
    ready = threading.Event()
    found: list[Running] = []
    stopped: list[Callable[[], None]] = []

    async def live() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        stopped.append(lambda: loop.call_soon_threadsafe(stop.set) and None)
        found.append(Running(loop))
        ready.set()
        await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(live()), daemon=True, name="gateway")
    thread.start()
    assert ready.wait(TIMEOUT_S)
    logging.getLogger().addHandler(found[0].complaints)
    try:
        yield found[0]
        found[0].do(found[0].holder.close())
    finally:
        logging.getLogger().removeHandler(found[0].complaints)
        stopped[0]()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive(), "the gateway's loop does not end"
