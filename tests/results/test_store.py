"""Stored results: for their caller, for a while, and never more than there is room for."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from portico.callers import Caller
from portico.config import ResultsConfig
from portico.errors import UnknownName
from portico.results.store import ResultStore, StoredResult
from portico.storage.data_files import ResultBodyTooLarge, ResultFiles

ME, OTHER = Caller("mine", "client"), Caller("yours", "client")


class Held:
    """Something that is freed when nobody holds it."""


class StoreUnderTest:
    def __init__(self, folder: Path, **settings: int) -> None:
        self.folder, self.now = folder, 1_000_000.0
        self.store = ResultStore(
            ResultFiles(folder, clock=lambda: self.now),
            ResultsConfig.model_validate(settings),
            clock=lambda: self.now,
        )

    async def keep(self, caller: Caller = ME, size: int = 100) -> StoredResult:
        async with asyncio.timeout(240):
            return await self.store.save(caller, "s.t", "text", ["x" * size])

    def files(self) -> int:
        return sum(1 for _ in self.folder.glob("*.result"))

    def has(self, stored: StoredResult, caller: Caller = ME) -> bool:
        try:
            return self.store.find(caller, stored.id) is stored
        except UnknownName:
            return False


async def test_what_failed_work_held_is_freed_without_the_garbage_collector(tmp_path: Path):
    under_test, held = StoreUnderTest(tmp_path), list["weakref.ref[Held]"]()

    def fail() -> None:
        mine = Held()
        held.append(weakref.ref(mine))
        raise ValueError("no")

    gc.disable()
    try:
        with pytest.raises(ValueError, match="no"):
            await under_test.store.run_in_thread(ME, fail)
        async with asyncio.timeout(240):
            while held[0]() is not None:  # noqa: ASYNC110 - its thread may still be on its way
                await asyncio.sleep(0)
    finally:
        gc.enable()


async def test_a_result_is_found_by_its_id_and_by_its_uri(tmp_path: Path):
    under_test = StoreUnderTest(tmp_path)
    stored = await under_test.keep()
    assert under_test.store.find(ME, stored.id) is stored
    assert under_test.store.find(ME, f" portico://result/{stored.id}") is stored
    assert (stored.size, stored.tool, under_test.store.size_bytes) == (100, "s.t", 100)


async def test_ids_are_long_and_never_the_same(tmp_path: Path):
    under_test = StoreUnderTest(tmp_path)
    ids = {(await under_test.keep()).id for _ in range(50)}
    assert len(ids) == 50
    assert min(map(len, ids)) >= 22


@pytest.mark.parametrize(
    "other",
    [
        OTHER,
        Caller("mine", "client", "profile"),
        Caller("", "client"),
        Caller(),
        Caller("", "mine\n"),
    ],
)
async def test_another_caller_s_result_is_not_found(tmp_path: Path, other: Caller):
    under_test = StoreUnderTest(tmp_path)
    stored = await under_test.keep()
    with pytest.raises(UnknownName, match="no such result"):
        under_test.store.find(other, stored.id)
    assert under_test.has(stored)


@pytest.mark.parametrize(
    "name", ["", "nope", "../../etc/passwd", "portico://result/", "portico://result/../x"]
)
async def test_an_id_that_was_never_given_is_not_found(tmp_path: Path, name: str):
    with pytest.raises(UnknownName, match="no such result"):
        StoreUnderTest(tmp_path).store.find(ME, name)


async def test_a_result_ends_with_its_time_and_its_file_with_the_next_sweep(tmp_path: Path):
    under_test = StoreUnderTest(tmp_path, ttl_s=60)
    stored = await under_test.keep()
    under_test.now += 60
    assert not under_test.has(stored)
    under_test.store.sweep()
    assert (under_test.files(), under_test.store.size_bytes, len(under_test.store)) == (0, 0, 0)


async def test_what_another_process_left_behind_is_swept(tmp_path: Path):
    await StoreUnderTest(tmp_path, ttl_s=60).keep()
    under_test = StoreUnderTest(tmp_path)
    under_test.now += 600
    under_test.store.sweep()
    assert under_test.files() == 1
    under_test.now += 100
    under_test.store.sweep()
    assert under_test.files() == 0


async def test_one_that_is_too_large_is_not_kept(tmp_path: Path):
    under_test = StoreUnderTest(tmp_path, result_bytes=1_000)
    with pytest.raises(ResultBodyTooLarge):
        await under_test.keep(size=1_001)
    assert (under_test.files(), under_test.store.size_bytes) == (0, 0)


async def test_above_the_limit_the_oldest_result_of_the_largest_owner_is_evicted(tmp_path: Path):
    under_test = StoreUnderTest(tmp_path, total_bytes=1_000)
    theirs = await under_test.keep(OTHER, 300)
    mine = [await under_test.keep(ME, 300) for _ in range(3)]
    assert under_test.has(theirs, OTHER)
    assert [under_test.has(one) for one in mine] == [False, True, True]
    assert under_test.store.size_bytes == 900
    assert under_test.files() == 3


async def test_a_result_as_large_as_the_limit_evicts_all_others(tmp_path: Path):
    under_test = StoreUnderTest(tmp_path, total_bytes=1_000)
    await under_test.keep(OTHER, 300)
    last = await under_test.keep(ME, 1_000)
    assert under_test.has(last)
    assert len(under_test.store) == 1


async def test_a_caller_who_leaves_while_it_is_written_leaves_no_file(tmp_path: Path):
    under_test = StoreUnderTest(tmp_path)
    begun, go_on = Event(), Event()

    def slowly() -> Iterator[str]:
        yield "x"
        begun.set()
        go_on.wait(20)
        yield "y"

    keeping = asyncio.create_task(under_test.store.save(ME, "s.t", "text", slowly()))
    await asyncio.wait_for(asyncio.to_thread(begun.wait, 240), 240)
    keeping.cancel()
    await asyncio.wait({keeping}, timeout=240)
    (writing,) = [task for task in asyncio.all_tasks() if task.get_name() == "store a result"]
    go_on.set()
    await asyncio.wait({writing}, timeout=240)
    await asyncio.sleep(0)
    assert (under_test.files(), len(under_test.store)) == (0, 0)


async def test_at_the_end_nothing_is_left(tmp_path: Path):
    under_test = StoreUnderTest(tmp_path)
    await under_test.keep()
    await under_test.keep(OTHER)
    under_test.store.close()
    assert under_test.files() == 0
