"""How a command ends: an exit code, and errors on stderr as advice instead of a traceback.

0 done · 1 failed · 2 unusable configuration or command line · 130 interrupted · 141 stdout closed.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import orjson

from portico.errors import (
    BackendUnavailable,
    ConfigError,
    InvalidArguments,
    PorticoError,
    RemoteError,
    UnknownName,
)

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_INVALID = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
DEBUG_VARIABLE = "PORTICO_DEBUG"
CLI_ADVICE = {
    "Use search_tools to find one.": "`portico search` finds one.",
    "browse_tools without arguments lists them.": "`portico browse` lists them.",
}
"""Advice for agents → advice for people."""


def run_to_exit_code(job: Callable[[], int], *, as_json: bool = False) -> int:
    """Run a command and return its exit code."""
    try:
        code = job()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    # The outermost boundary: people read a sentence, PORTICO_DEBUG=1 shows the traceback.
    except Exception as error:
        cause = _unwrap_group(error)
        if isinstance(cause, BrokenPipeError):
            _discard_stdout()
            return EXIT_BROKEN_PIPE
        return report_failure(cause, as_json=as_json)


def report_failure(cause: Exception, *, as_json: bool = False) -> int:
    """Print an error and return its exit code."""
    if isinstance(cause, PorticoError):
        error = cause
    else:
        error = _wrap_unexpected(cause)
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()
    print_error(error)
    if as_json:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.buffer.write(orjson.dumps({"error": to_error_data(error)}) + b"\n")
            sys.stdout.flush()
    if isinstance(error, ConfigError):
        return EXIT_INVALID
    return EXIT_FAILED


def print_error(error: PorticoError) -> None:
    """Print an error on stderr: the message in red, the advice below."""
    message = _sanitize_message(error, str(error).removesuffix(f"\n{error.advice}"))
    advice = _get_cli_advice(error)
    color, reset = ("\x1b[31m", "\x1b[0m") if can_color_stderr() else ("", "")
    lines = [f"{color}Error: {message}{reset}", *filter(None, [advice])]
    with contextlib.suppress(OSError):
        print(*lines, sep="\n", file=sys.stderr)  # noqa: T201


def print_note(text: str) -> None:
    """Print a dimmed note on stderr."""
    dim, plain = ("\x1b[2m", "\x1b[0m") if can_color_stderr() else ("", "")
    with contextlib.suppress(OSError):
        print(f"{dim}{text}{plain}", file=sys.stderr)  # noqa: T201


def to_error_data(error: PorticoError) -> dict[str, Any]:
    """Convert an error for `--json`."""
    data: dict[str, Any] = {
        "kind": error.kind,
        "message": _sanitize_message(error, error.message),
        "advice": _get_cli_advice(error),
    }
    if isinstance(error, ConfigError):
        data |= {"file": error.file, "line": error.line, "key": error.key}
    if isinstance(error, UnknownName):
        data["nearest"] = list(error.nearest)
    if isinstance(error, InvalidArguments):
        data["problems"] = list(error.problems)
    return data


def can_color_stderr() -> bool:
    """Return whether stderr is a terminal that supports colours."""
    return (
        sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def _unwrap_group(error: Exception) -> Exception:
    """Return the first cause in nested exception groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _wrap_unexpected(error: Exception) -> PorticoError:
    return PorticoError(
        f"something unexpected happened: {type(error).__name__}: {error}",
        advice=f"This is a bug in Portico; {DEBUG_VARIABLE}=1 shows where.",
    )


def sanitize_server_text(text: str) -> str:
    """Mask secrets and control characters in text that a server wrote."""
    from portico.catalog.visible_text import sanitize_text

    # Imported late, because compiling its patterns slows down every start.
    from portico.config_file.mask import mask_text

    return mask_text(sanitize_text(text))


def sanitize_reason(state: str, text: str) -> str:
    """Sanitize the reason of a server's state; texts about the configuration are ours and not
    masked.
    """
    from portico.catalog.visible_text import sanitize_text

    if state == "disabled":
        return sanitize_text(text)
    return sanitize_server_text(text)


def _sanitize_message(error: PorticoError, text: str) -> str:
    # Only these kinds of error repeat a server's text.
    if isinstance(error, BackendUnavailable | RemoteError):
        return sanitize_server_text(text)
    return text


def _get_cli_advice(error: PorticoError) -> str:
    return CLI_ADVICE.get(error.advice, error.advice)


def _discard_stdout() -> None:
    # Otherwise the interpreter fails when it flushes into the closed pipe at exit.
    with contextlib.suppress(OSError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
