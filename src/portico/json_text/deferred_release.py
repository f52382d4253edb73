"""Deferred release of large values: freeing millions of objects at once blocks the event loop."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from portico.json_text.part_stream import dismantle

_DELAY_S = 0.2
_TRIES = 25
"""Maximum number of waits for other references to disappear."""

_pending_releases: set["asyncio.Task[None]"] = set()


@asynccontextmanager
async def release_later(result: dict[str, Any]) -> AsyncGenerator[None]:
    """Free the structured content of a result in a thread, some time after the block.

    What is still referenced elsewhere then is not changed.
    """
    try:
        yield
    finally:
        held = [result.get("structuredContent")]
        if isinstance(held[0], dict | list):
            task = asyncio.create_task(_free_later(held), name="let go of a large result")
            _pending_releases.add(task)
            task.add_done_callback(_pending_releases.discard)


async def _free_later(held: list[Any]) -> None:
    for _ in range(_TRIES):
        await asyncio.sleep(_DELAY_S)
        if sys.getrefcount(held[0]) == 2:  # the list and the argument
            break
    await asyncio.to_thread(dismantle, held, shared=False)
