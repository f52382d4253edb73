"""What fits the schema that callers see fits the server's once it is translated, and the server
gets nothing that the overrides do not explain: over generated schemas and overrides."""

import random
from typing import Any

import jsonschema_rs
import pytest

from portico.calls.server_arguments import check_server_arguments
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool, make_tool
from portico.catalog.tool_overrides import apply_overrides
from portico.config import ToolRules
from portico.errors import InvalidArguments
from portico.upstream.backend import Raw

NAMES = ["a", "b", "c", "d"]
VALUES = [0, 1, "x", "y", None]
PARTS: list[Any] = [
    {},
    True,
    {"type": "integer"},
    {"enum": [0, "x"]},
    {"const": 1},
    {"type": "string"},
    {"$ref": "#/$defs/word"},
]
DEFINITIONS: Raw = {
    "word": {"type": ["string", "null"]},
    "pair": {"properties": {"a": {"enum": [0, 1, "x"]}}, "required": ["b"]},
}


def choose_names(rng: random.Random) -> list[str]:
    return rng.sample(NAMES, rng.randint(0, 2))


def make_part(rng: random.Random, depth: int) -> Any:
    """A schema of all arguments, with the keywords that concern them as a whole."""
    if depth > 2:
        return rng.choice([True, {"required": choose_names(rng)}])
    schema: Raw = {}
    if rng.random() < 0.6:
        schema["properties"] = {name: rng.choice(PARTS) for name in choose_names(rng)}
    if rng.random() < 0.4:
        schema["required"] = choose_names(rng)
    if rng.random() < 0.15:
        schema["additionalProperties"] = rng.choice([False, {"type": "integer"}, True])
    if rng.random() < 0.15:
        schema["dependentRequired"] = {rng.choice(NAMES): choose_names(rng)}
    if rng.random() < 0.1:
        schema["dependentSchemas"] = {rng.choice(NAMES): make_part(rng, depth + 1)}
    if rng.random() < 0.1:
        schema[rng.choice(["minProperties", "maxProperties"])] = rng.randint(0, 4)
    for key in ("allOf", "anyOf", "oneOf"):
        if rng.random() < 0.2:
            schema[key] = [make_part(rng, depth + 1) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.15:
        schema["not"] = make_part(rng, depth + 1)
    if rng.random() < 0.2:
        for key in ("if", "then", "else"):
            schema[key] = make_part(rng, depth + 1)
    if rng.random() < 0.1:
        schema["$ref"] = "#/$defs/pair"
    return schema


def make_schema(rng: random.Random) -> Raw:
    schema = make_part(rng, 0)
    properties = {name: rng.choice(PARTS) for name in NAMES}
    return {"type": "object", "$defs": DEFINITIONS, **schema, "properties": properties}


def make_override(rng: random.Random) -> Raw:
    parameters: dict[str, Raw] = {}
    for name in rng.sample(NAMES, rng.randint(1, 3)):
        kind = rng.choice(["fixed", "default", "name", "both"])
        one: Raw = {}
        if kind in ("default", "both"):
            one["default"] = rng.choice(VALUES)
        if kind in ("name", "both"):
            one["name"] = rng.choice([*NAMES, f"new_{name}"])
        if kind == "fixed":
            one["fixed"] = rng.choice(VALUES)
        parameters[name] = one
    return {"parameters": parameters}


def override(schema: Raw, override: Raw) -> tuple[Tool, tuple[str, ...]]:
    tool = make_tool("s", {"name": "t", "inputSchema": schema})
    rules = ToolRules.model_validate({"override": {"t": override}})
    entry = apply_overrides(ServerEntry("s", rules=rules, tools={"t": tool}))
    return entry.tools["t"], entry.override_problems


def explain(tool: Tool, parameters: Raw, arguments: Raw) -> Raw:
    """What the server should get, worked out without the code under test's tables."""
    translation = tool.translation
    assert translation is not None
    sent: Raw = {}
    for name, value in arguments.items():
        owners = [own for own, one in parameters.items() if one.get("name") == name]
        own = owners[0] if owners and name in translation.own_names else name
        sent[own] = value
    for own, one in parameters.items():
        shown = next((new for new, old in translation.own_names.items() if old == own), own)
        if "fixed" in one:
            sent[own] = one["fixed"]
        elif "default" in one and shown not in arguments and shown in translation.defaults:
            sent[own] = one["default"]
    return sent


def test_valid_arguments_stay_valid_and_nothing_else_is_sent() -> None:
    checked = 0
    rewritten = 0
    for seed in range(2_500):
        rng = random.Random(seed)
        schema = make_schema(rng)
        try:
            wanted = make_override(rng)
            tool, problems = override(schema, wanted)
        except ValueError:  # two parameters of one name: refused by the configuration
            continue
        if tool.translation is None:
            continue
        is_whole = not any("other conditions" in one or "refused" in one for one in problems)
        rewritten += is_whole
        seen = jsonschema_rs.validator_for(dict(tool.input_schema))
        own = jsonschema_rs.validator_for(schema)
        for _ in range(12):
            known = sorted(tool.translation.shown_names)
            names = rng.sample(known, rng.randint(0, len(known)))
            arguments = {name: rng.choice(VALUES) for name in names}
            if not seen.is_valid(arguments):
                continue
            filled = tool.translation.fill_defaults(arguments)
            sent = tool.translation.translate(filled, tool.translation.fixed)
            case = (seed, schema, wanted, dict(tool.input_schema), arguments, sent, problems)
            assert sent == explain(tool, wanted["parameters"], arguments), case
            if is_whole:
                checked += 1
                assert own.is_valid(sent), case
            elif not own.is_valid(sent):
                with pytest.raises(InvalidArguments):
                    check_server_arguments(tool, sent)
    assert checked > 2_000
    assert rewritten > 500


def test_a_name_that_its_owner_has_to_keep_is_given_to_no_other() -> None:
    schema: Raw = {"type": "object", "properties": {name: {"type": "string"} for name in "abc"}}
    # `c` cannot be named `b`, so `a` cannot be named `c`.
    names = {"parameters": {"a": {"name": "c"}, "c": {"name": "b"}}}
    tool, problems = override(schema, names)
    assert tool.translation is None
    assert len(problems) == 2


@pytest.mark.parametrize(
    "keyword",
    [
        {"patternProperties": {"^a": {"type": "string"}}},
        {"propertyNames": {"maxLength": 3}},
        {"unevaluatedProperties": False},
        {"allOf": [{"$ref": "#/$defs/loop"}], "$defs": {"loop": {"$ref": "#/$defs/loop"}}},
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "string"}}},
    ],
)
def test_of_a_schema_that_cannot_be_followed_the_parameters_are_kept(keyword: Raw) -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"], **keyword}
    wanted = {"parameters": {"a": {"fixed": "k"}, "b": {"name": "other"}}}
    tool, problems = override(schema, wanted)
    assert "other conditions" in problems[0]
    assert [*tool.input_schema["properties"]] == ["other"]
    assert tool.input_schema["required"] == ["other"]
    assert tool.translation is not None
    assert tool.translation.translate({"other": "v"}, tool.translation.fixed) == {
        "b": "v",
        "a": "k",
    }


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"gone": {"fixed": 1}}, "the tool has no parameter 'gone'"),
        ({"gone": {"description": "x"}}, "the tool has no parameter 'gone'"),
        ({"a": {"default": "x"}}, "the default does not fit the server's schema"),
        ({"a": {"fixed": "x"}}, "the fixed value does not fit"),
        ({"a": {"name": "b"}}, "cannot be named 'b': another has that name"),
    ],
)
def test_what_does_not_fit_is_named_and_the_rest_is_applied(parameters: Raw, problem: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}
    tool, problems = override(schema, {"description": "New.", "parameters": parameters})
    assert len(problems) == 1
    assert problem in problems[0]
    assert tool.description == "New."


def test_schemas_of_servers_take_bounded_work() -> None:
    wide: Raw = {"allOf": [{"anyOf": [{"properties": {"a": {}}}] * 50}] * 50}
    deep: Raw = {"properties": {"a": {}}}
    for _ in range(60):
        deep = {"allOf": [deep]}
    for schema in (wide, deep):
        whole = {"type": "object", "properties": {"a": {}}, **schema}
        tool, problems = override(whole, {"parameters": {"a": {"fixed": 1}}})
        assert "too large" in problems[0]
        assert tool.input_schema["properties"] == {}
