"""Conversion of the interpreter's errors to faults: kind, message and line of the script."""

from collections.abc import Sequence
from typing import Any, Protocol

from portico.scripts.sandbox.python.prelude import RESULT_FUNCTIONS
from portico.scripts.sandbox.script import Fault, FaultKind

PRELUDE_FILE = "<python-input-0>"
SCRIPT_FILE = "<python-input-1>"
"""File names that the interpreter gives to what a session is fed: the prelude, then the script."""

_MAX_MESSAGE_CHARS = 2_000
DISCARDING_KINDS: frozenset[FaultKind] = frozenset({"time", "memory", "recursion", "crash"})
"""Faults after which a process is not used again."""


class TracebackFrame(Protocol):
    """One frame of a traceback in pydantic_monty."""

    @property
    def filename(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def function_name(self) -> str | None: ...


def to_fault(error: Any, failed_calls: frozenset[str], waiting_line: int | None) -> Fault:
    """Convert a MontyError to a fault.

    `failed_calls` are messages of failed calls: a script that raises one of them did not catch it.
    `waiting_line` is the line of the last wait: a failure inside `gather` has no line.
    """
    import pydantic_monty as monty

    if isinstance(error, monty.MontyCrashedError):
        if error.timed_out:
            return Fault(
                "time", "The script took more processor time than its limit, inside one operation."
            )
        return Fault("crash", f"The script's process ended: {shorten_message(str(error))}")
    if isinstance(error, monty.MontySyntaxError):
        return Fault(
            "syntax",
            "SyntaxError: " + shorten_message(str(error)),
            _find_script_line(error.traceback()),
        )
    if not isinstance(error, monty.MontyRuntimeError):
        return Fault("runtime", shorten_message(str(error)))
    frames = error.traceback()
    line = _find_script_line(frames)
    message = str(error)
    kind = _classify(type(error.exception()), message, frames)
    text = message.partition(": ")[2]
    if kind == "runtime" and text in failed_calls:
        return Fault("call", shorten_message(text), line or waiting_line)
    return Fault(
        kind,
        shorten_message(message),
        line or (waiting_line if kind in ("runtime", "value") else None),
    )


def _classify(
    raised: type[BaseException], message: str, frames: Sequence[TracebackFrame]
) -> FaultKind:
    if raised is TimeoutError and "time limit exceeded:" in message:
        return "time"
    if raised is MemoryError:
        return "memory"
    if any(
        frame.filename == PRELUDE_FILE and frame.function_name in RESULT_FUNCTIONS
        for frame in frames
    ):
        return "value"
    if raised is RecursionError:
        return "recursion"
    if raised is NotImplementedError and "syntax parser" in message:
        return "syntax"
    return "runtime"


def _find_script_line(frames: Sequence[TracebackFrame]) -> int | None:
    return next((frame.line for frame in reversed(frames) if frame.filename == SCRIPT_FILE), None)


def shorten_message(message: str) -> str:
    """Truncate a message, because a script may make it arbitrarily long."""
    if len(message) <= _MAX_MESSAGE_CHARS:
        return message
    return message[:_MAX_MESSAGE_CHARS] + "…"
