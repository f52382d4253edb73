"""Runs a command line in the running gateway of its configuration, if there is one.

The same command runs there as would run here, and what it writes is passed on byte for byte. None
of the gateway's modules is imported: this is why an answer takes milliseconds. Standard library
only.
"""

import os
import struct
import sys

from portico import __version__
from portico.cli.local_gateway.connection import GatewayGone, open_first_channel
from portico.cli.local_gateway.registration import identify_configuration
from portico.cli.main import ALONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TextIO

    from portico.cli.local_gateway.connection import Channel

COMMANDS = frozenset(
    {
        *("search", "call", "describe", "browse", "tokens", "trust", "usage"),
        *("approvals", "approve", "deny"),
    }
)
"""Commands that a running gateway answers."""
_LOCAL_OPTIONS = frozenset({ALONE, "--help", "-h", "--version"})
"""Options with which a command always runs here."""
_TERMINAL_VARIABLES = (
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
)
_FRAME = struct.Struct(">cI")
_EXIT_FAILED = 1
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141


def run_in_gateway(arguments: "Sequence[str]") -> int | None:
    """Return the exit code of a command line that a running gateway has run; None if none did."""
    if not arguments or arguments[0] not in COMMANDS or not _LOCAL_OPTIONS.isdisjoint(arguments):
        return None
    files = _find_config_options(arguments)
    configuration = identify_configuration(files)
    if not os.path.isdir(configuration.folder):
        return None
    stdin = b""
    if arguments[0] == "call" and "-" in arguments:
        stdin = sys.stdin.buffer.read()
    request = {
        "open": "command",
        "arguments": list(arguments),
        "files": files,
        "terminal": _describe_terminal(),
        "content_bytes": len(stdin),
    }
    channel = open_first_channel(configuration, request, stdin)
    if channel is None:
        if stdin:
            _give_back_stdin(stdin)
        return None
    with channel:
        if channel.registration.version != __version__:
            _print_error(
                f"The running gateway is Portico {channel.registration.version}, this is "
                f"{__version__}: `portico restart` brings it up to date."
            )
        return _copy_output(channel)


def _copy_output(channel: "Channel") -> int:
    streams = {b"o": sys.stdout, b"e": sys.stderr}
    try:
        while True:
            kind, size = _FRAME.unpack(channel.read_exactly(_FRAME.size))
            data = channel.read_exactly(size)
            if kind == b"x":
                return int(data)
            _write(streams[kind], data)
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # Otherwise the interpreter fails when it flushes into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    except GatewayGone as error:
        _print_error(
            f"Error: the running gateway ended before it had answered: {error}\n"
            "`portico start` starts it again; --alone does without it."
        )
        return _EXIT_FAILED


def _write(stream: "TextIO", data: bytes) -> None:
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


def _print_error(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - this is the output


def _find_config_options(arguments: "Sequence[str]") -> list[str]:
    """Return the values of --config; the gateway refuses if its own parser finds others."""
    found: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            break
        name, sign, value = argument.partition("=")
        if name in ("--config", "-c"):
            found.append(value if sign else next(rest, ""))
    return found


def _describe_terminal() -> "dict[str, Any]":
    columns: int | None = None
    lines: int | None = None
    if os.environ.get("COLUMNS", "").isdigit():
        columns = int(os.environ["COLUMNS"])
    if os.environ.get("LINES", "").isdigit():
        lines = int(os.environ["LINES"])
    for descriptor in (0, 1, 2):
        try:
            size = os.get_terminal_size(descriptor)
        except OSError:
            continue
        columns = columns or size.columns
        lines = lines or size.lines
        break
    return {
        "stdout_is_terminal": sys.stdout.isatty(),
        "stderr_is_terminal": sys.stderr.isatty(),
        "columns": columns,
        "lines": lines,
        "encoding": sys.stdout.encoding,
        "environ": {name: os.environ[name] for name in _TERMINAL_VARIABLES if name in os.environ},
    }


def _give_back_stdin(data: bytes) -> None:
    """Let the command that runs here after all read what was already read."""
    import io

    sys.stdin = io.TextIOWrapper(io.BytesIO(data), sys.stdin.encoding)
