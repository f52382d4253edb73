"""How long a command lasts: until its work is done, its client has gone, or a signal asks it to stop."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
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


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Do the work until it is done or a signal ends it; what it raises is raised, being stopped is no failure."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.Event()

    def stop() -> None:
        stopped.set()
        task.cancel()

    with on_stop(stop):
        await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None and not stopped.is_set():
        raise error


def run_fast(work: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
