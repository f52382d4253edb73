"""Clients that nobody here wrote get in, through the gateway's own authorization server and a
certified OpenID provider behind it: each registers, has a person sign in, and calls a tool. And
each gets in with a key, without any of that."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastmcp
import httpx2
import pytest
from fastmcp.client.auth import OAuth
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.auth.authenticator import KeyRing
from portico.auth.keys import create_key
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.server.http.app import make_app
from tests.auth.oidc_provider import run_oidc_provider
from tests.auth.proxy.conftest import read_query
from tests.auth.proxy.scripted_browser import ScriptedBrowser
from tests.conformance.processes import free_port
from tests.conformance.suite import SuiteMissing, find_inspector, find_mcp_remote, find_suite
from tests.gateways import TIMEOUT_S, run_gateway
from tests.interaction.fake_servers import fake
from tests.upstream.loopback_server import serve

REDIRECT_URI = "http://127.0.0.1:1/callback"
CLIENT_ID = "portico"
CLIENT_SECRET = "the secret of the gateway at the provider"
USERS = {"ana": {"name": "Ana", "groups": ["dev"]}, "bob": {"name": "Bob", "groups": ["ops"]}}

pytestmark = pytest.mark.node


@dataclass
class ServedGateway:
    url: str
    """Its address, without `/mcp`."""
    runtime: GatewayRuntime
    issuer: str
    key: str


@asynccontextmanager
async def serve_gateway(folder: Path, **proxy: Any) -> AsyncGenerator[ServedGateway]:
    apps: list[ASGIApp] = []
    row, key = create_key("bob", time.time())
    keys = KeyRing()
    keys.replace([row])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await apps[0](scope, receive, send)

    async with serve(app, lifespan="off") as url:
        client = {
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "redirect_uris": [f"{url}/oauth/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "scope": "openid profile email offline_access",
        }
        async with run_oidc_provider(folder, users=USERS, clients=[client]) as provider:
            config = Config.model_validate(
                {
                    "gateway": {"public_url": url},
                    "profiles": {"work": {}},
                    "auth": {
                        "issuer": provider.issuer,
                        "proxy": {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, **proxy},
                    },
                }
            )
            async with run_gateway({"s": fake("run")}, config, data_dir=folder / "data") as gateway:
                served = make_app(
                    gateway.get_endpoints(),
                    keys=keys,
                    verifiers=gateway.open_verifiers(),
                    public_url=url,
                    authorization_server=gateway.authorization_server,
                )
                async with served.router.lifespan_context(served):
                    apps.append(served)
                    yield ServedGateway(url, gateway, provider.issuer, key)


class MemoryStorage:
    """Where the SDK's client keeps what it got."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def make_sdk_auth(
    url: str, browser: ScriptedBrowser, storage: MemoryStorage
) -> OAuthClientProvider:
    answered: list[str] = []

    async def redirect(address: str) -> None:
        reply = await browser.visit(address, REDIRECT_URI)
        answered.append(str(reply.request.url))

    async def wait() -> AuthorizationCodeResult:
        return AuthorizationCodeResult.model_validate(read_query(answered[-1]))

    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(REDIRECT_URI)], client_name="An SDK client"
    )
    return OAuthClientProvider(url, metadata, storage, redirect, wait)


@asynccontextmanager
async def connect_sdk(url: str, auth: httpx2.Auth) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(auth=auth, timeout=TIMEOUT_S) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def call_run(client: Client) -> str:
    result = await client.call_tool("call_tool", {"name": "s.run", "arguments": {}})
    return json.dumps(result.model_dump(mode="json"))


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncGenerator[ServedGateway]:
    async with serve_gateway(tmp_path) as served:
        yield served


@pytest.mark.parametrize("endpoint", ["/mcp", "/mcp/p/work"])
async def test_the_client_of_the_sdk_gets_in(gateway: ServedGateway, endpoint: str) -> None:
    storage = MemoryStorage()
    url = gateway.url + endpoint
    async with ScriptedBrowser("bob") as browser:
        auth = make_sdk_auth(url, browser, storage)
        async with connect_sdk(url, auth) as client:
            assert "run ran" in await call_run(client)
        assert browser.consents == 1
    assert storage.tokens is not None
    principal = await gateway.runtime.verifiers[0].verify(storage.tokens.access_token)
    assert getattr(principal, "id", principal) == f"{gateway.issuer} bob"
    assert getattr(principal, "groups", ()) == ("ops",)


