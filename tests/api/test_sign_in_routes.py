"""Signing in to a remote server over REST, with a browser that needs no person."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from portico.config import Config
from tests.console.served import ServedConsole, serve_console
from tests.gateways import TIMEOUT_S, wait_until
from tests.interaction.fake_servers import fake
from tests.upstream.oauth.authorization_server import (
    ScriptedIssuer,
    run_authorization_server,
    run_protected_server,
    visit,
)

PATH = "/api/v1/servers/notes/sign-in"


@dataclass
class Remote:
    issuer: ScriptedIssuer
    served: ServedConsole
    http: httpx2.AsyncClient

    async def begin(self) -> dict[str, Any]:
        reply = await self.http.post(PATH, json={})
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def read(self) -> dict[str, Any]:
        return (await self.http.get(PATH)).json()


@pytest.fixture
async def remote(tmp_path: Path) -> AsyncGenerator[Remote]:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(run_authorization_server())
        server = await stack.enter_async_context(run_protected_server(issuer))
        config = Config.model_validate({"servers": {"notes": {"url": server.url}}})
        # What is stored must not outlive the test.
        serving = serve_console({"disk": fake("read")}, config, data_dir=tmp_path)
        served = await stack.enter_async_context(serving)
        http = httpx2.AsyncClient(base_url=served.root, timeout=TIMEOUT_S)
        yield Remote(issuer, served, await stack.enter_async_context(http))


async def open_in_browser(url: str) -> None:
    """Do what a browser does with the address, and bring back what it ends with."""
    redirect_uri = parse_qs(urlsplit(url).query)["redirect_uri"][0]
    ended_at = await visit(url, redirect_uri)
    async with httpx2.AsyncClient(timeout=TIMEOUT_S) as browser:
        assert (await browser.get(f"{redirect_uri}?state=guessed&code=x")).status_code == 404
        assert (await browser.get(ended_at)).status_code == 200


async def test_a_sign_in_is_begun_followed_and_done(remote: Remote) -> None:
    assert (await remote.read())["state"] == "none"
    async with remote.http.stream("GET", "/api/v1/events") as stream:
        lines = stream.aiter_lines()
        assert (await anext(lines)).startswith("id: ")
        begun = await remote.begin()
        assert begun["state"] == "waiting"
        assert await remote.begin() == begun, "one under way is returned again"
        await open_in_browser(begun["url"])
        states: list[str] = []
        async with asyncio.timeout(TIMEOUT_S):
            is_sign_in = False
            async for line in lines:
                if line.startswith("event: "):
                    is_sign_in = line == "event: sign_in"
                elif line.startswith("data: ") and is_sign_in:
                    states.append(json.loads(line[6:])["state"])
                    if states[-1] != "waiting":
                        break
    assert states == ["waiting", "done"]
    done = await remote.read()
    assert (done["state"], "url" in done) == ("done", False)
    gateway = remote.served.gateway
    await wait_until(lambda: "notes.whoami" in gateway.catalog.snapshot.tools)
    call = {"tool": "notes.whoami"}
    answer = (await remote.http.post("/api/v1/calls", json=call)).json()
    assert answer["ok"], answer


async def test_what_cannot_be_signed_in_to_says_so(remote: Remote) -> None:
    for path, status in (
        ("/api/v1/servers/disk/sign-in", 422),
        ("/api/v1/servers/nowhere/sign-in", 404),
    ):
        assert (await remote.http.post(path, json={})).status_code == status
    assert (await remote.http.post(PATH)).status_code == 415
    remote.issuer.metadata_changes["authorization_endpoint"] = "javascript:alert(1)"
    reply = await remote.http.post(PATH, json={})
    assert reply.status_code == 503, reply.text
    assert (await remote.read())["state"] == "failed"


async def test_a_gateway_that_ends_gives_up_what_waits(remote: Remote) -> None:
    url = (await remote.begin())["url"]
    redirect_uri = parse_qs(urlsplit(url).query)["redirect_uri"][0]
    await remote.served.gateway.servers.sign_ins.close()
    async with httpx2.AsyncClient(timeout=TIMEOUT_S) as browser:
        with pytest.raises(httpx2.ConnectError):
            await browser.get(redirect_uri)
