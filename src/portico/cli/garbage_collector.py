"""Garbage collection of `portico serve` and `portico stdio`: the only place that sets the
collector.

A full collection walks through every container with the interpreter's lock held, for half a second
where a large answer is alive. The interpreter therefore starts none; it goes on collecting young
objects, half a millisecond at a time. `collect_garbage` does the full ones, at moments when no
large value is alive. The library does not touch the collector: it belongs to the embedding program.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

EVERY_S = 5.0
POLL_S = 0.05
LONGEST_S = 120.0
"""How long a stream of large values puts off a collection: from then on, memory matters more."""
SHARE = 0.001
"""Of the time, for collections: one that took long is followed by a longer break."""
LARGE_BLOCKS = 200_000
"""Allocations beyond the fewest since the last collection that mean a large value is alive."""
_PROMOTIONS = 10
"""Collections of the middle generation that make a full one due, as in the interpreter."""
_NEVER = 10**9


@contextmanager
def defer_full_collections() -> Generator[None]:
    """Collect nothing until `collect_garbage` runs, and restore the settings in the end."""
    young, middle, old = gc.get_threshold()
    gc.disable()
    gc.set_threshold(young, middle, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
        gc.enable()


async def collect_garbage() -> None:
    """Collect everything now and then; runs until it is cancelled."""
    gc.freeze()
    gc.enable()
    least = sys.getallocatedblocks()
    while True:
        least = await _collect_until_modules_are_loaded(least)
        # Code stays as long as the process: no full collection needs to walk through it.
        gc.collect(1)
        gc.freeze()


async def _collect_until_modules_are_loaded(least: int) -> int:
    """Given the fewest allocations since the last collection; returns them as they are then.

    The work on a large value may be what loads modules: the allocations of that moment tell
    nothing.
    """
    modules = len(sys.modules)
    pause = EVERY_S
    waited = 0.0
    while len(sys.modules) == modules:
        await asyncio.sleep(pause)
        blocks = sys.getallocatedblocks()
        least = min(least, blocks)
        if gc.get_count()[2] <= _PROMOTIONS:
            pause = EVERY_S
            waited = 0.0
        elif blocks > least + LARGE_BLOCKS and waited < LONGEST_S:
            pause = POLL_S
            waited += POLL_S
        else:
            began = time.perf_counter()
            gc.collect()
            pause = max(EVERY_S, (time.perf_counter() - began) / SHARE)
            waited = 0.0
            least = sys.getallocatedblocks()
    return least
