"""The benchmark of peers: the servers it replays, where it looks for peers, how it reads their
answers."""

import argparse
import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peering import (
    installation,
    replay,
    running_gateway,
    search_quality,
    slow_neighbours,
    upstreams,
)
from benchmarks.peering.contextforge import ContextForge
from benchmarks.peering.gateways import (
    FastMCP,
    FastMCPCode,
    Gateway,
    MCPProxy,
    OneMCP,
    Portico,
    own_place,
)
from benchmarks.peers import PEERS, present, who
from benchmarks.tool_sets import Question
from mcp_types import CallToolResult, TextContent

from benchmarks import processes
from tests.benchmarks.tiny_set import TOOLS

NOWHERE = installation.Place(Path("nowhere"), "1", "nowhere/bin/python", "node")


def result(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])


def options(peers: Path, **given: Any) -> argparse.Namespace:
    return argparse.Namespace(peers_dir=peers, only=None, smoke=False, install=False, **given)


def distribution(peers: Path, folder: str, name: str, version: str) -> None:
    place = peers / folder / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_a_recorded_server_says_on_pipes_what_it_once_said(tmp_path: Path):
    recording = {**upstreams.echo(), "resources": {"error": "not supported"}}
    (tmp_path / "echo.json").write_text(json.dumps(recording))
    asked = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {
            "id": 3,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": "hello"}},
        },
        {"id": 4, "method": "resources/list"},
        {"id": 5, "method": "server/discover"},
    ]
    lines = "".join(f"{json.dumps(one)}\n" for one in asked)
    command = replay.command("--stdio", str(tmp_path / "echo.json"))
    said = subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=240, check=True
    ).stdout
    hello, tools, called, resources, unknown = map(json.loads, said.splitlines())
    assert hello["result"]["protocolVersion"] == "2025-06-18"
    assert [tool["name"] for tool in tools["result"]["tools"]] == ["echo"]
    assert called["result"]["content"] == [{"type": "text", "text": "hello"}]
    assert resources["result"] == {"resources": []}
    assert unknown["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("mode", "method", "seconds"),
    [
        ("", "tools/list", 0.0),
        ("slow", "tools/list", replay.SLOW_S),
        ("slow", "tools/call", 0.0),
        ("silent", "tools/call", replay.SILENT_S),
        ("silent", "initialize", replay.SILENT_S),
    ],
)
def test_a_server_turns_slow_or_silent_when_a_file_says_so(
    tmp_path: Path, mode: str, method: str, seconds: float
):
    if mode:
        (tmp_path / "one.mode").write_text(mode)
    assert replay.delay(tmp_path / "one.json", {"id": 1, "method": method}) == seconds


def test_the_tools_of_a_set_become_servers_with_names_that_every_gateway_takes():
    tools = [
        *TOOLS,
        {"id": "x", "server": "My Server!", "name": "do", "input_schema": {"properties": {}}},
    ]
    servers = upstreams.tools_as_recordings(tools)
    assert list(servers) == ["post", "sky", "code", "my-server"]
    assert servers["my-server"]["tools"][0]["inputSchema"] == {"type": "object", "properties": {}}


def test_portico_is_measured_over_replayed_servers_through_its_own_endpoint(tmp_path: Path):
    recordings = {**upstreams.tools_as_recordings(TOOLS), upstreams.ECHO: upstreams.echo()}
    gateway = Portico(own_place())

    async def ask() -> tuple[list[str], list[str]]:
        with upstreams.serving(recordings, tmp_path / "fleet") as servers:
            home = tmp_path / "home"
            home.mkdir()
            gateway.write(home, servers)
            async with running_gateway.run_gateway(gateway, home, servers) as taken:
                tool, arguments = gateway.search("report a bug in a repository")
                found = gateway.found(await taken.clients["code"].call_tool(tool, arguments))
                tools, instructions = await taken.listing()
                assert instructions
                assert taken.running.memory > 1
                return found, [tool["name"] for tool in tools]

    found, listed = asyncio.run(ask())
    assert "code.create_issue" in found
    assert {"search_tools", "call_tool"} <= set(listed)


def test_a_gateway_that_ends_is_reported_with_what_it_wrote(tmp_path: Path):
    class Broken(Portico):
        def command(self, folder: Path, port: int) -> list[str]:
            return [replay.command()[0], "-c", "raise SystemExit('no such setting')"]

    async def start() -> None:
        async with running_gateway.run_gateway(Broken(own_place()), tmp_path, []):
            pass

    with pytest.raises(processes.DidNotStart, match="no such setting"):
        asyncio.run(start())


def test_each_gateway_is_asked_in_its_own_way_and_its_answer_is_unwrapped():
    wrapped = json.dumps(
        {"result": {"content": [{"type": "text", "text": "hi"}]}, "server": "echo", "tool": "echo"}
    )
    cases: list[tuple[type[Gateway], str, str]] = [
        (Portico, "call_tool", "hi"),
        (FastMCP, "call_tool", "hi"),
        (FastMCPCode, "execute", json.dumps({"result": "hi"})),
        (ContextForge, "echo-echo", "hi"),
        (OneMCP, "tool_invoke", wrapped),
        (MCPProxy, "echo", "hi"),
    ]
    for kind, tool, answer in cases:
        gateway = kind(NOWHERE)
        assert gateway.call("echo", "echo", {"text": "hi"})[0] == tool
        assert gateway.said(result(answer)) == "hi", kind.name


def test_a_tool_is_known_again_however_a_gateway_spells_its_name():
    assert FastMCP(NOWHERE).found(result('[{"name": "git_commit"}, {"name": "git_push"}]')) == [
        "git_commit",
        "git_push",
    ]
    assert (
        search_quality.normalize_name("git_commit")
        == search_quality.normalize_name("git.commit")
        == search_quality.normalize_name("git commit")
    )


def test_questions_are_sampled_the_same_every_time_and_only_those_with_an_answer():
    questions = [
        Question(number, str(number), (frozenset({"x"}),) if number % 2 else ())
        for number in range(40)
    ]
    some = search_quality.sample(questions, 5)
    assert some == search_quality.sample(questions, 5)
    assert len(some) == 5
    assert all(question.groups for question in some)
    assert len(search_quality.sample(questions, 100)) == 20


def test_a_call_that_comes_late_is_lost_and_no_call_at_all_is_everything_lost():
    assert slow_neighbours.Watched([0.1, 0.2, 1.5, 5.0]).lost == 0.5
    assert slow_neighbours.Watched().lost == 1.0


def test_peers_that_are_not_there_are_named_with_the_reason(tmp_path: Path):
    distribution(tmp_path, "mcp-proxy", "mcp_proxy", installation.MCP_PROXY.version)
    distribution(tmp_path, "contextforge", "mcp_contextforge_gateway", "0.0.1")
    field = present(options(tmp_path))
    assert MCPProxy.name in field.present
    assert (
        field.absent[ContextForge.name]
        == f"0.0.1 is there, {installation.CONTEXTFORGE.version} is pinned"
    )
    assert field.absent[OneMCP.name] == "not installed"
    shown = {row[0] for row in who(field).rows}
    assert shown == {Portico.name, *(kind.name for kind in PEERS)}


def test_fastmcp_of_this_environment_stands_in_where_none_is_installed(tmp_path: Path):
    pytest.importorskip("fastmcp")
    place = installation.find(installation.FASTMCP, tmp_path)
    assert place.version
    assert Path(place.python).exists()
