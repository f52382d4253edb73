"""Arguments are made to fit where only one thing can have been meant, and never where two can."""

import contextlib
import copy
import gzip
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.calls.repair import MAX_NOTES, repair_arguments
from portico.calls.validation import repair_or_raise
from portico.catalog.schema_validator import find_validator
from portico.catalog.tool import Tool, make_tool
from portico.errors import InvalidArguments
from portico.rendering.examples import make_example

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[3] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"
OBJECT: dict[str, Any] = {"type": "object"}


def is_valid(tool: Tool, arguments: Any) -> bool:
    validator = find_validator(tool.hash, tool.blob, "inputSchema")
    return validator is None or validator.is_valid(arguments)


def tool(properties: Any, **more: Any) -> Tool:
    return make_tool(
        "s", {"name": "t", "inputSchema": {**OBJECT, "properties": properties, **more}}
    )


def meant(schema: Any, value: Any) -> Any:
    """What is made of one value; the value itself where nothing is."""
    one = tool({"a": schema}, required=["a"])
    if is_valid(one, {"a": value}):
        return value
    try:
        return repair_or_raise(one, {"a": value}).arguments["a"]
    except InvalidArguments:
        return value


INTEGERS = {"type": "array", "items": {"type": "integer"}}
STRINGS = {"type": "array", "items": {"type": "string"}}
PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, " -12 ", -12),
        ({"type": "integer"}, "5.0", 5),
        ({"type": "number"}, "0.25", 0.25),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": "string"}, 5, "5"),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5", 5),
        (STRINGS, "x", ["x"]),
        (INTEGERS, 5, [5]),
        (INTEGERS, "5", [5]),
        (INTEGERS, ["5", 6], [5, 6]),
        (INTEGERS, "[5, 6]", [5, 6]),
        (STRINGS, {}, []),
        (PERSON, '{"age": "5"}', {"age": 5}),
        ({"type": "array", "items": PERSON}, {"age": 5}, [{"age": 5}]),
        ({"type": "array", "items": PERSON}, '{"age": 5}', [{"age": 5}]),
        ({"enum": ["OPEN", "closed"]}, "open", "OPEN"),
        ({"type": "string", "enum": ["in_progress", "done"]}, "In Progress", "in_progress"),
        ({"enum": [5, 10]}, "5", 5),
        ({"type": "string", "enum": ["5", "10"]}, 5, "5"),
        ({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}, "A", "a"),
        ({"allOf": [{"type": "integer"}, {"minimum": 1}]}, "5", 5),
    ],
)
def test_what_must_have_been_meant_is_sent(schema: Any, value: Any, expected: Any):
    found = meant(schema, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, "five"),
        ({"type": "integer"}, "5.5"),
        ({"type": "integer"}, "007"),
        ({"type": "integer"}, "99999999999999999999"),
        ({"type": "integer"}, ""),
        ({"type": "integer"}, True),
        ({"type": "boolean"}, 1),
        ({"type": "boolean"}, "yes"),
        ({"type": "string"}, 0.1),
        ({"type": "string"}, 2**60),
        ({"type": "string"}, True),
        ({"type": "string"}, ["x"]),
        ({"type": "string"}, None),
        (STRINGS, "a, b"),
        (STRINGS, ""),
        (STRINGS, None),
        (OBJECT, []),
        ({"type": "array", "items": INTEGERS}, [1, 2]),
        ({"type": "array", "items": INTEGERS}, 1),
        ({"anyOf": [{"type": "integer"}, STRINGS]}, "5"),
        ({"enum": ["Open", "OPEN"]}, "open"),
        ({"enum": ["-created", "-updated"]}, "created"),
        ({"type": "string", "enum": ["1-0", "2-0"]}, "10"),
        ({"type": "integer", "maximum": 3}, "5"),
        ({"type": "string", "pattern": "^x"}, 5),
    ],
)
def test_what_could_be_meant_in_two_ways_or_in_none_is_left_alone(schema: Any, value: Any):
    assert meant(schema, value) is value


