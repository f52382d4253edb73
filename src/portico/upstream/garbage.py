"""No cyclic collection while a large value is built and read.

Each collection would walk all of it with the interpreter's lock held. Such a value has no cycles and is taken apart by
its owner; whatever else becomes garbage meanwhile waits a second. Not longer: every HTTP answer leaves some that only
the collector finds.
"""

import contextlib
import gc
import threading
from collections.abc import Generator

MANY = 5_000
"""Young containers that take the collector some milliseconds to walk through."""
LARGEST = 100_000
"""Containers of a value that counts as one; a smaller one counts as a part of it."""
SPARED = 64
"""Large values for which no full collection was made; the next one has it."""


class _Pause:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holding = 0
        self._resumes = False

    def begin(self) -> None:
        with self._lock:
            if not self._holding:
                self._resumes = gc.isenabled()
                gc.disable()
            self._holding += 1

    def end(self) -> None:
        with self._lock:
            self._holding -= 1
            if not self._holding and self._resumes:
                gc.enable()


class _Aging:
    """Large values that the collector leaves alone, and how many of them there were since it last had all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spared = 0.0

    def age(self) -> None:
        young = gc.get_count()[0]
        if young < MANY:
            return
        with self._lock:
            self._spared += min(young / LARGEST, 1.0)
            if self._spared > SPARED:
                self._spared = 0.0
                gc.unfreeze()
                gc.collect()
            gc.freeze()


_pause = _Pause()
_aging = _Aging()


def age() -> None:
    """Keep the collector from what was just built, unvisited: else the next collection walks through millions of them.

    What has no cycles is freed all the same. Garbage that is there just now has to wait: one value after many that were
    kept from the collector pays for a collection of everything.
    """
    _aging.age()


@contextlib.contextmanager
def no_collection() -> Generator[None]:
    """Pause the collector for everyone, until the last who asked is done."""
    _pause.begin()
    try:
        yield
    finally:
        _pause.end()