async def test_the_client_of_fastmcp_gets_in(gateway: ServedGateway) -> None:
    async with ScriptedBrowser() as browser:

        class HeadlessOAuth(OAuth):
            """Its own, with its own server for the answer; only the browser is ours."""

            async def redirect_handler(self, authorization_url: str) -> None:
                browsing.append(asyncio.create_task(browser.visit(authorization_url)))

        browsing: list[asyncio.Task[httpx2.Response]] = []
        async with fastmcp.Client(f"{gateway.url}/mcp", auth=HeadlessOAuth()) as client:
            result = await client.call_tool("call_tool", {"name": "s.run", "arguments": {}})
        assert "run ran" in str(result.content)
        assert (await browsing[0]).status_code == 200


@asynccontextmanager
async def run_program(
    find: Callable[[], tuple[Path, Path]], folder: Path, *arguments: str, **environment: str
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a client for Node. It has no PATH: it finds no browser to open.

    mcp-remote reads from stdin; the Inspector would wait for it.
    """
    try:
        node, script = find()
    except SuiteMissing as missing:
        pytest.skip(str(missing))
    process = await asyncio.create_subprocess_exec(
        *(str(node), str(script), *arguments),
        stdin=asyncio.subprocess.PIPE if find is find_mcp_remote else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(folder), "PATH": "", **environment},
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def call_by_lines(process: asyncio.subprocess.Process) -> str:
    """Be the client of mcp-remote: introduce it, and call a tool."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    await send(process.stdin, id=1, method="initialize", params=hello)
    assert (await receive(process.stdout))["result"]["serverInfo"]["name"]
    await send(process.stdin, method="notifications/initialized")
    params = {"name": "call_tool", "arguments": {"name": "s.run", "arguments": {}}}
    await send(process.stdin, id=2, method="tools/call", params=params)
    return json.dumps(await receive(process.stdout))


async def test_mcp_remote_gets_in(gateway: ServedGateway, tmp_path: Path) -> None:
    remote = (f"{gateway.url}/mcp", "--transport", "http-only")
    own = {"MCP_REMOTE_CONFIG_DIR": str(tmp_path / "remote")}
    async with (
        run_program(find_mcp_remote, tmp_path, *remote, **own) as process,
        ScriptedBrowser() as browser,
    ):
        url = await read_until(process.stderr, f"{gateway.url}/oauth/authorize")
        assert (await browser.visit(url)).status_code == 200
        draining = asyncio.create_task(read_all(process.stderr))
        assert "run ran" in await call_by_lines(process)
        draining.cancel()


def list_inspector_arguments(url: str) -> tuple[str, ...]:
    return (
        *("--cli", f"{url}/mcp", "--transport", "http", "--method", "tools/call"),
        *("--tool-name", "call_tool", "--tool-arg", "name=s.run", "--connect-timeout", "0"),
    )


async def test_the_inspector_gets_in(gateway: ServedGateway, tmp_path: Path) -> None:
    """Its command line, with its own server for the answer and its own store of tokens."""
    callback = f"http://127.0.0.1:{free_port()}/oauth/callback"
    arguments = (*list_inspector_arguments(gateway.url), "--callback-url", callback)
    own = {"MCP_AUTO_OPEN_ENABLED": "true"}
    async with (
        run_program(find_inspector, tmp_path, *arguments, **own) as process,
        ScriptedBrowser() as browser,
    ):
        url = await read_until(process.stderr, f"{gateway.url}/oauth/authorize")
        draining = asyncio.create_task(read_all(process.stderr))
        assert (await browser.visit(url)).status_code == 200
        assert process.stdout is not None
        assert "run ran" in (await process.stdout.read()).decode()
        draining.cancel()


async def test_the_client_of_the_sdk_gets_in_with_a_key(gateway: ServedGateway) -> None:
    headers = {"authorization": f"Bearer {gateway.key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S) as http,
        Client(streamable_http_client(f"{gateway.url}/mcp", http_client=http)) as client,
    ):
        assert "run ran" in await call_run(client)


async def test_the_client_of_fastmcp_gets_in_with_a_key(gateway: ServedGateway) -> None:
    async with fastmcp.Client(f"{gateway.url}/mcp", auth=gateway.key) as client:
        result = await client.call_tool("call_tool", {"name": "s.run", "arguments": {}})
    assert "run ran" in str(result.content)


async def test_mcp_remote_gets_in_with_a_key(gateway: ServedGateway, tmp_path: Path) -> None:
    header = f"Authorization: Bearer {gateway.key}"
    remote = (f"{gateway.url}/mcp", "--transport", "http-only", "--header", header)
    own = {"MCP_REMOTE_CONFIG_DIR": str(tmp_path / "remote")}
    async with run_program(find_mcp_remote, tmp_path, *remote, **own) as process:
        draining = asyncio.create_task(read_all(process.stderr))
        assert "run ran" in await call_by_lines(process)
        draining.cancel()


async def test_the_inspector_gets_in_with_a_key(gateway: ServedGateway, tmp_path: Path) -> None:
    header = ("--header", f"Authorization: Bearer {gateway.key}")
    arguments = (*list_inspector_arguments(gateway.url), *header)
    async with run_program(find_inspector, tmp_path, *arguments) as process:
        said, trouble = await process.communicate()
    assert "run ran" in said.decode(), trouble.decode()


async def test_the_official_suite_for_authorization_servers_passes(
    gateway: ServedGateway, tmp_path: Path
) -> None:
    try:
        suite = find_suite()
    except SuiteMissing as missing:
        pytest.skip(str(missing))
    async with ScriptedBrowser() as browser:
        body = {"redirect_uris": ["http://127.0.0.1:1/callback"], "client_name": "The suite"}
        reply = await browser.http.post(f"{gateway.url}/oauth/register", json=body)
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            *(str(suite.node), str(suite.script), "authorization", "--url", gateway.url),
            *("--client-id", reply.json()["client_id"], "--resource", f"{gateway.url}/mcp"),
            *("--port", str(port), "--output-dir", str(tmp_path / "results")),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                url = await read_until(process.stdout, f"{gateway.url}/oauth/authorize")
                await browser.visit(url)
                assert process.stdout is not None
                said = (await process.stdout.read()).decode()
                assert await process.wait() == 0, said
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    results = [
        check
        for file in (tmp_path / "results").rglob("checks.json")
        for check in json.loads(file.read_text("utf-8"))
    ]
    assert {check["id"]: check["status"] for check in results} == {
        "authorization-server-metadata": "SUCCESS",
        "authorization-server-metadata-cimd": "SUCCESS",
        "authorization-code-grant": "SUCCESS",
    }, said


async def read_until(stream: asyncio.StreamReader | None, start: str) -> str:
    """Return the word that begins so, from what a program writes."""
    assert stream is not None
    seen: list[str] = []
    while line := (await stream.readline()).decode():
        seen.append(line)
        found = next((word for word in line.split() if word.startswith(start)), "")
        if found:
            return found
    raise AssertionError("".join(seen))


async def read_all(stream: asyncio.StreamReader | None) -> None:
    assert stream is not None
    while await stream.readline():
        pass


async def send(stream: asyncio.StreamWriter | None, **message: Any) -> None:
    assert stream is not None
    stream.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    await stream.drain()


async def receive(stream: asyncio.StreamReader | None) -> dict[str, Any]:
    """Return the next response; notifications are passed over."""
    assert stream is not None
    while line := await stream.readline():
        message = json.loads(line)
        if "id" in message and "method" not in message:
            return message
    raise AssertionError("mcp-remote ended")


async def test_a_client_refreshes_its_token_without_a_browser(gateway: ServedGateway) -> None:
    url = f"{gateway.url}/mcp"
    storage = MemoryStorage()
    async with ScriptedBrowser() as browser:
        async with connect_sdk(url, make_sdk_auth(url, browser, storage)) as client:
            await call_run(client)
        assert storage.tokens is not None
        assert storage.client is not None
        form = {
            "grant_type": "refresh_token",
            "refresh_token": storage.tokens.refresh_token or "",
            "client_id": storage.client.client_id,
            "resource": url,
        }
        async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
            reply = await http.post(f"{gateway.url}/oauth/token", data=form)
        assert reply.status_code == 200, reply.text
        storage.tokens = OAuthToken.model_validate(reply.json())
        async with connect_sdk(url, make_sdk_auth(url, browser, storage)) as client:
            assert "run ran" in await call_run(client)
        assert browser.consents == 1
