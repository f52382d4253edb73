"""What a model reads of a tool, in each of the three details."""

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.tool import make_tool
from portico.rendering.examples import make_example, make_examples
from portico.rendering.one_line_tool import render_brief
from portico.rendering.token_budget import count_tokens
from portico.rendering.tool import render_full_text, render_schema, to_full_data
from tests.rendering.issue_tool import ISSUE, tool

# Brief


def test_brief_is_a_signature_and_the_first_sentence():
    assert render_brief(
        tool(ISSUE, ["owner", "assignee"], description="Create a new issue. Needs a token.")
    ) == (
        "github.create_issue(owner, assignee: object, labels?: string[], state?: "
        '"open"|"closed") — Create a new issue.'
    )


def test_brief_of_a_tool_that_has_nothing_is_its_address():
    assert render_brief(make_tool("s", {"name": "t"})) == "s.t()"
    assert (
        render_brief(make_tool("s", {"name": "t", "title": "Do it", "inputSchema": None}))
        == "s.t() — Do it"
    )


def test_brief_elides_optional_parameters_and_says_how_many():
    line = render_brief(
        tool(
            {f"option_number_{n}": {"type": "boolean"} for n in range(40)} | {"query": {}},
            ["query"],
        )
    )
    assert line.startswith("github.create_issue(query, option_number_0?, ")
    shown = line.count("option_number_")
    assert f"…+{40 - shown})" in line


def test_brief_keeps_required_names_where_types_and_options_no_longer_fit():
    names = [f"required_name_{n}" for n in range(8)]
    line = render_brief(tool({name: {"type": "integer"} for name in names} | {"extra": {}}, names))
    assert all(f"{name}," in line for name in names)
    assert "integer" not in line
    assert "…+1)" in line


def test_brief_says_when_even_required_names_are_left_out():
    names = [f"a_rather_long_required_name_{n}" for n in range(60)]
    line = render_brief(tool({name: {} for name in names}, names))
    assert "required)" in line
    assert count_tokens(line) < 110


def test_brief_quotes_names_that_are_not_plain_words():
    assert render_brief(tool({"EndTime<": {}, "a\nb": {}, "x-y": {}}, [])).startswith(
        'github.create_issue("EndTime<"?, "a\\nb"?, x-y?)'
    )


# Full


def test_full_holds_the_definition_as_it_was_listed():
    definition = {
        "name": "t",
        "inputSchema": {"x-unknown": 1},
        "icons": [],
        "_meta": {"a": "\u200b"},
        "odd": None,
    }
    made = make_tool("s", definition, name="renamed", warnings=("w",), tags=("g",))
    answer = to_full_data(made, details={"calls": 3, "hash": "never"})
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
    to_full_data(made)["definition"]["inputSchema"].clear()
    assert made.input_schema["properties"] == ISSUE


def test_full_text_carries_the_raw_json_of_every_key():
    output = {"type": "object", "properties": {"n": {"type": "integer"}}}
    made = tool(
        ISSUE,
        ["owner"],
        outputSchema=output,
        annotations={"readOnlyHint": True},
        _meta={"k": [1]},
        httpMethod="GET",
    )
    raw = dict(
        line.split(": ", 1)
        for line in render_full_text(made, details={"calls": 3}).split("\n")[-8:]
    )
    assert orjson.loads(raw["inputSchema"]) == made.definition["inputSchema"]
    assert orjson.loads(raw["outputSchema"]) == output
    assert orjson.loads(raw["_meta"]) == {"k": [1]}
    assert (orjson.loads(raw["httpMethod"]), orjson.loads(raw["calls"])) == ("GET", 3)
    assert render_full_text(made).startswith(render_schema(made))


def test_full_text_has_every_word_of_a_description_that_was_shortened():
    words = " ".join(f"Sentence number {n} says something of its own." for n in range(60))
    made = tool(description=words)
    assert words not in render_schema(made)
    assert f"\ndescription: {words}\n" in render_full_text(made)
    assert "description:" not in render_full_text(tool())


def test_full_text_has_examples_a_reference_and_what_is_known():
    known = {
        "category": "code  hosting",
        "usage": {"calls": 3},
        "tags": [],
        "script": {"python": "await f()"},
    }
    shown = render_full_text(tool(ISSUE, ["owner"]), details=known)
    assert (
        'example: {"owner":"<owner>"} — only what is required\n'
        'example: {"owner":"<owner>","state":"closed"' in shown
    )
    assert "\nresource: portico://tool/github.create_issue\n" in shown
    assert (
        '\ncategory: code hosting\nusage: {"calls":3}\nscript python: await f()\ninputSchema: '
        in shown
    )


# Anything at all

KEYS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "enum", "const",
        "default", "required",
     "description", "title", "additionalProperties", "patternProperties", "prefixItems", "minimum",
         "minLength", "a",
     "maxLength", "minItems", "pattern", "format", "nullable", "examples", "propertyNames",
         "multipleOf", "a\u2028b"]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(
        [
            "string",
            "object",
            "array",
            "integer",
            "number",
            "#",
            "#/$defs/a",
            "#/properties/a",
            "x\r\ny\x1b[1m",
        ]
    ),
)
WEIRD = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(
    inputs=WEIRD,
    output=WEIRD,
    description=WEIRD,
    annotations=WEIRD,
    name=st.text(min_size=1, max_size=9),
)
def test_any_definition_can_be_shown(
    inputs: Any, output: Any, description: Any, annotations: Any, name: str
):
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
    assert len(render_brief(made).splitlines()) == 1
    assert "\0" not in render_schema(made)
    assert isinstance(make_example(made), dict)
    assert 1 <= len(make_examples(made)) <= 3
    assert to_full_data(made)["definition"] == orjson.loads(made.blob)
    assert render_full_text(made).startswith(render_schema(made))


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=6),
        st.sampled_from([{}, {"type": "integer"}, {"enum": ["a", "b"]}]),
        max_size=30,
    )
)
def test_brief_fits_its_line_whatever_the_parameters_are_called(properties: dict[str, Any]):
    line = render_brief(tool(properties, list(properties)))
    assert len(line.splitlines()) == 1
    assert count_tokens(line) < 110
