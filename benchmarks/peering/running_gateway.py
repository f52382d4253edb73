"""A gateway that runs: its process and a client's sessions, for whatever is measured."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from mcp import Client

from benchmarks import processes
from benchmarks.peering.gateways import Gateway
from benchmarks.peering.upstreams import ECHO, Upstream

START_S = 120.0
ANSWER_S = 60.0
POLL_S = 0.01
REPLAY = "replay.py"


class WrongAnswer(Exception):
    """A gateway answered something else than what the server said."""


@dataclass
class Running:
    """A process that was just started."""

    gateway: Gateway
    port: int
    process: psutil.Process
    log: Path
    begun: float
    """When it was spawned."""
    timeout_s: float = START_S

    async def until_listening(self) -> None:
        """Wait for its port."""
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            self.check()
            await asyncio.sleep(POLL_S)

    def check(self) -> None:
        """It is alive and not late."""
        if not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE:
            raise processes.DidNotStart(f"{self.gateway.name} ended; {processes.tail(self.log)}")
        if time.perf_counter() - self.begun > self.timeout_s:
            raise processes.DidNotStart(
                f"{self.gateway.name} was not ready in time; {processes.tail(self.log)}"
            )

    @property
    def memory(self) -> float:
        """MB of it and of what it started, the servers themselves left out."""
        family = [self.process, *self.process.children(recursive=True)]
        total = 0
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                if not any(part.endswith((REPLAY, "programs.py")) for part in one.cmdline()):
                    total += one.memory_info().rss
        return total / 1e6


@contextlib.contextmanager
def running(
    gateway: Gateway, folder: Path, port: int, *, timeout_s: float = START_S
) -> Generator[Running]:
    """The gateway as a process, from its spawn."""
    log = folder / "gateway.log"
    command, environment = (
        gateway.command(folder, port),
        {**os.environ, **gateway.environment(folder)},
    )
    begun = time.perf_counter()
    with log.open("ab") as sink:
        process = psutil.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:
        yield Running(gateway, port, process, log, begun, timeout_s)
    finally:
        family = _family(process)
        processes.end(process)
        for one in family:
            processes.end(one)


def _family(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


@dataclass
class Seat:
    """A running gateway with the sessions of one client."""

    running: Running
    clients: dict[str, Client] = field(default_factory=dict[str, Client])
    """By server; servers behind one endpoint share a session."""
    _count: int = 0

    @property
    def gateway(self) -> Gateway:
        return self.running.gateway

    async def call(self, server: str = ECHO) -> None:
        """Call the echo tool, and see that it is the echo that comes back."""
        self._count += 1
        text = f"{self._count} The quick brown fox jumps over the lazy dog."
        tool, arguments = self.gateway.call(server, ECHO, {"text": text})
        result = await self.clients[server].call_tool(tool, arguments)
        if result.is_error or self.gateway.said(result) != text:
            raise WrongAnswer(f"{self.gateway.name} answered {str(result)[:300]}")

    async def until_called(self, each_s: float = ANSWER_S) -> None:
        """Until a call succeeds; a gateway may listen before it knows its servers."""
        while True:
            try:
                async with asyncio.timeout(each_s):
                    return await self.call()
            except Exception:  # whatever a gateway says while it starts; it has so long
                self.running.check()
            await asyncio.sleep(POLL_S)

    async def listing(self) -> tuple[list[dict[str, Any]], str]:
        """Everything that a client gets at the start: tools and instructions, of all
        endpoints."""
        tools: list[dict[str, Any]] = []
        instructions: list[str] = []
        for client in {id(one): one for one in self.clients.values()}.values():
            cursor: str | None = None
            while True:
                page = await client.list_tools(cursor=cursor)
                tools += [
                    tool.model_dump(mode="json", by_alias=True, exclude_none=True)
                    for tool in page.tools
                ]
                cursor = page.next_cursor
                if not cursor:
                    break
            instructions.append(client.instructions or "")
        return tools, "\n".join(filter(None, instructions))


@contextlib.asynccontextmanager
async def connect_client(running_: Running, servers: Sequence[str]) -> AsyncGenerator[Seat]:
    """A client's sessions, as soon as there can be one; a endpoint that does not open is tried
    again."""
    await running_.until_listening()
    endpoints = running_.gateway.endpoints(running_.port, servers)
    try:
        async with contextlib.AsyncExitStack() as stack:
            opened: dict[str, Client] = {}
            for url in dict.fromkeys(endpoints.values()):
                opened[url] = await _open_session(stack, running_, url)
            yield Seat(running_, {server: opened[url] for server, url in endpoints.items()})
    except BaseExceptionGroup as group:
        raise _only(group) from None


def _only(error: BaseException) -> BaseException:
    """Return what went wrong, without the groups that open sessions wrap it in."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def reason(gateway: str, error: Exception) -> str:
    """Why a gateway could not go on, in one line; the rest of what it wrote goes to stderr."""
    said = str(error) or type(error).__name__
    print(f"{gateway}: {said}", file=sys.stderr, flush=True)
    return said.splitlines()[0][:100]


async def _open_session(stack: contextlib.AsyncExitStack, running_: Running, url: str) -> Client:
    while True:
        client = Client(url, mode="legacy", read_timeout_seconds=ANSWER_S)
        try:
            return await stack.enter_async_context(client)
        except Exception:  # whatever a gateway says while it starts; `check` ends the wait
            running_.check()
        await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def run_gateway(
    gateway: Gateway, folder: Path, upstreams: Sequence[Upstream]
) -> AsyncGenerator[Seat]:
    """A gateway over these servers, configured and filled before, with a client that has called."""
    with running(gateway, folder, processes.free_port()) as process:
        async with connect_client(process, [one.name for one in upstreams]) as seat:
            await seat.until_called()
            yield seat


async def prepare_folder(gateway: Gateway, folder: Path, upstreams: Sequence[Upstream]) -> Path:
    """A folder of its own with its configuration, filled if it has to be."""
    own = folder / gateway.name.replace(" ", "-").replace("→", "to")
    own.mkdir(parents=True)
    gateway.write(own, upstreams)
    await gateway.fill(own, upstreams)
    return own
