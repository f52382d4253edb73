"""Servers get the secrets that their configuration refers to when they are started, or refuse."""

import json
import sys
from pathlib import Path

import yaml
from starlette.requests import Request
from starlette.responses import Response

from portico.config_file import load
from portico.upstream.backend import Raw
from tests.gateways import open_gateway, run_gateway
from tests.upstream.loopback_server import serve
from tests.upstream.raw_server import RawServer, answer

STDIO_SERVER = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "show", "inputSchema": {"type": "object"}}]}
    else:
        text = os.environ["KEY"][::-1] + " " + sys.argv[1][::-1]
        result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def write_config(folder: Path, servers: Raw) -> Path:
    path = folder / "portico.yaml"
    path.write_text(yaml.safe_dump({"servers": servers}))
    return path


async def test_a_program_gets_its_secrets_when_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(STDIO_SERVER)
    (tmp_path / "key").write_text("from a file\n")
    server = {
        "command": sys.executable,
        "args": [str(tmp_path / "server.py"), f'${{cmd:{sys.executable} -c "print(42)"}}'],
        "env": {"KEY": "${file:key}"},
    }
    config = load(write_config(tmp_path, {"s": server}), {}, {}, cwd=tmp_path).config
    async with open_gateway(None, config) as gateway:
        assert await gateway.call_text("call_tool", name="s.show") == "elif a morf 24"


async def test_a_server_whose_secret_is_missing_says_which(tmp_path: Path) -> None:
    server = {"command": sys.executable, "env": {"KEY": "${file:missing}"}}
    config = load(write_config(tmp_path, {"s": server}), {}, {}, cwd=tmp_path).config
    async with run_gateway(None, config) as gateway:
        (status,) = gateway.list_statuses()
        assert status.state == "down"
        assert f"the secret ${{file:{tmp_path / 'missing'}}} cannot be read" in status.reason


async def test_a_secret_that_is_refused_is_read_again_and_the_call_succeeds(
    tmp_path: Path,
) -> None:
    """The file changes while the gateway runs: the server refuses the old value, and no caller
    notices."""
    accepted = ["first value"]

    async def check(request: Request, frame: Raw) -> Response:
        if request.headers.get("authorization") != f"Bearer {accepted[0]}":
            return Response(status_code=401, headers={"www-authenticate": "Bearer"})
        if frame["method"] == "tools/list":
            tools = [{"name": "show", "inputSchema": {"type": "object"}}]
            return answer(frame, {"tools": tools})
        text = json.dumps(request.headers.get("x-plain"))
        return answer(frame, {"content": [{"type": "text", "text": text}]})

    raw = RawServer(tools_list=check, tools_call=check)
    secret = tmp_path / "token"
    secret.write_text("first value")
    async with serve(raw.app) as base:
        server = {
            "url": f"{base}/mcp",
            "protocol": "legacy",
            "headers": {"Authorization": "Bearer ${file:token}", "X-Plain": "yes"},
        }
        config = load(write_config(tmp_path, {"s": server}), {}, {}, cwd=tmp_path).config
        async with open_gateway(None, config) as gateway:
            assert await gateway.call_text("call_tool", name="s.show") == '"yes"'
            secret.write_text("second value")
            accepted[0] = "second value"
            assert await gateway.call_text("call_tool", name="s.show") == '"yes"'
            sent = [headers["authorization"] for _, headers in raw.heard("tools/call")]
            assert sent == ["Bearer first value", "Bearer first value", "Bearer second value"]
            accepted[0] = "third value"
            text = await gateway.call_error("call_tool", name="s.show")
            assert "HTTP 401" in text
            assert "value" not in text
