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

import psutil

from portico.app import GatewayRuntime
from portico.config import (
    BackendConfig,
    Config,
    HealthConfig,
    LimitsConfig,
    RestartConfig,
    Timeouts,
)
from portico.storage.manifests import ManifestStore
from portico.testing import serve_http
from tests.faults.misbehaving.steps import LIMIT
from tests.faults.table import Fault, Wire
from tests.interaction.raw import RawHttp, raw_http
from tests.lifetime.marks import MARK, left_over, new_mark

PATIENCE_S = 60.0
"""No wait is longer, on whatever machine."""
TOGETHER = 12
LONG_S, SHORT_S = 20.0, 1.5
"""What a call may take: where something else ends it, and where nothing else does."""
NEIGHBOUR = "neighbour"
PROGRAM = str(Path(__file__).parent / "misbehaving")


@dataclass(frozen=True)
class Outcome:
    """What a caller was told."""

    kind: str
    text: str


@dataclass(frozen=True)
class Cell:
    """How one fault went; whatever should not have been is a sentence in `wrong`."""

    outcome: Outcome
    wrong: tuple[str, ...]


@dataclass
class Run:
    """How all of them went."""

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
    house: "type[House] | None" = None,
) -> Run:
    """Do all of these to one gateway, so many at a time; another kind of `house` may look closer."""
    chosen = {fault.id: fault for fault in faults}
    done, mark = Run(), new_mark()
    before = _held()
    for name in (*chosen, NEIGHBOUR):
        (folder / name).write_text("")
    async with served(wire, chosen, folder, mark) as servers:
        limits = LimitsConfig.model_validate(
            {"max_message_bytes": LIMIT, "start_concurrency": TOGETHER, "question_s": 2 * SHORT_S}
        )
        async with GatewayRuntime(
            Config(servers=servers, limits=limits), manifests=ManifestStore(None)
        ) as gateway:
            await asyncio.wait_for(gateway.wait_until_listed(), PATIENCE_S)
            async with serve_http(gateway) as url, raw_http(url, "legacy") as client:
                home = (house or House)(gateway, client, folder)
                gate = asyncio.Semaphore(together)

                async def one(fault: Fault) -> None:
                    async with gate:
                        done.cells[fault.id] = await home.struck(fault)

                await asyncio.gather(*(one(fault) for fault in chosen.values()))
    done.processes = await left_over(mark)
    done.held = await _after(before)
    return done


class House:
    """A gateway over servers whose faults can be switched."""

    def __init__(self, gateway: GatewayRuntime, client: RawHttp, folder: Path) -> None:
        self._gateway, self._client, self._folder = gateway, client, folder

    async def struck(self, fault: Fault) -> Cell:
        """One fault, from health to health."""
        wrong: list[str] = []
        outcome = Outcome("nothing", "")
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._well(fault.id)
        except TimeoutError:
            return Cell(outcome, ("it was never well",))
        try:
            async with asyncio.timeout(PATIENCE_S):
                outcome = await self._ill(fault, wrong)
        except TimeoutError:
            wrong.append("the call hangs")
        self.switch(fault.id, "")
        try:
            async with asyncio.timeout(PATIENCE_S):
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
    """What an answer of the gateway is."""
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
async def served(
    wire: Wire, faults: Mapping[str, Fault], folder: Path, mark: str
) -> AsyncGenerator[dict[str, BackendConfig]]:
    """A server for each fault, and a neighbour: how the gateway reaches them."""
    if wire == "stdio":
        command = {"command": sys.executable, "env": {MARK: mark}}
        targets = {
            name: {**command, "args": ["-S", PROGRAM, "stdio", str(folder / name)]}
            for name in (*faults, NEIGHBOUR)
        }
        yield {name: _configured(target, faults.get(name)) for name, target in targets.items()}
        return
    era = "legacy" if wire == "http" else wire
    (folder / "servers").write_text("".join(f"{name} {era}\n" for name in (*faults, NEIGHBOUR)))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-S", PROGRAM, "http", str(folder),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=2**20,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ports = json.loads(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
        path = "sse" if wire == "sse" else "mcp"
        yield {
            name: _configured({"url": f"http://127.0.0.1:{port}/{path}"}, faults.get(name))
            for name, port in ports.items()
        }
    finally:
        process.kill()
        await asyncio.wait_for(process.communicate(), PATIENCE_S)


def _configured(target: Mapping[str, Any], fault: Fault | None) -> BackendConfig:
    short = fault is not None and fault.short
    call_s = SHORT_S if short else LONG_S
    return BackendConfig(
        **target,
        # Refused probes and probes without an answer have waits of their own, of some seconds.
        timeouts=Timeouts(start_s=5.0 if short else LONG_S, call_s=call_s, list_s=SHORT_S),
        restart=RestartConfig(pause_s=0.05, longest_s=0.2, tries=10_000),
        # Only where nothing else would find it out: a busy machine is no reason to start the others
        # anew.
        health=HealthConfig(every_s=0.5, timeout_s=1, failures=2)
        if short
        else HealthConfig(every_s=0),
    )


def _held() -> dict[str, int]:
    ours = psutil.Process()
    # The loop's own pool comes when there is work and stays.
    threads = [
        one for one in threading.enumerate() if not one.name.startswith(("asyncio_", "ThreadPool"))
    ]
    # The HTTP door's library keeps one watcher for as long as the loop runs.
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
    """What is held once everything that was let go is gone, or after a patient wait."""
    now = _held()
    for _ in range(100):
        if all(now[what] <= before[what] for what in before):
            break
        await asyncio.sleep(0.1)
        gc.collect()
        now = _held()
    return {what: (before[what], now[what]) for what in before}


def says(outcome: Outcome, pattern: str) -> bool:
    """Whether an error says what it should."""
    return outcome.kind in ("result", "tool_error") or bool(re.search(pattern, outcome.text))
