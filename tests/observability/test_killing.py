"""A gateway that is killed while it works loses what it had not written yet, and harms nothing."""

import asyncio
import contextlib
import sqlite3
import sys
from pathlib import Path

import pytest

from portico.observability.keeper import COUNT_PATIENCE_S, WRITE_AFTER_S
from portico.storage.record import Record
from tests.observability.house import House, soon

_WORKING = """
import asyncio, sys
from pathlib import Path
from portico.storage.record import Record
from tests.observability.house import House

async def work():
    house = House(Record(None, Path(sys.argv[1])))
    house.keeper.start()
    heard = 0
    for burst in range(1_000):
        before = heard
        while True:
            house.call(f"mail.t{heard % 50}")
            house.show("x" * 500)
            heard += 1
            written = len(await house.record.calls(limit=1_000_000)) if heard % 200 == 0 else 0
            if written > before:
                print(written, flush=True)
                break
            await asyncio.sleep(0)

asyncio.run(work())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed otherwise there")
async def test_a_gateway_killed_under_load_keeps_what_was_written_and_corrupts_nothing(tmp_path: Path):
    path = tmp_path / "record.sqlite3"
    working = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WORKING, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert working.stdout is not None
    written = [int(await asyncio.wait_for(working.stdout.readline(), 60)) for _ in range(2)][-1]
    working.kill()
    await asyncio.wait_for(working.wait(), 20)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    house = House(Record(None, path))
    await soon(house.usage.load())
    await soon(house.ledger.load())
    calls = sum(use.calls for use in house.usage.used.values())
    assert calls == len(await soon(house.record.calls(limit=1_000_000))) >= written
    assert house.ledger.total.answers > 0
    house.call()
    await soon(house.keeper.flush())
    await house.record.close()


def test_nothing_waits_for_a_second():
    assert WRITE_AFTER_S + COUNT_PATIENCE_S < 1
