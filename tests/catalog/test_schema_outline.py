"""Outlines of JSON Schemas: every form that real servers send, and hostile ones."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.schema_outline import (
    ABSENT,
    SchemaParameter,
    build_outline,
    resolve_pointer,
    summarize_parameters,
)
from portico.catalog.tool import sanitize_text, to_literal


def only(schema: dict[str, Any], **root: Any) -> SchemaParameter:
    """The one parameter of a schema whose only property is `schema`."""
    tree = build_outline({"type": "object", "properties": {"p": schema}, **root})
    return tree.root.children[0]


def test_a_parameter_carries_all_that_its_schema_says():
    param = only(
        {
            "type": "integer",
            "description": "How many",
            "default": 5,
            "minimum": 1,
            "maximum": 9,
            "examples": [3],
        },
        required=["p"],
    )
    assert (param.name, param.type, param.required, param.description) == (
        "p",
        "integer",
        True,
        "How many",
    )
    assert (param.default, param.constraints, param.examples) == (5, ("1..9",), (3,))


def test_no_default_differs_from_a_default_of_null():
    assert only({"type": "string"}).default is ABSENT
    assert only({"type": "string", "default": None}).default is None


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"oneOf": [{"type": "null"}, {"type": "string"}]},
        {"type": ["string", "null"]},
        {"type": "string", "nullable": True},
        {"anyOf": [{"type": "string"}, {"const": None}]},
    ],
)
def test_every_way_to_say_nullable_is_read_as_nullable(schema: dict[str, Any]):
    param = only(schema)
    assert (param.type, param.nullable) == ("string", True)


@pytest.mark.parametrize(
    "schema",
    [{}, None, True, False, [], "x", 3, {"type": "object", "properties": None}, {"properties": []}],
)
def test_a_schema_without_parameters_has_none(schema: Any):
    assert build_outline(schema).parameters == ()
    assert list(summarize_parameters(schema)) == []


def test_properties_without_a_type_are_an_object():
    assert [param.name for param in build_outline({"properties": {"a": {}}}).parameters] == ["a"]


def test_required_parameters_come_first_and_keep_their_order():
    tree = build_outline(
        {"properties": {"a": {}, "b": {}, "c": {}, "d": {}}, "required": ["d", "b"]}
    )
    assert [param.name for param in tree.parameters] == ["b", "d", "a", "c"]
    assert [
        name
        for name, *_ in summarize_parameters(
            {"properties": {"a": {}, "b": {}, "c": {}}, "required": ["c"]}
        )
    ] == [
        "c",
        "a",
        "b",
    ]


def test_a_required_name_without_a_property_is_still_a_parameter():
    schema = {"type": "object", "required": ["ghost"]}
    assert build_outline(schema).parameters == (SchemaParameter("ghost", required=True),)
    assert list(summarize_parameters(schema)) == [("ghost", True, "any")]


@pytest.mark.parametrize("where", ["$defs", "definitions"])
def test_a_definition_used_once_is_read_in_its_place(where: str):
    root = {where: {"Point": {"type": "object", "properties": {"x": {"type": "number"}}}}}
    param = only({"$ref": f"#/{where}/Point", "description": "Where"}, **root)
    assert (param.ref, param.type, param.description, param.children[0].name) == (
        "",
        "object",
        "Where",
        "x",
    )


def test_a_definition_used_twice_is_named_and_read_once():
    tree = build_outline(
        {
            "properties": {
                "a": {"$ref": "#/$defs/Point"},
                "b": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
            },
            "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}}},
        }
    )
    a, b = tree.parameters
    assert b.items is not None
    assert (a.ref, b.items.ref, list(tree.types)) == ("Point", "Point", ["Point"])
    assert tree.types["Point"].children[0].name == "x"


def test_a_recursive_definition_ends_in_its_name():
    tree = build_outline(
        {
            "properties": {"tree": {"$ref": "#/$defs/Node"}},
            "$defs": {
                "Node": {
                    "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}
                }
            },
        }
    )
    (children,) = tree.types["Node"].children
    assert children.items is not None
    assert children.items.ref == "Node"


def test_two_definitions_that_would_share_a_name_do_not():
    point = {"type": "object", "properties": {"x": {}}}
    refs = ["#/$defs/P", "#/definitions/P", "#/$defs/P", "#/definitions/P"]
    tree = build_outline(
        {
            "properties": {str(n): {"$ref": r} for n, r in enumerate(refs)},
            "$defs": {"P": point},
            "definitions": {"P": point},
        }
    )
    assert list(tree.types) == ["P", "P2"]


def test_a_reference_into_the_parameters_is_read_or_named_by_its_path():
    tree = build_outline(
        {
            "properties": {
                "where": {
                    "properties": {
                        "and": {"type": "array", "items": {"$ref": "#/properties/where"}}
                    }
                },
                "id": {"type": "string", "minLength": 3},
                "other": {"$ref": "#/properties/id"},
                "or": {"$ref": "#/properties/where/properties/and"},
            }
        }
    )
    where, _, other, either = tree.parameters
    inner = where.children[0].items
    assert inner is not None
    assert (inner.ref, either.ref) == ("typeof where", "typeof where.and")
    assert (other.type, other.constraints, other.ref) == ("string", ("≥3 chars",), "")


@pytest.mark.parametrize(
    "ref", ["#/$defs/Missing", "https://example.com/schema.json", "#anchor", "#/properties/p/9", ""]
)
def test_a_reference_that_leads_nowhere_says_so(ref: str):
    assert only({"$ref": ref, "description": "d"}).constraints == (f"$ref {ref}",)


def test_a_reference_to_itself_ends():
    assert build_outline({"$ref": "#"}).parameters == ()
    assert only({"$ref": "#/properties/p"}).ref in ("", "typeof p")
    assert (
        only(
            {"allOf": [{"$ref": "#/$defs/A"}]},
            **{"$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}]}}},
        ).name
        == "p"
    )


def test_pointers_are_unescaped():
    root = {"$defs": {"a/b c~d": {"type": "integer"}}}
    assert resolve_pointer("#/$defs/a~1b%20c~0d", root) == {"type": "integer"}
    assert resolve_pointer("#", root) is root
    assert resolve_pointer("#/$defs/no", root) is ABSENT


def test_all_of_is_merged():
    tree = build_outline(
        {
            "allOf": [
                {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"$ref": "#/$defs/More"},
                {"if": {"properties": {"a": {"const": "x"}}}, "then": {"required": ["b"]}},
            ],
            "$defs": {"More": {"properties": {"b": {"type": "integer"}}}},
        }
    )
    assert [(param.name, param.type, param.required) for param in tree.parameters] == [
        ("a", "string", True),
        ("b", "integer", False),
    ]
    assert tree.root.constraints == (
        'if {"properties":{"a":{"const":"x"}}} then {"required":["b"]}',
    )


def test_a_union_keeps_its_variants():
    param = only({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
    assert [variant.type for variant in param.variants] == ["string", "array"]


def test_types_in_a_list_are_a_union():
    param = only({"type": ["string", "integer", "null"], "minimum": 1})
    assert [(one.type, one.constraints) for one in param.variants] == [
        ("string", ()),
        ("integer", ("≥1",)),
    ]
    assert param.nullable


def test_a_union_of_constants_is_an_enum():
    assert only({"oneOf": [{"const": "a"}, {"const": 2}, {"enum": [True]}]}).enum == ("a", 2, True)


def test_branches_that_only_require_become_a_rule():
    tree = build_outline(
        {
            "properties": {"a": {}, "b": {}, "c": {}},
            "anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}],
        }
    )
    assert tree.root.constraints == ("needs a or b+c",)


def test_enums_of_any_type_are_kept_as_they_are():
    values = ["a", 1, 1.5, True, None, ["x"], {"k": "v"}]
    assert only({"enum": values}).enum == tuple(values)


def test_maps_patterns_and_open_objects_are_distinguished():
    def children(schema: dict[str, Any]) -> list[tuple[str, str, bool]]:
        return [
            (child.name, child.type, child.is_pattern)
            for child in only({"type": "object", **schema}).children
        ]

    assert children({"additionalProperties": True}) == []
    assert children({"additionalProperties": False}) == []
    assert children({"additionalProperties": {"type": "string"}}) == [("[key]", "string", True)]
    assert children({"patternProperties": {"^x-": {"type": "number"}}}) == [
        ("[/^x-/]", "number", True)
    ]
    assert children({"properties": {"a": {}}, "additionalProperties": True}) == [
        ("a", "any", False),
        ("[key]", "any", True),
    ]
    keyed = {"additionalProperties": {"type": "integer"}, "propertyNames": {"enum": ["a", "b"]}}
    assert children(keyed) == [('[key: "a"|"b"]', "integer", True)]


@pytest.mark.parametrize("key", ["prefixItems", "items"])
def test_tuples_keep_their_items_apart(key: str):
    param = only({"type": "array", key: [{"type": "number"}, {"type": "string"}]})
    assert [item.type for item in param.prefix] == ["number", "string"]


@pytest.mark.parametrize(
    ("schema", "constraints"),
    [
        ({"type": "string", "format": "uri", "maxLength": 9}, ("uri", "≤9 chars")),
        ({"type": "string", "pattern": "^a\n"}, ("/^a\\n/",)),
        ({"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5}, (">0", "multiple of 0.5")),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, ("≥0", ">0")),
        ({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}, ()),
        (
            {"type": "array", "minItems": 2, "maxItems": 2, "uniqueItems": True},
            ("2 items", "unique"),
        ),
        ({"type": "object", "minProperties": 1}, ("≥1 keys",)),
        ({"type": "string", "enum": []}, ("enum []",)),
        ({"not": {"const": 1}}, ('not {"const":1}',)),
        ({"type": "integer", "minimum": "one"}, ('≥"one"',)),
    ],
)
def test_limits_are_said_briefly(schema: dict[str, Any], constraints: tuple[str, ...]):
    assert only(schema).constraints == constraints


def test_a_title_is_shown_only_when_it_says_more_than_the_name():
    assert (
        build_outline({"properties": {"page_size": {"title": "Page Size"}}})
        .parameters[0]
        .description
        == ""
    )
    assert (
        build_outline({"properties": {"n": {"title": "Rows per page"}}}).parameters[0].description
        == "Rows per page"
    )


def test_a_description_of_another_type_is_shown_as_json():
    assert only({"description": ["a", 1]}).description == '["a",1]'
    assert only({"description": None}).description == ""


def test_text_that_is_shown_holds_nothing_that_cannot_be_seen():
    text = "a\x1b[31mred\x1b[0m\x00\x9b\u200bz\u202e!\U000e0041\ufeff\r\nb\u2028c\td"
    assert sanitize_text(text) == "aredz!\nb\nc\td"


def test_a_literal_is_exact_and_its_hidden_characters_are_escaped():
    assert to_literal("日本 é") == '"日本 é"'
    assert to_literal("a\u200bb\x1b\u2028") == '"a\\u200bb\\u001b\\u2028"'
    assert to_literal(2**70) == str(2**70)


def test_short_types_fit_in_a_line():
    properties = {
        "s": {"type": "string"},
        "a": {"type": "array", "items": {"type": "string"}},
        "e": {"enum": ["x", "y"]},
        "long": {"enum": [str(n) for n in range(9)]},
        "u": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        "ua": {"type": "array", "items": {"type": ["string", "integer"]}},
        "r": {"$ref": "#/properties/a"},
        "loop": {"$ref": "#/properties/loop"},
        "what": 7,
    }
    kinds = {name: kind for name, _, kind in summarize_parameters({"properties": properties})}
    assert kinds == {
        "s": "string", "a": "string[]", "e": '"x"|"y"', "long": "enum", "u": "string|integer",
        "ua": "(string|integer)[]", "r": "string[]", "loop": "any", "what": "any",
    }  # fmt: skip


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"deeper": schema}}
    return schema


def depth(param: SchemaParameter) -> int:
    return 1 + max(map(depth, param.children), default=0)


def test_forty_levels_are_read_and_four_hundred_are_survived():
    assert depth(build_outline(nested(40)).root) == 41
    assert 40 < depth(build_outline(nested(400)).root) < 100


def test_a_schema_that_unfolds_without_end_is_cut():
    bomb: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)
    }
    assert only({"$ref": "#/$defs/d0"}, **{"$defs": bomb}).name == "p"
    tree = build_outline(
        {"properties": {"p": {"anyOf": [{"anyOf": [{"type": "array", "items": {}}] * 300}] * 300}}}
    )
    assert tree.root.children[0].variants


@pytest.mark.parametrize(
    "schema",
    [
        {"required": [f"n{number}" for number in range(10_000)]},
        {"properties": {f"n{number}": {"type": "string"} for number in range(10_000)}},
    ],
)
def test_more_names_than_can_be_read_are_cut_and_that_is_said(schema: dict[str, Any]) -> None:
    *read, more = build_outline({"type": "object", **schema}).root.children
    assert [param.name for param in read] == [f"n{number}" for number in range(len(read))]
    assert 1_000 < len(read) < 5_000
    assert more.constraints == ("more names: see full",)


def test_a_long_chain_of_named_types_is_read_to_its_end():
    chain: dict[str, Any] = {
        f"T{n}": {
            "properties": {
                "next": {"$ref": f"#/$defs/T{n + 1}"},
                "again": {"$ref": f"#/$defs/T{n + 1}"},
            }
        }
        for n in range(200)
    }
    chain["T200"] = {"properties": {"end": {}}}
    tree = build_outline(
        {"properties": {"a": {"$ref": "#/$defs/T0"}, "b": {"$ref": "#/$defs/T0"}}, "$defs": chain}
    )
    assert tree.types["T200"].children[0].name == "end"


WORDS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "enum", "const",
        "default", "required",
     "description", "title", "additionalProperties", "patternProperties", "prefixItems", "minimum",
         "maxLength",
     "pattern", "format", "nullable", "not", "if", "then", "examples", "propertyNames",
         "multipleOf", "a"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        [
            "string",
            "object",
            "array",
            "integer",
            "#",
            "#/$defs/a",
            "#/properties/a",
            "#/items",
            "null",
            "\u200b\n",
        ]
    ),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(ANYTHING)
def test_anything_can_be_read(schema: Any):
    tree = build_outline(schema)
    assert all(isinstance(param, SchemaParameter) for param in tree.parameters)
    assert all(isinstance(kind, str) for _, _, kind in summarize_parameters(schema))
