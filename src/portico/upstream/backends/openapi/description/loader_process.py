"""Loads a large description in a separate process.

A thread is not enough: the JSON and YAML parsers hold the GIL, and thereby every request, for a
tenth of a second per megabyte. The process also limits the memory that a hostile description can
take.
"""

import contextlib
import io
import os
import pickle  # both ends run this module, in the same version, as the same user
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
"""Bytes of a description and its parts for which a thread is enough: about 20 ms at once."""
MAX_MEMORY_BYTES = 4 * 2**30
_PLANS_PER_PIECE = 200
"""Plans that are unpickled at once, because that holds the GIL too."""


def load_in_process(source: DescriptionSource, configured: ConfiguredParameters) -> ApiDescription:
    """Load a description as `load_description` does; blocks until the process has ended."""
    command = [sys.executable, "-I", "-S", "-c", render_main_import(__name__) + "main()"]
    request = pickle.dumps((source, configured))
    try:
        completed = subprocess.run(  # noqa: S603 - own interpreter, no input of others
            command,
            input=request,
            capture_output=True,
            timeout=MAX_READ_S + MAX_CPU_S + 30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _make_load_error(source, "it took too long") from None
    output = io.BytesIO(completed.stdout)
    try:
        outcome: Any = pickle.load(output)  # noqa: S301
    except (EOFError, pickle.UnpicklingError):
        last_line = completed.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise _make_load_error(
            source, last_line or f"its process ended with {completed.returncode}"
        ) from None
    if isinstance(outcome, BackendUnavailable):
        raise outcome
    plans: dict[str, RequestPlan] = {}
    while piece := pickle.load(output):  # noqa: S301
        plans |= cast("dict[str, RequestPlan]", piece)
    return replace(cast(ApiDescription, outcome), plans=plans)


def main() -> None:
    """Read the source from stdin and write the description, or an error, to stdout."""
    if os.name == "posix":
        import resource

        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    source, configured = pickle.load(sys.stdin.buffer)  # noqa: S301
    try:
        api = load_description(source, configured)
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
