"""Generated schemas × values and paths × results through the pipeline: answered, in few words and
little memory.

Nothing is measured in time here: `python -m tests.fuzz.pauses --minutes 10` does that, with the
same cases but larger.
"""

import asyncio
import faulthandler
import json
import random
import resource
from collections.abc import Iterator

import pytest

from tests.fuzz import pauses, schemas
from tests.fuzz.answer_checks import plain
from tests.fuzz.loop_thread import FACTOR, TIMEOUT_S

CASES = round(40 * FACTOR)
LONGEST_ANSWER = 256 * 1024
"""Characters: what is said of a value that does not fit must not grow with the value."""
GROWTH_MB = 512


@pytest.fixture(autouse=True)
def ended_if_it_hangs() -> Iterator[None]:
    """A call that never gives the interpreter's lock back cannot be cancelled: the process is
    ended, with its stack."""
    faulthandler.dump_traceback_later(2 * TIMEOUT_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def peak_mb() -> float:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("kind", pauses.CASES)
async def test_every_case_is_answered_within_bounds(kind: str) -> None:
    before = peak_mb()
    async with pauses.open_bench() as bench:
        for seed in range(CASES):
            dice = random.Random(seed)
            size = int(10 ** dice.uniform(1, 4.5))
            async with asyncio.timeout(TIMEOUT_S):
                result = await pauses.CASES[kind](dice, size)(bench)
            said = json.dumps(result)
            assert isinstance(result.get("content"), list), (kind, seed)
            assert len(said) <= LONGEST_ANSWER, (kind, seed, len(said))
            plain(said, echo=said if not result.get("isError") else "")
    assert peak_mb() - before < GROWTH_MB


@pytest.mark.parametrize("depth", [8, 16, 24, 100])
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
async def test_a_schema_of_lists_of_itself_is_answered_at_any_depth(
    keyword: str, depth: int
) -> None:
    again = {"type": "array", "items": {"$ref": "#/$defs/T"}}
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/T"}},
        "$defs": {"T": {keyword: [again, again]}},
    }
    value: object = 1
    for _ in range(depth):
        value = [value]
    async with pauses.open_bench() as bench, asyncio.timeout(TIMEOUT_S):
        await bench.offer({"inputSchema": schema})
        result = await bench.ask("call_tool", {"name": "s.t", "arguments": {"x": value}})
    # What doubles with every level is soon too much to check: then its server is the judge.
    assert bool(result.get("isError")) == (depth <= 8)


def test_a_seed_is_a_case() -> None:
    one, other = (schemas.make_schema(random.Random(7)) for _ in range(2))
    assert json.dumps(one) == json.dumps(other)
