"""The benchmark of tokens on a fleet of two servers: what it asks, and what it counts."""

import argparse
import asyncio
import gzip
from pathlib import Path

import orjson
import pytest
from benchmarks.table import Report
from benchmarks.tokens import measure


def recording(slug: str, *names: str) -> bytes:
    schema = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    tools = [
        {"name": name, "description": f"Does {name}.", "inputSchema": schema} for name in names
    ]
    return orjson.dumps({"slug": slug, "tools": tools})


@pytest.fixture
def report(tmp_path: Path) -> Report:
    servers, questions = tmp_path / "servers.jsonl.gz", tmp_path / "questions.jsonl"
    servers.write_bytes(
        gzip.compress(recording("git", "commit", "push") + b"\n" + recording("mail", "send_letter"))
    )
    asked = (
        {"query": "send a letter", "groups": [["mail/send_letter", "nobody/has_it"]]},
        {"query": "commit and push", "groups": [["git/commit"], ["git/push"]]},
        {"query": "nothing", "groups": []},
    )
    questions.write_bytes(b"\n".join(map(orjson.dumps, asked)))
    return asyncio.run(
        measure(
            argparse.Namespace(servers=servers, questions=[questions], smoke=True, picture=None)
        )
    )


def test_a_flow_is_counted_for_every_question_with_one_need(report: Report):
    assert report.facts["questions"] == 1
    flow = next(table for table in report.tables if table.title.startswith("A discovery flow"))
    assert (
        flow.note == "The right tool was on the first page 1 times, on the second 0, on neither 0."
    )
    assert [row[0] for row in flow.rows] == [
        "search_tools, brief",
        "… a result of it",
        "describe_tools, schema",
        "call_tool, the request",
        "all three",
    ]


def test_all_servers_and_the_popular_ones_are_counted_through_every_exposure(report: Report):
    listed = [row[1] for row in report.tables[0].rows]
    assert listed[0] == listed[3] == 3
    assert listed[4] == listed[7] == 2
    assert all(
        goal.met for goal in report.goals if goal.name.startswith(("discovery", "largest", "T"))
    )
