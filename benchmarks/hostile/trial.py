"""One kind of hostile input after another, through a gateway that others use: what became of it,
and of the others."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.hostile import stacks
from benchmarks.hostile.floors import CALLS, choose_company, choose_small_company
from benchmarks.hostile.kinds import Kind
from benchmarks.hostile.meter import read_run_delay
from benchmarks.hostile.running import Lost, Measured, Waits, run_measured
from benchmarks.light_clients import LightClient, NoAnswer
from benchmarks.rounds import percentile

HANG_S = 15.0
"""A gateway that has not answered its polite client for so long hangs."""
SLOW_CPU_S, SLOW_S = 30.0, 120.0
"""Seconds of computing, and in all, after which an input is given up that only takes long."""
PREPARE_S = 45.0
"""How long its bytes may take to be made, and a listing to be taken."""
KILL_MB = 4_096.0
"""A gateway that grows by so much is ended, before the machine is."""
MOST_S = 1.5
"""How long an attack is repeated, where the polite client makes too few calls meanwhile."""
SPIN_S = 2.0


@dataclass
class Felt:
    """Describes how one kind of input went, and how it was felt."""

    name: str
    sender: str = ""
    meets: str = ""
    ended: str = "–"
    said: str = ""
    sent: int = 0
    seconds: float = 0.0
    pause_ms: float = 0.0
    calls: list[float] = field(default_factory=list[float])
    company: list[float] = field(default_factory=list[float])
    """What the same calls took directly before and after, beside a harmless client that sends or
    gets as many bytes."""
    small_company: list[float] = field(default_factory=list[float])
    """The same beside one that sends small requests; empty if that is what `company` is."""
    growth_mb: float = 0.0
    where: str = ""

    @property
    def hung(self) -> bool:
        """Decide whether the gateway did not survive it."""
        return self.ended in ("HUNG", "DIED")

    @property
    def times(self) -> float:
        """The p99 of the polite client's calls, as a multiple of that beside a harmless client."""
        return _divide_p99(self.calls, self.company)

    @property
    def times_small(self) -> float:
        """The same, as a multiple of that beside one that sends small requests."""
        return _divide_p99(self.calls, self.small_company or self.company)


def _divide_p99(calls: list[float], company: list[float]) -> float:
    if not calls or not company:
        return float("inf")
    return percentile(calls, 0.99) / percentile(company, 0.99)


class GaveUp(Exception):
    """An input took too long; the message is how that is called."""


