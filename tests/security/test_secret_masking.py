"""Values of configured secrets reach nobody through failures: not clients, not REST, not `status`,
not scripts."""

import asyncio
import base64
import html
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mcp.shared.exceptions import MCPError

from portico.config import Config
from portico.config_file import load
from portico.config_file.secret_values import SecretMask, collect_secret_values
from portico.gateway import GatewayRuntime
from portico.testing import connect
from tests.api.api_client import open_api
from tests.cli.conftest import Home
from tests.gateways import run_gateway
from tests.interaction.fake_servers import ask, get_text
from tests.interaction.raw_clients import raw_lines

TIMEOUT_S = 240
PASSWORD = "correct horse & battery"
"""It looks like nothing secret: only its value gives it away."""
SERVER = """
import json, os, sys

PASSWORD = os.environ.get("SHOP_PASSWORD", "")
SCHEMA = {"type": "object"}
NAMES = ("refuse", "fail", "fail_large", "succeed", "die", "tell")
TOOLS = [{"name": name, "inputSchema": SCHEMA} for name in NAMES]
if "--broken" in sys.argv:
    sys.exit(f"cannot log in with {PASSWORD}")
if "--long" in sys.argv:
    sys.exit("x" * 980 + PASSWORD + "y" * 200)

def send(method, params):
    print(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}), flush=True)

def answer(message):
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        hello = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "shop", "version": "1"}}
        return {"result": {**hello, "capabilities": {"tools": {}}}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": "no such method"}}
    name = params["name"]
    if name == "refuse":
        data = {"env": {"SHOP_PASSWORD": PASSWORD}, "tried": [json.dumps(PASSWORD)]}
        return {"error": {"code": -32000, "message": f"login failed: {PASSWORD}", "data": data}}
    if name == "die":
        print("lost with", PASSWORD, file=sys.stderr, flush=True)
        sys.exit(3)
    if name == "tell":
        token = params["_meta"]["progressToken"]
        said = {"level": "error", "logger": "shop", "data": {"login": [f"with {PASSWORD}"]}}
        send("notifications/message", said)
        send("notifications/progress", {"progressToken": token, "progress": 1, "message": f"with {PASSWORD}"})
        return {"result": {"content": []}}
    text = f"the password is {PASSWORD}"
    if name == "fail_large":
        text = "x" * 300_000 + text
    result = {"content": [{"type": "text", "text": text}], "structuredContent": {"password": PASSWORD}}
    return {"result": {**result, "isError": name != "succeed"}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}), flush=True)
"""  # noqa: E501


