"""`serve` says where it listens, refuses what is unsafe, and stops cleanly."""

import asyncio
import json
import re
import signal
import socket
import sys
from typing import Any

import httpx2
import psutil
import pytest
from mcp import Client

from tests.auth.fake_issuer import run_issuer
from tests.cli.conftest import EVERYTHING, TIMEOUT_S, Home, Start

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
    output = process.stderr.readline().decode()
    while "tools on 4 servers." not in output:
        output += process.stderr.readline().decode()
    assert "embedded demo servers" in output
    async with Client(url) as client:
        result = await client.call_tool("search_tools", {"query": "delete a note"})
    assert "notes.delete_note" in result.content[0].text  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def test_every_profile_has_its_url(home: Home, start: Start) -> None:
    home.write(
        {
            "servers": {
                name: {"functions": f"portico.demo.{name}:TOOLS"} for name in ("text", "units")
            },
            "profiles": {"measures": {"servers": ["units"], "exposure": "full"}, "other": {}},
        }
    )
    assert home.spawn("browse").code == 0
    url, said = _announced(start("serve", "--port", "0"))
    assert f"{url}/p/measures  profile measures, exposure full" in said
    assert f"{url}/p/other" in said
    async with Client(f"{url}/p/measures") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert names[0].startswith("units__")
    _, said = _announced(start("serve", "--port", "0", "--profile", "measures"))
    assert "/p/other" not in said


async def test_a_token_is_asked_for_and_never_shown(home: Home, start: Start) -> None:
    process = start(
        "serve", "--host", "0.0.0.0", "--port", "0", "--token", "open-sesame-42-and-more"
    )
    url, said = _announced(process)
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with httpx2.AsyncClient(timeout=240) as client:
        assert (await client.post(url, json=message)).status_code == 401
        allowed = await client.post(
            url, json=message, headers={"Authorization": "Bearer open-sesame-42-and-more"}
        )
        assert allowed.status_code != 401
    process.terminate()
    _, err = process.communicate(timeout=TIMEOUT_S)
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
    assert home.spawn("status").code == 0  # so that its tools are known
    process = start("serve", "--port", "0")
    url, _ = _announced(process)
    async with Client(url, mode="legacy") as client:
        result = await client.call_tool("call_tool", {"name": "all.whoami", "arguments": {}})
        assert not result.is_error
        children = psutil.Process(process.pid).children(recursive=True)
        assert any("tests.fixtures.everything" in " ".join(child.cmdline()) for child in children)
        process.send_signal(number)  # while the client is still connected
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err.decode()
    assert "Traceback" not in err.decode()
    _, alive = psutil.wait_procs(children, timeout=240)
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
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err.decode()
    assert "Traceback" not in err.decode()


@posix
def test_clients_that_listen_are_told_when_it_stops(home: Home, start: Start) -> None:
    process = start("serve", "--port", "0")
    url, _ = _announced(process)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "listener", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    request = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "subscriptions/listen",
    }
    with (
        httpx2.Client(timeout=TIMEOUT_S) as client,
        client.stream("POST", url, json=request, headers=headers) as answer,
    ):
        lines = answer.iter_lines()
        while "acknowledged" not in next(lines):  # from here on it listens
            pass
        process.send_signal(signal.SIGTERM)
        rest = "\n".join(lines)
    assert "as the gateway stops" in rest, "its stream was not cut off"
    assert process.wait(TIMEOUT_S) == 0


def test_a_port_that_cannot_be_is_refused_in_plain_words(home: Home) -> None:
    ran = home.run("serve", "--port", "70000")
    assert (ran.code, ran.out) == (2, "")
    assert "gateway.port: expected at most 65535, found 70000" in ran.err


async def test_with_an_identity_provider_it_lets_people_in_at_its_public_address(
    home: Home, start: Start
) -> None:
    async with run_issuer() as issuer:
        home.write(
            {
                "gateway": {"host": "0.0.0.0", "public_url": "https://portico.example"},
                "auth": {"issuer": issuer.url},
                "servers": {"units": {"functions": "portico.demo.units:TOOLS"}},
            }
        )
        process = start("serve", "--port", "0")
        address, said = await asyncio.to_thread(_announced, process)
        assert "PORTICO_TOKEN" not in said, "clients get their own tokens"
        url = f"http://127.0.0.1:{address.partition('://')[2].partition(':')[2]}"
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        host = {"host": "portico.example", "accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
            reply = await http.post(url, json=ping, headers=host)
            assert reply.status_code == 401
            assert "https://portico.example/.well-known/" in reply.headers["www-authenticate"]
            token = {"authorization": f"Bearer {issuer.sign()}"}
            reply = await http.post(url, json=ping, headers={**host, **token})
            assert reply.status_code == 400, "no session: but it came in"
            page = {"origin": "https://portico.example", **host, **token}
            assert (await http.post(url, json=ping, headers=page)).status_code == 400
            page["origin"] = "https://evil.example"
            assert (await http.post(url, json=ping, headers=page)).status_code == 403
            foreign = {**host, **token, "host": "evil.example"}
            assert (await http.post(url, json=ping, headers=foreign)).status_code == 421


async def test_a_call_that_waits_links_to_the_console_and_its_audit_line_goes_to_stdout(
    home: Home, start: Start
) -> None:
    home.write(
        {
            "servers": {"units": {"functions": "portico.demo.units:TOOLS"}},
            "rules": [{"may": "ask"}],
            "approvals": {"wait_s": 0},
            "audit": {"ship": "stdout"},
        }
    )
    process = start("serve", "--port", "0")
    url, _ = _announced(process)
    async with Client(url) as client:
        call = {"name": "units.list_units", "arguments": {}}
        refused = await client.call_tool("call_tool", call)
    assert refused.meta is not None
    error = refused.meta["portico/error"]
    page = f"{url.removesuffix('/mcp')}/console/approvals"
    assert error["kind"] == "approval_required"
    assert error["url"] == page
    assert page in refused.content[0].text  # pyright: ignore
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith(b"{"):
        assert line, "it has ended"
    written = json.loads(line)
    assert (written["outcome"], written["approval"]) == ("approval_required", error["approval"])
