"""Garbage collection of `portico serve` and `portico stdio`: the only place that sets the collector.

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
"""Allocations beyond those after the last collection that mean a large value is alive."""
_PROMOTIONS = 10
"""Collections of the middle generation that make a full one due, as in the interpreter."""
_NEVER = 10**9


@contextmanager
def own_collector() -> Generator[None]:
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
    modules = 0
    gc.enable()
    while True:
        began = time.perf_counter()
        if len(sys.modules) != modules:
            # Code stays as long as the process: no later collection needs to walk through it.
            modules = len(sys.modules)
            gc.collect(1)
            gc.freeze()
        else:
            gc.collect()
        took = time.perf_counter() - began
        blocks = sys.getallocatedblocks()
        await asyncio.sleep(max(EVERY_S, took / SHARE))
        await _wait_until_due(modules)
        await _wait_until_small(blocks + LARGE_BLOCKS)


async def _wait_until_due(modules: int) -> None:
    while gc.get_count()[2] <= _PROMOTIONS and len(sys.modules) == modules:  # noqa: ASYNC110 - the collector has no event
        await asyncio.sleep(EVERY_S)


async def _wait_until_small(most: int) -> None:
    until = time.monotonic() + LONGEST_S
    while sys.getallocatedblocks() > most and time.monotonic() < until:  # noqa: ASYNC110 - nor has the allocator
        await asyncio.sleep(POLL_S)
