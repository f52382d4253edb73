"""The comparison sees what differs and overlooks only what it may; the table covers what it
must."""

from __future__ import annotations

from typing import Any

import pytest

from tests.real_servers import catalogue, run_checks
from tests.real_servers.catalogue import Question, Raw, Server
from tests.real_servers.comparison import (
    BLOT,
    differences,
    inward,
    normalize_answer,
    own_names,
    without_envelope,
)
from tests.real_servers.runs import Run

PLACES = {"sandbox": "/tmp/x", "port": "40001"}
SERVER = Server(
    "s", "modern", "2026-07-28", 1, (Question("tools/call", {"name": "t", "arguments": {}}),)
)


def test_the_table_names_at_least_twelve_servers_of_both_registries_eras_and_all_transports() -> (
    None
):
    servers = catalogue.load().servers.values()
    assert len({server.package for server in servers}) >= 12
    assert {bool(server.npm) for server in servers} == {True, False}
    assert {server.transport for server in servers} == {"stdio", "http", "sse"}
    assert {server.protocol for server in servers} >= {
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
    }
    assert any(server.noisy for server in servers)


def test_every_server_is_pinned_and_asked_for_two_calls_or_more() -> None:
    for server in catalogue.load().servers.values():
        assert server.version, server.name
        assert sum(question.tool is not None for question in server.questions) >= 2, server.name
        assert server.questions[0].tool, f"{server.name}: the first question must be a call"


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"a": 1}, {"a": 1, "b": None}),
        ({"a": 1, "b": None}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ([], {}),
        ("x", "x "),
    ],
)
def test_values_that_are_not_the_same_json_differ(expected: Any, found: Any) -> None:
    assert differences(expected, found)


def test_equal_values_do_not_differ_whatever_the_order_of_their_keys() -> None:
    assert differences({"a": [1, {"b": "x"}], "c": None}, {"c": None, "a": [1, {"b": "x"}]}) == []


def test_only_the_runs_own_folder_and_port_and_what_is_volatile_are_blotted_out() -> None:
    answer = {"/tmp/x/k": "at /tmp/x/files on 40001 at 12:34", "n": 40001}
    assert normalize_answer(answer, PLACES, [r"\d\d:\d\d"]) == {
        "{sandbox}/k": f"at {{sandbox}}/files on {{port}} at {BLOT}",
        "n": 40001,
    }


def test_the_envelope_is_the_eras_and_the_rest_of_meta_the_servers() -> None:
    meta = {"io.modelcontextprotocol/serverInfo": {"name": "s"}, "own": 1}
    modern: Raw = {
        "result": {
            "content": [],
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": meta,
        }
    }
    assert without_envelope(modern) == {"result": {"content": [], "_meta": {"own": 1}}}
    assert without_envelope({"error": {"code": 1}}) == {"error": {"code": 1}}


def test_a_gateways_names_are_taken_off_once() -> None:
    assert own_names([{"name": "s__s__t"}, {"name": "t"}], "s", "name") == [
        {"name": "s__t"},
        {"name": "t"},
    ]
    assert inward({"uri": "portico://backend/s/resource/demo://a"}, "s") == {"uri": "demo://a"}


def test_a_lost_field_in_an_answer_is_reported_with_its_place() -> None:
    direct, through = (
        run({"content": [{"type": "text", "text": "x", "own": 1}]}),
        run({"content": [{"type": "text", "text": "x"}]}),
    )
    assert run_checks.of_full(SERVER, direct, through) == [
        "tools/call t.result.content[0].own: missing"
    ]


def test_a_tool_that_search_misses_and_describe_cuts_is_reported() -> None:
    direct, meta = run({}), run({})
    meta.found["t"] = "No tool matches."
    meta.described["t"] = {"inputSchema": {}}
    missed, cut = run_checks.of_meta(SERVER, direct, meta)
    assert "does not find it" in missed
    assert cut == "describe_tools(t).inputSchema.type: missing"


def run(result: Raw) -> Run:
    tool = {"name": "t", "description": "d", "inputSchema": {"type": "object"}}
    lists: dict[str, dict[str, Raw]] = {kind: {} for kind in run_checks.LIST_KINDS}
    return Run({}, {**lists, "tools": {"t": tool}}, {0: {"result": result}})
