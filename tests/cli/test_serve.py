"""`serve` says where it listens, refuses what is unsafe, and stops cleanly."""

import re
import signal
import socket
import sys
from typing import Any

import httpx2
import psutil
import pytest
from mcp import Client

from .conftest import EVERYTHING, PATIENCE_S, Home, Start

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def _announced(process: Any) -> tuple[str, str]:
    """The default URL and everything that was announced, once it listens."""
    said = ""
    while "Ctrl+C" not in said:
        line = process.stdout.readline().decode()
        assert line, f"it ended: {process.stderr.read().decode()}"
        said += line
    found = re.search(r"http://\S+", said)
    assert found is not None
    return found[0], said


async def test_without_a_configuration_it_serves_the_demo_and_says_so(
    home: Home, start: Start
) -> None:
    process = start("serve", "--port", "0")
    url, said = _announced(process)
    assert f"claude mcp add --transport http portico {url}\n" in said
    assert process.stderr is not None
    heard = process.stderr.readline().decode()
    while "tools on 8 servers." not in heard:
        heard += process.stderr.readline().decode()
    assert "embedded demo servers" in heard
    async with Client(url) as client:
        result = await client.call_tool("search_tools", {"query": "roll dice"})
    assert "random.roll_dice" in result.content[0].text  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def test_every_profile_has_its_url(home: Home, start: Start) -> None:
    home.write(
        {
            "servers": {
                name: {"functions": f"portico.demo.{name}:TOOLS"} for name in ("text", "colors")
            },
            "profiles": {"paint": {"servers": ["colors"], "exposure": "full"}, "other": {}},
        }
    )
    assert home.spawn("browse").code == 0
    url, said = _announced(start("serve", "--port", "0"))
    assert f"{url}/p/paint  profile paint, exposure full" in said
    assert f"{url}/p/other" in said
    async with Client(f"{url}/p/paint") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert names[0].startswith("colors__")
    _, said = _announced(start("serve", "--port", "0", "--profile", "paint"))
    assert "/p/other" not in said


async def test_a_token_is_asked_for_and_never_shown(home: Home, start: Start) -> None:
    process = start(
        "serve", "--host", "0.0.0.0", "--port", "0", "--token", "open-sesame-42-and-more"
    )
    url, said = _announced(process)
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with httpx2.AsyncClient() as client:
        assert (await client.post(url, json=message)).status_code == 401
        allowed = await client.post(
            url, json=message, headers={"Authorization": "Bearer open-sesame-42-and-more"}
        )
        assert allowed.status_code != 401
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert '"headers": {"Authorization": "Bearer ${PORTICO_TOKEN}"}' in said
    assert "open-sesame-42-and-more" not in said + err.decode()
    assert "allowed_hosts" in err.decode()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_listening_beyond_this_machine_without_a_token_is_refused(home: Home, host: str) -> None:
    ran = home.run("serve", "--host", host, "--port", "0")
    assert (ran.code, ran.out) == (2, "")
    assert "PORTICO_TOKEN" in ran.err


def test_a_port_in_use_is_named(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = home.run("serve", "--port", port)
    assert ran.code == 1
    assert f"port {port} on 127.0.0.1 is already in use" in ran.err
    assert "--port" in ran.err


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly_with_everything_behind_it(
    home: Home, start: Start, number: signal.Signals
) -> None:
    home.write({"servers": {"all": EVERYTHING}})
    assert home.spawn("browse").code == 0  # so that its tools are known
    process = start("serve", "--port", "0")
    url, _ = _announced(process)
    async with Client(url, mode="legacy") as client:
        result = await client.call_tool("call_tool", {"name": "all.whoami", "arguments": {}})
        assert not result.is_error
        children = psutil.Process(process.pid).children(recursive=True)
        assert any("tests.fixtures.everything" in " ".join(child.cmdline()) for child in children)
        process.send_signal(number)  # while the client is still connected
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err.decode()
    assert "Traceback" not in err.decode()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []


@posix
def test_a_signal_while_servers_start_ends_it_cleanly(home: Home, start: Start) -> None:
    home.write(
        {
            "servers": {
                "slow": {"command": sys.executable, "args": ["-c", "import time; time.sleep(60)"]}
            }
        }
    )
    process = start("serve", "--port", "0")
    _announced(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err.decode()
    assert "Traceback" not in err.decode()


def test_a_port_that_cannot_be_is_refused_in_plain_words(home: Home) -> None:
    ran = home.run("serve", "--port", "70000")
    assert (ran.code, ran.out) == (2, "")
    assert "gateway.port: expected at most 65535, found 70000" in ran.err