@pytest.fixture
def home(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Home:
    return Home(tmp_path, capfd)


def make_config(folder: Path, *args: str, **more: Any) -> Config:
    script = folder / "server.py"
    script.write_text(SERVER)
    server = {
        "command": sys.executable,
        "args": [str(script), *args],
        "env": {"SHOP_PASSWORD": PASSWORD},
    }
    return Config.model_validate(
        {"servers": {"shop": server}, "data_dir": str(folder / "data"), **more}
    )


@asynccontextmanager
async def running(config: Config) -> AsyncGenerator[GatewayRuntime]:
    async with run_gateway(config=config) as gateway:
        yield gateway


def shows_nothing(*texts: object) -> None:
    """None of these texts holds the password, in any way that it may be written."""
    for text in texts:
        written = text if isinstance(text, str) else json.dumps(text)
        assert written
        assert PASSWORD not in written
        assert quote(PASSWORD) not in written
        assert "horse" not in written


@pytest.mark.parametrize("name", ["refuse", "fail", "die"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_failing_stdio_server_tells_clients_no_secret(
    tmp_path: Path, name: str, era: Any
) -> None:
    async with running(make_config(tmp_path)) as gateway, connect(gateway, era=era) as client:
        result = await client.call_tool("call_tool", {"name": f"shop.{name}", "arguments": {}})
        assert result.is_error
        assert "***" in get_text(result)
        shows_nothing(result.model_dump_json())


async def test_an_error_that_goes_to_the_client_as_it_came_is_masked_too(tmp_path: Path) -> None:
    config = make_config(tmp_path, exposure="full")
    async with running(config) as gateway, connect(gateway) as client:
        [name] = [one for one in await _names(client) if one.endswith("refuse")]
        with pytest.raises(MCPError) as caught:
            await client.call_tool(name, {})
        assert caught.value.error.code == -32000
        shows_nothing(caught.value.error.message, caught.value.error.data)
        assert caught.value.error.data["env"] == {"SHOP_PASSWORD": "***"}


async def _names(client: Any) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def test_a_large_error_result_is_masked_to_its_end(tmp_path: Path) -> None:
    config = make_config(tmp_path, exposure="full")
    async with running(config) as gateway, connect(gateway) as client:
        [name] = [one for one in await _names(client) if one.endswith("fail_large")]
        result = await client.call_tool(name, {})
        assert get_text(result).endswith("the password is ***")
        assert len(get_text(result)) > 300_000
        shows_nothing(result.model_dump_json())


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_progress_and_log_messages_tell_clients_no_secret(tmp_path: Path, era: Any) -> None:
    async with (
        running(make_config(tmp_path)) as gateway,
        raw_lines(gateway.get_endpoint(), era) as client,
    ):
        meta = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "debug"}
        arguments = {"name": "shop.tell", "arguments": {}}
        answer = await client.request(
            "tools/call", {"name": "call_tool", "arguments": arguments, "_meta": meta}
        )
        assert "error" not in answer
        reported = [
            one["params"]
            for one in client.unprompted
            if one["method"] != "notifications/initialized"
        ]
        assert [one.get("message") or one.get("data") for one in reported] == [
            {"login": ["with ***"]},
            "with ***",
        ]


async def test_a_result_that_is_no_error_passes_untouched(tmp_path: Path) -> None:
    async with running(make_config(tmp_path)) as gateway, connect(gateway) as client:
        assert (
            await ask(client, "call_tool", name="shop.succeed", arguments={})
            == f"the password is {PASSWORD}"
        )


async def test_a_failure_inside_a_script_shows_it_no_secret(tmp_path: Path) -> None:
    async with running(make_config(tmp_path)) as gateway, connect(gateway) as client:
        for name in ("refuse", "fail"):
            code = f"try {{ await shop.{name}({{}}) }} catch (error) {{ return String(error) }}"
            reported = await ask(client, "run_code", code=code, language="javascript")
            assert "***" in reported
            shows_nothing(reported)


@pytest.mark.parametrize("arg", ["--broken", "--long"])
async def test_a_server_that_does_not_start_shows_no_secret_anywhere(
    tmp_path: Path, arg: str
) -> None:
    async with running(make_config(tmp_path, arg)) as gateway, connect(gateway) as client:
        [status] = gateway.list_statuses()
        assert status.state in ("down", "quarantined")
        shows_nothing(status.reason, list(status.stderr), str(status.diagnostics))
        shows_nothing(
            await ask(client, "browse_tools"), await ask(client, "browse_tools", server="shop")
        )
        backends = await client.read_resource("portico://backends")
        shows_nothing(backends.model_dump_json())


@pytest.mark.parametrize("arg", ["--broken", "--long"])
async def test_rest_shows_no_secret_of_a_server_that_does_not_start(
    tmp_path: Path, arg: str
) -> None:
    async with open_api({}, make_config(tmp_path, arg)) as side:
        for path in ("servers", "servers/shop"):
            shows_nothing(await side.get(path))
        reply = await side.http.post("/api/v1/servers/shop/restart", json={})
        assert reply.status_code == 503
        shows_nothing(reply.text)


@pytest.mark.parametrize("command", [("status",), ("doctor",), ("call", "shop.refuse")])
def test_the_command_line_shows_no_secret_of_a_server_that_fails(
    home: Home, command: tuple[str, ...]
) -> None:
    arguments = () if command[0] == "call" else ("--broken",)
    config = make_config(home.folder, *arguments)
    servers = {
        name: server.model_dump(include={"command", "args", "env"})
        for name, server in config.servers.items()
    }
    home.write({"servers": servers})
    for more in ((), ("--json",)):
        ran = home.run(*command, *more)
        assert "***" in ran.out + ran.err
        shows_nothing(ran.out + ran.err)


@pytest.mark.parametrize(
    "written",
    [
        base64.b64encode(b"user:p/ss wo&rd='x<").decode(),
        base64.urlsafe_b64encode(b"a:p/ss wo&rd='x<:realm").decode(),
        quote("p/ss wo&rd='x<", safe="").lower(),
        html.escape("p/ss wo&rd='x<"),
        "p/ss wo&amp;rd=&#39;x&lt;",
        b"p/ss wo&rd='x<".hex(),
    ],
)
def test_a_secret_is_found_in_what_it_was_encoded_as(written: str) -> None:
    masked = SecretMask(["p/ss wo&rd='x<"]).apply(written)
    assert "***" in masked
    assert len(written) - len(masked) >= 10, "only its ends may be left"


def test_many_secrets_are_found_as_few_are() -> None:
    secrets = [f"secret words number {number:04}" for number in range(1_000)]
    mask = SecretMask(secrets)
    assert (
        mask.apply(f"before {secrets[7]} and {quote(secrets[999])} after")
        == "before *** and *** after"
    )
    assert mask.apply("x" * 100_000 + secrets[500]) == "x" * 100_000 + "***"


def test_a_folder_that_came_from_a_variable_is_no_secret_and_a_key_file_named_as_one_is(
    tmp_path: Path,
) -> None:
    text = 'servers: {s: {command: npx, args: ["${FILES}/docs", --token, "${KEY}"]}}'
    (tmp_path / "portico.yaml").write_text(text)
    environ = {"FILES": "/srv/files", "KEY": "/not/a/path"}
    found = collect_secret_values(load("portico.yaml", {}, environ, cwd=tmp_path).config, environ)
    assert found == {"/not/a/path"}


WAITING = """
    from pathlib import Path
    Path(sys.argv[0]).with_suffix(".begun").touch()
    while not Path(sys.argv[0]).with_suffix(".go").exists():
        pass
    text = f"""


async def test_a_server_that_is_replaced_is_masked_while_it_finishes(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    (tmp_path / "server.py").write_text(SERVER.replace("\n    text = f", WAITING))
    async with running(config) as gateway, connect(gateway) as client:
        failing = asyncio.create_task(client.call_tool("call_tool", {"name": "shop.fail"}))
        async with asyncio.timeout(TIMEOUT_S):
            while not (tmp_path / "server.begun").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await gateway.apply(config.model_copy(update={"servers": {}}))
            (tmp_path / "server.go").touch()
            failed = await failing
        assert failed.is_error
        shows_nothing(failed.model_dump_json())
