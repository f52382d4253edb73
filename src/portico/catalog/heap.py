"""Returns freed memory to the operating system after large work.

The C library otherwise keeps what Python has freed.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache


def trim_heap() -> None:
    """Release free heap memory (Linux with glibc only). Blocks for milliseconds."""
    if (trim := _find_malloc_trim()) is not None:
        trim(0)


@cache
def _find_malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # not glibc
        return None
