"""Full garbage collections of the programs: none by themselves, none while a large value is
alive."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator

import pytest

from portico.cli import serving_process
from portico.cli.serving_process import LARGE_BLOCKS, collect_garbage, defer_full_collections

TIMEOUT_S = 240


class Cycle:
    """Something that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


def make_old_garbage() -> "weakref.ref[Cycle]":
    """Garbage that only a full collection frees, and enough collections that one is due."""
    cycle = Cycle()
    for _ in range(12):
        gc.collect(1)
    return weakref.ref(cycle)


async def wait_until_gone(reference: "weakref.ref[Cycle]") -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while reference() is not None:  # noqa: ASYNC110 - the collector has no event
            await asyncio.sleep(0)


def count_full_collections() -> int:
    return gc.get_stats()[2]["collections"]


@pytest.fixture
async def collecting(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    """The collections of a program that has loaded all its modules, without breaks between them."""
    for name in ("EVERY_S", "POLL_S"):
        monkeypatch.setattr(serving_process, name, 1e-6)
    with defer_full_collections():
        task = asyncio.create_task(collect_garbage())
        await asyncio.sleep(0)
        yield
        task.cancel()
    gc.unfreeze()


def test_the_settings_of_the_process_are_restored() -> None:
    before = gc.get_threshold()
    with defer_full_collections():
        assert not gc.isenabled()
        assert gc.get_threshold() != before
    assert gc.isenabled()
    assert gc.get_threshold() == before


@pytest.mark.usefixtures("collecting")
async def test_no_full_collection_begins_while_a_large_value_is_built() -> None:
    begun = count_full_collections()
    large = [[number] for number in range(10 * LARGE_BLOCKS)]
    assert count_full_collections() == begun
    assert len(large) == 10 * LARGE_BLOCKS


@pytest.mark.usefixtures("collecting")
async def test_old_garbage_goes() -> None:
    gone = make_old_garbage()
    assert gone() is not None
    await wait_until_gone(gone)


@pytest.mark.usefixtures("collecting")
async def test_old_garbage_waits_until_a_large_value_is_gone() -> None:
    large = [[number] for number in range(2 * LARGE_BLOCKS)]
    gone = make_old_garbage()
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert gone() is not None
    large.clear()
    await wait_until_gone(gone)


@pytest.mark.usefixtures("collecting")
async def test_a_large_value_that_stays_is_left_out_of_later_collections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving_process, "FREEZE_AFTER_S", 0.0)
    frozen = gc.get_freeze_count()
    large = [[number] for number in range(2 * LARGE_BLOCKS)]
    make_old_garbage()
    async with asyncio.timeout(TIMEOUT_S):
        while gc.get_freeze_count() < frozen + len(large):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
    monkeypatch.setattr(serving_process, "FREEZE_AFTER_S", 60.0)
    collected = make_old_garbage()
    await wait_until_gone(collected)
    assert large


@pytest.mark.parametrize("size", [4 * LARGE_BLOCKS, 2 * LARGE_BLOCKS])
@pytest.mark.usefixtures("collecting")
async def test_a_large_value_that_replaces_a_frozen_one_is_large_too(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(serving_process, "FREEZE_AFTER_S", 0.0)
    frozen = gc.get_freeze_count()
    large = [[number] for number in range(4 * LARGE_BLOCKS)]
    make_old_garbage()
    async with asyncio.timeout(TIMEOUT_S):
        while gc.get_freeze_count() < frozen + len(large):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
    monkeypatch.setattr(serving_process, "FREEZE_AFTER_S", 60.0)
    large = [[number] for number in range(size)]
    kept = make_old_garbage()
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert kept() is not None
    large.clear()
    await wait_until_gone(kept)
