"""Two hundred starts and stops later everything is as it was: processes, descriptors, threads,
tasks."""

import asyncio
import gc
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from portico.config import BackendConfig, Config
from portico.errors import BackendUnavailable
from portico.gateway import GatewayRuntime
from portico.storage.manifests import ManifestStore
from tests.fixtures import broken_command
from tests.lifetime.process_marks import TIMEOUT_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="descriptors are counted the POSIX way"),
]
WARM_UP = 20
OURS = psutil.Process()


@dataclass(frozen=True)
class Holdings:
    """Describes what this process holds."""

    processes: int
    descriptors: int
    threads: int
    tasks: int

    def within(self, other: "Holdings") -> bool:
        return all(
            mine <= others
            for mine, others in zip(vars(self).values(), vars(other).values(), strict=True)
        )


def holdings() -> Holdings:
    tasks = [task for task in asyncio.all_tasks() if not task.done()]
    # Threads of the loop's own pool come when there is work and stay, up to a number that is not
    # ours to choose.
    threads = [
        thread
        for thread in threading.enumerate()
        if not thread.name.startswith(("asyncio_", "uvloop_", "ThreadPool"))
    ]
    return Holdings(len(OURS.children(recursive=True)), OURS.num_fds(), len(threads), len(tasks))


async def wait_until_settled(limit: Holdings | None = None) -> Holdings:
    """Return what is held once everything that was let go is gone."""
    gc.collect()
    deadline = asyncio.get_running_loop().time() + (TIMEOUT_S if limit else 1.0)
    last = holdings()
    while asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.05)
        last, before = holdings(), last
        if limit is not None and last.within(limit):
            break
        if limit is None and last == before:
            break
    return last


async def flat(cycle: Callable[[], Awaitable[None]], cycles: int) -> None:
    """After a warm-up, cycles add nothing."""
    for _ in range(WARM_UP):
        await cycle()
    before = await wait_until_settled()
    for _ in range(cycles - WARM_UP):
        await cycle()
    after = await wait_until_settled(before)
    assert after.within(before), f"{before} has become {after}"


@asynccontextmanager
async def gateway_over(*names: str, **options: Any) -> AsyncGenerator[GatewayRuntime]:
    servers = {
        name: BackendConfig(command=command, args=tuple(args), **options)
        for name in names
        for command, *args in [broken_command(name)]
    }
    async with GatewayRuntime(Config(servers=servers), manifests=ManifestStore(None)) as gateway:
        await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
        # It would be opened in the middle of the cycles, and has a thread.
        await asyncio.wait_for(gateway.store.open(), TIMEOUT_S)
        yield gateway


async def rest_cycles(name: str, cycles: int) -> None:
    async with gateway_over(name, protocol="legacy") as gateway:
        upstream = gateway.upstreams[name]
        pids: set[int] = set()

        async def cycle() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                await upstream.request("tools/call", {"name": "echo", "arguments": {}})
                pids.add(upstream.get_status().diagnostics["pid"])
                await upstream.stop_if_idle(idle_s=0)
                while upstream.state != "known":  # it may be about to be listed
                    await asyncio.sleep(0.005)
                    await upstream.stop_if_idle(idle_s=0)

        await flat(cycle, cycles)
        assert len(pids) > 0.9 * cycles  # a number may be used again


async def test_two_hundred_starts_and_stops_of_a_server_leave_nothing():
    await rest_cycles("healthy", 200)


def test_the_same_on_the_loop_that_serves_http():
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(rest_cycles("healthy", 60))


async def test_a_server_that_dies_in_every_call_leaves_nothing():
    async with gateway_over(
        "dies_mid_call", protocol="legacy", restart={"tries": 1_000}
    ) as gateway:
        upstream = gateway.upstreams["dies_mid_call"]

        async def cycle() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                with pytest.raises(BackendUnavailable, match="exited with code 4"):
                    await upstream.request("tools/call", {"name": "echo", "arguments": {}})
                while upstream.state != "down":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        await flat(cycle, 50)


async def test_a_server_that_never_starts_leaves_nothing():
    async with gateway_over("crash_on_start") as gateway:
        backend = gateway.upstreams["crash_on_start"].backend

        class Nobody:
            def on_notification(self, method: str, params: Any) -> None: ...

            def on_lost(self, reason: str) -> None: ...

        async def cycle() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                with pytest.raises(BackendUnavailable, match="exited with code 3"):
                    await backend.connect(Nobody())

        await flat(cycle, 40)


async def test_sessions_that_come_and_go_leave_nothing():
    async with gateway_over("healthy", protocol="legacy", isolation="session") as gateway:
        upstream = gateway.upstreams["healthy"]
        numbers = iter(range(1_000))

        async def cycle() -> None:
            session = f"session-{next(numbers)}"
            async with asyncio.timeout(TIMEOUT_S):
                await upstream.request(
                    "tools/call", {"name": "echo", "arguments": {}}, session=session
                )
                await upstream.end_session(session)

        await flat(cycle, 50)


async def test_twenty_gateways_one_after_the_other_leave_nothing():
    async def cycle() -> None:
        async with gateway_over("healthy", "modern_only"):
            pass

    await cycle()
    await cycle()
    before = await wait_until_settled()
    for _ in range(20):
        await cycle()
    after = await wait_until_settled(before)
    assert after.within(before), f"{before} has become {after}"
