"""Full garbage collections of the programs: none by themselves, none while a large value is alive."""

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncGenerator
from types import ModuleType

import pytest

from portico.cli import garbage_collector
from portico.cli.garbage_collector import LARGE_BLOCKS, collect_garbage, defer_full_collections

PATIENCE_S = 60


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
    async with asyncio.timeout(PATIENCE_S):
        while reference() is not None:  # noqa: ASYNC110 - the collector has no event
            await asyncio.sleep(0)


def count_full_collections() -> int:
    return gc.get_stats()[2]["collections"]


@pytest.fixture
async def collecting(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    """The collections of a program that has loaded all its modules, without breaks between them."""
    for name in ("EVERY_S", "POLL_S", "SHARE"):
        monkeypatch.setattr(garbage_collector, name, 1e-6 if name != "SHARE" else 1e9)
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
async def test_old_garbage_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collector, "LONGEST_S", 0.0)
    large = [[number] for number in range(2 * LARGE_BLOCKS)]
    gone = make_old_garbage()
    await wait_until_gone(gone)
    assert large


@pytest.mark.usefixtures("collecting")
async def test_old_garbage_waits_for_a_large_value_also_where_modules_are_loaded_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = [[number] for number in range(2 * LARGE_BLOCKS)]
    monkeypatch.setitem(
        sys.modules, "loaded_for_a_large_value", ModuleType("loaded_for_a_large_value")
    )
    for _ in range(100):
        await asyncio.sleep(0)
    gone = make_old_garbage()
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert gone() is not None
    large.clear()
    await wait_until_gone(gone)