class Trial:
    """Attacks one gateway, and takes another where one is lost."""

    def __init__(self, least: int, places: Path | None) -> None:
        """An attack is repeated until the polite client made `least` calls; as many before it and
        after it say what they take beside a harmless client; stacks are sampled to `places`."""
        self._least, self._places = least, places
        self._stack = contextlib.AsyncExitStack()
        self._gateway: Measured | None = None
        self._round = 2
        self.waits = Waits()

    async def close(self) -> None:
        """End the gateway."""
        self._gateway = None
        stack, self._stack = self._stack, contextlib.AsyncExitStack()
        await stack.aclose()

    async def wait_alone(self, name: str) -> Felt:
        """Return what calls take while nobody else calls anything."""
        gateway = await self._ready()
        felt = Felt(name, company=await self._call_in_company(gateway, CALLS.name))
        await gateway.pauses()
        begun = time.perf_counter()
        async with gateway.client() as polite:
            felt.calls = [await _call(gateway, polite) for _ in range(self._least)]
        felt.seconds = time.perf_counter() - begun
        felt.pause_ms = (await gateway.pauses()).longest
        return felt

    async def spin(self, name: str) -> Felt:
        """Return what calls take while a foreign process uses up a core."""
        gateway = await self._ready()
        felt = Felt(name, seconds=SPIN_S, company=await self._call_in_company(gateway, CALLS.name))
        await gateway.pauses()
        async with gateway.client() as polite, _calling(gateway, polite) as felt.calls:
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
            await asyncio.sleep(SPIN_S)
            process.kill()
            await process.wait()
        felt.pause_ms = (await gateway.pauses()).longest
        return felt

    async def strike(self, kind: Kind) -> Felt:
        """One kind, as often as it takes."""
        gateway = await self._ready()
        felt = Felt(kind.name, kind.sender, kind.meets)
        company = choose_company(kind)
        small = choose_small_company(kind)
        if company != small:
            felt.small_company = await self._call_in_company(gateway, small)
        felt.company = await self._call_in_company(gateway, company)
        async with gateway.client() as polite:
            await gateway.pauses()
            before = gateway.forget_peak()
            async with (
                _watch_memory(gateway, before, felt),
                stacks.sample_stacks(gateway.process, self._places),
                _calling(gateway, polite) as calls,
            ):
                felt.calls = calls
                await self._strike(gateway, kind, felt)
        felt.where = stacks.find_busiest(self._places)
        if (
            felt.hung
            or not await self._settle(gateway, before, felt, company)
            or felt.ended == "timed out"
        ):
            await self.close()
        return felt

    async def _call_in_company(self, gateway: Measured, company: str) -> list[float]:
        """Return what polite calls take while a harmless client sends such requests."""
        taken: list[float] = []
        until = time.perf_counter() + MOST_S
        async with gateway.client() as polite, gateway.company(company) as ended:
            while len(taken) < self._least or (not ended and time.perf_counter() < until):
                taken.append(await _call(gateway, polite))
        assert not ended or ended[0] != "lost", company
        return taken

    async def _ready(self) -> Measured:
        if self._gateway is None:
            self._gateway = await self._stack.enter_async_context(
                run_measured(self.waits, self._places)
            )
        return self._gateway

    async def _strike(self, gateway: Measured, kind: Kind, felt: Felt) -> None:
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(PREPARE_S):
                await self._become(gateway, kind)
                listed = time.perf_counter() - begun
                await gateway.attack(kind=kind.name, prepare=True)
            if (
                not kind.relists
            ):  # then neither the listing nor what calls took meanwhile is part of it
                gateway.sent_by_server()
                felt.calls.clear()
            first = last = time.perf_counter()
            while last == first or (len(felt.calls) < self._least and last - first < MOST_S):
                begun = time.perf_counter()
                if kind.relists and last != first:
                    async with asyncio.timeout(PREPARE_S):
                        await self._become(gateway, kind)
                done = await self._attack(gateway, kind, felt)
                last = time.perf_counter()
                felt.ended, felt.said = done["ended"], done["said"]
                felt.sent = max(done["sent"], gateway.sent_by_server())
                felt.seconds = max(felt.seconds, last - begun, listed if kind.relists else 0.0)
        except GaveUp as error:
            felt.ended, felt.seconds = str(error), time.perf_counter() - begun
        except (TimeoutError, Lost, NoAnswer, OSError) as error:
            felt.ended = "HUNG" if isinstance(error, TimeoutError) else "DIED"
            felt.seconds = time.perf_counter() - begun
        if "definition_held" in felt.said:
            raise RuntimeError(f"{kind.name} was held back before it met {kind.meets}: {felt.said}")
        if felt.ended == "lost" and not gateway.process.is_running():
            felt.ended = "DIED"
        if felt.hung:
            felt.pause_ms = felt.seconds * 1000
            with contextlib.suppress(psutil.NoSuchProcess):
                gateway.process.kill()

    async def _attack(self, gateway: Measured, kind: Kind, felt: Felt) -> dict[str, Any]:
        """One attack; raises GaveUp where the polite client, or anyone who sent it, waits in
        vain."""
        attack = asyncio.create_task(gateway.attack(kind=kind.name, round=self._round))
        began = served = time.perf_counter()
        computed, calls = gateway.computed(), len(felt.calls)
        while not (await asyncio.wait({attack}, timeout=0.5))[0]:
            now = time.perf_counter()
            if len(felt.calls) > calls:
                served, calls = now, len(felt.calls)
            if now - served > HANG_S:
                attack.cancel()
                raise GaveUp("HUNG")
            if now - began > SLOW_S or gateway.computed() - computed > SLOW_CPU_S:
                attack.cancel()
                raise GaveUp("timed out")
        return attack.result()

    async def _settle(self, gateway: Measured, before: float, felt: Felt, company: str) -> bool:
        """Wait for the end of what was begun, read the figures, and go back; whether the gateway
        can go on."""
        try:
            await gateway.idle()
            felt.growth_mb = max(felt.growth_mb, gateway.memory() - before)
            felt.pause_ms = (await gateway.pauses()).longest
            await self._become(gateway, None)
            await gateway.idle()
            felt.company += await self._call_in_company(gateway, company)
        except (TimeoutError, NoAnswer, OSError, psutil.NoSuchProcess):
            return False
        return True

    async def _become(self, gateway: Measured, kind: Kind | None) -> None:
        self._round += 1
        await gateway.become(kind.name if kind is not None else "", self._round)


@contextlib.asynccontextmanager
async def _calling(gateway: Measured, client: LightClient) -> AsyncGenerator[list[float]]:
    """The polite client's calls, one after another, as long as this lasts; one that is never
    answered counts too."""
    taken: list[float] = []
    over = asyncio.Event()
    began = time.perf_counter()

    async def call() -> None:
        nonlocal began
        while not over.is_set():
            began = time.perf_counter()
            taken.append(await _call(gateway, client))

    calling = asyncio.create_task(call())
    try:
        yield taken
    finally:
        over.set()
        await asyncio.wait({calling}, timeout=HANG_S)
        if not calling.done() or calling.exception() is not None:
            calling.cancel()
            taken.append(time.perf_counter() - began)


async def _call(gateway: Measured, client: LightClient) -> float:
    """Return the seconds of one polite call that are not due to other programs.

    It waits for the gateway or for its own process. So what either of them waited for a processor
    is left out, and no call took longer than both of them computed meanwhile.
    """
    delay = _sum_delays(gateway)
    computed = _sum_computed(gateway)
    begun = time.perf_counter()
    answer = await client.call(
        "call_tool", {"name": "calculator.add", "arguments": {"a": 1, "b": 2}}
    )
    if "result" not in answer:
        raise NoAnswer(f"a polite call was answered with {str(answer)[:200]}")
    taken = time.perf_counter() - begun
    waited = _sum_delays(gateway) - delay
    gateway.waits.called_s += taken
    gateway.waits.delayed_s += min(waited, taken)
    return max(0.0, min(taken - waited, _sum_computed(gateway) - computed))


def _sum_delays(gateway: Measured) -> float:
    return read_run_delay() + gateway.loop_delay()


def _sum_computed(gateway: Measured) -> float:
    return time.process_time() + gateway.computed()


@contextlib.asynccontextmanager
async def _watch_memory(gateway: Measured, before: float, felt: Felt) -> AsyncGenerator[None]:
    """Follow the gateway's memory, and end it where it takes that of the machine."""

    async def watch() -> None:
        while True:
            felt.growth_mb = max(felt.growth_mb, gateway.memory("VmRSS") - before)
            if felt.growth_mb > KILL_MB:
                gateway.process.kill()
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})
