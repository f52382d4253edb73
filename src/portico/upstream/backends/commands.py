"""Command-line programs as a server: each is a tool, started for each call.

A connection holds only the calls in flight. A missing program fails its own tool and no other.
"""

import asyncio
import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from portico.config.command_tool import CommandTool
from portico.config.command_words import get_program_name
from portico.errors import BackendTimeout, BackendUnavailable
from portico.json_text.chunked_decoder import LARGE_BYTES
from portico.upstream.backend import Connection, Era, Listener, Raw, RequestOptions
from portico.upstream.backends.command_line import (
    CommandLine,
    InvalidCommandLine,
    build_command_line,
    build_definition,
    check_arguments,
)
from portico.upstream.backends.program_run import (
    ClosedWhileRunning,
    OutputTooLarge,
    ProgramContext,
    explain_batch_refusal,
    locate_program,
    run_program,
    to_tool_result,
)
from portico.upstream.backends.tool_connection import (
    ToolConnection,
    make_error_result,
    make_unknown_tool_error,
)
from portico.upstream.protocol.jsonrpc import Deadline
from portico.upstream.transports.process import POSIX


@dataclass(frozen=True)
class CommandsBackend:
    name: str
    tools: Mapping[str, CommandTool]
    context: ProgramContext = field(default_factory=ProgramContext)
    description: str = ""
    diagnostic_data: dict[str, Any] = field(default_factory=dict)

    kind = "commands"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        return CommandsConnection(self)

    def diagnostics(self) -> Mapping[str, Any]:
        """Return the number of programs and how many are running."""
        return {"commands": len(self.tools), **self.diagnostic_data}


class CommandsConnection(ToolConnection):
    noun = "a set of commands"

    def __init__(self, backend: CommandsBackend) -> None:
        super().__init__(backend.name, instructions=backend.description)
        self._backend = backend
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running_calls: set[asyncio.Future[None]] = set()

    async def list_tools(self) -> list[Raw]:
        return [build_definition(name, tool) for name, tool in self._backend.tools.items()]

    async def call_tool(self, name: str, arguments: Raw, options: RequestOptions) -> Raw:
        tool = self._backend.tools.get(name)
        if tool is None:
            raise make_unknown_tool_error(name)
        call = check_arguments(tool, arguments)
        if call.problems:
            return make_error_result(f"The arguments do not fit: {'; '.join(call.problems)}.")
        try:
            command = build_command_line(tool, call)
        except InvalidCommandLine as refused:
            return make_error_result(f"The arguments do not fit: {refused}")
        if refusal := self._explain_batch_refusal(command):
            return make_error_result(f"The arguments do not fit: {refusal}")
        return await self._run_command(name, tool, command, options)

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
        with self._track_call():
            try:
                async with Deadline(options).timeout:
                    stdin = command.stdin.encode(errors="replace")
                    outcome = await run_program(command.words, stdin, context, self._closing)
            except TimeoutError:
                limits = (options.timeout, options.total_timeout)
                seconds = min((limit for limit in limits if limit is not None), default=0.0)
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

    @contextlib.contextmanager
    def _track_call(self) -> Generator[None]:
        """Register a running call, so that `close` can wait for all of them."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running_calls.add(done)
        diagnostics = self._backend.diagnostic_data
        diagnostics["running"] = len(self._running_calls)
        try:
            yield
        finally:
            self._running_calls.discard(done)
            diagnostics["running"] = len(self._running_calls)
            done.set_result(None)
