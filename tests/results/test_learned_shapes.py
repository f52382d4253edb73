"""What was learnt of answers outlives the process, without anything anybody answered."""

from pathlib import Path
from typing import Any

import pytest

from portico.catalog.tool import make_tool
from portico.config import UsageConfig
from portico.rendering.token_budget import count_tokens
from portico.results.learned_shapes import (
    MAX_LEARNED_RESULTS,
    LearnedShapes,
    dump_shape,
    load_shape,
)
from portico.results.shape import infer_shape, merge_shapes, render_shape
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import ShapeRow

TOOL = make_tool("s", {"name": "t"})
SECRET = "ada@example.org"


def answer(value: Any) -> Any:
    return {"content": [], "structuredContent": value}


def record(path: Path) -> GatewayStore:
    return GatewayStore(None, path / "record.sqlite3")


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
    shape = merge_shapes(infer_shape(value), infer_shape(value))
    text = dump_shape(shape)
    assert text is not None
    again = load_shape(text)
    assert again is not None
    assert render_shape(again, 500, count_tokens).replace('"…"', "K") == render_shape(
        shape, 500, count_tokens
    ).replace('"key 0"', "K")


def test_no_user_data_is_written():
    shape = infer_shape(
        {"people": [{"mail": SECRET}], "by_mail": {f"{n}{SECRET}": n for n in range(40)}}
    )
    assert SECRET not in (dump_shape(shape) or SECRET)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"n": "x"}', '{"n": 1, "fields": []}', '{"n":1,"keys":[1]}']
)
def test_what_is_no_shape_is_none(text: str):
    assert load_shape(text) is None


async def test_what_was_learnt_is_known_after_a_restart(tmp_path: Path):
    first = record(tmp_path)
    shapes = LearnedShapes(store=first)
    shapes.learn(TOOL, answer({"title": "x"}))
    await shapes.sync_with_storage()
    shapes.learn(TOOL, answer({"title": "x", "more": 1}))
    await shapes.flush()
    await first.close()
    second = record(tmp_path)
    later = LearnedShapes(store=second)
    assert later.get(TOOL) is None
    await later.sync_with_storage()
    assert (
        later.render_line(TOOL, 200, count_tokens)
        == "returns (learned from 2 results): {title: string, more?: integer}"
    )
    for _ in range(MAX_LEARNED_RESULTS):
        later.learn(TOOL, answer({"title": "x"}))
    assert "learned from 5 results" in later.render_line(TOOL, 200, count_tokens)
    await second.close()


async def test_what_was_learnt_here_is_not_replaced_by_what_is_on_record(tmp_path: Path):
    kept = record(tmp_path)
    await kept.save_shapes(
        [
            ShapeRow(TOOL.hash, 5, dump_shape(infer_shape({"old": 1})) or "", 1.0),
            ShapeRow("x", 1, "{", 2.0),
        ]
    )
    shapes = LearnedShapes(store=kept)
    shapes.learn(TOOL, answer({"new": 1}))
    await shapes.sync_with_storage()
    assert "new" in shapes.render_line(TOOL, 200, count_tokens)
    assert len(shapes) == 1
    assert [row.results for row in await kept.load_shapes(10) if row.hash == TOOL.hash] == [1]
    await kept.close()


async def test_a_record_that_cannot_be_used_costs_nothing_but_the_memory_of_it():
    shapes = LearnedShapes(store=GatewayStore("mysql://nowhere", None))
    shapes.learn(TOOL, answer({"a": 1}))
    await shapes.sync_with_storage()
    await shapes.flush()
    assert shapes.get(TOOL) is not None


async def test_old_shapes_are_dropped_with_the_rest(tmp_path: Path):
    kept = record(tmp_path)
    await kept.save_shapes(
        [ShapeRow("old", 1, "{}", 0.0), ShapeRow("new", 1, "{}", 400 * 86_400.0)]
    )
    await kept.prune(UsageConfig(), 401 * 86_400.0)
    assert [row.hash for row in await kept.load_shapes(10)] == ["new"]
    await kept.close()
