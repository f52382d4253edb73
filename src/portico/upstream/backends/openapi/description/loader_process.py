"""Reads a large description in a process of its own.

A thread is not enough: the parsers of JSON and YAML hold the interpreter while they work, and
everybody's requests with it, for a tenth of a second a megabyte. The process also bounds the memory
that a hostile description can take.
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
from portico.upstream.backends.openapi.description.loader import (
    MAX_CPU_S,
    ApiDescription,
    load_description,
)
from portico.upstream.backends.openapi.description.reader import MAX_READ_S, DescriptionSource
from portico.upstream.backends.openapi.description.tools import ConfiguredParameters
from portico.upstream.backends.openapi.request_plans import RequestPlan
from portico.upstream.transports.python_interpreter import render_main_import

MAX_THREAD_BYTES = 2**17
"""Of a description and its parts, up to which a thread is enough: some 20 ms in one go."""
MAX_MEMORY_BYTES = 4 * 2**30
_PLANS_PER_PIECE = 200
"""How many are read back at a time: that holds the interpreter, too."""


def load_in_process(source: DescriptionSource, configured: ConfiguredParameters) -> ApiDescription:
    """Read a description as `load` does; blocks until the process has ended."""
    command = [sys.executable, "-I", "-S", "-c", render_main_import(__name__) + "main()"]
    asked = pickle.dumps((source, configured))
    try:
        ended = subprocess.run(  # noqa: S603 - this very interpreter, and no word of anybody else
            command,
            input=asked,
            capture_output=True,
            timeout=MAX_READ_S + MAX_CPU_S + 30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _make_load_error(source, "it took too long") from None
    answer = io.BytesIO(ended.stdout)
    try:
        found: Any = pickle.load(answer)  # noqa: S301
    except (EOFError, pickle.UnpicklingError):
        said = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise _make_load_error(
            source, said or f"its process ended with {ended.returncode}"
        ) from None
    if isinstance(found, BackendUnavailable):
        raise found
    plans: dict[str, RequestPlan] = {}
    while piece := pickle.load(answer):  # noqa: S301
        plans |= cast("dict[str, RequestPlan]", piece)
    return replace(cast(ApiDescription, found), plans=plans)


def main() -> None:
    """Read what is asked for on stdin, and write the API, or why there is none, to stdout."""
    if os.name == "posix":
        import resource

        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    source, given = pickle.load(sys.stdin.buffer)  # noqa: S301
    try:
        api = load_description(source, given)
    except BackendUnavailable as error:
        pickle.dump(error, sys.stdout.buffer)
    except MemoryError:
        pickle.dump(
            _make_load_error(source, f"it takes over {MAX_MEMORY_BYTES >> 30} GiB of memory"),
            sys.stdout.buffer,
        )
    else:
        _write_description(api, sys.stdout.buffer)


def _write_description(api: ApiDescription, sink: BinaryIO) -> None:
    pickle.dump(replace(api, plans={}), sink)
    plans = iter(api.plans.items())
    while piece := dict(islice(plans, _PLANS_PER_PIECE)):
        pickle.dump(piece, sink)
    pickle.dump({}, sink)


def _make_load_error(source: DescriptionSource, why: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"the description {source.display_location} cannot be read: {why}",
        advice="Take what is not needed out of the description.",
    )
