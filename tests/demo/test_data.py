"""Data tools read, write, query and compare tables and JSON."""

import json
from typing import Any

import pytest

from portico.demo import data

ROWS: list[dict[str, Any]] = [
    {"name": "Ann", "age": 31, "city": "Oslo"},
    {"name": "Bob", "age": "7", "city": "Rome"},
    {"name": "Cyd", "age": None, "city": "Oslo"},
]


def test_csv_becomes_typed_rows() -> None:
    found = data.csv_to_json('a,b,c,d\n1,007,"x, ""y""",\n-2.5,true,,1e3\n')
    assert found == [
        {"a": 1, "b": "007", "c": 'x, "y"', "d": None},
        {"a": -2.5, "b": True, "c": None, "d": "1e3"},
    ]
    assert data.csv_to_json("a;b\n1;2", ";", guess_types=False) == [{"a": "1", "b": "2"}]
    assert data.csv_to_json("") == []


@pytest.mark.parametrize("text", ["a,b\n1", "a,a\n1,2", "a\n1,2"])
def test_csv_that_is_not_a_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        data.csv_to_json(text)


def test_rows_become_csv_and_come_back() -> None:
    written = data.json_to_csv([{"a": 1, "b": 'x,"y"'}, {"b": None, "c": [1]}])
    assert written == 'a,b,c\n1,"x,""y""",\n,,[1]\n'
    assert data.json_to_csv(ROWS, ["city", "name"]).splitlines()[1] == "Oslo,Ann"


def test_rows_are_queried() -> None:
    assert data.query_rows(ROWS, "age", ">", 10)["rows"] == [ROWS[0]]
    assert data.query_rows(ROWS, "age", "<=", "7")["matched"] == 1
    assert data.query_rows(ROWS, "age", "is_empty")["rows"] == [ROWS[2]]
    assert data.query_rows(ROWS, "city", "!=", "Oslo", select=["name"])["rows"] == [{"name": "Bob"}]
    assert data.query_rows(ROWS, "name", "contains", "B")["matched"] == 1
    assert [row["name"] for row in data.query_rows(ROWS, sort_by="age")["rows"]] == [
        "Bob",
        "Ann",
        "Cyd",
    ]
    assert (
        data.query_rows(ROWS, sort_by="name", descending=True, limit=1)["rows"][0]["name"] == "Cyd"
    )


def test_rows_are_grouped() -> None:
    assert data.group_rows(ROWS, "city") == [
        {"city": "Oslo", "count": 2},
        {"city": "Rome", "count": 1},
    ]
    assert data.group_rows(ROWS, "city", "mean", "age") == [
        {"city": "Oslo", "mean": 31},
        {"city": "Rome", "mean": 7},
    ]
    with pytest.raises(ValueError, match="needs a column"):
        data.group_rows(ROWS, "city", "sum")


def test_json_is_formatted_or_refused_with_its_place() -> None:
    assert data.format_json('{"b":1, "a":[]}', 0, sort_keys=True) == '{"a":[],"b":1}'
    assert data.format_json('{"ä":1}') == '{\n  "ä": 1\n}'
    with pytest.raises(ValueError, match="line 2, column 1"):
        data.format_json("[1,\n]")
    with pytest.raises(ValueError, match="deep"):
        data.format_json("[" * 100_000)


DOCUMENT = json.dumps({"users": [{"name": "Ann", "tags": []}, {"name": "Bob"}], "odd.key": 1})


def test_values_are_picked_by_path() -> None:
    assert data.json_path(DOCUMENT, "users[0].name")["value"] == "Ann"
    assert data.json_path(DOCUMENT, "$.users[-1].name")["value"] == "Bob"
    assert data.json_path(DOCUMENT, "users[*].tags") == {"value": [[]], "found": 1}
    assert data.json_path(DOCUMENT, '["odd.key"]')["value"] == 1
    with pytest.raises(ValueError, match=r"nothing at users\[0\]\.mail; keys there: name, tags"):
        data.json_path(DOCUMENT, "users[0].mail")
    with pytest.raises(ValueError, match="not a path"):
        data.json_path(DOCUMENT, "users[")


def test_json_is_compared() -> None:
    changes = data.diff_json('{"a":1,"b":{"c":[1,2]},"d":0}', '{"b":{"c":[1,3]},"d":false,"e":2}')
    assert changes == [
        {"path": "a", "change": "removed", "before": 1},
        {"path": "b.c[1]", "change": "changed", "before": 2, "after": 3},
        {"path": "d", "change": "changed", "before": 0, "after": False},
        {"path": "e", "change": "added", "after": 2},
    ]
    assert data.diff_json("[1]", "[1]") == []


def test_hashes() -> None:
    assert data.hash_text("abc").startswith("ba7816bf")
    assert data.hash_text("", "md5") == "d41d8cd98f00b204e9800998ecf8427e"


@pytest.mark.parametrize("encoding", ["base64", "base64url", "hex", "url", "html"])
def test_what_is_encoded_decodes(encoding: data.Encoding) -> None:
    for text in ("", "a&b <ü>?", "~~~>>>???"):
        assert data.decode_text(data.encode_text(text, encoding), encoding) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("a", "base64"), ("!!", "base64"), ("xyz", "hex"), ("ff", "hex"), ("%ff", "url")],
)
def test_what_cannot_be_decoded_is_refused(text: str, encoding: data.Encoding) -> None:
    with pytest.raises(ValueError, match="not"):
        data.decode_text(text, encoding)
