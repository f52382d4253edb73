"""Which sets a run is about, and our own questions among them."""

import json
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.chosen_sets import OWN, OWN_FLEET, sources
from benchmarks.processes import REPOSITORY
from benchmarks.retrieval import means
from benchmarks.tool_sets import Source, read_questions, read_tools
from training.examples import QUERIES, read_lines

from tests.benchmarks.tiny_set import QUESTIONS, write_lines, write_set

FLEET_QUESTIONS = REPOSITORY / "benchmarks" / "questions" / "fleet.jsonl"
STYLES = {"capability", "keyword", "lang", "multi", "negative", "product", "task", "typo", "vague"}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared folder with one given set and a fleet."""
    write_set(tmp_path / "retrieval" / "one")
    write_lines(tmp_path / "fleet" / "servers.jsonl.gz", [])
    write_lines(tmp_path / "fleet" / "queries_dev.jsonl.gz", QUESTIONS)
    monkeypatch.setenv("PORTICO_SHARED", str(tmp_path))
    return tmp_path


def test_our_own_questions_are_a_set_beside_the_given_ones(shared: Path):
    found = {source.name: source for source in sources(None)}
    assert list(found) == ["one", "fleet_dev", OWN_FLEET]
    assert (found[OWN_FLEET].queries, found[OWN_FLEET].tools.parent) == (
        FLEET_QUESTIONS,
        shared / "fleet",
    )


def test_without_the_fleet_s_servers_there_are_no_questions_of_our_own(shared: Path):
    (shared / "fleet" / "servers.jsonl.gz").unlink()
    assert [source.name for source in sources(None)] == ["one"]


def test_folders_that_were_named_are_all_there_is(shared: Path):
    assert [source.name for source in sources([shared / "fleet"])] == ["fleet_dev"]


def test_our_own_questions_count_in_no_mean():
    families = {"a": "retrieval", "b": "retrieval", "fleet_dev": "fleet", OWN_FLEET: OWN}
    assert list(means([*families], families)) == [
        ("mean of retrieval (2)", ["a", "b"]),
        ("mean of all (3)", ["a", "b", "fleet_dev"]),
    ]
    assert list(means(["fleet_dev", OWN_FLEET], families)) == []


def test_our_questions_have_an_id_a_style_and_an_answer_unless_they_are_negatives():
    questions = read_questions(FLEET_QUESTIONS)
    assert {question.style for question in questions} == STYLES
    assert (
        len({question.id for question in questions})
        == len({question.text for question in questions})
        == 280
    )
    assert Counter(not question.groups for question in questions)[True] == 70
    for question in questions:
        assert bool(question.groups) == (question.style != "negative"), question.id
        assert all(question.groups), question.id


def test_no_question_of_ours_was_trained_on():
    def plain(text: str) -> str:
        return " ".join(text.casefold().split())

    rows = (row for path in QUERIES.glob("*.jsonl") for row in read_lines(path))
    trained = {
        plain(query) for row in rows for query in (*row.get("queries", ()), *row.get("other", ()))
    }
    assert [
        question.id
        for question in read_questions(FLEET_QUESTIONS)
        if plain(question.text) in trained
    ] == []


def test_every_answer_to_our_questions_is_a_tool_of_the_fleet():
    servers = [source.tools for source in _parse_options() if source.name == OWN_FLEET]
    if not servers:
        pytest.skip("no recorded fleet: set PORTICO_SHARED")
    known = {tool["id"] for tool in read_tools(servers[0])}
    asked = {
        id_
        for question in read_questions(FLEET_QUESTIONS)
        for group in question.groups
        for id_ in group
    }
    assert asked - known == set()


def test_every_line_is_written_as_one_would_by_hand():
    for line in FLEET_QUESTIONS.read_text("utf-8").splitlines():
        assert list(json.loads(line)) == ["id", "query", "style", "groups"]


def _parse_options() -> list[Source]:
    try:
        return sources(None)
    except SystemExit:
        return []
