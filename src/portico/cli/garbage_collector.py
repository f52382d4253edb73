"""Garbage collection of `portico serve` and `portico stdio`: the only module that configures it.

A full collection walks every container while holding the interpreter's lock, for half a second
where a large answer is alive. Automatic full collections are therefore off; young objects are still
collected, half a millisecond at a time. `collect_garbage` does the full ones when no large value is
alive. The library does not touch the collector: it belongs to the embedding program.
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
"""Maximum delay of a collection while large values are alive."""
SHARE = 0.001
"""Share of time for collections: a long one is followed by a longer pause."""
LARGE_BLOCKS = 50_000
"""Allocations above the minimum that indicate a large live value."""
MODULE_BLOCKS = 1_000
"""Maximum allocations of a module."""
_PROMOTIONS = 10
"""Collections of the middle generation that make a full one due, as in the interpreter."""
_NEVER = 10**9


@contextmanager
def defer_full_collections() -> Generator[None]:
    """Disable collection until `collect_garbage` runs, and restore the settings at exit."""
    young, middle, old = gc.get_threshold()
    gc.disable()
    gc.set_threshold(young, middle, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
        gc.enable()


async def collect_garbage() -> None:
    """Run full collections from time to time, until cancelled."""
    gc.freeze()
    gc.enable()
    min_blocks = sys.getallocatedblocks()
    while True:
        modules = len(sys.modules)
        min_blocks = await _collect_until_modules_are_loaded(min_blocks)
        # A large value may be what they were loaded for, so the current number is not used.
        min_blocks += MODULE_BLOCKS * (len(sys.modules) - modules)
        # Modules live as long as the process, so full collections need not walk through them.
        gc.collect(1)
        gc.freeze()


async def _collect_until_modules_are_loaded(least: int) -> int:
    """Collect until new modules are loaded.

    `least` is the minimum of allocated blocks; returns the new minimum.
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
            if waited >= LONGEST_S:
                least = sys.getallocatedblocks()
            pause = max(EVERY_S, (time.perf_counter() - began) / SHARE)
            waited = 0.0
    return least
