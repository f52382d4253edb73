"""Arguments are checked against the tool's schema, and a mistake is answered with where and why."""

import gzip
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.calls.validation import check_arguments, find_mismatches
from portico.catalog.schema_validator import MAX_PROBLEM_CHARS, MAX_PROBLEMS
from portico.catalog.tool import Tool, make_tool
from portico.errors import InvalidArguments
from portico.json_text.json_codec import MAX_MEASURED_VALUES
from portico.rendering.examples import make_example

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[3] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"


def tool(schema: Any = None, **definition: Any) -> Tool:
    return make_tool(
        "s", {"name": "t", **({} if schema is None else {"inputSchema": schema}), **definition}
    )


def refused(schema: Any, arguments: Any) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        check_arguments(tool(schema), arguments)
    return caught.value


ISSUE = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "labels": {
            "type": "array",
            "items": {"type": "object", "properties": {"color": {"enum": ["red", "blue"]}}},
        },
        "count": {"type": "integer", "maximum": 5},
    },
    "required": ["title"],
    "additionalProperties": False,
}


def test_arguments_that_fit_pass():
    check_arguments(tool(ISSUE), {"title": "x", "labels": [{"color": "red"}], "count": 5})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, '"title" is a required property'),
        ({"title": 3}, 'title: 3 is not of type "string"'),
        ({"title": "x", "labels": [{"color": "red"}, {"color": "green"}]}, "labels.1.color: "),
        ({"title": "x", "count": 6}, "count: 6 is greater than the maximum of 5"),
        ({"title": "x", "count": 2**70}, "count: 1180591620717411303424 is greater"),
        ({"title": "x", "tittle": 1}, "'tittle' was unexpected"),
    ],
)
def test_a_problem_names_where_and_why(arguments: Any, problem: str):
    error = refused(ISSUE, arguments)
    assert problem in error.problems[0]
    assert error.problems[0] in error.message
    assert "s.t" in error.message
    assert error.advice


@pytest.mark.parametrize(
    ("schema", "arguments", "expected"),
    [
        (
            {"properties": {"timezone": {}, "hour": {}}, "required": ["timezone"]},
            {"tz": 1},
            "tz → timezone",
        ),
        (
            {"properties": {"title": {}}, "additionalProperties": False},
            {"tittle": 1},
            "tittle → title",
        ),
        (
            {"properties": {"repo_name": {}, "n": {}}, "required": ["repo_name", "n"]},
            {"repo": 1},
            "repo → repo_name",
        ),
        ({"properties": {"place": {}}, "required": ["place"]}, {"city": "x"}, "city → place"),
        ({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}, {"zzz": "x"}, ""),
        ({"properties": {"place": {}}, "required": []}, {"plaice": "x"}, None),
    ],
)
def test_an_unknown_name_gets_a_suggestion_of_the_probable_parameter(
    schema: Any, arguments: Any, expected: Any
):
    if expected is None:  # it may be left out, and others may be added
        return check_arguments(tool(schema), arguments)
    problems = refused({"type": "object", **schema}, arguments).problems
    suggestions = [problem for problem in problems if "did you mean" in problem]
    given, _, meant = expected.partition(" → ")
    assert suggestions == (
        [f"unknown argument '{given}': did you mean '{meant}'?"] if expected else []
    )
    assert len(problems) > len(suggestions)


def test_at_most_a_few_problems_are_named():
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(50)}}
    assert len(refused(schema, {f"p{n}": n for n in range(50)}).problems) == MAX_PROBLEMS


def test_a_wrong_value_of_a_megabyte_is_not_repeated_whole():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    error = refused(schema, {"n": "x" * 1_000_000})
    assert len(error.message) < 2 * MAX_PROBLEM_CHARS
    assert error.problems[0].endswith('is not of type "integer"')


@pytest.mark.parametrize("schema", [None, "text", 3, [], True], ids=repr)
def test_a_tool_without_a_schema_is_not_checked(schema: Any):
    check_arguments(tool(schema), {"anything": object})
    check_arguments(tool(inputSchema=None), {"anything": 1})


def test_an_empty_schema_allows_everything():
    check_arguments(tool({}), {"anything": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/nowhere"},
        {"type": "objekt"},
        {"properties": []},
        {"properties": {"a": {"pattern": "("}}},
        {
            "$schema": "http://json-schema.org/draft-03/schema#",
            "properties": {"a": {"required": True}},
        },
        {"$schema": "https://example.com/my-own"},
        {"required": "a"},
    ],
    ids=[
        "broken ref",
        "unknown type",
        "no properties",
        "broken pattern",
        "old draft",
        "own draft",
        "no list",
    ],
)
def test_a_schema_that_cannot_be_used_leaves_the_judgement_to_the_server(schema: Any):
    check_arguments(tool({"type": "object", **schema}), {"a": 1})


