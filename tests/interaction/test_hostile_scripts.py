"""Scripts that mean harm, each through a gateway: contained within its limits, felt by nobody, leaving nothing."""

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Any

import psutil
import pytest
import pytest_asyncio
from benchmarks.attacks import Attack, attacks

from benchmarks import victims
from portico.config import BackendConfig, Code, Config
from portico.testing import connect, gateway_over

PATIENCE = 60
LIMITS = Code(cpu_s=0.5, wall_s=3, workers=2)
SCRIPTS = attacks()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncGenerator[Any]:
    servers = {name: BackendConfig(**server) for name, server in victims.SERVERS.items()}  # pyright: ignore[reportArgumentType]
    async with gateway_over(config=Config(servers=servers, code=LIMITS)) as gateway:
        yield gateway


def test_there_are_enough_of_them_in_every_language():
    languages = [attack.language for attack in SCRIPTS]
    assert len(SCRIPTS) >= 60
    assert all(languages.count(one) >= 5 for one in ("python", "lua", "javascript", "typescript"))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("attack", SCRIPTS, ids=lambda one: f"{one.language}: {one.name}")
async def test_it_is_contained_and_the_next_script_runs(gateway: Any, attack: Attack):
    async with asyncio.timeout(PATIENCE), connect(gateway) as client:
        result: Any = await client.call_tool("run_code", {"code": attack.code, "language": attack.language})
        text: str = result.content[0].text
        ended = text.removeprefix("script ").partition(":")[0] if result.is_error else "harmless"
        allowed = attack.allowed if isinstance(attack.allowed, tuple) else (attack.allowed,)
        assert ended in allowed, text
        after: Any = await client.call_tool("run_code", {"code": "6 * 7", "language": attack.language})
        assert after.content[0].text == "42"


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_is_left_of_them(gateway: Any):
    """The last of this file: processes are those that wait for the next script, and nothing is under way."""
    own = psutil.Process(os.getpid())
    async with asyncio.timeout(PATIENCE):
        while len(_busy(own)) > 0:
            await asyncio.sleep(0.2)  # a process that was told to end may take a moment to be gone
    kinds = 3
    assert len(own.children()) <= kinds * (LIMITS.workers + 1)
    calls = [task for task in asyncio.all_tasks() if task.get_name() == "a script's call"]
    assert calls == []


def _busy(own: psutil.Process) -> list[psutil.Process]:
    return [child for child in own.children() if child.status() == psutil.STATUS_RUNNING]
