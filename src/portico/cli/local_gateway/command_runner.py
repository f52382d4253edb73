"""Runs a command line inside the gateway, with the streams of the command that asked.

The command is the same function as everywhere (`command_table`): only its gateway and its streams
are others, so that its output is the same. What it writes is sent in frames: one byte for the
stream (`o`, `e`, or `x` for the exit code, which is last), four bytes for the length, and the data.

`inspect_gateway` answers `portico logs SERVER`, `top` and `console`: for this user's commands only.
"""

import asyncio
import inspect
import io
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO, cast

from portico.auth.console_sessions import ConsoleSessions
from portico.catalog.address import find_nearest_names, fold
from portico.catalog.tool import quote_text, sanitize_text
from portico.cli.exit import EXIT_OK, report_failure, sanitize_reason, sanitize_server_text
from portico.cli.setup import CommandGateway, Setup, use_running_gateway
from portico.cli.streams import ProcessStreams, use_streams
from portico.errors import PorticoError, UnknownName
from portico.gateway import GatewayRuntime
from portico.upstream.lifecycle.supervisor import Upstream

FRAME = struct.Struct(">cI")
_ENVIRONMENT = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


class CommandNotRun(Exception):
    """The command line is not for this gateway; the text says why."""


class ParsedCommand:
    """A command line that can run here."""

    def __init__(self, command: Callable[..., Any], bound: inspect.BoundArguments) -> None:
        self._command = command
        self._bound = bound

    @property
    def as_json(self) -> bool:
        return bool(getattr(self._bound.arguments.get("options"), "json", False))

    async def run(self, gateway: GatewayRuntime, setup: Setup, streams: "RemoteStreams") -> int:
        """Run it in a context of its own, and return its exit code."""
        use_streams(streams)
        use_running_gateway(CommandGateway(gateway, setup))
        try:
            code = await self._command(*self._bound.args, **self._bound.kwargs)
            await streams.write_pending()
        # As at the end of any command: people read a sentence.
        except Exception as error:
            await streams.write_pending()
            return report_failure(_get_cause(error), as_json=self.as_json)
        return code if isinstance(code, int) else EXIT_OK


def parse_command(arguments: Sequence[str], files: Sequence[str]) -> ParsedCommand:
    """Parse a command line of a client whose --config files are `files`; raises CommandNotRun.

    Imports the option parser and the command, so it belongs in a thread.
    """
    from cyclopts import CycloptsError

    from portico.cli.command_table import app

    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    except (CycloptsError, SystemExit):
        raise CommandNotRun("the command line is not understood") from None
    if not inspect.iscoroutinefunction(command):
        raise CommandNotRun("not a command for a running gateway")
    named: Sequence[str] = getattr(bound.arguments.get("options"), "config", None) or ()
    if list(named) != list(files):
        raise CommandNotRun("it names another configuration")
    return ParsedCommand(command, bound)


class RemoteStreams(ProcessStreams):
    """Streams whose other ends are in another process."""

    is_process = False

    def __init__(
        self, send: Callable[[bytes], None], terminal: Mapping[str, Any], stdin: bytes
    ) -> None:
        """`send` sends bytes to the client, from any thread; `terminal` is what it says of its own
        streams."""
        super().__init__()
        self._stdin = stdin
        self._pending: list[Callable[[], None]] = []
        environ = terminal.get("environ")
        given: Mapping[str, Any] = environ if isinstance(environ, dict) else {}
        self._environ = {name: str(given[name]) for name in _ENVIRONMENT if name in given}
        self._environ["COLUMNS"] = str(int(terminal.get("columns") or 80))
        self._environ["LINES"] = str(int(terminal.get("lines") or 25))
        encoding = str(terminal.get("encoding") or "utf-8")
        self._stdout = _make_stream(
            b"o", send, encoding, is_terminal=bool(terminal.get("stdout_is_terminal"))
        )
        self._stderr = _make_stream(
            b"e", send, encoding, is_terminal=bool(terminal.get("stderr_is_terminal"))
        )

    @property
    def stdout(self) -> TextIO:
        return self._stdout

    @property
    def stderr(self) -> TextIO:
        return self._stderr

    @property
    def environ(self) -> Mapping[str, str]:
        return self._environ

    def read_stdin(self) -> bytes:
        """Return what the client read from its stdin."""
        return self._stdin

    def write_later(self, write: Callable[[], None]) -> None:
        """Write after the command has ended: formatting must not hold up the gateway."""
        self._pending.append(write)

    async def write_pending(self) -> None:
        """Write what the command has answered so far, in a thread."""
        pending = self._pending
        self._pending = []
        await asyncio.to_thread(lambda: [write() for write in (*pending, self._stdout.flush)])


