"""Begins a benchmark again with libraries that start no threads of their own, so that CPU time is
that of one core."""

import os
import sys

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Read once, when numpy or another library is first imported."""


def begin_again() -> None:
    """Replace this process by one in which every variable is 1; nothing where they are, or
    processes have no exec."""
    if os.name == "posix" and any(os.environ.get(name) != "1" for name in THREADS):
        os.execve(
            sys.executable,
            [sys.executable, *sys.orig_argv[1:]],
            {**os.environ, **dict.fromkeys(THREADS, "1")},
        )
