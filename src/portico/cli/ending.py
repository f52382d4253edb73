"""How a command ends: an exit code, and whatever went wrong said on stderr as advice, never as a traceback.

0 done · 1 failed · 2 the configuration or the command line cannot be used · 130 interrupted · 141 nobody reads stdout.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import orjson

from portico.errors import BackendUnavailable, ConfigError, InvalidArguments, PorticoError, RemoteError, UnknownName

DONE, FAILED, UNUSABLE, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141
DEBUG = "PORTICO_DEBUG"
IN_COMMANDS = {
    "Use search_tools to find one.": "`portico search` finds one.",
    "browse_tools without arguments lists them.": "`portico browse` lists them.",
}
"""What agents are advised → what a person can do."""


def ended(job: Callable[[], int], *, as_json: bool = False) -> int:
    """Run a command to its exit code."""
    try:
        code = job()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # the outermost edge: people get a sentence, PORTICO_DEBUG=1 the traceback
        cause = _first(error)
        if isinstance(cause, BrokenPipeError):
            _discard_stdout()
            return UNREAD
        return failed(cause, as_json=as_json)


def failed(cause: Exception, *, as_json: bool = False) -> int:
    """Say what went wrong; the exit code for it."""
    error = cause if isinstance(cause, PorticoError) else _unexpected(cause)
    if os.environ.get(DEBUG):
        traceback.print_exc()
    complain(error)
    if as_json:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.buffer.write(orjson.dumps({"error": as_data(error)}) + b"\n")
            sys.stdout.flush()
    return UNUSABLE if isinstance(error, ConfigError) else FAILED


def complain(error: PorticoError) -> None:
    """An error on stderr: what happened in red, what to do about it below."""
    message, advice = _safe(error, str(error).removesuffix(f"\n{error.advice}")), _advice(error)
    red, plain = ("\x1b[31m", "\x1b[0m") if colourful() else ("", "")
    with contextlib.suppress(OSError):
        print(f"{red}Error: {message}{plain}", *filter(None, [advice]), sep="\n", file=sys.stderr)  # noqa: T201


def note(text: str) -> None:
    """A remark on stderr."""
    dim, plain = ("\x1b[2m", "\x1b[0m") if colourful() else ("", "")
    with contextlib.suppress(OSError):
        print(f"{dim}{text}{plain}", file=sys.stderr)  # noqa: T201


def as_data(error: PorticoError) -> dict[str, Any]:
    """An error as `--json` shows it."""
    data: dict[str, Any] = {"kind": error.kind, "message": _safe(error, error.message), "advice": _advice(error)}
    if isinstance(error, ConfigError):
        data |= {"file": error.file, "line": error.line, "key": error.key}
    if isinstance(error, UnknownName):
        data["nearest"] = list(error.nearest)
    if isinstance(error, InvalidArguments):
        data["problems"] = list(error.problems)
    return data


def colourful() -> bool:
    """Whether stderr is a terminal that may be coloured."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _first(error: Exception) -> Exception:
    """What a group of failed tasks failed of."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _unexpected(error: Exception) -> PorticoError:
    return PorticoError(
        f"something unexpected happened: {type(error).__name__}: {error}",
        advice=f"This is a bug in Portico; {DEBUG}=1 shows where.",
    )


def overheard(text: str) -> str:
    """What a server wrote on stderr or answered, without secrets and without what would steer a terminal."""
    from portico.catalog.visible import shown
    from portico.config_file.masking import masked_text  # its patterns cost start-up, and broken servers are rare

    return masked_text(shown(text))


def reason(state: str, text: str) -> str:
    """Why a server is in a state. Where the configuration is why, the words are ours, and name no values."""
    from portico.catalog.visible import shown

    return shown(text) if state == "disabled" else overheard(text)


def _safe(error: PorticoError, text: str) -> str:
    # Our own words are ours; these kinds repeat a server's.
    return overheard(text) if isinstance(error, BackendUnavailable | RemoteError) else text


def _advice(error: PorticoError) -> str:
    return IN_COMMANDS.get(error.advice, error.advice)


def _discard_stdout() -> None:
    # Otherwise the interpreter flushes into the closed pipe on its way out and complains.
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
