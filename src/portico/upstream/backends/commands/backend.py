"""Command-line programs as a server: each is a tool, started for each call.

A connection holds only the calls in flight. A missing program fails its own tool and no other.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.config.command_tool import CommandTool
from portico.config.command_words import get_program_name
from portico.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    BackendTimeout,
    BackendUnavailable,
    RemoteError,
)
from portico.json_text.chunked_decoder import LARGE_BYTES
from portico.upstream.backend import (
    NO_OPTIONS,
    Connection,
    Era,
    InitializeInfo,
    Listener,
    Raw,
    RequestOptions,
)
from portico.upstream.backends.commands.arguments import check_arguments
from portico.upstream.backends.commands.command_line import (
    CommandLine,
    InvalidCommandLine,
    build_command_line,
)
from portico.upstream.backends.commands.definitions import build_definition
from portico.upstream.backends.commands.program import (
    ClosedWhileRunning,
    OutputTooLarge,
    ProgramContext,
    explain_batch_refusal,
    locate_program,
    run_program,
)
from portico.upstream.backends.commands.results import make_error_result, to_tool_result
from portico.upstream.protocol.envelope import MODERN_VERSION
from portico.upstream.transports.process import POSIX


@dataclass(frozen=True)
class CommandsBackend:
    """A set of programs."""

    name: str
    tools: Mapping[str, CommandTool]
    context: ProgramContext = field(default_factory=ProgramContext)
    description: str = ""
    diagnostic_data: dict[str, Any] = field(default_factory=dict)

    kind = "commands"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Return a connection; nothing is started."""
        return CommandsConnection(self)

    def diagnostics(self) -> Mapping[str, Any]:
        """Return the number of programs and how many are running."""
        return {"commands": len(self.tools), **self.diagnostic_data}


class CommandsConnection:
    """Connection to a set of programs."""

    def __init__(self, backend: CommandsBackend) -> None:
        self._backend = backend
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running_calls: set[asyncio.Future[None]] = set()
        info = {"name": backend.name, "version": ""}
        self._initialize_info = InitializeInfo(
            "modern", MODERN_VERSION, {"tools": {}}, info, backend.description
        )

    @property
    def initialize_info(self) -> InitializeInfo:
        return self._initialize_info

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """List the commands or run one."""
        if method == "tools/list":
            return {
                "tools": [
                    build_definition(name, tool) for name, tool in self._backend.tools.items()
                ]
            }
        if method != "tools/call":
            raise RemoteError(METHOD_NOT_FOUND, f"{method} is not available on a set of commands")
        name = str((params or {}).get("name"))
        tool = self._backend.tools.get(name)
        if tool is None:
            raise RemoteError(INVALID_PARAMS, f"Unknown tool: {name}")
        arguments: Any = (params or {}).get("arguments") or {}
        if not isinstance(arguments, dict):
            return make_error_result("The arguments must be one JSON object.")
        call = check_arguments(tool, cast(Raw, arguments))
        if call.problems:
            return make_error_result(f"The arguments do not fit: {'; '.join(call.problems)}.")
        try:
            command = build_command_line(tool, call)
        except InvalidCommandLine as refused:
            return make_error_result(f"The arguments do not fit: {refused}")
        if refusal := self._explain_batch_refusal(command):
            return make_error_result(f"The arguments do not fit: {refusal}")
        return await self._run_command(name, tool, command, options)

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Ignore the notification."""

    async def close(self) -> None:
        """End all running programs with their children, and wait for them."""
        if not self._closing.done():
            self._closing.set_result(None)
        while self._running_calls:
            await asyncio.wait(set(self._running_calls))

    async def _run_command(
        self, name: str, tool: CommandTool, command: CommandLine, options: RequestOptions
    ) -> Raw:
        program = get_program_name(tool.command[0])
        context = self._backend.context
        if self._closing.done():
            raise BackendUnavailable(f"{self._backend.name}: the connection was closed")
        now = asyncio.get_running_loop().time()
        deadline = options.compute_deadline(now, now)
        with self._track_call():
            try:
                async with asyncio.timeout_at(deadline):
                    stdin = command.stdin.encode(errors="replace")
                    outcome = await run_program(command.words, stdin, context, self._closing)
            except TimeoutError:
                seconds = (deadline or now) - now
                raise BackendTimeout(
                    f"{name} did not end within {seconds:g} s, "
                    f"and {program} was ended with all it had started",
                    advice="Ask for less at a time, or raise this server's timeouts.call_s.",
                ) from None
            except OutputTooLarge:
                return make_error_result(
                    f"{program} printed more than {context.max_output_bytes:,} bytes "
                    "(limits.max_message_bytes) and was ended. Ask for less at a time."
                )
            except ClosedWhileRunning:
                raise BackendUnavailable(
                    f"{self._backend.name}: {program} was ended with the connection"
                ) from None
        if len(outcome.stdout) < LARGE_BYTES:
            return to_tool_result(program, tool, outcome)
        return await asyncio.to_thread(to_tool_result, program, tool, outcome)

    def _explain_batch_refusal(self, command: CommandLine) -> str:
        """Return why the command cannot be run on Windows; empty if it can."""
        if POSIX:
            return ""
        texts = [command.words[index] for index in command.caller_word_indexes]
        return explain_batch_refusal(locate_program(command.words[0], self._backend.context), texts)

    def _track_call(self) -> "_TrackedCall":
        return _TrackedCall(self._running_calls, self._backend.diagnostic_data)


class _TrackedCall:
    """Registers one running call, so that `close` can wait for all of them."""

    def __init__(
        self, running_calls: "set[asyncio.Future[None]]", diagnostic_data: dict[str, Any]
    ) -> None:
        self._running_calls = running_calls
        self._diagnostic_data = diagnostic_data
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> None:
        self._running_calls.add(self._done)
        self._diagnostic_data["running"] = len(self._running_calls)

    def __exit__(self, *_: object) -> None:
        self._running_calls.discard(self._done)
        self._diagnostic_data["running"] = len(self._running_calls)
        self._done.set_result(None)
