"""A gateway that is killed while it writes: what it has written is there, whole, on either
database."""

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallQuery
from tests.fixtures.postgres import PostgresDatabase
from tests.fixtures.postgres import postgres as postgres

TIMEOUT_S = 240
BATCH = 200
_WRITE = """
import asyncio, sys
from pathlib import Path
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallQuery, CallRow, DailyRow, LedgerRow

async def main():
    record = GatewayStore(sys.argv[1] or None, Path(sys.argv[2]))
    size, batch = int(sys.argv[3]), 0
    while True:
        batch += 1
        calls = [CallRow(float(batch), "s", f"t{n}", "h", 1.0, True, session=str(batch)) for n in range(size)]
        daily = [DailyRow(1, "s", f"t{n}", 0, 1, 1, float(batch)) for n in range(size)]
        await record.add_usage(calls, daily, [LedgerRow("s", "c", "p", 0.0, float(batch), 1, size, 1)])
        print(batch, flush=True)
        await asyncio.sleep(0.2 if batch % 4 == 0 else 0)

asyncio.run(main())
"""  # noqa: E501


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("batches", [3, 10])
async def test_a_gateway_that_is_killed_loses_no_batch_that_was_written_and_breaks_none(
    kind: str, batches: int, tmp_path: Path, request: pytest.FixtureRequest
):
    postgres: PostgresDatabase | None = (
        request.getfixturevalue("postgres") if kind == "postgresql" else None
    )
    url = postgres.url if postgres else ""
    path = tmp_path / "data" / "record.sqlite3"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WRITE, url, str(path), str(BATCH), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    written = 0
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while written < batches:
                written = int(await process.stdout.readline())
            process.kill()
            # What it had said before it was dead.
            written = max([written, *map(int, (await process.stdout.read()).split())])
            await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if sys.platform != "win32":
        assert process.returncode == -signal.SIGKILL

    if postgres:
        await asyncio.to_thread(postgres.release)
    record = GatewayStore(url or None, path)
    calls = await record.load_calls(CallQuery(limit=1_000_000))
    kept = len(calls) // BATCH
    assert kept >= written
    assert len(calls) == kept * BATCH
    assert {row.session for row in calls} == {str(batch) for batch in range(1, kept + 1)}
    assert {row.calls for row in await record.load_daily_usage(0)} == {kept}
    assert (await record.load_ledger_total()).shown == kept * BATCH
    await record.add_usage(calls[:1], [], [])
    await record.close()
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(path)) as db:
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert not path.with_name("record.sqlite3.unreadable").exists()
