"""Commands through the whole gateway: found, described, called, scripted, limited, exchanged while
it
runs."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mcp.client import Client

from portico.config import BackendConfig, Config
from portico.gateway import GatewayRuntime
from portico.storage.manifests import ManifestStore
from portico.testing import connect, gateway_over

TEST_TIMEOUT_S = 240.0
ECHO_ARGUMENTS = [sys.executable, "-I", "-S", str(Path(__file__).with_name("echo_arguments.py"))]

COMMANDS: dict[str, Any] = {
    "log": {
        "command": [*ECHO_ARGUMENTS, "log", "--max-count={count}", "--", "{path}"],
        "description": "Commits of the repository, newest first.",
        "arguments": {
            "count": {"type": "integer", "default": 10, "minimum": 1, "description": "How many."},
            "path": {"description": "Only those that touch this file."},
        },
        "output": "json",
        "read_only": True,
    },
    "lost": {
        "command": "no-such-program-here {x}",
        "description": "A program that is not installed.",
    },
}


def server(commands: dict[str, Any] = COMMANDS, **more: Any) -> BackendConfig:
    return BackendConfig(commands=commands, **more)


def config() -> Config:
    return Config(servers={"repo": server()})


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    return await asyncio.wait_for(client.call_tool(tool, arguments), TEST_TIMEOUT_S)


def said(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


async def test_a_command_is_found_described_and_called():
    async with gateway_over(config=config()) as gateway, connect(gateway) as client:
        found = await ask(client, "search_tools", query="newest commits")
        assert "repo.log(" in said(found)
        described = said(await ask(client, "describe_tools", names=["repo.log"], detail="schema"))
        assert "count" in described
        assert "How many." in described
        assert "10" in described
        result = await ask(
            client, "call_tool", name="repo.log", arguments={"path": "a; b", "count": 2}
        )
        assert result.structured_content["words"] == ["log", "--max-count=2", "--", "a; b"]


async def test_arguments_that_do_not_fit_get_the_gateway_s_own_advice():
    async with gateway_over(config=config()) as gateway, connect(gateway) as client:
        wrong = await ask(client, "call_tool", name="repo.log", arguments={"count": 0})
        assert wrong.is_error
        assert "count" in said(wrong)
        option = await ask(client, "call_tool", name="repo.lost", arguments={"x": "-rf"})
        assert option.is_error
        assert "begins with `-`" in said(option)


async def test_a_missing_program_costs_its_own_tool_alone():
    async with gateway_over(config=config()) as gateway, connect(gateway) as client:
        for _ in range(3):
            lost = await ask(client, "call_tool", name="repo.lost", arguments={"x": "y"})
            assert lost.is_error
            assert "no-such-program-here" in said(lost)
            assert "It may have run" not in said(lost)
        assert gateway.upstreams["repo"].state == "ready"
        fine = await ask(client, "call_tool", name="repo.log", arguments={})
        assert fine.structured_content["words"] == ["log", "--max-count=10", "--"]


async def test_a_script_calls_commands_like_any_tool():
    code = "found = await repo.log(count=3, path='x y')\nreturn found['words']"
    async with gateway_over(config=config()) as gateway, connect(gateway) as client:
        result = await ask(client, "run_code", code=code)
    assert not result.is_error, said(result)
    assert "--max-count=3" in said(result)
    assert "x y" in said(result)


async def test_no_more_of_them_run_at_once_than_the_server_s_limit(tmp_path: Path):
    # Each leaves a file while it runs and says how many there were.
    code = (
        "import os, sys, time\n"
        "open(sys.argv[1], 'w').close(); time.sleep(0.05)\n"
        "print(len(os.listdir('.'))); os.remove(sys.argv[1])"
    )
    one = [sys.executable, "-I", "-S", "-c", code, "{name}"]
    limited = server({"one": one}, cwd=str(tmp_path), limits={"concurrency": 2})
    async with (
        gateway_over(config=Config(servers={"s": limited})) as gateway,
        connect(gateway) as client,
    ):
        calls = [
            ask(client, "call_tool", name="s.one", arguments={"name": f"n{number}"})
            for number in range(8)
        ]
        seen = [int(said(result)) for result in await asyncio.gather(*calls)]
    assert max(seen) <= 2


async def test_a_changed_command_is_taken_up_and_its_neighbours_stay():
    other = server({"say": [*ECHO_ARGUMENTS, "other"]})
    before = Config(servers={"repo": server(), "other": other})
    async with (
        GatewayRuntime(before, manifests=ManifestStore(None)) as gateway,
        connect(gateway) as client,
    ):
        await asyncio.wait_for(gateway.wait_until_listed(), TEST_TIMEOUT_S)
        neighbour = gateway.upstreams["other"]
        changed = {
            **COMMANDS,
            "log": {**COMMANDS["log"], "command": [*ECHO_ARGUMENTS, "now {count}", "{path}"]},
        }
        after = before.model_copy(update={"servers": {"repo": server(changed), "other": other}})
        change = await asyncio.wait_for(gateway.apply(after), TEST_TIMEOUT_S)
        assert change.restarted == ("repo",)
        assert gateway.upstreams["other"] is neighbour
        result = await ask(client, "call_tool", name="repo.log", arguments={})
        assert result.structured_content["words"] == ["now 10"]


async def test_annotations_reach_the_client_in_the_full_exposure():
    full = config().model_copy(update={"exposure": "full"})
    async with gateway_over(config=full) as gateway, connect(gateway) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    log = next(tool for name, tool in listed.items() if name.endswith("log"))
    assert log.annotations is not None
    assert log.annotations.read_only_hint is True
    assert json.loads(json.dumps(log.input_schema))["additionalProperties"] is False