def test_references_inside_the_schema_are_followed():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"$ref": "#/properties/a"},
            "c": {"$ref": "#"},
        },
    }
    check_arguments(tool(schema), {"b": "x", "c": {"a": "y"}})
    assert "c.b" in refused(schema, {"c": {"b": 3}}).problems[0]


def test_a_remote_reference_is_never_fetched(tmp_path: Path):
    asked: list[str] = []

    class Ear(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: Any) -> None: ...

    local = tmp_path / "local.json"
    local.write_text('{"type": "string"}')
    with ThreadingHTTPServer(("127.0.0.1", 0), Ear) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        for address in (f"{base}/schema.json", local.as_uri(), f"{base}/a#/definitions/b"):
            for schema in ({"properties": {"a": {"$ref": address}}}, {"$schema": address}):
                check_arguments(tool({"type": "object", **schema}), {"a": 1})
        server.shutdown()
        thread.join(10)
    assert asked == []


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "arguments", [deep(300), {"\ud800": 1}, {"a": b"bytes"}], ids=["deep", "half a key", "bytes"]
)
def test_what_cannot_be_judged_is_refused_cleanly(arguments: Any):
    assert refused(
        {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}, arguments
    ).problems


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
keywords = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "required",
        "enum",
        "$ref",
        "anyOf",
        "pattern",
        "minimum",
        "additionalProperties",
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(keywords, json_values, max_size=4),
    st.dictionaries(st.text(max_size=6), json_values, max_size=4),
)
def test_any_schema_and_any_arguments_are_answered_with_yes_or_advice(schema: Any, arguments: Any):
    try:
        check_arguments(tool(schema), arguments)
        problems = 1
    except InvalidArguments as error:
        problems = len(error.problems)
    assert 1 <= problems <= MAX_PROBLEMS


@pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}")
def test_the_schemas_of_real_servers_all_work_and_their_examples_fit():
    with gzip.open(FLEET) as file:
        servers = [orjson.loads(line) for line in file]
    tools = [
        make_tool(server["slug"], definition)
        for server in servers
        for definition in server["tools"]
    ]
    unfit: list[str] = []
    for one in tools:
        try:
            check_arguments(one, make_example(one))
        except InvalidArguments as error:
            unfit.append(str(error))
        if required := one.input_schema.get("required"):
            with pytest.raises(InvalidArguments, match="is a required property"):
                check_arguments(one, {})
            assert required
    assert len(tools) == 4_136
    # Patterns and combinations that no example can be guessed for.
    assert len(unfit) / len(tools) < 0.01


def laughing(levels: int) -> dict[str, Any]:
    """A few lines that unfold into two to the power of `levels` checks."""
    defs: dict[str, Any] = {
        f"a{level}": {
            "allOf": [{"$ref": f"#/$defs/a{level + 1}"}, {"$ref": f"#/$defs/a{level + 1}"}]
        }
        for level in range(levels)
    }
    defs[f"a{levels}"] = {"type": "object"}
    return {"type": "object", "$defs": defs, "$ref": "#/$defs/a0"}


def test_a_schema_that_unfolds_without_end_checks_nothing_instead_of_hanging():
    check_arguments(make_tool("s", {"name": "t", "inputSchema": laughing(60)}), {"any": "thing"})


def test_a_schema_of_ordinary_size_is_checked_however_often_it_refers_to_itself():
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"child": {"$ref": "#"}, "name": {"type": "string"}},
        "allOf": [{"required": ["name"]}],
    }
    tool = make_tool("s", {"name": "t", "inputSchema": schema})
    check_arguments(tool, {"name": "a", "child": {"name": "b"}})
    with pytest.raises(InvalidArguments):
        check_arguments(tool, {"name": "a", "child": {"name": 1}})


def test_an_answer_of_more_values_than_are_counted_is_not_checked():
    declared = tool(
        outputSchema={
            "type": "object",
            "additionalProperties": {"items": {"items": {"type": "string"}}},
        }
    )
    rows = [[1] * 100 for _ in range(MAX_MEASURED_VALUES // 100)]
    assert find_mismatches(declared, {"structuredContent": {"rows": rows[:10]}})
    assert not find_mismatches(declared, {"structuredContent": {"rows": rows}})
