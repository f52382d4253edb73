"""A call that blocks, in a thread of its own, which ends with the process.

One that never returns must not keep the gateway from ending, nor use up threads that others share.
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
    """What a call returns or raises; `ended` is called when it has, also when nobody waits for it
    any more."""
    loop = asyncio.get_running_loop()
    returned: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: Any, error: BaseException | None) -> None:
        on_done()
        if not returned.done():
            returned.set_result(
                (outcome, error)
            )  # not set_exception: a future takes no StopIteration

    def run() -> None:
        outcome = None
        failure = None
        try:
            outcome = context.run(call)
        except BaseException as error:  # whatever it is, it is handed to the caller
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop may be gone
            loop.call_soon_threadsafe(deliver, outcome, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    outcome, failure = await returned
    if failure is not None:
        raise (
            failure
            if isinstance(failure, Exception)
            else RuntimeError(f"{type(failure).__name__}: {failure}")
        )
    return outcome
