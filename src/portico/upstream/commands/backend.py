"""Command-line programs as a server: each is a tool, run anew for each call.

There is nothing to start and nothing to keep: a connection holds only the calls under way. A program that is missing
fails its own tool and no other.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.config.command_tool import CommandTool
from portico.config.command_words import program_of
from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, BackendTimeout, BackendUnavailable, RemoteError
from portico.upstream.backend import NO_OPTIONS, Ask, Connection, Era, Hello, Listener, Raw
from portico.upstream.commands.answering import answer, failure
from portico.upstream.commands.checking import checked
from portico.upstream.commands.filling import Filled, Refused, filled
from portico.upstream.commands.listing import definition
from portico.upstream.commands.running import Closed, Flood, Surroundings, batch_refusal, located, run
from portico.upstream.envelope import MODERN_VERSION
from portico.upstream.json_windows import LARGE
from portico.upstream.process import POSIX

_LARGE = 2**18
"""Bytes of output from which it is made an answer in a thread."""


@dataclass(frozen=True)
class CommandsBackend:
    """A set of programs."""

    name: str
    tools: Mapping[str, CommandTool]
    around: Surroundings = field(default_factory=Surroundings)
    description: str = ""
    notes: dict[str, Any] = field(default_factory=dict)

    kind = "commands"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Nothing to start."""
        return CommandsConnection(self)

    def diagnostics(self) -> Mapping[str, Any]:
        """How many programs there are, and how many run."""
        return {"commands": len(self.tools), **self.notes}


class CommandsConnection:
    """A conversation with programs."""

    def __init__(self, backend: CommandsBackend) -> None:
        self._backend = backend
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running: set[asyncio.Future[None]] = set()
        info = {"name": backend.name, "version": ""}
        self._hello = Hello("modern", MODERN_VERSION, {"tools": {}}, info, backend.description)

    @property
    def hello(self) -> Hello:
        return self._hello

    async def request(self, method: str, params: Raw | None = None, ask: Ask = NO_OPTIONS) -> Raw:
        """List the commands or run one."""
        if method == "tools/list":
            return {"tools": [definition(name, tool) for name, tool in self._backend.tools.items()]}
        if method != "tools/call":
            raise RemoteError(METHOD_NOT_FOUND, f"{method} is not available on a set of commands")
        name = str((params or {}).get("name"))
        tool = self._backend.tools.get(name)
        if tool is None:
            raise RemoteError(INVALID_PARAMS, f"Unknown tool: {name}")
        arguments: Any = (params or {}).get("arguments") or {}
        if not isinstance(arguments, dict):
            return failure("The arguments must be one JSON object.")
        call = checked(tool, cast(Raw, arguments))
        if call.problems:
            return failure(f"The arguments do not fit: {'; '.join(call.problems)}.")
        try:
            command = filled(tool, call)
        except Refused as refused:
            return failure(f"The arguments do not fit: {refused}")
        if refusal := self._batch(command):
            return failure(f"The arguments do not fit: {refusal}")
        return await self._call(name, tool, command, ask)

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Programs take no notifications."""

    async def close(self) -> None:
        """End every program that runs, with its children."""
        if not self._closing.done():
            self._closing.set_result(None)
        while self._running:
            await asyncio.wait(set(self._running))

    async def _call(self, name: str, tool: CommandTool, command: Filled, ask: Ask) -> Raw:
        program, around = program_of(tool.command[0]), self._backend.around
        if self._closing.done():
            raise BackendUnavailable(f"{self._backend.name}: the connection was closed")
        now = asyncio.get_running_loop().time()
        deadline = ask.deadline(now, now)
        with self._counted():
            try:
                async with asyncio.timeout_at(deadline):
                    stdin = command.stdin.encode(errors="replace")
                    ran = await run(command.words, stdin, around, self._closing)
            except TimeoutError:
                seconds = (deadline or now) - now
                raise BackendTimeout(
                    f"{name} did not end within {seconds:g} s, and {program} was ended with all it had started",
                    advice="Ask for less at a time, or raise this server's timeouts.call_s.",
                ) from None
            except Flood:
                return failure(
                    f"{program} printed more than {around.most:,} bytes (limits.max_message_bytes) and was ended. Ask "
                    "for less at a time."
                )
            except Closed:
                raise BackendUnavailable(f"{self._backend.name}: {program} was ended with the connection") from None
        if len(ran.stdout) < _LARGE:
            if len(ran.stdout) < LARGE:
                return answer(program, tool, ran)
            return await asyncio.to_thread(answer, program, tool, ran)
        return await asyncio.to_thread(answer, program, tool, ran)

    def _batch(self, command: Filled) -> str:
        """Why it cannot be run on Windows."""
        if POSIX:
            return ""
        texts = [command.words[at] for at in command.callers]
        return batch_refusal(located(command.words[0], self._backend.around), texts)

    def _counted(self) -> "_Counted":
        return _Counted(self._running, self._backend.notes)


class _Counted:
    """One call under way, for whoever waits for the last of them."""

    def __init__(self, running: "set[asyncio.Future[None]]", notes: dict[str, Any]) -> None:
        self._running, self._notes = running, notes
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> None:
        self._running.add(self._done)
        self._notes["running"] = len(self._running)

    def __exit__(self, *_: object) -> None:
        self._running.discard(self._done)
        self._notes["running"] = len(self._running)
        self._done.set_result(None)
