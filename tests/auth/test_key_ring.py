"""The keys of a running gateway: kept current, and closed when they cannot be read."""

import sqlite3
from pathlib import Path

from portico.auth.authenticator import KeyRing
from portico.auth.keys import create_key
from portico.storage.key_store import FILE_NAME, KeyStore
from tests.auth.conftest import OpenStore

NOW = 1_000_000.0


async def load(store: KeyStore) -> KeyRing:
    ring = KeyRing(store, clock=lambda: NOW)
    await ring.load()
    return ring


async def test_without_keys_no_credential_is_required_and_none_is_accepted(
    open_store: OpenStore,
) -> None:
    ring = await load(open_store())
    assert not ring.is_required
    assert ring.find_principal(create_key("ci", NOW)[1]) is None


async def test_what_another_process_does_to_keys_is_taken_over(open_store: OpenStore) -> None:
    commands = open_store()
    ring = await load(open_store())
    key, text = create_key("ci", NOW, profiles=("work", "docs"), is_read_only=True)
    await commands.add(key)
    await ring.load()
    assert ring.is_required
    principal = ring.find_principal(text)
    assert principal is not None
    assert (principal.name, principal.profiles, principal.is_read_only) == (
        "ci",
        ("work", "docs"),
        True,
    )
    await commands.end(key.id, expires_at=NOW - 1)
    await ring.load()
    assert ring.find_principal(text) is None
    assert ring.is_required, "an expired key does not open the gateway to everybody"


async def test_a_revoked_key_is_refused_and_the_others_stay_valid(open_store: OpenStore) -> None:
    commands = open_store()
    made = [create_key(name, NOW) for name in ("ana", "bob")]
    for key, _ in made:
        await commands.add(key)
    ring = await load(open_store())
    await commands.end(made[0][0].id, revoked_at=NOW)
    await ring.load()
    found = [ring.find_principal(text) for _, text in made]
    assert [principal and principal.name for principal in found] == [None, "bob"]


async def test_the_last_use_of_a_key_is_stored_and_never_goes_back(open_store: OpenStore) -> None:
    key, text = create_key("ci", NOW)
    await open_store().add(key)
    ring = await load(open_store())
    assert ring.find_principal(text)
    await ring.close()
    assert [row.used_at for row in await open_store().load()] == [NOW]
    await open_store().save_use({key.id: NOW - 50})
    assert [row.used_at for row in await open_store().load()] == [NOW]


async def test_keys_that_cannot_be_read_open_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 100)
    store = KeyStore(None, tmp_path)
    ring = await load(store)
    assert ring.is_required
    assert "cannot be read" in ring.problem
    assert ring.find_principal(create_key("ci", NOW)[1]) is None
    await store.close()


async def test_a_file_that_is_damaged_later_leaves_the_keys_that_were_read(tmp_path: Path) -> None:
    store = KeyStore(None, tmp_path)
    key, text = create_key("ci", NOW)
    await store.add(key)
    ring = await load(store)
    await store.close()
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"{FILE_NAME}{suffix}").unlink(missing_ok=True)
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 100)
    await ring.load()
    assert ring.problem
    assert ring.find_principal(text) is not None
    await store.close()


async def test_keys_that_are_lost_do_not_open_the_gateway(open_store: OpenStore) -> None:
    commands = open_store()
    key, text = create_key("ci", NOW)
    await commands.add(key)
    ring = await load(open_store())
    await _execute(commands, "delete from portico_keys")
    await ring.load()
    assert ring.is_required
    assert "gone" in ring.problem
    assert ring.find_principal(text) is not None


async def test_a_key_that_cannot_be_understood_does_not_end_the_watch(
    open_store: OpenStore,
) -> None:
    commands = open_store()
    key, text = create_key("ci", NOW)
    await commands.add(key)
    ring = await load(open_store())
    await _execute(commands, "update portico_keys set profiles = '[', expires_at = 1")
    await ring.load()
    assert "cannot be read" in ring.problem
    assert ring.find_principal(text) is not None, "the keys that were read stay in use"


async def _execute(store: KeyStore, statement: str) -> None:
    """Do to the table what no command does."""
    database = await store._open()  # pyright: ignore[reportPrivateUsage]
    await database.write(lambda db: db.exec_driver_sql(statement))


async def test_before_keys_were_read_none_is_accepted_and_one_is_required(
    open_store: OpenStore,
) -> None:
    ring = KeyRing(open_store())
    assert ring.is_required
    assert ring.find_principal(create_key("ci", NOW)[1]) is None


async def test_a_file_that_a_command_had_only_begun_holds_no_keys(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / FILE_NAME).close()
    (tmp_path / FILE_NAME).touch()
    store = KeyStore(None, tmp_path)
    ring = await load(store)
    assert not ring.problem
    assert not ring.is_required
    await store.close()


async def test_the_file_of_keys_is_for_its_owner_only(tmp_path: Path) -> None:
    store = KeyStore(None, tmp_path)
    await store.add(create_key("ci", NOW)[0])
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0
    await store.close()
