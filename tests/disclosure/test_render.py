"""What a model reads of a tool, in each of the three details."""

from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.tool import Tool, make_tool
from portico.disclosure.example import example
from portico.disclosure.render import brief, first_sentence, full, full_text, schema
from portico.disclosure.tokens import count


def tool(properties: Any = None, required: list[str] | None = None, /, **definition: Any) -> Tool:
    """`github.create_issue` with these properties; keywords replace keys of the definition."""
    inputs = {"type": "object", "properties": properties or {}, "required": required or []}
    return make_tool(
        "github", {"name": "create_issue", "description": "Create an issue.", "inputSchema": inputs, **definition}
    )


def lines(properties: Any, required: list[str] | None = None, /, **definition: Any) -> list[str]:
    return schema(tool(properties, required, **definition)).split("\n")[1:]


ISSUE = {
    "labels": {"type": "array", "items": {"type": "string"}, "default": [], "description": "Labels"},
    "owner": {"type": "string", "description": "Repository owner"},
    "state": {"enum": ["open", "closed"], "default": "open"},
    "assignee": {
        "type": "object",
        "properties": {"login": {"type": "string"}, "id": {"type": "integer", "minimum": 1}},
        "required": ["login"],
    },
}


# Brief


def test_brief_is_a_signature_and_the_first_sentence():
    assert brief(tool(ISSUE, ["owner", "assignee"], description="Create a new issue. Needs a token.")) == (
        'github.create_issue(owner, assignee: object, labels?: string[], state?: "open"|"closed") — Create a new issue.'
    )


def test_brief_of_a_tool_that_has_nothing_is_its_address():
    assert brief(make_tool("s", {"name": "t"})) == "s.t()"
    assert brief(make_tool("s", {"name": "t", "title": "Do it", "inputSchema": None})) == "s.t() — Do it"


def test_brief_elides_optional_parameters_and_says_how_many():
    line = brief(tool({f"option_number_{n}": {"type": "boolean"} for n in range(40)} | {"query": {}}, ["query"]))
    assert line.startswith("github.create_issue(query, option_number_0?: boolean, ")
    shown = line.count("option_number_")
    assert f"…+{40 - shown})" in line


def test_brief_keeps_required_names_where_types_and_options_no_longer_fit():
    names = [f"required_name_{n}" for n in range(8)]
    line = brief(tool({name: {"type": "integer"} for name in names} | {"extra": {}}, names))
    assert all(f"{name}," in line for name in names)
    assert "integer" not in line
    assert "…+1)" in line


def test_brief_says_when_even_required_names_are_left_out():
    names = [f"a_rather_long_required_name_{n}" for n in range(60)]
    line = brief(tool({name: {} for name in names}, names))
    assert "required)" in line
    assert count(line) < 110


