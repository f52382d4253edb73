"""The structure of values: what is the same is said once, what is long is said in few tokens."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.catalog.tool import make_tool
from portico.rendering.token_budget import count_tokens
from portico.results.learned_shapes import MAX_LEARNED_RESULTS, LearnedShapes, extract_value
from portico.results.shape import infer_shape, merge_shapes, render_samples, render_shape
from tests.results.json_values import VALUES, issues, nested

TOOL = make_tool("s", {"name": "list"})


def render(*values: Any, tokens: int = 600) -> str:
    shape = infer_shape(values[0])
    for value in values[1:]:
        shape = merge_shapes(shape, infer_shape(value))
    return render_shape(shape, tokens, count_tokens)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "boolean"),
        (3, "integer"),
        (1.5, "number"),
        ("hi", "string"),
        ("x" * 500, "string(500)"),
        ([], "[]"),
        ({}, "object"),
        ([1, 2, 3], "[3 × integer]"),
        ([1, "a", None], "[3 × integer | string | null]"),
        ([1, 2.5], "[2 × number]"),
        ({"a": 1, "b c": [True]}, '{a: integer, "b c": [1 × boolean]}'),
        ([{"a": 1}, {"a": 2, "b": 3}], "[2 × {a: integer, b?: integer}]"),
        ([{"a": 1}, 5], "[2 × {a: integer} | integer]"),
        (
            {f"2026-01-{n:02}": {"n": n} for n in range(1, 31)},
            '{30 keys like "2026-01-01": {n: integer}}',
        ),
    ],
)
def test_a_value_is_rendered_by_its_types_and_sizes(value: Any, text: str):
    assert render(value) == text


def test_shapes_of_several_results_are_rendered_as_one():
    assert (
        render([{"a": 1}], [{"a": None, "b": "x"}], []) == "[0–1 × {a: integer | null, b?: string}]"
    )


def test_each_array_has_one_sample():
    shape = infer_shape({"total": 2, "items": issues(4)})
    samples = render_samples(shape, 300, count_tokens)
    assert samples[0].startswith('items[0]: {"id":0,"title":"Issue number 0"')
    assert samples[1] == 'items[0].labels[0]: "bug"'


@given(VALUES, st.sampled_from([5, 30, 150, 600]))
def test_no_value_takes_more_tokens_than_it_may(value: Any, tokens: int):
    shape = infer_shape(value)
    assert count_tokens(render_shape(shape, tokens, count_tokens)) <= tokens
    assert (
        sum(count_tokens(line) + 1 for line in render_samples(shape, tokens, count_tokens))
        <= tokens
    )


@given(VALUES, VALUES)
def test_merging_has_no_order_but_that_of_names(one: Any, other: Any):
    first, second = infer_shape(one), infer_shape(other)
    there, back = merge_shapes(first, second), merge_shapes(second, first)
    assert (there.seen_count, there.scalars, there.length, there.keys) == (
        back.seen_count,
        back.scalars,
        back.length,
        back.keys,
    )
    assert set(there.fields or ()) == set(back.fields or ())


@given(VALUES)
def test_merging_a_shape_with_itself_renders_the_same(value: Any):
    assert render_shape(
        merge_shapes(infer_shape(value), infer_shape(value)), 10**6, count_tokens
    ) == render_shape(infer_shape(value), 10**6, count_tokens)


@pytest.mark.parametrize(
    "value",
    [nested(22), nested(500), {f"field_{n}": {f"x{m}": m for m in range(20)} for n in range(2_000)},
     [[[[1] * 9] * 9] * 9] * 9, {"k" * 10_000: "v" * 10_000}, {"😀" * 300: ["ﷺ" * 300]},
     [{f"c{n}_{m}": m for m in range(30)} for n in range(300)]],
)  # fmt: skip
def test_deep_and_wide_values_fit_the_token_budget(value: Any):
    assert count_tokens(render(value)) <= 600
    assert count_tokens(render(value, tokens=40)) <= 40


def result(value: Any) -> dict[str, Any]:
    return {"content": [], "structuredContent": value}


def test_a_shape_is_learnt_from_the_first_results_of_a_tool():
    shapes = LearnedShapes()
    assert shapes.render_line(TOOL, 100, count_tokens) == ""
    shapes.learn(TOOL, result({"id": 1}))
    assert (
        shapes.render_line(TOOL, 100, count_tokens)
        == "returns (learned from 1 result): {id: integer}"
    )
    for number in range(MAX_LEARNED_RESULTS):
        shapes.learn(TOOL, result({"id": number, "new": True}))
    assert (
        shapes.render_line(TOOL, 100, count_tokens)
        == f"returns (learned from {MAX_LEARNED_RESULTS} results): {{id: integer, new?: boolean}}"
    )


def test_a_changed_definition_is_learned_again():
    shapes = LearnedShapes()
    shapes.learn(TOOL, result({"id": 1}))
    assert shapes.get(make_tool("s", {"name": "list", "description": "Now better."})) is None


def test_nothing_is_learned_from_errors_texts_and_elicitations():
    shapes = LearnedShapes()
    shapes.learn(TOOL, {**result({"id": 1}), "isError": True})
    shapes.learn(TOOL, {"content": [{"type": "text", "text": "just words"}]})
    shapes.learn(TOOL, {"resultType": "input_required", "structuredContent": {"a": 1}})
    shapes.learn(TOOL, result({"large": "x" * 100_000}))
    assert len(shapes) == 0


def test_only_so_many_tools_are_remembered_and_the_oldest_goes():
    shapes = LearnedShapes(max_tools=2)
    tools = [make_tool("s", {"name": f"t{n}"}) for n in range(3)]
    for tool in tools:
        shapes.learn(tool, result({"a": 1}))
    assert [shapes.get(tool) is not None for tool in tools] == [False, True, True]


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ([], None),
        (["{}"], {}),
        (["[1]"], [1]),
        (["{broken"], "{broken"),
        (["a", "b"], "a\nb"),
        (['{"a":1}', '{"a":2}'], [{"a": 1}, {"a": 2}]),
        (["7"], "7"),
    ],
)
def test_a_result_without_structure_is_the_json_its_text_is(content: list[str], value: Any):
    assert extract_value({"content": [{"type": "text", "text": text} for text in content]}) == value
