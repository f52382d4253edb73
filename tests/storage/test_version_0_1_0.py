"""Data that version 0.1.0 wrote opens in this version, with everything that is still used.

`version_0_1_0/` holds its databases as SQL text, as 0.1.0 made and filled them.
"""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from portico.catalog.entries import ServerSource, restore_entry
from portico.storage.gateway_store import GatewayStore
from portico.storage.learning_store import LearningStore
from portico.storage.manifests import ManifestStore
from portico.storage.rows import CallRow, DailyRow, LedgerRow, PlanRow, ShapeRow, TierRow
from tests.fixtures.postgres import PostgresDatabase
from tests.fixtures.postgres import postgres as postgres

RECORDED = Path(__file__).parent / "version_0_1_0"
NOW = 1_790_000_000.0
HASH = "00112233aabbccdd"


def restore_sqlite(name: str, folder: Path) -> Path:
    path = folder / f"{name}.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((RECORDED / f"{name}.sql").read_text())
    return path


async def check_store(store: GatewayStore) -> None:
    call = CallRow(NOW, "mail", "send", HASH, 12.5, True, False, "claude", "work", "one", 1)
    session = LedgerRow("one", "claude", "work", NOW - 50, NOW, 900, 40, 2)
    plan = PlanRow("p", "work/claude", "dmVj", "1 2", "[]", f'{{"mail.send":"{HASH}"}}', 2, NOW)
    assert await store.load_calls() == [call]
    assert await store.load_daily_usage(0) == [DailyRow(20717, "mail", "send", 29, 1, 1, NOW)]
    assert await store.load_ledger_sessions() == [session]
    assert await store.load_tiers() == (NOW, [TierRow("mail", "send", 0.9, "hot")])
    assert await store.load_shapes(9) == [ShapeRow(HASH, 3, '{"type":"object"}', NOW)]
    assert await store.load_plans("work/claude") == [plan]
    found = await store.load_manifests({"mail": "fingerprint"}, {})
    entry = restore_entry(ServerSource("mail", "fingerprint"), found["mail"])
    assert entry.tools["send"].description == "Send a letter."
    await store.add_usage([call], [], [session])
    assert [row.id for row in await store.load_calls()] == [2, 1]
    await store.close()


async def test_a_sqlite_database_opens_and_loses_only_the_tables_that_nothing_read(tmp_path: Path):
    path = restore_sqlite("portico", tmp_path)
    await check_store(GatewayStore(None, path))
    with contextlib.closing(sqlite3.connect(path)) as db:
        names = {name for (name,) in db.execute("select name from sqlite_master")}
    assert names.isdisjoint({f"portico_{n}" for n in ("results", "categories", "tools", "servers")})


async def test_a_postgresql_database_opens(postgres: PostgresDatabase):
    await asyncio.to_thread(postgres.sql, (RECORDED / "portico_postgres.sql").read_text())
    # Rows were inserted with their ids; a real one has moved its sequence itself.
    await asyncio.to_thread(postgres.sql, "select setval('portico_calls_id_seq', 1);")
    await check_store(GatewayStore(postgres.url, None))


def test_manifests_open(tmp_path: Path):
    manifests = ManifestStore(restore_sqlite("manifest", tmp_path))
    entry = restore_entry(
        ServerSource("mail", "fingerprint"), manifests.load({"mail": "fingerprint"})["mail"]
    )
    assert entry.tools["send"].warnings == ("a warning",)
    assert entry.initialize_info is not None
    assert entry.initialize_info.instructions == "Letters."
    assert entry.offers.prompts == ({"name": "greet"},)
    manifests.close()


def test_what_was_learned_opens(tmp_path: Path):
    store = LearningStore(restore_sqlite("habits", tmp_path))
    rows = store.load("work/claude")
    assert [(row.terms, row.tool, row.weight) for row in rows.followed] == [
        (bytes(range(8)), "mail.send", 2.0)
    ]
    assert [(row.one, row.other, row.weight) for row in rows.together] == [
        ("mail.find", "mail.send", 1.0)
    ]
    assert [(row.tool, row.weight) for row in rows.used] == [("mail.send", 3.0)]
    store.close()
