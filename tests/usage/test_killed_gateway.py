"""A gateway killed under load: what was answered a second before is stored, undamaged."""

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallQuery
from portico.usage.recorder import COUNT_TIMEOUT_S, WRITE_DELAY_S
from tests.fixtures.postgres import PostgresDatabase
from tests.fixtures.raw_client import ENVELOPE, MODERN
from tests.lifetime.gateway_process import launch
from tests.lifetime.process_marks import new_mark

CLIENTS = 8
BEFORE = 600
"""Calls on record before the gateway is killed: several batches."""
UNWRITTEN_S = 1.0
MARGIN_S = 10.0
"""For a machine so busy that the gateway, or the disk, hardly gets its turn."""
TIMEOUT_S = 240
HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": MODERN,
    "mcp-method": "tools/call",
    "mcp-name": "call_tool",
}


class Client:
    """Calls as fast as it is answered, and notes when."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        self._url = url
        self._http = http
        self.answered: list[float] = []

    async def call(self) -> bool:
        """Whether it went well."""
        arguments = {
            "name": "text.slugify",
            "arguments": {"text": f"call {len(self.answered)}"},
        }
        params = {"name": "call_tool", "arguments": arguments, "_meta": ENVELOPE}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer: Any = (await self._http.post(self._url, json=body, headers=HEADERS)).json()
        well = not answer["result"].get("isError")
        if well:
            self.answered.append(time.time())
        return well

    async def first_call(self) -> None:
        """Until the server is listed, the gateway says that it knows no such tool."""
        while not await self.call():  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def keep_calling(self) -> None:
        """Call until the gateway no longer answers."""
        with contextlib.suppress(httpx2.HTTPError):
            while await self.call():
                pass


@contextlib.asynccontextmanager
async def served(config: Path) -> AsyncGenerator[tuple[asyncio.subprocess.Process, Client]]:
    """`portico serve`, and a client of it."""
    process = await launch("serve", "--port", "0", "--config", str(config), mark=new_mark())
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().split()[0]
        async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
            client = Client(url, http)
            await client.first_call()
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed otherwise there")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_gateway_killed_under_load_keeps_what_was_written_and_corrupts_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
):
    postgres: PostgresDatabase | None = (
        request.getfixturevalue("postgres") if kind == "postgresql" else None
    )
    url = postgres.url if postgres else None
    path = tmp_path / "data" / "portico.sqlite3"
    config = tmp_path / "portico.json"
    text = {
        "type": "functions",
        "functions": "portico.demo.text:TOOLS",
        "start": "boot",
    }
    database = {"database_url": url} if url else {}
    config.write_text(
        json.dumps({"servers": {"text": text}, "data_dir": str(tmp_path / "data"), **database})
    )
    record = GatewayStore(url, path)
    async with asyncio.timeout(TIMEOUT_S):
        async with served(config) as (process, client), asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(client.keep_calling())
            while len(await record.load_calls(CallQuery(limit=BEFORE))) < BEFORE:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            process.kill()
            killed_at = time.time()
            assert await process.wait() == -signal.SIGKILL
        if postgres:
            await record.close()
            await asyncio.to_thread(postgres.release)
        kept = len(await record.load_calls(CallQuery(limit=1_000_000)))
        assert kept >= BEFORE, "what was seen on record stays"
        lost = len(client.answered) - kept
        assert lost <= sum(at > killed_at - UNWRITTEN_S - MARGIN_S for at in client.answered)
        assert sum(row.calls for row in await record.load_daily_usage(0)) == kept
        # The next start takes it up where it is.
        async with served(config) as (process, client):
            process.terminate()
            assert await process.wait() == 0
        assert sum(row.calls for row in await record.load_daily_usage(0)) == kept + len(
            client.answered
        )
        await record.close()
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert not path.with_name("portico.sqlite3.unreadable").exists()


def test_nothing_waits_for_a_second():
    # One round of counting may be under way, and another waits for it.
    assert WRITE_DELAY_S + 2 * COUNT_TIMEOUT_S < UNWRITTEN_S
