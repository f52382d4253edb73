"""Runs a blocking call in a daemon thread of its own.

A call that never returns must neither keep the gateway from exiting nor use up shared threads.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def run_in_dedicated_thread(
    call: Callable[[], Any], name: str, on_done: Callable[[], None] = lambda: None
) -> Any:
    """Return or raise what the call does.

    `on_done` is called when it has ended, even if the caller no longer waits.
    """
    loop = asyncio.get_running_loop()
    returned: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: Any, error: BaseException | None) -> None:
        on_done()
        if not returned.done():
            # Not set_exception: a future does not accept StopIteration.
            returned.set_result((outcome, error))

    def run() -> None:
        outcome = None
        failure = None
        try:
            outcome = context.run(call)
        except BaseException as error:  # handed to the caller, whatever it is
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop may be closed
            loop.call_soon_threadsafe(deliver, outcome, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    outcome, failure = await returned
    if failure is None:
        return outcome
    if isinstance(failure, Exception):
        raise failure
    raise RuntimeError(f"{type(failure).__name__}: {failure}")
