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

from portico.cli.streams import get_streams
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
    try:
        code = job()
        get_streams().stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    # The outermost boundary: people read a sentence, PORTICO_DEBUG=1 shows the traceback.
    except Exception as error:
        cause = error
        while isinstance(cause, ExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, BrokenPipeError):
            _discard_stdout()
            return EXIT_BROKEN_PIPE
        return report_failure(cause, as_json=as_json)


def report_failure(cause: Exception, *, as_json: bool = False) -> int:
    """Print an error and return its exit code."""
    error = cause
    if not isinstance(error, PorticoError):
        error = PorticoError(
            f"something unexpected happened: {type(cause).__name__}: {cause}",
            advice=f"This is a bug in Portico; {DEBUG_VARIABLE}=1 shows where.",
        )
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()
    print_error(error)
    if as_json:
        with contextlib.suppress(BrokenPipeError):
            stdout = get_streams().stdout
            stdout.buffer.write(orjson.dumps({"error": to_error_data(error)}) + b"\n")
            stdout.flush()
    if isinstance(error, ConfigError):
        return EXIT_INVALID
    return EXIT_FAILED


def print_error(error: PorticoError) -> None:
    """Print an error on stderr: the message in red, the advice below."""
    message = _sanitize_message(error, str(error).removesuffix(f"\n{error.advice}"))
    advice = _get_cli_advice(error)
    _print_styled(f"Error: {message}", "\x1b[31m", advice)


def print_warning(text: str) -> None:
    """Print a warning on stderr, once in a run."""
    shown = get_streams().shown_warnings
    if text not in shown:
        shown.add(text)
        print_note(f"Warning: {text}")


def print_note(text: str) -> None:
    """Print a dimmed note on stderr."""
    _print_styled(text, "\x1b[2m")


def _print_styled(text: str, style: str, more: str = "") -> None:
    if can_color_stderr():
        text = f"{style}{text}\x1b[0m"
    with contextlib.suppress(OSError):
        print(text, *filter(None, [more]), sep="\n", file=get_streams().stderr)


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
    streams = get_streams()
    environ = streams.environ
    return streams.stderr.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def sanitize_server_text(text: str) -> str:
    """Mask secrets and control characters in text that a server wrote."""
    from portico.catalog.tool import sanitize_text

    # Imported late, because compiling its patterns slows down every start.
    from portico.config_file.mask import mask_text

    return mask_text(sanitize_text(text))


def sanitize_reason(state: str, text: str) -> str:
    """Sanitize the reason of a server's state; texts about the configuration are ours and not
    masked.
    """
    from portico.catalog.tool import sanitize_text

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
