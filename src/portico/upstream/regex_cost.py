"""Estimates the time to compile regular expressions before it is spent. Pure.

`jsonschema_rs` translates a pattern class by class, rereads all of it after each, and holds the GIL
meanwhile. It checks its size limit only afterwards.
"""

import re
from collections.abc import Iterable

MAX_COMPILE_US = 10_000
"""Microseconds that compiling the patterns of one schema may take."""

_CLASS = re.compile(r"\\[cdswDSW]")
_UNICODE_CLASS = re.compile(r"\\[pP]")
_UNICODE_CLASS_US = 110
"""Microseconds for one case-insensitive class, the slowest kind."""


def estimate_compilation(patterns: Iterable[str]) -> int:
    """Return the estimated microseconds.

    Repetitions are not counted: the compiler's own size limit stops those.
    """
    total = 0
    for pattern in patterns:
        classes = len(_CLASS.findall(pattern))
        total += len(pattern) // 5 + classes * (len(pattern) // 10 + 2 * classes)
        total += _UNICODE_CLASS_US * len(_UNICODE_CLASS.findall(pattern))
    return total
