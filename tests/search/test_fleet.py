"""A recorded fleet of real servers: everything is indexed, every tool is found by its address."""

import gzip
import json
import os
from pathlib import Path

import pytest

from portico.search import Index, SearchDocument, compute_fingerprint, extract_schema_text

_SHARED = Path(os.environ.get("PORTICO_SHARED", Path(__file__).resolve().parents[3] / "shared"))
_FLEET = _SHARED / "fleet"

pytestmark = pytest.mark.skipif(
    not (_FLEET / "servers.jsonl.gz").exists(),
    reason=f"no recorded fleet in {_FLEET} (set PORTICO_SHARED)",
)


@pytest.fixture(scope="module")
def fleet() -> list[SearchDocument]:
    found: list[SearchDocument] = []
    with gzip.open(_FLEET / "servers.jsonl.gz", "rt", encoding="utf-8") as servers:
        for server in map(json.loads, servers):
            for tool in server["tools"]:
                text = extract_schema_text(tool.get("inputSchema"))
                found.append(
                    SearchDocument(
                        id=f"{server['slug']}/{tool['name']}",
                        hash=compute_fingerprint(json.dumps(tool)),
                        group=server["slug"],
                        name=tool["name"],
                        server=server["slug"],
                        description=tool.get("description") or "",
                        parameters=text.parameters,
                        parameter_text=text.descriptions,
                        enums=text.enums,
                    )
                )
    return found


@pytest.fixture(scope="module")
def index(fleet: list[SearchDocument]) -> Index:
    return Index.build(fleet)


def test_every_tool_is_indexed_and_its_address_ranks_first(
    fleet: list[SearchDocument], index: Index
):
    assert len(index) == len(fleet) == 4_136
    wrong = [tool.id for tool in fleet[::7] if index.search(tool.id, 1).hits[0].id != tool.id]
    assert wrong == []


def test_a_bare_name_ranks_a_tool_of_that_name_first(fleet: list[SearchDocument], index: Index):
    names = {tool.id: tool.name for tool in fleet}
    wrong = [
        tool.name
        for tool in fleet[::11]
        if names[index.search(tool.name, 1).hits[0].id] != tool.name
    ]
    assert wrong == []


def test_people_s_questions_find_a_right_tool_among_the_first_ten(index: Index):
    with gzip.open(_FLEET / "queries_dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        questions = [question for question in map(json.loads, lines) if question["groups"]]
    hits = 0.0
    for question in questions:
        ids = {hit.id for hit in index.search(question["query"], 10).hits}
        hits += sum(bool(ids & set(group)) for group in question["groups"]) / len(
            question["groups"]
        )
    # A floor well under the measured share: it catches a broken index, not a tuned one.
    assert hits / len(questions) > 0.5


def test_a_server_changes_without_the_rest_being_read_again(
    fleet: list[SearchDocument], index: Index
):
    others = [tool for tool in fleet if tool.group != "redis"]
    without = Index.build(others, index)
    assert "redis" not in without.groups
    again = Index.build(fleet, without)
    for query in ("append to a list", "redis.rpush", "delete a key", "create a branch in gitlab"):
        assert again.search(query) == index.search(query)


def test_a_dump_loads_to_the_same_answers(index: Index):
    loaded = Index.load(index.dump())
    assert loaded.search("list the open issues of a repository") == index.search(
        "list the open issues of a repository"
    )
