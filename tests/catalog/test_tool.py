"""A tool keeps the definition that its server listed."""

from typing import Any

import pytest

from portico.catalog.tool import MAX_DEPTH, Tool, compute_hash, encode_json, make_tool


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_a_tool_keeps_every_field_and_the_order_of_its_keys():
    definition = {
        "zebra": 1,
        "name": "t",
        "_meta": {"b": None, "a": [1.0]},
        "inputSchema": {"type": "object"},
    }
    tool = make_tool("s", definition)
    assert tool.definition == definition
    assert list(tool.definition) == list(definition)
    assert (tool.address, tool.upstream_name) == ("s.t", "t")


def test_a_renamed_tool_answers_to_its_upstream_name():
    tool = make_tool("s", {"name": "t"}, name="better")
    assert (tool.address, tool.upstream_name) == ("s.better", "t")


def test_tools_are_equal_when_server_name_and_content_are():
    one, same, other = (
        make_tool("s", {"name": "t", "description": text}) for text in ("a", "a", "b")
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != make_tool("r", {"name": "t", "description": "a"})
    assert one != "s.t"


def test_fields_of_the_wrong_kind_read_as_empty():
    tool = make_tool(
        "s", {"name": "t", "description": 3, "title": [], "inputSchema": "no", "annotations": 1}
    )
    assert (tool.description, tool.title, tool.input_schema, tool.annotations) == ("", "", {}, {})


def test_the_title_may_stand_in_the_annotations():
    assert make_tool("s", {"name": "t", "annotations": {"title": "Do it"}}).title == "Do it"
    assert (
        make_tool("s", {"name": "t", "title": "First", "annotations": {"title": "Second"}}).title
        == "First"
    )


@pytest.mark.parametrize("blob", [b"", b"{", b"[]", b"\xff\xfe", b'{"name": "\\ud800"}'])
def test_a_definition_from_a_damaged_file_is_a_name_and_no_more(blob: bytes):
    tool = Tool("s", "t", "t", blob, compute_hash(blob))
    assert tool.definition == {"name": "t"}
    assert tool.input_schema == {}


def test_numbers_of_any_size_are_kept():
    assert make_tool("s", {"name": "t", "x": 2**70}).definition["x"] == 2**70


@pytest.mark.parametrize(
    "value",
    [
        nested(MAX_DEPTH + 1),
        nested(300),
        nested(5_000),
        {"a": "\ud800"},
        {"\udfff": 1},
        {"a": b"bytes"},
        object(),
    ],
    ids=[
        "deep",
        "beyond orjson",
        "beyond Python",
        "half a character",
        "half a key",
        "bytes",
        "object",
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(value: Any):
    with pytest.raises(ValueError, match=r"\w"):
        encode_json(value)


def test_what_can_be_kept_is_json():
    assert encode_json(nested(MAX_DEPTH)).startswith(b'{"a":{"a":')
    assert encode_json({"n": 2**70, "smile": "\U0001f600"}) in (
        b'{"n":1180591620717411303424,"smile":"\\ud83d\\ude00"}',
        '{"n":1180591620717411303424,"smile":"\U0001f600"}'.encode(),
    )
    assert (
        encode_json({"text": "a backslash and \\ud800"}) == b'{"text":"a backslash and \\\\ud800"}'
    )
    assert encode_json({"many": [{}] * 500})
