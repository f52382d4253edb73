"""Definitions of tools, real and embedded, and what may become of them on the way from a careless
server."""

import copy
import functools
import gzip
import os
from pathlib import Path
from typing import Any

import orjson
from hypothesis import strategies as st

from portico.upstream.backend import Raw
from tests.fuzz import noise

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[3] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"
STRIDE = 9
"""Every so many-th tool of the recorded servers: hundreds of shapes, and a list that is read in an
instant."""

_S: Raw = {"type": "string"}
SCHEMAS: tuple[Any, ...] = (
    {"type": "object"},
    {},
    {"type": "object", "properties": {"a": _S}, "required": ["a"]},
    {
        "type": "object",
        "properties": {"a": _S, "b": {"type": "integer", "minimum": 1, "default": 3}},
    },
    {"type": "object", "properties": {"mode": {"enum": ["fast", "slow", None, 3]}}},
    {
        "type": "object",
        "properties": {"when": {"type": "string", "format": "date-time", "description": "When."}},
    },
    {
        "type": "object",
        "properties": {"tags": {"type": "array", "items": _S, "minItems": 1, "uniqueItems": True}},
    },
    {
        "type": "object",
        "properties": {"point": {"type": "array", "prefixItems": [{"type": "number"}] * 2}},
    },
    {
        "type": "object",
        "properties": {"who": {"type": "object", "properties": {"name": _S}, "required": ["name"]}},
    },
    {"type": "object", "properties": {"x": {"anyOf": [_S, {"type": "null"}]}}},
    {"type": "object", "properties": {"x": {"oneOf": [{"const": "a"}, {"const": "b"}]}}},
    {"type": "object", "properties": {"x": {"type": ["string", "null"]}}},
    {"type": "object", "properties": {"x": {"not": {"type": "string"}}}},
    {"type": "object", "properties": {"x": {"allOf": [{"minLength": 2}, {"pattern": "^a+$"}]}}},
    {"type": "object", "additionalProperties": {"type": "number"}},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "patternProperties": {"^x-": _S}, "propertyNames": {"maxLength": 5}},
    {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}, "$defs": {"T": _S}},
    {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/N"}},
        "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}},
    },
    {
        "type": "object",
        "properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}},
    },
    {"type": "object", "properties": {"self": {"$ref": "#"}}},
    {"type": "object", "properties": {"far": {"$ref": "https://example.invalid/schema.json"}}},
    {"type": "object", "properties": {"lost": {"$ref": "#/$defs/nothing"}}},
    {"type": "object", "properties": {"d": {"$dynamicRef": "#meta"}}, "$dynamicAnchor": "meta"},
    {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"n": {"id": "x"}},
    },
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "definitions": {"a": _S},
    },
    {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": False},
    {"type": "object", "dependentRequired": {"a": ["b"]}, "dependencies": {"c": ["d"]}},
    {
        "type": "object",
        "properties": {"class": _S, "while": _S, "a b": _S, "": _S, "__proto__": _S, "1st": _S},
    },
    {
        "type": "object",
        "properties": {"e": {"type": "string", "enum": [f"value {n}" for n in range(3_000)]}},
    },
    {
        "type": "object",
        "properties": {f"p{n}": _S for n in range(300)},
        "required": [f"p{n}" for n in range(300)],
    },
    {"type": "object", "unevaluatedProperties": False, "minProperties": 10**30},
)
FIELDS: tuple[Raw, ...] = (
    {},
    {"title": "A title", "annotations": {"readOnlyHint": True, "title": "T"}},
    {
        "outputSchema": {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
        }
    },
    {
        "_meta": {
            "anthropic/alwaysLoad": True,
            "portico/session": "x",
            "ui": {"resourceUri": "ui://x"},
        }
    },
    {"icons": [{"src": "data:,", "sizes": ["any"]}], "execution": {"taskSupport": "optional"}},
)
EMBEDDED: tuple[Raw, ...] = tuple(
    {
        "name": f"tool_{n}",
        "description": f"Does the thing number {n}.",
        "inputSchema": schema,
        **FIELDS[n % len(FIELDS)],
    }
    for n, schema in enumerate(SCHEMAS)
)
NAMES = (
    "",
    " ",
    "a",
    "A",
    "fine",
    "fine_too",
    "a.b",
    "a/b",
    "a__b",
    "s__a",
    "..",
    "ünï cödé",
    "x" * 5_000,
    "\x00",
    "1",
)
REFS = (
    "#",
    "#/properties",
    "#/properties/a",
    "#/$defs/A",
    "#/inputSchema",
    "x.json#/a",
    "#/%ZZ",
    "##",
    "",
    3,
    None,
)
CYCLE: Raw = {
    "A": {"$ref": "#/$defs/B"},
    "B": {"allOf": [{"$ref": "#/$defs/A"}], "properties": {"b": {"$ref": "#"}}},
}


