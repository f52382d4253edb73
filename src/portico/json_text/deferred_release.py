"""Large values are let go of bit by bit: freeing millions of objects in one breath stops the event
loop."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from portico.json_text.part_stream import dismantle

_DELAY_S = 0.2
_TRIES = 25
"""How often others that hold the value are waited for."""

_pending_releases: set["asyncio.Task[None]"] = set()


@asynccontextmanager
async def release_later(result: dict[str, Any]) -> AsyncGenerator[None]:
    """Work on a result in this block: its structured content is freed in a thread, a while
    afterwards.

    What others still hold then is not changed.
    """
    try:
        yield
    finally:
        held = [result.get("structuredContent")]
        if isinstance(held[0], dict | list):
            going = asyncio.create_task(_free_later(held), name="let go of a large result")
            _pending_releases.add(going)
            going.add_done_callback(_pending_releases.discard)


async def _free_later(held: list[Any]) -> None:
    for _ in range(_TRIES):
        await asyncio.sleep(_DELAY_S)
        if sys.getrefcount(held[0]) == 2:  # the list and the argument
            break
    await asyncio.to_thread(dismantle, held, shared=False)
