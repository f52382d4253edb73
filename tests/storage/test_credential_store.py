"""Stored credentials: encrypted, bound to their slot, and renewed by one process at a time."""

import asyncio
import os
import stat
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from portico.storage import encryption_key
from portico.storage.credential_store import FILE_NAME, CredentialStore
from portico.storage.encryption_key import load_or_create_key
from portico.storage.sql import credentials
from portico.storage.sql.database_url import StoreUnavailable
from tests.fixtures.postgres import postgres as postgres

OpenStore = Callable[..., CredentialStore]
SHARED_KEY = "a key that all gateways share, long enough"


@pytest.fixture(params=["sqlite", "postgresql"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[OpenStore]:
    """Opens the same credentials, as gateways and commands do beside each other."""
    url = request.getfixturevalue("postgres").url if request.param == "postgresql" else None
    opened: list[CredentialStore] = []

    def make(key: str = "") -> CredentialStore:
        opened.append(CredentialStore(url, tmp_path, key))
        return opened[-1]

    yield make
    for store in opened:
        await store.close()


async def test_what_one_process_writes_another_reads(open_store: OpenStore) -> None:
    writer = open_store()
    reader = open_store()
    assert await reader.read("one") is None
    assert not await reader.delete("one")
    first = await writer.write("one", "secret ü")
    assert await reader.read("one") == ("secret ü", first)
    second = await writer.write("one", "other")
    assert first != second == await reader.read_version("one")
    assert await reader.delete("one")
    assert await writer.read("one") is None


async def test_one_of_many_holds_the_lock(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(3)]
    inside: list[int] = []
    most = 0

    async def work(number: int) -> None:
        nonlocal most
        async with stores[number % 3].hold_lock("one"):
            inside.append(number)
            most = max(most, len(inside))
            await asyncio.sleep(0.02)
            inside.remove(number)

    await asyncio.wait_for(asyncio.gather(*(work(number) for number in range(9))), 120)
    assert most == 1
    async with stores[0].hold_lock("one"), stores[1].hold_lock("two"):
        pass  # another slot is another lock


async def test_the_lock_of_a_process_that_died_ends(open_store: OpenStore) -> None:
    store = open_store()
    database = await store._open()  # pyright: ignore[reportPrivateUsage]
    await database.write(credentials.create_tables)
    now = time.time()
    assert await database.write(lambda db: credentials.try_lock(db, "x", "dead", now, now + 0.5))
    async with asyncio.timeout(120), store.hold_lock("x"):
        assert time.time() > now + 0.4


async def test_gateways_with_the_same_key_read_each_others_and_others_do_not(
    open_store: OpenStore,
) -> None:
    await open_store(SHARED_KEY).write("one", "secret")
    assert (await open_store(SHARED_KEY).read("one") or ("",))[0] == "secret"
    with pytest.raises(StoreUnavailable, match="encrypted with another key"):
        await open_store(SHARED_KEY + "!").read("one")


async def test_a_row_in_another_place_or_changed_is_refused(tmp_path: Path) -> None:
    store = CredentialStore(None, tmp_path)
    await store.write("ana", "the token of ana")
    database = await store._open()  # pyright: ignore[reportPrivateUsage]
    found = await database.read(lambda db: credentials.read_sealed(db, "ana"))
    assert found is not None
    sealed = found[0]
    assert b"token" not in sealed
    for slot, forged in (("ben", sealed), ("ana", sealed[:-1] + bytes([sealed[-1] ^ 1]))):
        await database.write(lambda db, s=slot, f=forged: credentials.write_sealed(db, s, f, "v"))
        with pytest.raises(StoreUnavailable):
            await store.read(slot)
    await store.close()


async def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    store = CredentialStore(None, None)
    await store.write("one", "secret")
    assert (await store.read("one") or ("",))[0] == "secret"
    await store.close()
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes of files")
async def test_key_and_file_are_for_their_owner_only(tmp_path: Path) -> None:
    store = CredentialStore(None, tmp_path)
    await store.write("one", "secret")
    await store.close()
    for name in (FILE_NAME, encryption_key.FILE_NAME):
        assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o600


def test_the_key_stays_the_same_and_a_damaged_one_is_not_replaced(tmp_path: Path) -> None:
    key = load_or_create_key(tmp_path)
    assert load_or_create_key(tmp_path) == key
    path = tmp_path / encryption_key.FILE_NAME
    path.write_text("half a k")
    with pytest.raises(StoreUnavailable, match="has no key"):
        load_or_create_key(tmp_path)
    assert path.read_text() == "half a k"


def test_the_key_is_in_the_keychain_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[tuple[str, str], str] = {}
    keychain = SimpleNamespace(
        get_password=lambda service, name: kept.get((service, name)),
        set_password=lambda service, name, text: kept.update({(service, name): text}),
    )
    monkeypatch.setitem(sys.modules, "keyring", keychain)
    key = load_or_create_key(tmp_path)
    assert load_or_create_key(tmp_path) == key
    assert (tmp_path / encryption_key.FILE_NAME).read_text() == "keychain\n"
    kept.clear()
    with pytest.raises(StoreUnavailable, match="no longer in the keychain"):
        load_or_create_key(tmp_path)
