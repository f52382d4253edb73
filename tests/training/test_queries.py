"""The training queries: well-formed, ours, and none of them a question we are judged by."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from training.examples import QUERIES, read_lines

FIELDS = {
    "first": {"id", "queries"},
    "requests": {"id", "queries"},
    "servers": {"id", "queries", "other"},
    "languages": {"id", "other"},
    "products": {"id", "text", "queries", "other"},
}
SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[3] / "shared")
JUDGED_BY = sorted(
    [*SHARED.glob("retrieval/*/queries.jsonl.gz"), *SHARED.glob("fleet/queries*.jsonl.gz")]
)


def _get_query(row: dict[str, Any]) -> list[str]:
    return [*row.get("queries", ()), *row.get("other", ())]


def _plain(query: str) -> str:
    return " ".join(query.casefold().split())


def test_every_file_has_a_shape() -> None:
    assert {path.stem for path in QUERIES.iterdir()} == set(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_every_row_names_a_tool_and_asks_for_it(name: str) -> None:
    for row in read_lines(QUERIES / f"{name}.jsonl"):
        assert set(row) == FIELDS[name], row["id"]
        server, _, tool = row["id"].partition("/")
        assert server, row["id"]
        assert tool, row["id"]
        assert row.get("text", "made up elsewhere").strip(), row["id"]
        asked = [_plain(query) for query in _get_query(row)]
        assert asked, row["id"]
        assert all(asked), row["id"]
        assert len(asked) == len(set(asked)), row["id"]


@pytest.mark.parametrize("name", ["languages", "products", "requests", "servers"])
def test_a_tool_has_one_row_in_a_file(name: str) -> None:
    tools = [row["id"] for row in read_lines(QUERIES / f"{name}.jsonl")]
    assert len(tools) == len(set(tools))


@pytest.mark.parametrize("name", FIELDS)
def test_nothing_of_how_they_were_written_is_left(name: str) -> None:
    text = (QUERIES / f"{name}.jsonl").read_text(encoding="utf-8")
    assert [mark for mark in ("<EOF>", "<|", "```", "\ufffd") if mark in text] == []


@pytest.mark.skipif(not JUDGED_BY, reason=f"no evaluation queries in {SHARED} (set PORTICO_SHARED)")
def test_no_query_is_one_that_search_is_judged_by() -> None:
    ours = {
        _plain(query)
        for name in FIELDS
        for row in read_lines(QUERIES / f"{name}.jsonl")
        for query in _get_query(row)
    }
    theirs: set[str] = set()
    for path in JUDGED_BY:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            theirs.update(_plain(json.loads(line)["query"]) for line in lines)
    assert ours & theirs == set()
