"""Estimate what compiling a regular expression takes, before it is done. Pure.

`jsonschema_rs` translates a pattern class by class, and reads all of it again after each; it holds the interpreter's
lock meanwhile. Its limit of size is looked at only afterwards.
"""

import re
from collections.abc import Iterable

MAX_COMPILE_US = 10_000
"""Microseconds that compiling the patterns of one schema may take."""

_CLASS = re.compile(r"\\[cdswDSW]")
_UNICODE_CLASS = re.compile(r"\\[pP]")
_UNICODE_CLASS_US = 110
"""Of one class without regard to case, which is the longest."""


def estimate_compilation(patterns: Iterable[str]) -> int:
    """Estimate the microseconds; repetitions are not counted, a limit of size stops these."""
    total = 0
    for pattern in patterns:
        classes = len(_CLASS.findall(pattern))
        total += len(pattern) // 5 + classes * (len(pattern) // 10 + 2 * classes)
        total += _UNICODE_CLASS_US * len(_UNICODE_CLASS.findall(pattern))
    return total
