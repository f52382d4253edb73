"""Portable schemas, and the mapping back to real names."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.library.portable_schema import (
    PROPERTY_NAME,
    make_portable,
    map_portable_names,
    map_real_names,
)

Schema = dict[str, Any]
FORBIDDEN = {"anyOf", "oneOf", "allOf", "enum", "not", "$ref", "if", "$schema"}


def assert_taken(schema: Schema) -> None:
    """What the providers say when they refuse a schema, as checks."""
    assert schema["type"] == "object"
    assert not FORBIDDEN & schema.keys()
    assert all(PROPERTY_NAME.fullmatch(name) for name in schema["properties"])
    assert set(schema.get("required", [])) <= schema["properties"].keys()
    jsonschema_rs.meta.validate(
        {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    )
    assert_arrays_have_items(schema)


def assert_arrays_have_items(schema: Any) -> None:
    if isinstance(schema, list):
        for one in schema:
            assert_arrays_have_items(one)
    elif isinstance(schema, dict):
        kinds = schema.get("type", [])
        if "array" in (
            [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
        ):
            assert "items" in schema
        for one in schema.values():
            assert_arrays_have_items(one)


def test_a_plain_schema_stays_as_it_is():
    plain: Schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "enum": ["x"]}, "b": {"$ref": "#/$defs/B"}},
        "required": ["a"],
        "$defs": {"B": {"type": "array", "items": {"type": "integer", "minimum": 1}}},
    }
    assert make_portable(plain) == plain


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_alternatives_at_the_root_become_one_described_object(keyword: str):
    made = make_portable(
        {
            "type": "object",
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
            keyword: [
                {"properties": {"url": {"type": "string"}}, "required": ["url", "how"]},
                {
                    "properties": {"path": {"type": "string"}, "how": {"type": "string"}},
                    "required": ["path", "how"],
                },
            ],
        }
    )
    assert_taken(made)
    assert made["properties"].keys() == {"id", "url", "path", "how"}
    assert made["required"] == ["id", "how"], "only what every way requires"
    assert made["description"] == "Give one of: url, how | path, how."


def test_a_property_that_differs_between_alternatives_allows_each():
    made = make_portable(
        {
            "anyOf": [
                {"properties": {"n": {"type": "integer"}}},
                {"properties": {"n": {"type": "string"}}},
            ]
        }
    )
    assert made["properties"] == {"n": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}


def test_references_and_parts_at_the_root_are_gathered():
    made = make_portable(
        {
            "$ref": "#/$defs/Whole",
            "$defs": {
                "Whole": {
                    "allOf": [
                        {"$ref": "#/$defs/Part"},
                        {"properties": {"b": {}}, "required": ["b"]},
                    ]
                },
                "Part": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}},
                    "required": ["a"],
                },
            },
        }
    )
    assert_taken(made)
    assert made["properties"].keys() == {"a", "b"}
    assert set(made["required"]) == {"a", "b"}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": ["string", "array"]}, {"type": ["string", "array"], "items": {}}),
        (
            {"type": "array", "items": [{"type": "string"}], "additionalItems": False},
            {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
        ),
        (
            {"type": "integer", "minimum": 3, "exclusiveMinimum": True},
            {"type": "integer", "exclusiveMinimum": 3},
        ),
        ({"type": "float"}, {"type": "number"}),
        ({"type": "anything"}, {}),
        ({"type": "string", "required": True, "enum": [], "pattern": "("}, {"type": "string"}),
        ({"$ref": "#/nowhere", "description": "kept"}, {"description": "kept"}),
        ({"type": "string", "minLength": -1, "maxLength": "9", "title": 7}, {"type": "string"}),
        (True, {}),
    ],
)
def test_keywords_that_providers_refuse_are_translated_or_left_out(given: Any, made: Schema):
    found = make_portable({"type": "object", "properties": {"x": given}})
    assert_taken(found)
    assert found["properties"]["x"] == made


def test_refused_property_names_are_replaced_and_mapped_back():
    schema: Schema = {
        "type": "object",
        "properties": {
            "$filter": {},
            "filter": {},
            "page[size]": {},
            "文件": {},
            "目录": {},
            "x" * 90: {},
        },
        "required": ["$filter", "page[size]"],
    }
    made = make_portable(schema)
    assert_taken(made)
    assert len(made["properties"]) == 6
    real = map_real_names(schema)
    assert {real.get(name, name) for name in made["properties"]} == schema["properties"].keys()
    assert [real[name] for name in made["required"]] == ["$filter", "page[size]"]
    assert "filter" not in real, "a name that is taken stays"
    assert map_real_names({"type": "object"}) == {}


@given(st.lists(st.text(max_size=80), unique=True, max_size=20))
def test_portable_names_are_unique_legal_and_reversible(names: list[str]):
    shown = map_portable_names(names)
    assert all(PROPERTY_NAME.fullmatch(name) for name in shown)
    assert sorted(shown.values()) == sorted(names)


WILD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["object", "array", "#", "#/properties/a", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "required",
                    "anyOf",
                    "allOf",
                    "items",
                    "$ref",
                    "$defs",
                    "enum",
                    "not",
                    "minimum",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(
        st.sampled_from(["properties", "required", "anyOf", "allOf", "$ref", "$defs", "type"]), WILD
    )
)
def test_any_schema_of_a_server_is_accepted(schema: Schema):
    assert_taken(make_portable(schema))


def test_references_to_references_end_and_odd_ones_lead_nowhere():
    twice = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(25)}
    schema = {
        "allOf": [{"$ref": "#/$defs/a0"}],
        "$defs": {**twice, "a25": {"properties": {"é": {}}}},
    }
    assert make_portable(schema)["properties"] == {"_": {}}
    assert map_real_names(schema) == {"_": "é"}
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"allOf": [deep]}
    assert make_portable(deep)["properties"] == {}
    for step in ("9" * 5_000, "²", "-1", "1"):
        assert make_portable({"$ref": f"#/allOf/{step}", "allOf": [{"properties": {"x": {}}}]})[
            "properties"
        ] == {"x": {}}
