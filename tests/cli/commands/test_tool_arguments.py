"""What is typed after a tool's name means what its schema says."""

from typing import Any

import pytest

from portico.cli.commands.call import parse_arguments
from portico.errors import InvalidArguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "loud": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["string", "number"]},
        "level": {"enum": [1, 2, "max"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "tag_or_tags": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
        },
        "filter": {"$ref": "#/$defs/Filter"},
        "dotted.name": {"type": "integer"},
        "anything": {},
    },
    "$defs": {
        "Filter": {
            "type": "object",
            "properties": {"year": {"type": "integer"}, "deep": {"$ref": "#/$defs/Deep"}},
        },
        "Deep": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}, "again": {"$ref": "#/$defs/Filter"}},
        },
    },
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], {}),
        (['{"text": "a", "extra": [1]}'], {"text": "a", "extra": [1]}),
        (["text=5"], {"text": "5"}),
        (["text=a=b"], {"text": "a=b"}),
        (["text="], {"text": ""}),
        (["text=null"], {"text": "null"}),
        (["count=5", "share=0.5"], {"count": 5, "share": 0.5}),
        (["share=2"], {"share": 2}),
        (["count=123456789012345678901234567890"], {"count": 123456789012345678901234567890}),
        (['{"count": 123456789012345678901234567890}'], {"count": 123456789012345678901234567890}),
        (["count=NaN"], {"count": "NaN"}),
        (["count=five"], {"count": "five"}),
        (["count=5.5"], {"count": "5.5"}),
        (["loud=True"], {"loud": True}),
        (["loud=1"], {"loud": "1"}),
        (["maybe=null"], {"maybe": None}),
        (["maybe=3"], {"maybe": 3}),
        (["either=3"], {"either": 3}),
        (["either=three"], {"either": "three"}),
        (["level=2"], {"level": 2}),
        (["level=max"], {"level": "max"}),
        (["tags=a, b"], {"tags": ["a", "b"]}),
        (["tags=a,b", "tags=c"], {"tags": ["a,b", "c"]}),
        (['tags=["a,b"]'], {"tags": ["a,b"]}),
        (["sizes=1,2"], {"sizes": [1, 2]}),
        (["sizes=7"], {"sizes": [7]}),
        (["tag_or_tags=a,b"], {"tag_or_tags": "a,b"}),
        (["tag_or_tags=a", "tag_or_tags=b"], {"tag_or_tags": ["a", "b"]}),
        (
            ["filter.year=2024", "filter.deep.on=true"],
            {"filter": {"year": 2024, "deep": {"on": True}}},
        ),
        (["filter.deep.again.year=1"], {"filter": {"deep": {"again": {"year": 1}}}}),
        (['filter={"year": 1}'], {"filter": {"year": 1}}),
        (["dotted.name=1"], {"dotted.name": 1}),
        (["unknown.name=1"], {"unknown.name": 1}),
        (["unknown=x"], {"unknown": "x"}),
        (["anything=[1]"], {"anything": [1]}),
        (["text:=5"], {"text": 5}),
        (['filter.deep:={"on": false}'], {"filter": {"deep": {"on": False}}}),
    ],
)
def test_words_are_read_by_the_schema(words: list[str], arguments: dict[str, Any]) -> None:
    assert parse_arguments(words, SCHEMA) == arguments


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["text"], "is no argument"),
        (["=5"], "is no argument"),
        (["{broken"], "not JSON"),
        (["text:=oops"], "not followed by JSON"),
        (["filter=5", "filter.year=1"], "both whole and in parts"),
    ],
)
def test_what_cannot_be_read_is_refused_with_advice(words: list[str], reason: str) -> None:
    with pytest.raises(InvalidArguments, match=reason) as refused:
        parse_arguments(words, SCHEMA)
    assert refused.value.advice


def test_a_schema_that_refers_to_itself_or_to_nothing_is_survived() -> None:
    loop: dict[str, Any] = {
        "properties": {"a": {"$ref": "#/properties/a"}, "b": {"$ref": "#/nowhere"}, "c": True}
    }
    assert parse_arguments(["a=1", "b=x", "c=[2]"], loop) == {"a": 1, "b": "x", "c": [2]}
