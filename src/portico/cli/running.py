"""How long a command lasts: until its work is done, its client has gone, or a signal asks it to stop."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stoppable() -> Generator[None]:
    """A signal ends the command with exit code 0 even before there is a loop to handle it."""
    with contextlib.suppress(KeyboardInterrupt):
        before = signal.signal(signal.SIGTERM, _leave)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


@contextlib.contextmanager
def on_stop(stop: Callable[[], object]) -> Generator[None]:
    """Inside a running loop: call `stop` on SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":
        before = {number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop)) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


async def until_stopped(work: Coroutine[Any, Any, None], drain: Callable[[], Awaitable[None]]) -> None:
    """Do the work until it is done or a signal ends it; what it raises is raised, being stopped is no failure.

    A signal lets what is under way end first (`drain`); a second one does not.
    """
    task = asyncio.ensure_future(work)
    stop = Stop(drain, task.cancel)
    with on_stop(stop):
        await asyncio.wait({task})
    await stop.settled()
    if not task.cancelled() and (error := task.exception()) is not None and not stop.asked:
        raise error


class Stop:
    """What a signal does: the first one drains, then ends; another ends at once."""

    def __init__(self, drain: Callable[[], Awaitable[None]], end: Callable[[], object]) -> None:
        self._drain = drain
        self._end = end
        self._draining: asyncio.Task[None] | None = None

    @property
    def asked(self) -> bool:
        """Whether there was a signal."""
        return self._draining is not None

    def __call__(self) -> None:
        if self._draining is None:
            self._draining = asyncio.create_task(self._finish(), name="drain")
        else:
            self._end()

    async def settled(self) -> None:
        """Leave nothing behind."""
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.wait({self._draining})

    async def _finish(self) -> None:
        try:
            await self._drain()
        finally:
            self._end()


def run_fast(work: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