def test_brief_quotes_names_that_are_not_plain_words():
    assert brief(tool({"EndTime<": {}, "a\nb": {}, "x-y": {}}, [])).startswith(
        'github.create_issue("EndTime<"?, "a\\nb"?, x-y?)'
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Search files, e.g. by name. Fast.", "Search files, e.g. by name."),
        ("Works with v1.2 of the API, i.e. the old one. More.", "Works with v1.2 of the API, i.e. the old one."),
        ("Fetch https://example.com/a.b.c now. Then stop.", "Fetch https://example.com/a.b.c now."),
        ("Reads config.json etc. and merges. Next.", "Reads config.json etc. and merges."),
        ("\n    Get a page\n\n    Args:\n        url: The page.\n", "Get a page"),
        ("Get a page\nArgs:\n  url: The page.", "Get a page"),
        ("# Heading\n\nBody.", "Heading"),
        ("**Deletes** a [page](https://example.com). Careful!", "Deletes a page."),
        ("<usecase>Lists things.</usecase>\n<notes>x</notes>", "Lists things."),
        ("Get <name> from the list. Or not.", "Get <name> from the list."),
        ("查询天气。返回预报。", "查询天气。"),
        ("A line that was wrapped\nby its author. Next.", "A line that was wrapped by its author."),
        ("List:\n- one\n- two", "List:"),
        ('It says "hello." Then leaves.', 'It says "hello."'),
        ("Beta. Creates a cluster. Slowly.", "Beta. Creates a cluster."),
        ("Is it there? Yes.", "Is it there?"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_the_first_sentence_is_found(text: str, sentence: str):
    assert first_sentence(text) == sentence


@pytest.mark.parametrize("text", ["word " * 200, "word" * 500, "字" * 500, "a, (b) " * 90])
def test_a_long_sentence_is_cut_and_says_so(text: str):
    cut = first_sentence(text, 20)
    assert cut.endswith("…")
    assert 5 <= count(cut) <= 21


def test_a_cut_falls_between_words():
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    assert first_sentence(" ".join(words), 8).removesuffix("…").split()[-1] in words


# Schema


def test_schema_is_a_line_for_each_parameter_required_ones_first():
    assert schema(tool(ISSUE, ["owner", "assignee"])) == (
        "github.create_issue — Create an issue.\n"
        " owner: string — Repository owner\n"
        " assignee: {login: string, id?: integer(≥1)}\n"
        " labels?: string[] = [] — Labels\n"
        ' state?: "open"|"closed" = "open"'
    )


def test_schema_of_a_tool_without_parameters_shows_empty_parentheses():
    assert schema(tool()) == "github.create_issue() — Create an issue."


def test_nested_objects_that_are_described_get_lines_of_their_own():
    deep = {"type": "object", "properties": {"c": {"type": "string", "description": "The end"}}, "required": ["c"]}
    assert lines({"a": {"type": "array", "items": {"type": "object", "properties": {"b": deep}}}}) == [
        " a?: object[]",
        "  b?: object",
        "   c: string — The end",
    ]


def test_an_object_too_long_for_its_line_keeps_the_lines_of_what_is_inside_it():
    inner = {"type": "object", "properties": {f"a_field_with_a_long_name_{n}": {"type": "integer"} for n in range(4)}}
    text = lines({"a": {"type": "object", "properties": {"b": inner}}})
    assert text[:3] == [" a?: object", "  b?: object", "   a_field_with_a_long_name_0?: integer"]


def test_the_description_of_an_item_and_of_a_reference_are_both_kept():
    item = {
        "type": "object",
        "description": "A tag",
        "properties": {"name": {"type": "string", "description": "Its name"}},
    }
    tags = {"type": "array", "description": "Tags", "items": item}
    inputs = {
        "properties": {"tags": tags, "one": {"$ref": "#/$defs/T", "description": "Main tag"}},
        "$defs": {"T": {"type": "string", "description": "Any word"}},
    }
    assert lines(None, inputSchema=inputs) == [
        " tags?: object[] — Tags (A tag)",
        "  name?: string — Its name",
        " one?: string — Main tag (Any word)",
    ]


def test_variants_that_are_objects_are_numbered():
    def shape(kind: str) -> dict[str, Any]:
        kinds = {"type": {"const": kind}, "size": {"type": "integer", "description": f"Size of a {kind}"}}
        return {"type": "object", "properties": kinds, "required": ["type"], "description": f"A {kind}"}

    assert lines({"s": {"type": "array", "items": {"oneOf": [shape("box"), shape("ball"), {"type": "string"}]}}}) == [
        " s?: (object1|object2|string)[]",
        "  object1: A box",
        '   type: "box"',
        "   size?: integer — Size of a box",
        "  object2: A ball",
        '   type: "ball"',
        "   size?: integer — Size of a ball",
    ]


def test_shared_and_recursive_types_are_written_once_by_name():
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
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
    fields = {f"field_{n}": {"type": "string", "description": f"What field {n} is"} for n in range(5)}
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
        ({"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}]}, "[number, number]"),
        ({"type": "object"}, "object"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "{[key]: string}"),
        ({"const": "x"}, '"x"'),
        ({"enum": ["a", 1, None]}, '"a"|1|null'),
        ({}, "any"),
        ({"type": "string", "format": "uuid", "pattern": "^a|b$"}, "string(uuid, /^a|b$/)"),
        (
            {"anyOf": [{"type": "string", "description": "A name"}, {"type": "integer"}]},
            "string|integer — (string: A name)",
        ),
        ({"type": "array", "items": {"type": "string", "description": "One tag"}}, "string[] — (each: One tag)"),
        ({"type": "string", "examples": ["a", "b"]}, 'string — e.g. "a", "b"'),
        ({"type": "array", "items": {"type": "string", "default": "x"}}, 'string = "x"[]'),
        ({"type": "string", "items": {"enum": ["a", "b"]}}, 'string(items "a"|"b")'),
        ({"anyOf": [{"type": "string"}, {"type": "null", "description": "None"}]}, "string|null — null: None"),
    ],
)
def test_types_are_written_like_this(property_schema: dict[str, Any], expected: str):
    assert lines({"p": property_schema}) == [f" p?: {expected}"]


def test_a_description_keeps_its_lines_and_loses_its_padding():
    text = "\n        First line.\n\n\n        Args:\n            a:   the\n                 value   \n    "
    assert schema(tool({"a": {"description": "one\n  two"}}, description=text)) == (
        "github.create_issue — First line.\nArgs:\n    a:   the\n         value\nParameters:\n a?: any — one\n   two"
    )


def test_wrapped_prose_is_joined():
    long = "A sentence that its author wrapped after some seventy characters of"
    assert schema(tool(description=f"{long}\ntext. End.\nNew")) == f"github.create_issue() — {long} text. End.\nNew"


@pytest.mark.parametrize(
    ("annotations", "hints"),
    [
        ({"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True}, " [read-only, open-world]"),
        ({"readOnlyHint": False, "destructiveHint": True}, " [destructive]"),
        ({"destructiveHint": False, "idempotentHint": True}, " [not destructive, idempotent]"),
        ({"title": "x"}, ""),
        ("nonsense", ""),
    ],
)
def test_hints_are_said_in_a_word(annotations: Any, hints: str):
    assert schema(tool(annotations=annotations)) == f"github.create_issue(){hints} — Create an issue."


def test_the_output_schema_is_one_line():
    output = {
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/$defs/I"}},
            "next": {"type": ["string", "null"]},
        },
        "required": ["items"],
        "$defs": {"I": {"properties": {"id": {"type": "integer"}, "parent": {"$ref": "#/$defs/I"}}}},
    }
    line = "returns: {items: {id?: integer, parent?: {…}}[], next?: string|null}"
    assert lines(None, outputSchema=output) == [line]


def test_a_large_output_schema_is_shown_shallow():
    wide = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(60)}}
    assert lines(None, outputSchema={"properties": {"a": wide, "b": wide}})[-1] == "returns: {a?: {…}, b?: {…}}"
    assert len(lines(None, outputSchema=wide)[-1]) < 330


def test_rules_between_parameters_are_shown():
    inputs = {"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert lines(None, inputSchema=inputs)[-1] == " (needs a or b)"


def test_what_cannot_be_seen_is_not_shown():
    hidden = "\x1b[31m\u200b\u202e\U000e0041"
    text = schema(tool({f"p{hidden}": {"description": f"d{hidden}", "enum": [hidden]}}, description=f"x{hidden}y"))
    assert not any(char in text for char in hidden if char not in "[31m")
    assert r'"\u001b[31m\u200b\u202e\udb40\udc41"' in text
    assert brief(tool(description=f"x{hidden}y")).endswith("— xy")


# Full


def test_full_holds_the_definition_as_it_was_listed():
    definition = {"name": "t", "inputSchema": {"x-unknown": 1}, "icons": [], "_meta": {"a": "\u200b"}, "odd": None}
    made = make_tool("s", definition, name="renamed", warnings=("w",), tags=("g",))
    answer = full(made, extra={"calls": 3, "hash": "never"})
    assert answer["definition"] == definition
    assert (answer["tool"], answer["server"], answer["upstream_name"], answer["hash"]) == (
        "s.renamed",
        "s",
        "t",
        made.hash,
    )
    assert (answer["warnings"], answer["tags"], answer["calls"]) == (["w"], ["g"], 3)
    assert orjson.loads(orjson.dumps(answer)) == answer


def test_full_hands_out_a_copy():
    made = tool(ISSUE)
    full(made)["definition"]["inputSchema"].clear()
    assert made.input_schema["properties"] == ISSUE


def test_full_text_carries_the_raw_json_of_every_key():
    output = {"type": "object", "properties": {"n": {"type": "integer"}}}
    made = tool(
        ISSUE, ["owner"], outputSchema=output, annotations={"readOnlyHint": True}, _meta={"k": [1]}, httpMethod="GET"
    )
    raw = dict(line.split(": ", 1) for line in full_text(made, extra={"calls": 3}).split("\n")[-7:])
    assert orjson.loads(raw["inputSchema"]) == made.definition["inputSchema"]
    assert orjson.loads(raw["outputSchema"]) == output
    assert orjson.loads(raw["_meta"]) == {"k": [1]}
    assert (orjson.loads(raw["httpMethod"]), orjson.loads(raw["calls"])) == ("GET", 3)
    assert full_text(made).startswith(schema(made))


# Example


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
        ({"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}, {"a": "<a>"}),
    ],
)
def test_an_example_is_plausible_and_valid(property_schema: dict[str, Any], value: Any):
    made = tool({"p": property_schema, "optional": {"type": "string"}}, ["p"])
    assert example(made) == {"p": value}
    jsonschema_rs.validate(dict(made.input_schema), example(made))


def test_an_example_of_a_type_that_needs_itself_ends():
    inputs = {
        "properties": {"n": {"$ref": "#/$defs/N"}},
        "required": ["n"],
        "$defs": {"N": {"properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]}},
    }
    assert "n" in example(tool(inputSchema=inputs))


def test_types_that_fan_out_without_end_are_shown_and_exemplified_all_the_same():
    names = [f"field_{n}" for n in range(30)]
    wide = {"type": "object", "properties": {name: {"$ref": "#/$defs/Wide"} for name in names}, "required": names}
    inputs = {"properties": {"a": {"$ref": "#/$defs/Wide"}}, "required": ["a"], "$defs": {"Wide": wide}}
    made = tool(inputSchema=inputs, outputSchema=inputs)
    assert len(orjson.dumps(example(made))) < 50_000
    assert len(schema(made)) < 3_000


def test_a_pattern_that_would_run_away_does_not():
    assert example(tool({"p": {"type": "string", "pattern": "^(.+)+(.+)+!$"}}, ["p"])) == {"p": "<p>"}
    assert example(tool({"p": {"type": "string", "pattern": "("}}, ["p"])) == {"p": "<p>"}


# Anything at all

KEYS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "enum", "const", "default", "required",
     "description", "title", "additionalProperties", "patternProperties", "prefixItems", "minimum", "minLength", "a",
     "maxLength", "minItems", "pattern", "format", "nullable", "examples", "propertyNames", "multipleOf", "a\u2028b"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(
        ["string", "object", "array", "integer", "number", "#", "#/$defs/a", "#/properties/a", "x\r\ny\x1b[1m"]
    ),
)
WEIRD = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=6),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(inputs=WEIRD, output=WEIRD, description=WEIRD, annotations=WEIRD, name=st.text(min_size=1, max_size=9))
def test_any_definition_can_be_shown(inputs: Any, output: Any, description: Any, annotations: Any, name: str):
    made = make_tool(
        "s",
        {
            "name": name,
            "description": description,
            "inputSchema": inputs,
            "outputSchema": output,
            "annotations": annotations,
        },
    )
    assert len(brief(made).splitlines()) == 1
    assert "\0" not in schema(made)
    assert isinstance(example(made), dict)
    assert full(made)["definition"] == orjson.loads(made.blob)
    assert full_text(made).startswith(schema(made))


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=6), st.sampled_from([{}, {"type": "integer"}, {"enum": ["a", "b"]}]), max_size=30
    )
)
def test_brief_fits_its_line_whatever_the_parameters_are_called(properties: dict[str, Any]):
    line = brief(tool(properties, list(properties)))
    assert len(line.splitlines()) == 1
    assert count(line) < 110
