"""What went wrong in a Python script, told from what the sandbox raised: the kind, its own words, the script's line."""

from collections.abc import Sequence
from typing import Any, Protocol

from portico.execution.sandbox.python.prelude import ANSWERING
from portico.execution.sandbox.script import Fault, FaultKind

PRELUDE, SCRIPT = "<python-input-0>", "<python-input-1>"
"""How the sandbox names what a session is fed: first ours, then the script."""

_LONGEST_MESSAGE = 2_000
SPOILING: frozenset[FaultKind] = frozenset({"time", "memory", "recursion", "crash"})
"""After these a worker's process is not used again."""


class Frame(Protocol):
    """One step of a traceback, as pydantic_monty has it."""

    @property
    def filename(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def function_name(self) -> str | None: ...


def fault_of(error: Any, failed_calls: frozenset[str], waiting_line: int | None) -> Fault:
    """The fault that a MontyError is.

    `failed_calls` are the messages of the calls that failed: a script that raises one of them did not catch it.
    `waiting_line` is where the script waited last: a failure inside `gather` has no line of its own.
    """
    import pydantic_monty as monty

    if isinstance(error, monty.MontyCrashedError):
        if error.timed_out:
            return Fault("time", "The script took more processor time than its limit, inside one operation.")
        return Fault("crash", f"The script's process ended: {shortened(str(error))}")
    if isinstance(error, monty.MontySyntaxError):
        return Fault("syntax", "SyntaxError: " + shortened(str(error)), _line(error.traceback()))
    if not isinstance(error, monty.MontyRuntimeError):
        return Fault("runtime", shortened(str(error)))
    frames = error.traceback()
    line = _line(frames)
    message = str(error)
    kind = _kind(type(error.exception()), message, frames)
    text = message.partition(": ")[2]
    if kind == "runtime" and text in failed_calls:
        return Fault("call", shortened(text), line or waiting_line)
    return Fault(kind, shortened(message), line or (waiting_line if kind in ("runtime", "value") else None))


def _kind(raised: type[BaseException], message: str, frames: Sequence[Frame]) -> FaultKind:
    if raised is TimeoutError and "time limit exceeded:" in message:
        return "time"
    if raised is MemoryError:
        return "memory"
    if any(frame.filename == PRELUDE and frame.function_name in ANSWERING for frame in frames):
        return "value"
    if raised is RecursionError:
        return "recursion"
    if raised is NotImplementedError and "syntax parser" in message:
        return "syntax"
    return "runtime"


def _line(frames: Sequence[Frame]) -> int | None:
    return next((frame.line for frame in reversed(frames) if frame.filename == SCRIPT), None)


def shortened(message: str) -> str:
    """A message that a script may have made as long as it liked."""
    return message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "…"
