"""What a tool's answers look like is learnt from calls, and told after a restart too: to agents and
to scripts."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp.client import Client

from portico.app import GatewayRuntime
from portico.config import Config
from portico.testing import FakeBackend, connect
from tests.interaction.fakes import ask

PATIENCE_S = 60
SHAPE = "{title: string, score: integer}"


@asynccontextmanager
async def started(folder: Path) -> AsyncGenerator[Client]:
    backend = FakeBackend([{"name": "read", "description": "Read a book."}])
    backend.on_call(
        "read", lambda arguments: {"content": [], "structuredContent": {"title": "x", "score": 5}}
    )
    async with GatewayRuntime(Config(data_dir=folder), backends={"books": backend}) as gateway:
        await asyncio.wait_for(gateway.wait_until_listed(), PATIENCE_S)
        async with connect(gateway) as client:
            yield client


async def test_a_learned_shape_is_described_after_a_restart(tmp_path: Path):
    async with started(tmp_path) as client:
        for _ in range(3):
            await ask(client, "call_tool", name="books.read", arguments={})
    async with started(tmp_path) as client, asyncio.timeout(PATIENCE_S):
        # It is read from the record a while after the start.
        while True:
            told = await ask(client, "describe_tools", names=["books.read"], detail="full")
            if SHAPE in told:
                break
            await asyncio.sleep(0.05)
        assert f"learned from 3 results): {SHAPE}" in told
        code = "(await describe_tools('books.read'))"
        assert SHAPE in await ask(client, "run_code", code=code, language="python")
