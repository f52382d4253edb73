"""Lifetime of a command: until its work is done, its client is gone, or a signal stops it."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def exit_cleanly_on_signal() -> Generator[None]:
    """End the command with exit code 0 on a signal, even before an event loop handles it."""
    with contextlib.suppress(KeyboardInterrupt):
        before = signal.signal(signal.SIGTERM, _raise_system_exit)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _raise_system_exit(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


@contextlib.contextmanager
def handle_stop_signals(stop: Callable[[], object]) -> Generator[None]:
    """Call `stop` on SIGINT and SIGTERM while the running loop is in this context."""
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":
        before = {
            number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
            for number in STOP_SIGNALS
        }
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


async def run_until_stopped(
    work: Coroutine[Any, Any, None], drain: Callable[[], Awaitable[None]]
) -> None:
    """Run `work` until it ends or a signal stops it; raise its error unless it was stopped.

    The first signal drains running requests first; a second one does not wait.
    """
    task = asyncio.ensure_future(work)
    stop = GracefulStop(drain, task.cancel)
    with handle_stop_signals(stop):
        await asyncio.wait({task})
    await stop.cancel_drain()
    if not task.cancelled() and (error := task.exception()) is not None and not stop.is_requested:
        raise error


class GracefulStop:
    """Signal handler: the first signal drains and then stops, another stops at once."""

    def __init__(
        self, drain: Callable[[], Awaitable[None]], stop_now: Callable[[], object]
    ) -> None:
        self._drain = drain
        self._stop_now = stop_now
        self._drain_task: asyncio.Task[None] | None = None

    @property
    def is_requested(self) -> bool:
        """Whether a signal was received."""
        return self._drain_task is not None

    def __call__(self) -> None:
        if self._drain_task is None:
            self._drain_task = asyncio.create_task(self._drain_and_stop(), name="drain")
        else:
            self._stop_now()

    async def cancel_drain(self) -> None:
        """Cancel the drain task and wait for it."""
        if self._drain_task is not None:
            self._drain_task.cancel()
            await asyncio.wait({self._drain_task})

    async def _drain_and_stop(self) -> None:
        try:
            await self._drain()
        finally:
            self._stop_now()


def run_with_uvloop(work: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
