"""Large values are let go of bit by bit: freeing millions of objects in one breath stops the event loop."""

import asyncio
from typing import Any

from portico.execution.json_stream import weight
from portico.upstream.backend import Raw

LARGE = 2 * 1024**2
"""Characters of structured content from which it matters."""
_AFTER_S = 0.2
"""Until then, whoever has the value is done with it."""
_FREED = 4_096
_WIDE = 4_096
"""Children from which each is held, and not only the containers among them."""

_going: set["asyncio.Task[None]"] = set()


async def let_go(result: Raw) -> None:
    """Hold what a large result is made of a little longer than the result, and free it in a thread afterwards.

    Nothing is changed: others may hold the same value.
    """
    structured = result.get("structuredContent")
    if not isinstance(structured, dict | list):
        return
    held = await asyncio.to_thread(_inside, structured)
    if not held:
        return
    going = asyncio.create_task(_slowly(held), name="let go of a large result")
    _going.add(going)
    going.add_done_callback(_going.discard)


async def _slowly(held: list[Any]) -> None:
    await asyncio.sleep(_AFTER_S)
    await asyncio.to_thread(_free, held)


def _inside(value: Any) -> list[Any]:
    """Return what a large value is made of; of one that is not large, nothing."""
    held: list[Any] = []
    if weight(value, LARGE) < LARGE:
        return held
    pending: list[Any] = [value]
    for one in pending:
        children = one.values() if isinstance(one, dict) else one
        if len(one) > _WIDE:
            held += children
            held += one if isinstance(one, dict) else ()
        inner = [child for child in children if isinstance(child, dict | list)]
        pending += inner
    held += pending[1:]
    return held


def _free(held: list[Any]) -> None:
    while held:
        del held[-_FREED:]
