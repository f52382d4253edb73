"""Reads a large description in a process of its own.

A thread is not enough: the parsers of JSON and YAML hold the interpreter while they work, and everybody's requests with
it, for a tenth of a second a megabyte. The process also bounds the memory that a hostile description can take.
"""

import contextlib
import io
import os
import pickle  # both ends are this module, of this version, of this user
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from typing import Any, BinaryIO, cast

from portico.errors import BackendUnavailable
from portico.upstream.openapi.loading import MAX_CPU_S, Api, load
from portico.upstream.openapi.plans import Plan
from portico.upstream.openapi.reading import READ_S, Source
from portico.upstream.openapi.tools import Given
from portico.upstream.own_interpreter import import_main

SMALL_BYTES = 2**17
"""Of a description and its parts, up to which a thread is enough: some 20 ms in one go."""
MAX_MEMORY = 4 * 2**30
_PLANS = 200
"""How many are read back at a time: that holds the interpreter, too."""


def load_in_process(source: Source, given: Given) -> Api:
    """Read a description as `load` does; blocks until the process has ended."""
    command = [sys.executable, "-I", "-S", "-c", import_main(__name__) + "main()"]
    asked = pickle.dumps((source, given))
    try:
        ended = subprocess.run(  # noqa: S603 - this very interpreter, and no word of anybody else
            command, input=asked, capture_output=True, timeout=READ_S + MAX_CPU_S + 30, check=False
        )
    except subprocess.TimeoutExpired:
        raise _unread(source, "it took too long") from None
    answer = io.BytesIO(ended.stdout)
    try:
        found: Any = pickle.load(answer)  # noqa: S301
    except (EOFError, pickle.UnpicklingError):
        said = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise _unread(source, said or f"its process ended with {ended.returncode}") from None
    if isinstance(found, BackendUnavailable):
        raise found
    plans: dict[str, Plan] = {}
    while piece := pickle.load(answer):  # noqa: S301
        plans |= cast("dict[str, Plan]", piece)
    return replace(cast(Api, found), plans=plans)


def main() -> None:
    """Read what is asked for on stdin, and write the API, or why there is none, to stdout."""
    if os.name == "posix":
        import resource

        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    source, given = pickle.load(sys.stdin.buffer)  # noqa: S301
    try:
        api = load(source, given)
    except BackendUnavailable as error:
        pickle.dump(error, sys.stdout.buffer)
    except MemoryError:
        pickle.dump(_unread(source, f"it takes over {MAX_MEMORY >> 30} GiB of memory"), sys.stdout.buffer)
    else:
        _write(api, sys.stdout.buffer)


def _write(api: Api, sink: BinaryIO) -> None:
    pickle.dump(replace(api, plans={}), sink)
    plans = iter(api.plans.items())
    while piece := dict(islice(plans, _PLANS)):
        pickle.dump(piece, sink)
    pickle.dump({}, sink)


def _unread(source: Source, why: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"the description {source.shown} cannot be read: {why}",
        advice="Take what is not needed out of the description.",
    )
