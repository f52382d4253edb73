"""Workers for scripts are shared between callers: however many scripts one of them sends, another's
still run."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from portico.config import CodeConfig, Config
from portico.scripts.sandbox.script import LANGUAGES
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw

TIMEOUT_S = 240.0
FLOOD = 12
SCRIPTS = {
    "python": ("await hall.hold()", "1 + 1"),
    "lua": ("return hall.hold():await()", "return 1 + 1"),
    "javascript": ("await hall.hold({})", "1 + 1"),
    "typescript": ("await hall.hold({})", "1 + 1"),
}
"""A script that lasts until the test lets it go, and one that is over at once."""


class Hall:
    """A server whose tool answers when it is let go; it counts who is inside, and in which order
    they came."""

    def __init__(self) -> None:
        schema = {"type": "object", "properties": {"who": {"type": "string"}}}
        self.backend = FakeBackend(
            [{"name": "hold", "description": "Hold on.", "inputSchema": schema}]
        )
        self.backend.on_call("hold", self._hold)
        self.inside = 0
        self.came: list[str] = []
        self.changed = asyncio.Condition()
        self.free = asyncio.Event()

    async def _hold(self, given: Raw) -> Raw:
        async with self.changed:
            self.inside += 1
            self.came.append(str(given.get("who", "")))
            self.changed.notify_all()
        await self.free.wait()
        return {"content": [{"type": "text", "text": json.dumps("held")}]}

    async def wait_for(self, inside: int) -> None:
        async with self.changed, asyncio.timeout(TIMEOUT_S):
            await self.changed.wait_for(lambda: self.inside >= inside)


@asynccontextmanager
async def open_clients(
    hall: Hall, clients: int, **code: Any
) -> AsyncGenerator[tuple[Any, list[Any]]]:
    """A gateway, and clients with a session each."""
    async with AsyncExitStack() as stack:
        config = Config(code=CodeConfig(**code))
        gateway = await stack.enter_async_context(gateway_over({"hall": hall.backend}, config))
        yield (
            gateway,
            [
                await stack.enter_async_context(connect(gateway, era="legacy"))
                for _ in range(clients)
            ],
        )


async def run(client: Any, code: str, language: str) -> Any:
    asked = client.call_tool("run_code", {"code": code, "language": language})
    return await asyncio.wait_for(asked, TIMEOUT_S)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_flood_of_scripts_leaves_a_worker_to_the_others(language: str) -> None:
    hall = Hall()
    holding, quick = SCRIPTS[language]
    async with open_clients(hall, 2) as (_, (greedy, polite)):
        flood = [asyncio.create_task(run(greedy, holding, language)) for _ in range(FLOOD)]
        await hall.wait_for(3)
        answer = await run(polite, quick, language)
        assert answer.content[0].text == "2", answer.content
        assert not any(one.done() for one in flood)
        hall.free.set()
        assert not any(one.is_error for one in await asyncio.gather(*flood))


async def test_callers_take_turns_where_all_workers_are_taken() -> None:
    hall = Hall()
    async with open_clients(hall, 2, workers=1) as (_, (greedy, polite)):
        flood = [
            asyncio.create_task(run(greedy, "await hall.hold(who='greedy')", "python"))
            for _ in range(FLOOD)
        ]
        await hall.wait_for(1)
        last = asyncio.create_task(run(polite, "await hall.hold(who='polite')", "python"))
        await polite.list_tools()  # answered after the script before it was begun
        hall.free.set()
        await asyncio.gather(*flood, last)
    assert hall.came.index("polite") < FLOOD // 2


async def test_more_scripts_than_may_wait_are_refused_to_their_caller_alone() -> None:
    hall = Hall()
    async with open_clients(hall, 2, waiting=2) as (_, (greedy, polite)):
        flood = [
            asyncio.create_task(run(greedy, "await hall.hold()", "python")) for _ in range(FLOOD)
        ]
        async with asyncio.timeout(TIMEOUT_S):
            while sum(one.done() for one in flood) < FLOOD - 5:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        refused = [one.result() for one in flood if one.done()]
        assert all(one.is_error for one in refused)
        assert "overloaded" in refused[0].content[0].text
        assert (await run(polite, "1 + 1", "python")).content[0].text == "2"
        hall.free.set()
        assert sum(not one.is_error for one in await asyncio.gather(*flood)) == 5
