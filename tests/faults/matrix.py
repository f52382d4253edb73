"""Every fault of one wire, done to one gateway: what came of it, of the neighbours, and what is
left in the end.

Each fault has a server of its own, healthy at first. Then, for many at a time: the fault is
switched on, the server is called, its neighbours are called meanwhile, the fault is switched off,
and it is called until it answers again.
"""

import asyncio
import gc
import json
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil

from portico.config import (
    BackendConfig,
    Config,
    HealthConfig,
    LimitsConfig,
    RestartConfig,
    Timeouts,
)
from portico.gateway import GatewayRuntime
from portico.testing import serve_http
from tests.faults.misbehaving.steps import LIMIT
from tests.faults.table import Fault, Wire
from tests.gateways import run_gateway
from tests.interaction.raw_clients import RawHttp, raw_http
from tests.lifetime.process_marks import MARK, left_over, new_mark

TIMEOUT_S = 600.0
"""No wait is longer, on whatever machine."""
TOGETHER = 24
"""Faults at a time: most of the time they wait for each other's ends."""
LONG_S, SHORT_S = 300.0, 1.5
"""What a call may take: where something else ends it, and where nothing else does."""
START_S = 5.0
"""What a start or a listing may take where nothing else ends it."""
NEIGHBOUR = "neighbour"
PROGRAM = str(Path(__file__).parent / "misbehaving")


@dataclass(frozen=True)
class Outcome:
    """The answer to a caller."""

    kind: str
    text: str


@dataclass(frozen=True)
class Cell:
    """Describes how one fault went; whatever should not have been is a sentence in `wrong`."""

    outcome: Outcome
    wrong: tuple[str, ...]


@dataclass
class Run:
    """Describes how all of them went."""

    cells: dict[str, Cell] = field(default_factory=dict[str, Cell])
    processes: list[str] = field(default_factory=list[str])
    """What lives on after the gateway closed."""
    held: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """What this process holds, before and after."""


async def run(
    wire: Wire,
    faults: Iterable[Fault],
    folder: Path,
    *,
    together: int = TOGETHER,
    runner_class: "type[FaultRunner] | None" = None,
) -> Run:
    """Do all of these to one gateway, so many at a time; a subclass of FaultRunner may measure
    more."""
    chosen = {fault.id: fault for fault in faults}
    done, mark = Run(), new_mark()
    before = _count_held()
    for name in (*chosen, NEIGHBOUR):
        (folder / name).write_text("")
    async with serve_faults(wire, chosen, folder, mark) as servers:
        limits = LimitsConfig.model_validate(
            {
                "max_message_bytes": LIMIT,
                "start_concurrency": TOGETHER,
                "elicitation_s": 2 * SHORT_S,
            }
        )
        async with (
            run_gateway(config=Config(servers=servers, limits=limits)) as gateway,
            serve_http(gateway) as url,
            raw_http(url, "legacy") as client,
        ):
            client.http.timeout = httpx2.Timeout(TIMEOUT_S)
            runner = (runner_class or FaultRunner)(gateway, client, folder)
            gate = asyncio.Semaphore(together)

            async def one(fault: Fault) -> None:
                async with gate:
                    done.cells[fault.id] = await runner.run_fault(fault)

            await asyncio.gather(*(one(fault) for fault in chosen.values()))
    done.processes = await left_over(mark)
    done.held = await _after(before)
    return done


class FaultRunner:
    """A gateway over servers whose faults can be switched."""

    def __init__(self, gateway: GatewayRuntime, client: RawHttp, folder: Path) -> None:
        self._gateway, self._client, self._folder = gateway, client, folder

    async def run_fault(self, fault: Fault) -> Cell:
        """One fault, from health to health."""
        wrong: list[str] = []
        outcome = Outcome("nothing", "")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._well(fault.id)
        except TimeoutError:
            return Cell(outcome, ("it was never well",))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                outcome = await self._ill(fault, wrong)
        except TimeoutError:
            wrong.append("the call hangs")
        self.switch(fault.id, "")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if fault.brought == "refresh":
                    await self._gateway.refresh([fault.id])
                await self._well(fault.id)
        except TimeoutError:
            wrong.append(f"it did not recover: {await self.call(fault.id, 'last')}")
        if fault.lasting:
            self.switch(fault.id, fault.id)
            await self._gateway.upstreams[fault.id].stop_if_idle(0)
            await self.call(fault.id, "lasting")
        return Cell(outcome, tuple(wrong))

    async def _ill(self, fault: Fault, wrong: list[str]) -> Outcome:
        name = fault.id
        if fault.brought == "start":
            await self._gateway.upstreams[name].stop_if_idle(0)
        if fault.brought == "refresh":
            # A listing that runs already would be shared, and is of the healthy server.
            await self._gateway.refresh([name])
        self.switch(name, name)
        if fault.brought == "refresh":
            await self._gateway.refresh([name])
        elif fault.brought == "race":
            await self.call(name, "", tool="quit")
        nonce = secrets.token_hex(8)
        calling = asyncio.create_task(self.call(name, nonce))
        try:
            while True:
                beside = secrets.token_hex(8)
                answered = await self.call(NEIGHBOUR, beside)
                if answered != Outcome("result", beside):
                    wrong.append(f"its neighbour answered {answered}")
                if calling.done():
                    break
                await asyncio.wait({calling}, timeout=0.2)
            return _without(nonce, await calling)
        finally:
            calling.cancel()

    async def _well(self, name: str) -> None:
        """Call it until it answers with the call's own nonce."""
        while True:
            nonce = secrets.token_hex(8)
            outcome = await self.call(name, nonce)
            if outcome == Outcome("result", nonce):
                return
            if outcome.kind in ("result", "tool_error"):
                raise AssertionError(
                    f"{name} answered {outcome} to {nonce}: that is another call's answer"
                )
            # A server that is being called counts as busy; only in peace is it found out that it
            # does not answer.
            await asyncio.sleep(4 if outcome.kind == "timeout" else 0.1)

    def switch(self, name: str, fault: str) -> None:
        """Have a server misbehave, or no longer."""
        new = self._folder / f"{name}.new"
        new.write_text(fault)
        new.replace(self._folder / name)

    async def call(self, name: str, nonce: str, *, tool: str = "work") -> Outcome:
        """Call a server's tool through the gateway."""
        arguments: dict[str, Any] = {"nonce": nonce} if tool == "work" else {}
        params = {
            "name": "call_tool",
            "arguments": {"name": f"{name}.{tool}", "arguments": arguments},
        }
        return outcome_of(await self._client.request("tools/call", params))


