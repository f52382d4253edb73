"""The compact typed form: every name, type, value, default and limit of a schema, in few tokens."""

from typing import Any

import pytest

from portico.rendering.one_line_tool import render_brief
from portico.rendering.tool import render_schema
from tests.rendering.issue_tool import ISSUE, lines, tool


def test_schema_is_a_line_for_each_parameter_required_ones_first():
    assert render_schema(tool(ISSUE, ["owner", "assignee"])) == (
        "github.create_issue — Create an issue.\n"
        " owner: string — Repository owner\n"
        " assignee: {login: string, id?: integer(≥1)}\n"
        " labels?: string[] = []\n"
        ' state?: "open"|"closed" = "open"'
    )


def test_schema_of_a_tool_without_parameters_shows_empty_parentheses():
    assert render_schema(tool()) == "github.create_issue() — Create an issue."


def test_nested_objects_that_are_described_get_lines_of_their_own():
    deep = {
        "type": "object",
        "properties": {"c": {"type": "string", "description": "The end"}},
        "required": ["c"],
    }
    assert lines(
        {"a": {"type": "array", "items": {"type": "object", "properties": {"b": deep}}}}
    ) == [
        " a?: object[]",
        "  b?: object",
        "   c: string — end",
    ]


def test_an_object_too_long_for_its_line_keeps_the_lines_of_what_is_inside_it():
    inner = {
        "type": "object",
        "properties": {f"a_field_with_a_long_name_{n}": {"type": "integer"} for n in range(4)},
    }
    text = lines({"a": {"type": "object", "properties": {"b": inner}}})
    assert text[:3] == [" a?: object", "  b?: object", "   a_field_with_a_long_name_0?: integer"]


def test_the_description_of_an_item_and_of_a_reference_are_both_kept():
    item = {
        "type": "object",
        "description": "A word",
        "properties": {"name": {"type": "string", "description": "As it is shown"}},
    }
    tags = {"type": "array", "description": "On the issue", "items": item}
    inputs = {
        "properties": {"tags": tags, "one": {"$ref": "#/$defs/T", "description": "Main tag"}},
        "$defs": {"T": {"type": "string", "description": "Any word"}},
    }
    assert lines(None, inputSchema=inputs) == [
        " tags?: object[] — On the issue (word)",
        "  name?: string — As it is shown",
        " one?: string — Main tag (Any word)",
    ]


def test_variants_that_are_objects_are_numbered():
    def shape(kind: str) -> dict[str, Any]:
        kinds = {
            "type": {"const": kind},
            "size": {"type": "integer", "description": f"Size of a {kind}"},
        }
        return {
            "type": "object",
            "properties": kinds,
            "required": ["type"],
            "description": f"A {kind}",
        }

    assert lines(
        {
            "s": {
                "type": "array",
                "items": {"oneOf": [shape("box"), shape("ball"), {"type": "string"}]},
            }
        }
    ) == [
        " s?: (object1|object2|string)[]",
        "  object1: box",
        '   type: "box"',
        "   size?: integer — Size of a box",
        "  object2: ball",
        '   type: "ball"',
        "   size?: integer — Size of a ball",
    ]


def test_shared_and_recursive_types_are_written_once_by_name():
    node = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        },
    }
    inputs = {
        "properties": {"root": {"$ref": "#/$defs/Node"}, "other": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": node},
    }
    assert lines(None, inputSchema=inputs) == [
        " root?: Node",
        " other?: Node",
        "type Node: {name?: string, kids?: Node[]}",
    ]


def test_the_same_fields_are_not_written_twice():
    fields = {
        f"field_{n}": {"type": "string", "description": f"What field {n} is"} for n in range(5)
    }
    shape = {"type": "object", "properties": fields}
    text = lines({"first": shape, "second": {**shape, "description": "Another"}})
    assert text[0] == " first?: object"
    assert text[-2:] == [" second?: object — Another", "  (fields of first)"]
    assert sum("field_3" in line for line in text) == 1


@pytest.mark.parametrize(
    ("property_schema", "expected"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, "string = null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string|null"),
        ({"type": "string", "default": None}, "string (default null)"),
        ({"type": ["string", "integer"]}, "string|integer"),
        ({"type": "array", "items": {"type": ["string", "null"]}}, "(string|null)[]"),
        ({"type": "array"}, "any[]"),
        (
            {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}]},
            "[number, number]",
        ),
        ({"type": "object"}, "object"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "{[key]: string}"),
        ({"const": "x"}, '"x"'),
        ({"enum": ["a", 1, None]}, '"a"|1|null'),
        ({}, "any"),
        ({"type": "string", "format": "uuid", "pattern": "^a|b$"}, "string(uuid, /^a|b$/)"),
        (
            {"anyOf": [{"type": "string", "description": "A name"}, {"type": "integer"}]},
            "string|integer — (string: name)",
        ),
        (
            {"type": "array", "items": {"type": "string", "description": "One tag"}},
            "string[] — (each: One tag)",
        ),
        ({"type": "string", "examples": ["a", "b"]}, 'string — e.g. "a", "b"'),
        ({"type": "array", "items": {"type": "string", "default": "x"}}, 'string = "x"[]'),
        ({"type": "string", "items": {"enum": ["a", "b"]}}, 'string(items "a"|"b")'),
        (
            {"anyOf": [{"type": "string"}, {"type": "null", "description": "None"}]},
            "string|null — null: None",
        ),
    ],
)
def test_types_are_written_like_this(property_schema: dict[str, Any], expected: str):
    assert lines({"p": property_schema}) == [f" p?: {expected}"]


@pytest.mark.parametrize(
    ("annotations", "hints"),
    [
        ({"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True}, " [read-only]"),
        ({"readOnlyHint": False, "destructiveHint": True}, " [destructive]"),
        ({"destructiveHint": False, "idempotentHint": True}, " [idempotent]"),
        ({"title": "x"}, ""),
        ("nonsense", ""),
    ],
)
def test_hints_are_said_in_a_word(annotations: Any, hints: str):
    assert (
        render_schema(tool(annotations=annotations))
        == f"github.create_issue(){hints} — Create an issue."
    )


def test_the_output_schema_is_one_line():
    output = {
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/$defs/I"}},
            "next": {"type": ["string", "null"]},
        },
        "required": ["items"],
        "$defs": {
            "I": {"properties": {"id": {"type": "integer"}, "parent": {"$ref": "#/$defs/I"}}}
        },
    }
    line = "returns: {items: {id?: integer, parent?: {…}}[], next?: string|null}"
    assert lines(None, outputSchema=output) == [line]


def test_a_large_output_schema_is_shown_shallow():
    wide = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(60)}}
    assert (
        lines(None, outputSchema={"properties": {"a": wide, "b": wide}})[-1]
        == "returns: {a?: {…}, b?: {…}}"
    )
    assert len(lines(None, outputSchema=wide)[-1]) < 330


def test_rules_between_parameters_are_shown():
    inputs = {"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert lines(None, inputSchema=inputs)[-1] == " (needs a or b)"


def test_what_cannot_be_seen_is_not_shown():
    hidden = "\x1b[31m\u200b\u202e\U000e0041"
    text = render_schema(
        tool(
            {f"p{hidden}": {"description": f"d{hidden}", "enum": [hidden]}},
            description=f"x{hidden}y",
        )
    )
    assert not any(char in text for char in hidden if char not in "[31m")
    assert r'"\u001b[31m\u200b\u202e\udb40\udc41"' in text
    assert render_brief(tool(description=f"x{hidden}y")).endswith("— xy")
