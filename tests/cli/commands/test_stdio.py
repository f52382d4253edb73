"""`stdio` speaks MCP on stdin and stdout and nothing else, and ends when its client or a signal
says so."""

import json
import signal
import sys
from typing import Any

import psutil
import pytest
from mcp import Client, StdioServerParameters

from portico.meta_tools import tool_definitions
from tests.cli.conftest import EVERYTHING, TIMEOUT_S, Home, Start, command

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def _parameters(home: Home, *words: str) -> StdioServerParameters:
    program, *rest = command()
    return StdioServerParameters(
        command=program, args=[*rest, "stdio", *words], env=home.environment, cwd=home.folder
    )


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_searches_and_calls(home: Home, mode: Any) -> None:
    assert home.spawn("browse").code == 0  # so that what the servers offer is known
    async with Client(_parameters(home), mode=mode) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed == list(tool_definitions.META_TOOL_NAMES)
        result = await client.call_tool(
            "call_tool", {"name": "units.list_units", "arguments": {"quantity": "speed"}}
        )
        assert result.structured_content == {"speed": ["m/s", "km/h", "mph", "kn"]}


async def test_flags_choose_exposure_and_profile(home: Home) -> None:
    home.write(
        {
            "servers": {
                name: {"functions": f"portico.demo.{name}:TOOLS"} for name in ("text", "units")
            },
            "profiles": {"measures": {"servers": ["units"], "exposure": "meta"}},
        }
    )
    assert home.spawn("browse").code == 0  # so that what the servers offer is known
    async with Client(_parameters(home, "--exposure", "full", "--profile=measures")) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
    assert names == {
        f"units__{name}" for name in ("convert_units", "list_units", "compare_measures")
    }


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}


def _say(process: Any, *messages: dict[str, Any]) -> None:
    process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    process.stdin.flush()


def _call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    call = {"name": "call_tool", "arguments": {"name": name, "arguments": arguments}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}


def _begin(process: Any) -> None:
    _say(process, INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert json.loads(process.stdout.readline())["id"] == 1


def test_stdout_carries_protocol_only_even_when_a_tool_prints(home: Home, start: Start) -> None:
    (home.folder / "noisy.py").write_text(
        "def shout() -> str:\n    'Shout.'\n    print('NOISE')\n    return 'done'\n"
    )
    home.write({"servers": {"noisy": {"functions": "noisy"}}, "log_level": "debug"})
    path = {"PYTHONPATH": str(home.folder)}
    assert home.spawn("browse", env=path).code == 0
    process = start("stdio", env=path)
    _begin(process)
    _say(process, _call(2, "noisy.shout", {}))
    assert process.stdin is not None
    assert process.stdout is not None
    answers = [json.loads(process.stdout.readline())]
    while answers[-1].get("id") != 2:
        answers.append(json.loads(process.stdout.readline()))
    process.stdin.close()
    answers += [json.loads(line) for line in process.stdout.read().splitlines()]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    assert "done" in str(answers)
    assert process.wait(TIMEOUT_S) == 0


def _with_a_child(home: Home, process: Any) -> list[psutil.Process]:
    """The processes behind a gateway that has just called a server of its own."""
    _begin(process)
    _say(process, _call(2, "all.whoami", {}))
    while (answer := json.loads(process.stdout.readline())).get("id") != 2:
        pass
    assert not answer["result"].get("isError"), answer
    children = psutil.Process(process.pid).children(recursive=True)
    assert any("tests.fixtures.everything" in " ".join(child.cmdline()) for child in children)
    return children


def _assert_all_gone(children: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(children, timeout=240)
    assert alive == []


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_with_everything_behind_it(
    home: Home, start: Start, number: signal.Signals
) -> None:
    home.write({"servers": {"all": EVERYTHING}})
    assert home.run("status").code == 0  # so that its tools are known
    process = start("stdio")
    children = _with_a_child(home, process)
    process.send_signal(number)
    assert process.wait(TIMEOUT_S) == 0
    _assert_all_gone(children)


def test_the_end_of_stdin_ends_it_cleanly_with_everything_behind_it(
    home: Home, start: Start
) -> None:
    home.write({"servers": {"all": EVERYTHING}})
    assert home.run("status").code == 0  # so that its tools are known
    process = start("stdio")
    children = _with_a_child(home, process)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(TIMEOUT_S) == 0
    _assert_all_gone(children)


def test_a_client_that_vanishes_ends_it_without_a_traceback(home: Home, start: Start) -> None:
    process = start("stdio")
    _begin(process)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    _say(
        process,
        *({"jsonrpc": "2.0", "id": number, "method": "tools/list"} for number in range(3, 6)),
    )
    process.stdin.close()
    said = process.stderr.read().decode()
    assert process.wait(TIMEOUT_S) == 0
    assert "Traceback" not in said


@posix
def test_a_signal_during_the_start_ends_it_with_code_0(home: Home, start: Start) -> None:
    home.write(
        {
            "servers": {
                "slow": {"command": sys.executable, "args": ["-c", "import time; time.sleep(60)"]}
            }
        }
    )
    process = start("stdio")
    _begin(process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 0
    _assert_all_gone(children)