def outcome_of(message: Mapping[str, Any]) -> Outcome:
    """Return what an answer of the gateway is."""
    if "error" in message:
        said = str(message["error"].get("message"))
        return Outcome((message["error"].get("data") or {}).get("kind", "protocol"), said)
    result: dict[str, Any] = message["result"]
    content: Any = result.get("content")
    blocks = (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    )
    said = "\n".join(str(block.get("text", "")) for block in blocks)
    if not result.get("isError"):
        return Outcome("result", said)
    return Outcome(
        ((result.get("_meta") or {}).get("portico/error") or {}).get("kind", "tool_error"), said
    )


def _without(nonce: str, outcome: Outcome) -> Outcome:
    return Outcome(outcome.kind, outcome.text.replace(nonce, "(its nonce)"))


@asynccontextmanager
async def serve_faults(
    wire: Wire, faults: Mapping[str, Fault], folder: Path, mark: str
) -> AsyncGenerator[dict[str, BackendConfig]]:
    """A server for each fault, and a neighbour: how the gateway reaches them."""
    if wire == "stdio":
        command = {"command": sys.executable, "env": {MARK: mark}}
        targets = {
            name: {**command, "args": ["-S", PROGRAM, "stdio", str(folder / name)]}
            for name in (*faults, NEIGHBOUR)
        }
        yield {name: _make_config(target, faults.get(name)) for name, target in targets.items()}
        return
    era = "legacy" if wire == "http" else wire
    (folder / "servers").write_text("".join(f"{name} {era}\n" for name in (*faults, NEIGHBOUR)))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-S",
        PROGRAM,
        "http",
        str(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=2**20,
    )
    try:
        assert process.stdout is not None
        ports = json.loads(await asyncio.wait_for(process.stdout.readline(), TIMEOUT_S))
        path = "sse" if wire == "sse" else "mcp"
        yield {
            name: _make_config({"url": f"http://127.0.0.1:{port}/{path}"}, faults.get(name))
            for name, port in ports.items()
        }
    finally:
        process.kill()
        await asyncio.wait_for(process.communicate(), TIMEOUT_S)


def _make_config(target: Mapping[str, Any], fault: Fault | None) -> BackendConfig:
    short = fault is not None and fault.short
    # Refused probes and probes without an answer have waits of their own, of some seconds.
    timeouts = Timeouts(start_s=LONG_S, call_s=LONG_S, list_s=START_S)
    if short:
        timeouts = Timeouts(start_s=START_S, call_s=SHORT_S, list_s=START_S)
    elif fault is None:
        timeouts = Timeouts(start_s=LONG_S, call_s=LONG_S, list_s=LONG_S)
    return BackendConfig(
        **target,
        timeouts=timeouts,
        restart=RestartConfig(pause_s=0.05, longest_s=0.2, tries=10_000),
        # Only where nothing else would find it out: a busy machine is no reason to start the others
        # again.
        health=HealthConfig(every_s=0.5, timeout_s=1, failures=2)
        if short
        else HealthConfig(every_s=0),
    )


def _count_held() -> dict[str, int]:
    ours = psutil.Process()
    # The loop's own pool comes when there is work and stays.
    threads = [
        one for one in threading.enumerate() if not one.name.startswith(("asyncio_", "ThreadPool"))
    ]
    # The HTTP endpoint's library keeps one watcher for as long as the loop runs.
    tasks = [
        task
        for task in asyncio.all_tasks()
        if not task.done() and "_shutdown_watcher" not in repr(task)
    ]
    return {
        "children": len(ours.children(recursive=True)),
        "descriptors": ours.num_fds(),
        "threads": len(threads),
        "tasks": len(tasks),
    }


async def _after(before: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return what is held once everything that was let go is gone, or after a patient wait."""
    now = _count_held()
    for _ in range(100):
        if all(now[what] <= before[what] for what in before):
            break
        await asyncio.sleep(0.1)
        gc.collect()
        now = _count_held()
    return {what: (before[what], now[what]) for what in before}


def says(outcome: Outcome, pattern: str) -> bool:
    """Decide whether an error says what it should."""
    return outcome.kind in ("result", "tool_error") or bool(re.search(pattern, outcome.text))
