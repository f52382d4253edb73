"""Large values and the collector: it is spared them, but what only it can find still goes."""

import gc
import json
import weakref
from collections.abc import Generator

import pytest

from portico.upstream.garbage import LARGEST, MANY, SPARED
from portico.upstream.json_windows import LARGE, read


class Knot:
    """Something that only the collector can take apart."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def by_hand() -> Generator[None]:
    """Nothing is collected but by what is tested."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_long_text_does_not_put_off_the_next_full_collection() -> None:
    for _ in range(5):
        gc.collect(1)
    due = gc.get_count()[2]
    assert due == 5
    for _ in range(3):
        read(json.dumps(["x" * LARGE]).encode())
    assert gc.get_count()[2] == due


def test_a_stream_of_large_values_does_not_keep_garbage_for_ever() -> None:
    body = json.dumps([[]] * (LARGEST + 1_000)).encode()
    before = gc.get_stats()[2]["collections"]
    while gc.get_stats()[2]["collections"] == before:
        read(body)  # until it is counted from the beginning
    knot = Knot()
    gone = weakref.ref(knot)
    del knot
    collected = gc.get_stats()[2]["collections"]
    for number in range(SPARED + 1):
        assert gone() is not None, f"{number} large values are let be"
        assert len(read(body)) == LARGEST + 1_000
    assert gone() is None
    assert gc.get_stats()[2]["collections"] == collected + 1


def test_a_smaller_value_counts_as_a_part_of_a_large_one() -> None:
    body = json.dumps([[]] * 2 * LARGEST).encode()
    collections = gc.get_stats()[2]["collections"]
    while gc.get_stats()[2]["collections"] == collections:
        read(body)  # until it is counted from the beginning
    smaller = json.dumps([[]] * (MANY + 1_000)).encode()
    frozen = gc.get_freeze_count()
    kept = [read(smaller) for _ in range(SPARED + 1)]
    assert gc.get_freeze_count() >= frozen + len(kept) * MANY
    assert gc.get_stats()[2]["collections"] == collections + 1
