"""Gives memory back after large work: what Python freed, the C library keeps for itself unless it
is asked."""

import ctypes
import sys
from collections.abc import Callable
from functools import cache


def trim_heap() -> None:
    """Return what is free to the system, where there is a way to (Linux with glibc); takes
    milliseconds. Blocks."""
    if (trim := _find_malloc_trim()) is not None:
        trim(0)


@cache
def _find_malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library
        return None
