"""Examples of calls that fit their schemas."""

from typing import Any

import jsonschema_rs
import orjson
import pytest

from portico.rendering.examples import make_example, make_examples
from portico.rendering.tool import render_schema
from tests.rendering.issue_tool import tool


@pytest.mark.parametrize(
    ("property_schema", "value"),
    [
        ({"type": "string"}, "<p>"),
        ({"type": "string", "default": "main"}, "main"),
        ({"type": "string", "examples": ["one"]}, "one"),
        ({"enum": ["b", "a"]}, "b"),
        ({"type": "string", "format": "date"}, "2025-01-31"),
        ({"type": "string", "pattern": "^[A-Z]+-[0-9]+$"}, "ABC-123"),
        ({"type": "string", "pattern": "^[0-9a-f]+$", "minLength": 24, "maxLength": 24}, "1" * 24),
        ({"type": "string", "minLength": 6}, "<p>xxx"),
        ({"type": "integer", "minimum": 10}, 10),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "integer", "multipleOf": 7}, 7),
        ({"type": "boolean"}, True),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array", "default": "wrong", "items": {"type": "string"}}, ["<text>"]),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 1),
        (
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]},
            {"a": "<a>"},
        ),
    ],
)
def test_an_example_is_plausible_and_valid(property_schema: dict[str, Any], value: Any):
    made = tool({"p": property_schema, "optional": {"type": "string"}}, ["p"])
    assert make_example(made) == {"p": value}
    jsonschema_rs.validate(dict(made.input_schema), make_example(made))


def test_an_example_of_a_type_that_needs_itself_ends():
    inputs = {
        "properties": {"n": {"$ref": "#/$defs/N"}},
        "required": ["n"],
        "$defs": {"N": {"properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]}},
    }
    assert "n" in make_example(tool(inputSchema=inputs))


def test_types_that_fan_out_without_end_are_shown_and_exemplified_all_the_same():
    names = [f"field_{n}" for n in range(30)]
    wide = {
        "type": "object",
        "properties": {name: {"$ref": "#/$defs/Wide"} for name in names},
        "required": names,
    }
    inputs = {
        "properties": {"a": {"$ref": "#/$defs/Wide"}},
        "required": ["a"],
        "$defs": {"Wide": wide},
    }
    made = tool(inputSchema=inputs, outputSchema=inputs)
    assert len(orjson.dumps(make_example(made))) < 50_000
    assert len(render_schema(made)) < 3_000


def test_a_pattern_that_would_run_away_does_not():
    assert make_example(tool({"p": {"type": "string", "pattern": "^(.+)+(.+)+!$"}}, ["p"])) == {
        "p": "<p>"
    }
    assert make_example(tool({"p": {"type": "string", "pattern": "("}}, ["p"])) == {"p": "<p>"}


def test_there_is_an_example_of_the_least_and_one_with_options():
    options = {
        "owner": {"type": "string"},
        "page": {"type": "integer", "default": 1},
        "state": {"enum": ["open", "closed"], "default": "open"},
        "note": {"type": "string"},
    }
    assert make_examples(tool(options, ["owner"])) == [
        {"arguments": {"owner": "<owner>"}, "description": "only what is required"},
        {
            "arguments": {"owner": "<owner>", "state": "closed", "page": 1},
            "description": "with state, page",
        },
    ]
    assert make_examples(tool()) == [{"arguments": {}, "description": "without arguments"}]


def test_the_examples_of_an_author_come_first():
    inputs = {
        "properties": {"a": {"type": "string"}},
        "examples": [{"a": "x"}, "nonsense", {"a": "y"}, {"a": "z"}],
    }
    assert make_examples(tool(inputSchema=inputs)) == [
        {"arguments": {"a": "x"}, "description": "as its server gives it"},
        {"arguments": {"a": "y"}, "description": "as its server gives it"},
    ]
