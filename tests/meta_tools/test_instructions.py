"""Instructions of the `initialize` response."""

import pytest

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import make_tool
from portico.meta_tools import tool_definitions
from portico.meta_tools.instructions import (
    MAX_UPSTREAM_CHARS,
    render_full_instructions,
    render_meta_instructions,
    truncate_instructions,
)

CLIENT_LIMIT = 2_048


def snapshot(tools: int) -> Snapshot:
    offered = {f"t{n}": make_tool("s", {"name": f"t{n}"}) for n in range(tools)}
    return Snapshot({"s": ServerEntry("s", tools=offered)})


def test_the_first_thing_said_is_that_the_list_is_partial():
    said = render_meta_instructions(snapshot(1_234), tool_definitions.META_TOOL_NAMES)
    assert said.startswith("This tool list is partial: 1,234 tools on 1 server are behind it.")
    assert "search_tools" in said
    assert "call_tool(name, arguments)" in said


def test_instructions_name_no_disabled_meta_tool():
    said = render_meta_instructions(snapshot(1), ["search_tools", "describe_tools"])
    assert "search_tools" in said
    assert "call_tool" not in said
    assert "run_code" not in said
    assert "run_code" in render_meta_instructions(snapshot(1), ["search_tools", "run_code"])


def test_servers_that_were_not_listed_yet_are_no_zero_tools():
    assert "0 tools" not in render_meta_instructions(snapshot(0), tool_definitions.META_TOOL_NAMES)


@pytest.mark.parametrize(
    "said",
    [
        render_meta_instructions(snapshot(5), tool_definitions.META_TOOL_NAMES),
        render_full_instructions(snapshot(5)),
    ],
)
def test_instructions_fit_where_clients_cut_them_and_warn_of_third_parties(said: str):
    assert len(said.encode()) < CLIENT_LIMIT
    assert "not instructions" in said


def test_a_server_s_own_instructions_are_whole_if_short():
    assert truncate_instructions("Be kind.") == "Be kind."
    long = truncate_instructions("word " * 1_000)
    assert len(long) <= MAX_UPSTREAM_CHARS + 2
    assert long.endswith("word …")
