"""The places for values in a tool's input: found in bounded steps, read and set by their path."""

import sys
from typing import Any

import pytest

from portico.catalog.tool import make_tool
from portico.workflows.planning.parameters import (
    MAX_LEAVES,
    MAX_OPTIONS,
    Leaf,
    get_at,
    list_leaves,
    set_at,
    split_identifier,
)


def leaves(properties: dict[str, Any], *required: str, **more: Any) -> tuple[Leaf, ...]:
    schema = {"type": "object", "properties": properties, "required": list(required), **more}
    return list_leaves(make_tool("server", {"name": "do_it", "inputSchema": schema}))


def make_leaf(schema: dict[str, Any], name: str = "value") -> Leaf:
    """The only parameter of a tool."""
    return leaves({name: schema}, name)[0]


def test_the_objects_of_a_union_are_entered_and_all_of_them_require_what_is_required():
    page = {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "page_id": {"type": "string"}},
        "required": ["kind", "page_id"],
    }
    block = {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "block_id": {"type": "string"}},
        "required": ["kind", "block_id"],
    }
    found = leaves({"parent": {"oneOf": [page, block]}}, "parent")
    assert [(leaf.path, leaf.required) for leaf in found] == [
        (("parent", "kind"), True),
        (("parent", "page_id"), False),
        (("parent", "block_id"), False),
    ]


@pytest.mark.parametrize("is_nested", [False, True])
def test_an_object_that_may_be_written_as_a_text_is_entered(is_nested: bool):
    page: dict[str, Any] = {
        "type": "object",
        "properties": {"page_id": {"type": "string"}},
        "required": ["page_id"],
    }
    either = {"oneOf": [page, {"type": "object", "properties": {"kind": {"const": "top"}}}]}
    found = leaves({"parent": {"anyOf": [either if is_nested else page, {"type": "string"}]}})
    assert ("parent", "page_id") in [leaf.path for leaf in found]


def test_required_places_come_first_and_objects_are_entered():
    address = {
        "type": "object",
        "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        "required": ["city"],
    }
    found = leaves({"note": {"type": "string"}, "address": address}, "address")
    assert [(leaf.path, leaf.required) for leaf in found] == [
        (("address", "city"), True),
        (("address", "street"), False),
        (("note",), False),
    ]


def test_a_list_of_objects_is_one_place_and_those_of_its_only_item():
    item = {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}
    found = leaves({"lines": {"type": "array", "items": item}}, "lines")
    assert [(leaf.path, leaf.name) for leaf in found] == [
        (("lines", 0, "sku"), "lines.sku"),
        (("lines",), "lines"),
    ]


def test_a_part_of_an_optional_object_is_not_required():
    inner = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert [leaf.required for leaf in leaves({"address": inner})] == [False]


def test_a_reference_is_followed():
    found = leaves(
        {"to": {"$ref": "#/$defs/Person"}},
        "to",
        **{"$defs": {"Person": {"type": "object", "properties": {"email": {"type": "string"}}}}},
    )
    assert [leaf.path for leaf in found] == [("to", "email")]


def test_types_options_and_words_are_known():
    state = make_leaf({"type": "string", "enum": ["open", "closed"], "description": "Which\nones"})
    assert (state.types, state.options) == (frozenset({"string"}), ("open", "closed"))
    assert state.describe() == "value (string, required): Which ones"
    assert make_leaf({"type": "boolean"}).options == (True, False)
    tags = make_leaf({"type": "array", "items": {"type": "string"}})
    assert (tags.types, tags.item_types) == (frozenset({"array"}), frozenset({"string"}))
    either = make_leaf({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]})
    assert either.types == {"integer", "string"}
    assert make_leaf({}).types == {"any"}


def test_options_that_are_objects_can_be_compared():
    assert len(make_leaf({"enum": [{"a": 1}, [1], {"a": 1}]}).options) == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("issueId", ["issue", "id"]),
        ("HTTPServer_name", ["http", "server", "name"]),
        ("page2", ["page", "2"]),
        ("größe-max", ["größe", "max"]),
        ("__", []),
    ],
)
def test_an_identifier_falls_into_words(name: str, words: list[str]):
    assert split_identifier(name) == words


def test_what_is_set_at_a_path_is_found_there():
    arguments: dict[str, Any] = {}
    set_at(arguments, ("lines", 0, "sku"), "a1")
    set_at(arguments, ("lines", 0, "count"), 2)
    set_at(arguments, ("ship", "to", "city"), "Rome")
    assert arguments == {
        "lines": [{"sku": "a1", "count": 2}],
        "ship": {"to": {"city": "Rome"}},
    }
    assert get_at(arguments, ("lines", 0, "sku")) == "a1"
    for path in (("lines", "sku"), ("ship", 0), ("ship", "to", "street")):
        with pytest.raises(KeyError):
            get_at(arguments, path)
    with pytest.raises(KeyError):
        get_at({"lines": [{"sku": 1}, {"sku": 2}]}, ("lines", 0, "sku"))


def test_of_thousands_of_parameters_some_are_looked_at_and_of_them_the_required_ones():
    many = {f"p{number}": {"type": "string"} for number in range(2_000)}
    found = leaves(many, "p1999")
    assert len(found) == MAX_LEAVES
    assert found[0].name == "p1999"
    assert len(make_leaf({"enum": list(range(5_000))}).options) == MAX_OPTIONS


def test_a_type_that_contains_itself_many_times_is_read_in_bounded_steps():
    node = {"$ref": "#/$defs/node"}
    parts = {f"part_{number}": node for number in range(40)}
    definitions = {"node": {"type": "object", "properties": {**parts, "a": {"type": "string"}}}}
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        assert calls < 500_000

    sys.setprofile(count)
    try:
        found = leaves(parts, **{"$defs": definitions})
    finally:
        sys.setprofile(None)
    assert len(found) <= MAX_LEAVES


def test_what_lies_too_deep_to_be_looked_at_is_not_lost():
    schema: dict[str, Any] = {"type": "string"}
    for name in "fedcb":
        schema = {"type": "object", "properties": {name: schema}, "required": [name]}
    assert [leaf.required for leaf in leaves({"a": schema}, "a")] == [True]
