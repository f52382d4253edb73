"""No cyclic collection while a large value is built and read.

Each collection would walk all of it with the interpreter's lock held. Such a value has no cycles and is taken apart by
its owner; whatever else becomes garbage meanwhile waits a second. Not longer: every HTTP answer leaves some that only
the collector finds.
"""

import contextlib
import gc
import threading
from collections.abc import Generator

MANY = 100_000
"""Young containers that take the collector some ten milliseconds to walk through."""
SPARED = 8
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
    """Large values handed to the old ones, and how many of them there were since the last full collection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spared = 0
        self._full = 0

    def age(self) -> None:
        if gc.get_count()[0] < MANY:
            return
        with self._lock:
            if (full := _full_collections()) != self._full:
                self._full, self._spared = full, 0
            self._spared += 1
            if self._spared > SPARED:
                gc.collect()
            else:
                gc.freeze()
                gc.unfreeze()


def _full_collections() -> int:
    return gc.get_stats()[2]["collections"]


_pause = _Pause()
_aging = _Aging()


def age() -> None:
    """Hand what was just built to the old ones, unvisited: else the next collection walks through millions of them.

    The collector then counts anew when a full collection is due. So a few values are let be, and one that comes after
    many that were handed over pays for them: without that a stream of large values would put it off for ever.
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
