"""Large results are freed in a thread, once nobody else holds them, and what others hold is not
changed."""

import asyncio
from typing import Any

import pytest

from portico.json_text import part_stream
from portico.json_text.part_stream import release_later
from portico.upstream.backend import Raw

PATIENCE_S = 60


class Freed(str):
    """A text that says when it is freed."""

    seen: asyncio.Event
    loop: asyncio.AbstractEventLoop

    def __del__(self) -> None:
        self.loop.call_soon_threadsafe(self.seen.set)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_stream, "_DELAY_S", 0.001)


def make_result() -> tuple[Raw, asyncio.Event]:
    text = Freed("x")
    text.seen, text.loop = asyncio.Event(), asyncio.get_running_loop()
    return {
        "content": [],
        "structuredContent": {"rows": [[text]] + [[n] for n in range(10_000)]},
    }, text.seen


async def test_a_result_stays_whole_while_it_is_worked_on():
    result, freed = make_result()
    async with release_later(result):
        await asyncio.sleep(0.05)
        assert len(result["structuredContent"]["rows"]) == 10_001
    del result
    async with asyncio.timeout(PATIENCE_S):
        await freed.wait()


async def test_values_with_other_references_are_not_changed():
    result, freed = make_result()
    rows: list[Any] = result["structuredContent"]["rows"]
    other = rows[1]
    async with release_later(result):
        pass
    await asyncio.sleep(0.05)
    assert len(rows) == 10_001
    del result, rows
    async with asyncio.timeout(PATIENCE_S):
        await freed.wait()
    assert other == [0]


async def test_a_result_that_fails_to_be_worked_on_is_freed_too():
    result, freed = make_result()
    with pytest.raises(ValueError, match="no"):
        async with release_later(result):
            raise ValueError("no")
    del result
    async with asyncio.timeout(PATIENCE_S):
        await freed.wait()
