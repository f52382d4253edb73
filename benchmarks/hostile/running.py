"""A gateway that is measured, with a hostile server behind it and a hostile client before it, all
of them processes."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncGenerator, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import processes, sandbox_tools
from benchmarks.hostile.meter import Pauses, read_run_delay
from benchmarks.light_clients import LightClient, open_light_client

METER_S = 10.0
IDLE_SHARE, IDLE_S, IDLE_MOST_S = 0.25, 0.15, 10.0
"""A gateway that uses less of a core than this for so long has nothing left to do."""


LATE_S = 2.0
"""When a gateway has loaded what it loads after its start."""
_HOSTILE = "benchmarks.hostile.server"
MASKED = ("secrets", "email", "card", "iban", "phone")
LISTED_TRIES = 100
"""How often it is asked whether a new listing was taken, every 50 ms; some never are."""


class Lost(Exception):
    """The gateway, or a client of it, is gone."""


@dataclass
class Waits:
    """Seconds of polite calls, and of these the ones without a processor."""

    called_s: float = 0.0
    delayed_s: float = 0.0

    def take(self) -> "Waits":
        """Those since they were taken last."""
        taken = Waits(self.called_s, self.delayed_s)
        self.called_s = self.delayed_s = 0.0
        return taken

    @property
    def share(self) -> float:
        return self.delayed_s / self.called_s if self.called_s else 0.0


def sum_waits(some: Iterable[Waits]) -> Waits:
    """All of them together."""
    waits = list(some)
    return Waits(sum(one.called_s for one in waits), sum(one.delayed_s for one in waits))


class Measured:
    """One running gateway."""

    def __init__(
        self,
        process: psutil.Process,
        port: int,
        meter: Path,
        clients: tuple[Any, Any],
        waits: Waits,
    ) -> None:
        """Use these processes as the hostile client and the harmless one."""
        self.process = process
        self.waits = waits
        self._url = f"http://127.0.0.1:{port}"
        self._meter = meter
        self._attacker, self._companion = clients
        self._server: psutil.Process | None = None
        self._written = 0

    @contextlib.asynccontextmanager
    async def client(self, era: str = "legacy") -> AsyncGenerator[LightClient]:
        """A client that means no harm; the gateway hangs up on one that says nothing for some
        seconds."""
        one = await open_light_client(f"{self._url}/mcp", era, "polite")
        try:
            yield one
        finally:
            one.close()

    async def pauses(self) -> Pauses:
        """The longest since this was asked last; raises TimeoutError where nobody gets the
        interpreter's lock."""
        async with asyncio.timeout(METER_S):
            reader, writer = await asyncio.open_unix_connection(str(self._meter))
            with contextlib.closing(writer):
                reported = json.loads(await reader.read())
        return Pauses(**reported)

    async def become(self, kind: str, round: int) -> None:
        """Have the hostile server be another; returns when the gateway knows its new listing, or
        never will."""
        before = await self._tools()
        async with self.client("modern") as helper:
            arguments = {"kind": kind, "round": round}
            await helper.call("call_tool", {"name": "hostile.become", "arguments": arguments})
        for _ in range(LISTED_TRIES):
            if await self._tools() != before:
                return
            await asyncio.sleep(0.05)

    async def _tools(self) -> str:
        url = f"{self._url}/api/v1/servers/hostile"
        body = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=60).read())
        found = re.search(rb'"tools":\s*(\d+)', body)
        return found[1].decode() if found else ""

    async def attack(self, **reported: Any) -> dict[str, Any]:
        """Have the hostile client do something; raises Lost where it is no more."""
        return await _order(self._attacker, reported)

    @contextlib.asynccontextmanager
    async def company(self, kind: str) -> AsyncGenerator[list[str]]:
        """While this lasts, a harmless client sends requests of this kind, one after the other, in
        the same way as the hostile one; gives how each ended."""
        over = asyncio.Event()
        await _order(self._companion, {"kind": kind, "prepare": True})
        ended: list[str] = []

        async def call() -> None:
            while not over.is_set():
                done = await _order(self._companion, {"kind": kind, "round": 0})
                ended.append(done["ended"])

        calling = asyncio.create_task(call())
        try:
            yield ended
        finally:
            over.set()
            await calling

    def loop_delay(self) -> float:
        """Seconds in which the gateway's loop was ready and had no processor, so far; 0 where the
        system does not count them."""
        return read_run_delay(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/schedstat"))

    async def idle(self) -> None:
        """Wait until what was begun is over."""
        until = time.monotonic() + IDLE_MOST_S
        while time.monotonic() < until:
            before = self.computed()
            await asyncio.sleep(IDLE_S)
            if self.computed() - before < IDLE_SHARE * IDLE_S:
                return

    def computed(self) -> float:
        """Seconds of processor time that it used so far."""
        # Linux: the clock of another process; what /proc says is rounded to 10 ms.
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def sent_by_server(self) -> int:
        """Bytes that the hostile server wrote since this was asked last."""
        if self._server is None or not self._server.is_running():
            # It takes milliseconds, in which this process answers no polite call: all processes of
            # the machine are looked at.
            family = self.process.children()
            self._server = next((one for one in family if _HOSTILE in one.cmdline()), None)
            self._written = 0
        written = self._server.io_counters().write_chars if self._server is not None else 0
        sent = written - self._written
        self._written = written
        return sent

    def forget_peak(self) -> float:
        """Begin to measure the peak of memory again; gives the megabytes that there are."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self.memory("VmRSS")

    def memory(self, what: str = "VmHWM") -> float:
        """Megabytes: the peak, or what there is (`VmRSS`)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{what}:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else 0.0


@contextlib.asynccontextmanager
async def run_measured(waits: Waits, stacks: Path | None = None) -> AsyncGenerator[Measured]:
    """A gateway with everybody around it, until this is left; it may be dead by then."""
    with processes.scratch() as folder:
        port, meter = processes.free_port(), folder / "meter"
        with _environment(PORTICO_METER=str(meter), PORTICO_METER_STACKS=str(stacks or "")):
            command = [sys.executable, "-m", "benchmarks.hostile.gateway", "serve"]
            command += ["--config", str(_config(folder)), "--port", str(port)]
            with processes.listening(port, command, folder) as process:
                async with _client(port) as attacker, _client(port) as companion:
                    one = Measured(process, port, meter, (attacker, companion), waits)
                    await _ready(one)
                    yield one


def _config(folder: Path) -> Path:
    document = folder / "api.yaml"
    document.write_text(
        "openapi: 3.0.0\ninfo: {title: a, version: '1'}\npaths: {/a: {get: {responses: {}}}}\n"
    )
    hostile = {
        "command": sys.executable,
        "args": ["-S", "-m", _HOSTILE, str(document)],
        "cwd": str(processes.REPOSITORY),
        "start": "boot",
        # It says something else for each kind; held back, nothing of that would reach a tool.
        "trust": "always",
    }
    api = {"openapi": str(document), "base_url": "http://127.0.0.1:9"}
    servers = {"calculator": sandbox_tools.SERVERS["calculator"], "hostile": hostile, "api": api}
    masked = {"tools": ["hostile.masked"], "may": "allow", "mask": [*MASKED]}
    return processes.write_config(
        folder, {"servers": servers, "rules": [masked], "default": "allow"}
    )


@contextlib.contextmanager
def _environment(**more: str) -> Generator[None]:
    before = dict(os.environ)
    os.environ.update({name: value for name, value in more.items() if value})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.asynccontextmanager
async def _client(port: int) -> AsyncGenerator[Any]:
    command = [sys.executable, "-S", "-m", "benchmarks.hostile.client", f"127.0.0.1:{port}"]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=processes.REPOSITORY
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _order(client: Any, work: dict[str, Any]) -> dict[str, Any]:
    """Have one of these clients do something."""
    client.stdin.write(json.dumps(work).encode() + b"\n")
    line = await client.stdout.readline()
    if not line:
        raise Lost("a client of the gateway has ended")
    return json.loads(line)


async def _ready(one: Measured) -> None:
    """Wait for the servers, and let everything be loaded that is loaded late."""
    await one.attack(kind="24,000 empty lists", prepare=True)
    async with one.client() as client:
        for name, arguments in (
            ("call_tool", {"name": "hostile.nothing", "arguments": {}}),
            ("search_tools", {"query": "add two numbers"}),
            ("describe_tools", {"names": ["calculator.ad"]}),
            ("run_code", {"code": "1"}),
            ("run_workflow", {"intent": "add 1 and 2"}),
        ):
            await client.call(name, arguments)
    await asyncio.sleep(LATE_S)
    await one.become("(floor: small calls)", 1)
    await one.become("", 2)
    await one.idle()
