"""No cyclic collection while a large value is built and read.

Each collection would walk all of it with the interpreter's lock held. Such a value has no cycles and is taken apart by
its owner; whatever else becomes garbage meanwhile waits a second.
"""

import contextlib
import gc
import threading
from collections.abc import Generator


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


_pause = _Pause()


@contextlib.contextmanager
def no_collection() -> Generator[None]:
    """Pause the collector for everyone, until the last who asked is done."""
    _pause.begin()
    try:
        yield
    finally:
        _pause.end()
