"""The API of `portico serve`, beside MCP, with the gateway's own usage data; never for stdio."""

import subprocess
import sys

import httpx2

from portico.api.app import make_api
from portico.testing import connect, gateway_over, serve_http
from tests.interaction.fake_servers import fake


async def test_what_is_called_over_mcp_is_seen_over_rest():
    async with gateway_over({"s": fake("run", "rest")}) as gateway:
        view = gateway.get_view()
        api = make_api(view.profile_state, view.search_service, gateway.store)
        async with (
            serve_http(gateway, api=api) as url,
            connect(gateway) as client,
            httpx2.AsyncClient(timeout=240) as http,
        ):
            root = url.removesuffix("mcp") + "api/v1"
            await client.call_tool("call_tool", {"name": "s.run", "arguments": {}})
            whole = (await http.get(f"{root}/tools/s/run")).json()
            assert whole["usage"]["calls"] == 1
            await gateway.usage_data.tool_usage.flush()
            calls = (await http.get(f"{root}/calls")).json()["calls"]
            assert calls[0]["tool"] == "s.run"
            assert (await http.get(f"{root}/stats")).json()["calls"] == 1
            assert (await http.head(f"{root}/tools/hot")).headers["etag"]


async def test_without_an_api_there_is_nothing_under_its_path():
    async with (
        gateway_over({"s": fake("run")}) as gateway,
        serve_http(gateway) as url,
        httpx2.AsyncClient(timeout=240) as http,
    ):
        assert (await http.get(url.removesuffix("mcp") + "api/v1/tools/hot")).status_code == 404


def test_only_a_gateway_that_serves_loads_the_framework():
    program = (
        "import portico.gateway, portico.cli.commands.stdio, portico.cli.commands.serve, "
        "sys; print('fastapi' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.strip() == "False"
