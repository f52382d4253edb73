"""Sets of tools and questions: how they are found in folders, and what is made of their lines."""

from pathlib import Path

import pytest
from benchmarks.tool_sets import (
    Source,
    UnreadableSet,
    discover,
    document,
    read_questions,
    read_set,
    read_tools,
    reduce_set,
)

from tests.benchmarks.tiny_set import QUESTIONS, TOOLS, write_lines, write_set


def names(*folders: Path) -> list[str]:
    return [source.name for source in discover(folders)[0]]


def test_sets_are_found_however_deep_and_in_the_order_of_their_paths(tmp_path: Path):
    for name in ("zebra", "apple", "deep/er/middle"):
        write_set(tmp_path / name)
    assert names(tmp_path) == ["apple", "middle", "zebra"]


def test_a_folder_that_is_itself_a_set_is_found(tmp_path: Path):
    write_set(tmp_path / "alone")
    assert names(tmp_path / "alone") == ["alone"]


def test_a_set_without_tools_shares_those_of_the_folder_its_name_begins_with(tmp_path: Path):
    write_lines(tmp_path / "live" / "tools.jsonl", TOOLS[:1])
    write_lines(tmp_path / "live_mcp" / "tools.jsonl.gz", TOOLS)
    write_lines(tmp_path / "live_mcp_agent" / "queries.jsonl.gz", QUESTIONS)
    (source,), orphans = discover([tmp_path])
    assert (source.name, source.tools.parent.name, orphans) == ("live_mcp_agent", "live_mcp", [])


def test_queries_that_no_tools_belong_to_are_named(tmp_path: Path):
    lonely = write_lines(tmp_path / "livemcp_agent" / "queries.jsonl", QUESTIONS)
    write_lines(
        tmp_path / "live" / "tools.jsonl", TOOLS
    )  # begins the same, but not at the end of a word
    assert discover([tmp_path]) == ([], [lonely.resolve()])


def test_a_part_of_the_queries_is_a_set_of_its_own(tmp_path: Path):
    write_lines(tmp_path / "fleet" / "servers.jsonl.gz", [])
    write_lines(tmp_path / "fleet" / "queries_dev.jsonl.gz", QUESTIONS)
    write_lines(tmp_path / "fleet" / "queries_test.jsonl", QUESTIONS)
    assert names(tmp_path / "fleet") == ["fleet_dev", "fleet_test"]


def test_two_sets_of_one_name_are_distinguished(tmp_path: Path):
    for folder in ("here", "there"):
        write_set(tmp_path / folder / "same")
    found, _ = discover([tmp_path / "here", tmp_path / "there"])
    assert [(source.name, source.family) for source in found] == [
        ("same", "here"),
        ("same-2", "there"),
    ]


def test_a_file_that_lies_there_plain_and_gzipped_is_one_set(tmp_path: Path):
    write_set(tmp_path / "twice")
    write_lines(tmp_path / "twice" / "queries.jsonl", QUESTIONS)
    assert names(tmp_path) == ["twice"]


def test_gzipped_lines_are_read_whatever_the_file_is_called(tmp_path: Path):
    gzipped = write_lines(tmp_path / "tools.jsonl.gz", TOOLS)
    renamed = gzipped.rename(tmp_path / "tools")
    assert read_tools(renamed) == TOOLS


def test_a_question_without_style_id_or_answer_is_a_question(tmp_path: Path):
    path = write_lines(tmp_path / "queries.jsonl", [{"query": "anything", "groups": []}])
    (question,) = read_questions(path)
    assert (question.id, question.text, question.groups, question.style) == (1, "anything", (), "")


def test_recorded_servers_become_tools_that_know_how_their_server_introduces_itself(tmp_path: Path):
    server = {
        "slug": "sky",
        "initialize": {"serverInfo": {"title": "Sky"}, "instructions": "Ask about weather."},
        "tools": [
            {
                "name": "now",
                "annotations": {"title": "Now"},
                "inputSchema": {"properties": {"city": {}}},
            }
        ],
    }
    (tool,) = read_tools(write_lines(tmp_path / "servers.jsonl.gz", [server]))
    found = document(tool)
    assert (found.id, found.group, found.title, found.description) == ("sky/now", "sky", "Now", "")
    assert (found.server_text, found.parameters) == ("Sky Ask about weather.", ("city",))


def test_a_tool_that_says_only_its_name_is_a_document():
    found = document({"id": "bare", "name": "bare", "description": None})
    assert (found.id, found.group, found.description, found.server_text) == ("bare", "", "", "")


@pytest.mark.parametrize("line", [{"query": "no groups"}, {"groups": []}, ["a list"]])
def test_lines_that_are_no_questions_are_refused_by_file(tmp_path: Path, line: dict[str, object]):
    path = write_lines(tmp_path / "queries.jsonl", [line])
    with pytest.raises(UnreadableSet, match=r"queries\.jsonl: not a list of queries .* Expected"):
        read_questions(path)


def test_lines_that_are_no_json_are_refused_by_line(tmp_path: Path):
    path = tmp_path / "tools.jsonl"
    path.write_text('{"id": "a", "name": "a"}\n{"id":\n')
    with pytest.raises(UnreadableSet, match=r"tools\.jsonl:2: not JSON"):
        read_tools(path)


def test_a_reduced_set_keeps_every_tool_that_its_questions_need(tmp_path: Path):
    spare = [
        {"id": f"spare/{number}", "server": "spare", "name": f"spare{number}"}
        for number in range(100)
    ]
    tools = write_lines(tmp_path / "tools.jsonl", [*spare, *TOOLS])
    queries = write_lines(tmp_path / "queries.jsonl", QUESTIONS)
    small = reduce_set(read_set(Source("tiny", tools, queries)), questions=2, size=10)
    ids = {tool["id"] for tool in small.tools}
    assert [question.id for question in small.questions] == ["q1", "q3"]
    assert {"post/send", "code/issue"} <= ids
    assert 5 < len(ids) <= 10
