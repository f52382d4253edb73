"""Result shapes are learned from calls and shown after a restart, to agents and to scripts."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp.client import Client

from portico.testing import FakeBackend
from tests.gateways import open_gateway
from tests.interaction.fake_servers import ask

TIMEOUT_S = 240
SHAPE = "{title: string, score: integer}"


@asynccontextmanager
async def open_books(folder: Path) -> AsyncGenerator[Client]:
    backend = FakeBackend([{"name": "read", "description": "Read a book."}])
    backend.on_call(
        "read", lambda arguments: {"content": [], "structuredContent": {"title": "x", "score": 5}}
    )
    async with open_gateway({"books": backend}, data_dir=folder) as gateway:
        yield gateway.client


async def test_a_learned_shape_is_described_after_a_restart(tmp_path: Path):
    async with open_books(tmp_path) as client:
        for _ in range(3):
            await ask(client, "call_tool", name="books.read", arguments={})
    async with open_books(tmp_path) as client, asyncio.timeout(TIMEOUT_S):
        # It is read from the record a while after the start.
        while True:
            reported = await ask(client, "describe_tools", names=["books.read"], detail="full")
            if SHAPE in reported:
                break
            await asyncio.sleep(0.05)
        assert f"learned from 3 results): {SHAPE}" in reported
        code = "(await describe_tools('books.read'))"
        assert SHAPE in await ask(client, "run_code", code=code, language="python")