class _FrameStream(io.RawIOBase):
    """Sends what is written as frames."""

    def __init__(self, kind: bytes, send: Callable[[bytes], None], *, is_terminal: bool) -> None:
        self._kind = kind
        self._send = send
        self._is_terminal = is_terminal

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, data: Any, /) -> int:
        content = bytes(data)
        if content:
            self._send(FRAME.pack(self._kind, len(content)) + content)
        return len(content)


def _make_stream(
    kind: bytes, send: Callable[[bytes], None], encoding: str, *, is_terminal: bool
) -> TextIO:
    raw = io.BufferedWriter(_FrameStream(kind, send, is_terminal=is_terminal))
    by_line = is_terminal or kind == b"e"
    return io.TextIOWrapper(raw, encoding, errors="replace", newline="\n", line_buffering=by_line)


def make_exit_frame(code: int) -> bytes:
    """Return the last frame of a command."""
    data = str(code).encode()
    return FRAME.pack(b"x", len(data)) + data


def _get_cause(error: Exception) -> Exception:
    cause = error
    while isinstance(cause, ExceptionGroup):
        cause = cast("ExceptionGroup[Exception]", cause).exceptions[0]
    return cause


async def inspect_gateway(
    gateway: GatewayRuntime, request: Mapping[str, Any], sessions: ConsoleSessions | None
) -> dict[str, Any]:
    """Answer a request by its `what`; errors are `{"error", "advice"}`.

    `sessions` are those of the console; None where the gateway serves none.
    """
    try:
        if request.get("what") == "log":
            return await _read_log(gateway, request)
        if request.get("what") == "load":
            return await _measure_load(gateway)
        if request.get("what") == "console_link":
            return _make_console_link(sessions)
        raise PorticoError("this gateway cannot say that", advice="`portico restart` updates it.")
    except PorticoError as error:
        return {"error": error.message, "advice": error.advice}


def _make_console_link(sessions: ConsoleSessions | None) -> dict[str, Any]:
    """Return a code for a one-time link.

    There is one without credentials too: its session stays valid when the first key is made.
    """
    if sessions is None:
        raise PorticoError(
            "this gateway serves no console",
            advice="gateway.console and gateway.api have to be on, and --profile left out.",
        )
    return {"code": sessions.make_link_code()}


async def _read_log(gateway: GatewayRuntime, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a server's log after the number `after`."""
    upstream = _find_upstream(gateway, str(request.get("server")))
    entries = await upstream.read_log(int(request.get("after", 0)))

    def render() -> list[dict[str, Any]]:
        return [
            {**entry._asdict(), "text": " ".join(sanitize_server_text(entry.text).splitlines())}
            for entry in entries
        ]

    return {
        "server": upstream.name,
        "state": upstream.state,
        "entries": await asyncio.to_thread(render),
    }


async def _measure_load(gateway: GatewayRuntime) -> dict[str, Any]:
    """Return the load of the gateway and of each server, the worst and busiest first."""
    measured = await gateway.ensure_monitoring().load.measure()
    limiter = gateway.admission.limiter
    requests = {"running": limiter.running, "waiting": limiter.waiting}
    servers = await asyncio.to_thread(lambda: list(map(_sanitize_load, measured["servers"])))
    return {**measured, "servers": servers, "requests": requests}


def _sanitize_load(load: Mapping[str, Any]) -> dict[str, Any]:
    """Return a server's load with texts of the server as they may be shown."""
    failure = load["last_error"]
    if failure is not None:
        failure = {**failure, "tool": sanitize_text(failure["tool"])}
    reason = sanitize_reason(load["state"], load["reason"])
    return {**load, "reason": reason, "last_error": failure}


def _find_upstream(gateway: GatewayRuntime, name: str) -> Upstream:
    """Return the server that a name means; raises PorticoError."""
    upstreams = gateway.upstreams
    exact = [name] if name in upstreams else []
    matches = exact or [key for key in upstreams if fold(key) == fold(name)]
    if len(matches) == 1:
        return upstreams[matches[0]]
    configured = gateway.config.servers.get(name)
    if configured is not None and configured.disabled:
        raise PorticoError(
            f"{name} is switched off in the configuration",
            advice=f"`portico enable {name}` switches it on.",
        )
    near = tuple(matches) or find_nearest_names(name, list(upstreams))
    advice = f"Did you mean {', '.join(near)}?" if near else "`portico status` lists them."
    raise UnknownName(f"there is no server {quote_text(name)} here", nearest=near, advice=advice)
