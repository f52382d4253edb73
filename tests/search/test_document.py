"""Searchable words of a schema, whatever value a server sends as one."""

import pytest

from portico.search import SchemaText, extract_schema_text


def test_names_descriptions_and_enums_are_read_at_every_depth():
    schema = {
        "description": "The tool again.",
        "properties": {
            "filter": {
                "description": "What to keep",
                "properties": {"state": {"enum": ["open", "closed", 7]}},
            },
            "labels": {"items": {"anyOf": [{"const": "bug"}, {"description": "Any label"}]}},
        },
        "$defs": {"Point": {"properties": {"latitude": {}}}},
    }
    text = extract_schema_text(schema)
    assert set(text.parameters) == {"filter", "labels", "state", "latitude"}
    assert set(text.descriptions.split("\n")) == {"What to keep", "Any label"}
    assert set(text.enums) == {"open", "closed", "bug"}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        [],
        True,
        "object",
        {"properties": []},
        {"properties": {"a": None}, "enum": 3, "anyOf": {}},
        {"items": True},
    ],
)
def test_what_is_no_schema_has_no_text(schema: object):
    assert extract_schema_text(schema) in (SchemaText(), SchemaText(parameters=("a",)))


def test_depth_and_size_cannot_run_away():
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"properties": {"child": deep}}
    assert extract_schema_text(deep).parameters == ("child",)
    wide = {"properties": {f"p{at}": {"enum": [f"e{at}"]} for at in range(10_000)}}
    assert len(extract_schema_text(wide).enums) == 64