@functools.cache
def fleet() -> tuple[Raw, ...]:
    """Definitions of real servers, as they were recorded."""
    with gzip.open(FLEET) as lines:
        return tuple([tool for line in lines for tool in orjson.loads(line)["tools"]][::STRIDE])


def embedded_definitions() -> tuple[Raw, ...]:
    """Shapes of every kind that schemas have."""
    return EMBEDDED


def _places(value: Any, limit: int = 400) -> list[tuple[Any, Any]]:
    """Every place in a value that can be another: the container and the key."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < limit:
        inside = waiting.pop(0)
        keys = (
            list(inside)
            if isinstance(inside, dict)
            else range(len(inside))
            if isinstance(inside, list)
            else ()
        )
        for key in keys:
            found.append((inside, key))
            waiting.append(inside[key])
    return found


def very_deep(levels: int) -> Any:
    """Deeper than any library reads, made without recursion."""
    return noise.nest(levels, {"type": "string"}, 1)


def spoil_definition(draw: st.DrawFn, definition: Raw) -> None:
    """Change one place of a definition."""
    where = draw(st.integers(0, 9_999))
    places = _places(definition)
    if not places:
        return
    inside, key = places[where % len(places)]
    match draw(
        st.sampled_from(
            [
                "drop",
                "noise",
                "noise",
                "ref",
                "type",
                "twin",
                "enum",
                "deep",
                "name",
                "cycle",
                "wrap",
            ]
        )
    ):
        case "drop":
            del inside[key]
        case "noise":
            inside[key] = draw(noise.VALUES)
        case "ref":
            inside[key] = {"$ref": draw(st.sampled_from(REFS))}
        case "type":
            inside[key] = {
                "type": draw(
                    st.sampled_from(["string", "any", "", 3, None, [], ["object", "x"], {}, True])
                )
            }
        case "twin" if isinstance(inside, dict):
            inside[draw(noise.KEYS)] = inside[key]
        case "enum":
            inside[key] = {"enum": [*range(draw(st.sampled_from([0, 1, 20_000]))), None, {}]}
        case "deep":
            inside[key] = very_deep(draw(st.sampled_from([30, 90, 120, 300, 10_000])))
        case "name":
            definition["name"] = draw(st.sampled_from(NAMES) | noise.VALUES)
        case "cycle":
            if isinstance(schema := definition.get("inputSchema"), dict):
                schema["$defs"] = copy.deepcopy(CYCLE)
            inside[key] = {"$ref": draw(st.sampled_from(["#/$defs/A", "#/$defs/B"]))}
        case _:
            inside[key] = [inside[key]]


@st.composite
def listings(draw: st.DrawFn, source: str, most: int = 4) -> list[Any]:
    """Some definitions, each changed in a few places; now and then no definition at all."""
    known = fleet() if source == "fleet" else embedded_definitions()
    found: list[Any] = []
    for at in draw(st.lists(st.integers(0, len(known) - 1), min_size=1, max_size=most)):
        definition = copy.deepcopy(known[at])
        for _ in range(draw(st.integers(0, 4))):
            spoil_definition(draw, definition)
        found.append(definition)
    return found + draw(st.lists(noise.VALUES, max_size=1))
