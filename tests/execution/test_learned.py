"""What was learnt of answers outlives the process, without anything anybody answered."""

from pathlib import Path
from typing import Any

import pytest

from portico.catalog.tool import make_tool
from portico.disclosure.tokens import count
from portico.execution.learned import ENOUGH, Shapes
from portico.execution.shape import described, infer, merge
from portico.execution.shape_text import dumped, loaded
from portico.storage.record import Record
from portico.storage.rows import Retention, ShapeRow

TOOL = make_tool("s", {"name": "t"})
SECRET = "ada@example.org"


def answer(value: Any) -> Any:
    return {"content": [], "structuredContent": value}


def record(path: Path) -> Record:
    return Record(None, path / "record.sqlite3")


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": None, "c": [1.5, "x"], "d": {"e": True}},
        [],
        {},
        [[{"x": [{}]}]],
        {f"key {n}": n for n in range(100)},
        {"ü\U0001f600": "x" * 500},
    ],
    ids=["plain", "empty list", "empty object", "deep", "map", "odd text"],
)
def test_a_shape_is_the_same_after_it_was_written_and_read(value: Any):
    shape = merge(infer(value), infer(value))
    text = dumped(shape)
    assert text is not None
    again = loaded(text)
    assert again is not None
    assert described(again, 500, count).replace('"…"', "K") == described(shape, 500, count).replace('"key 0"', "K")


def test_nobody_s_data_is_written():
    shape = infer({"people": [{"mail": SECRET}], "by_mail": {f"{n}{SECRET}": n for n in range(40)}})
    assert SECRET not in (dumped(shape) or SECRET)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"n": "x"}', '{"n": 1, "fields": []}', '{"n":1,"keys":[1]}'])
def test_what_is_no_shape_is_none(text: str):
    assert loaded(text) is None


async def test_what_was_learnt_is_known_after_a_restart(tmp_path: Path):
    first = record(tmp_path)
    shapes = Shapes(record=first)
    shapes.learn(TOOL, answer({"title": "x"}))
    await shapes.tend()
    shapes.learn(TOOL, answer({"title": "x", "more": 1}))
    await shapes.finish()
    await first.close()
    second = record(tmp_path)
    later = Shapes(record=second)
    assert later.of(TOOL) is None
    await later.tend()
    assert later.told(TOOL, 200, count) == "returns (learned from 2 results): {title: string, more?: integer}"
    for _ in range(ENOUGH):
        later.learn(TOOL, answer({"title": "x"}))
    assert "learned from 5 results" in later.told(TOOL, 200, count)
    await second.close()


async def test_what_was_learnt_here_is_not_replaced_by_what_is_on_record(tmp_path: Path):
    kept = record(tmp_path)
    await kept.save_shapes([ShapeRow(TOOL.hash, 5, dumped(infer({"old": 1})) or "", 1.0), ShapeRow("x", 1, "{", 2.0)])
    shapes = Shapes(record=kept)
    shapes.learn(TOOL, answer({"new": 1}))
    await shapes.tend()
    assert "new" in shapes.told(TOOL, 200, count)
    assert len(shapes) == 1
    assert [row.results for row in await kept.shapes(10) if row.hash == TOOL.hash] == [1]
    await kept.close()


async def test_a_record_that_cannot_be_used_costs_nothing_but_the_memory_of_it():
    shapes = Shapes(record=Record("mysql://nowhere", None))
    shapes.learn(TOOL, answer({"a": 1}))
    await shapes.tend()
    await shapes.finish()
    assert shapes.of(TOOL) is not None


async def test_old_shapes_are_dropped_with_the_rest(tmp_path: Path):
    kept = record(tmp_path)
    await kept.save_shapes([ShapeRow("old", 1, "{}", 0.0), ShapeRow("new", 1, "{}", 400 * 86_400.0)])
    await kept.prune(Retention(), 401 * 86_400.0)
    assert [row.hash for row in await kept.shapes(10)] == ["new"]
    await kept.close()