def test_a_null_for_what_may_be_left_out_is_left_out():
    one = tool(
        {"a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {"type": "string"}},
        required=["c"],
    )
    repair = repair_or_raise(one, {"a": None, "b": None, "c": "x"})
    assert repair.arguments == {"b": None, "c": "x"}
    assert repair.notes == ("a: null left out",)
    with pytest.raises(InvalidArguments):
        repair_or_raise(one, {"c": None})


def test_a_parameter_in_another_spelling_is_known_by_its_own_name():
    one = tool(
        {"repo_name": {"type": "string"}, "page-size": {"type": "integer"}}, required=["repo_name"]
    )
    assert repair_or_raise(one, {"repoName": "x", "page-size": 1}).arguments == {
        "repo_name": "x",
        "page-size": 1,
    }
    closed = tool(
        {"repo_name": {"type": "string"}, "pageSize": {"type": "integer"}},
        additionalProperties=False,
    )
    assert repair_or_raise(closed, {"Repo-Name": "x", "page_size": "3"}).arguments == {
        "repo_name": "x",
        "pageSize": 3,
    }


@pytest.mark.parametrize(
    "arguments",
    [{"repoName": "x", "RepoName": "y"}, {"repository": "x"}, {"$repo_name": "x"}],
    ids=str,
)
def test_a_name_that_may_be_another_is_not_guessed(arguments: Any):
    with pytest.raises(InvalidArguments, match="repo_name"):
        repair_or_raise(tool({"repo_name": {"type": "string"}}, required=["repo_name"]), arguments)


def test_only_what_could_not_be_repaired_is_the_callers_to_mend():
    one = tool({"n": {"type": "integer"}, "m": {"type": "integer"}})
    with pytest.raises(InvalidArguments) as caught:
        repair_or_raise(one, {"n": "5", "m": "many"})
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["m"]


def test_what_was_given_is_not_touched():
    one = tool({"l": INTEGERS, "o": PERSON})
    given: Any = {"l": ["1", 2], "o": {"age": "5"}}
    before = copy.deepcopy(given)
    assert repair_or_raise(one, given).arguments == {"l": [1, 2], "o": {"age": 5}}
    assert given == before


def test_what_was_done_is_said_with_its_place():
    one = tool({"o": PERSON, "labels": STRINGS, "raw": OBJECT, "state": {"enum": ["OPEN"]}})
    notes = repair_or_raise(
        one, {"o": {"age": "5"}, "labels": "x", "raw": '{"a":1}', "state": "open"}
    ).notes
    assert notes == (
        'o.age: "5" read as 5',
        "labels: one value made a list",
        "raw: JSON text read as an object",
        'state: "open" read as "OPEN"',
    )


def test_not_everything_is_said_of_many_repairs():
    notes = repair_or_raise(tool({"l": INTEGERS}), {"l": [str(n) for n in range(50)]}).notes
    assert (len(notes), notes[-1]) == (MAX_NOTES + 1, f"and {50 - MAX_NOTES} more")


def test_references_are_followed_and_circles_end():
    schema: Any = {
        **OBJECT,
        "properties": {"n": {"$ref": "#/$defs/n"}, "child": {"$ref": "#"}},
        "$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
    }
    one = make_tool("s", {"name": "t", "inputSchema": schema})
    assert repair_or_raise(one, {"child": {"child": {"n": "5"}}}).arguments == {
        "child": {"child": {"n": 5}}
    }
    loop = {"properties": {"a": {"$ref": "#/$defs/loop"}}, "$defs": schema["$defs"]}
    assert repair_arguments(loop, {"a": "5"}) is None


def test_arguments_as_json_text_are_read():
    one = tool({"n": {"type": "integer"}})
    assert repair_or_raise(one, '{"n": 5}').arguments == {"n": 5}
    assert repair_or_raise(one, []).arguments == {}
    for wrong in ("n=5", "[1]", None, 3, [1]):
        with pytest.raises(InvalidArguments, match="must be an object"):
            repair_or_raise(one, wrong)


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
        "const",
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
        "$schema",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(keywords, json_values, max_size=5), json_values)
def test_any_schema_and_any_arguments_end_in_a_repair_that_fits_or_in_none(
    schema: Any, arguments: Any
):
    found = repair_arguments(schema, arguments)
    assert found is None or (found.notes and isinstance(found.arguments, dict))


# --- what real servers declare


def mangled(value: Any, how: Callable[[Any], Any]) -> Any:
    return {name: how(one) for name, one in value.items()}


def quoted(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool | int) else value


def as_text(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else value


def unlisted(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def shouted(name: str) -> str:
    return name.replace("_", "-").upper()


@pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}")
def test_the_tools_of_real_servers_survive_every_mistake_and_most_are_understood():
    with gzip.open(FLEET) as file:
        servers = [orjson.loads(line) for line in file]
    tools = [
        make_tool(server["slug"], definition)
        for server in servers
        for definition in server["tools"]
    ]
    tried: Counter[str] = Counter()
    understood: Counter[str] = Counter()
    for one in tools:
        right = make_example(one)
        if not is_valid(one, right):
            continue
        wrong = {
            "quoted": mangled(right, quoted),
            "text": mangled(right, as_text),
            "unlisted": mangled(right, unlisted),
            "names": {shouted(name): value for name, value in right.items()},
        }
        for kind, arguments in wrong.items():
            if is_valid(one, arguments):
                continue
            tried[kind] += 1
            with contextlib.suppress(InvalidArguments):
                assert is_valid(one, repair_or_raise(one, arguments).arguments)
                understood[kind] += 1
    assert min(tried.values()) > 100
    shares = {kind: understood[kind] / tried[kind] for kind in tried}
    assert all(share > 0.8 for share in shares.values()), (shares, tried)


@pytest.mark.parametrize("text", ["{}", "null", " None ", '{"a": 1}'])
def test_text_that_may_be_no_value_at_all_is_not_made_the_one_value_of_a_list(text: str):
    schema = {
        "type": "object",
        "properties": {"tags": {"type": "array", "items": {"type": "string"}}},
    }
    assert repair_arguments(schema, {"tags": text}) is None


@pytest.mark.parametrize(("parts", "repaired"), [(450, True), (550, False)])
def test_merging_rules_counts_as_much_as_reading_them(parts: int, repaired: bool):
    schema = {**OBJECT, "properties": {"a": {"allOf": [{"type": "integer"}] * parts}}}
    assert (repair_arguments(schema, {"a": "5"}) is not None) is repaired
