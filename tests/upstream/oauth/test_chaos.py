"""Tokens that end every few seconds, at an authorization server that restarts, fails, hangs and
forgets what it signed: no call fails that a renewal could have saved, and no token goes elsewhere.

PORTICO_CHAOS_S: for how many seconds; 600 by hand.
"""

import asyncio
import os
import random
import webbrowser
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.gateways import TIMEOUT_S, GatewayUnderTest, open_gateway
from tests.upstream.oauth.authorization_server import (
    ProtectedServer,
    ScriptedIssuer,
    run_authorization_server,
    serve_at_url,
)
from tests.upstream.oauth.signing_in import make_config, open_tokens, sign_in, target_of

CHAOS_S = float(os.environ.get("PORTICO_CHAOS_S", "15"))
TOKEN_S = 3.0
CALLERS = 4
SEED = 11


class Recorder:
    """Between the gateway and one origin: which secrets each address received."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str, str]] = []

    def watch(self, name: str, app: ASGIApp) -> ASGIApp:
        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)
            request = Request(scope, receive)
            body = await request.body()
            text = f"{request.headers.get('authorization', '')} {body.decode('utf-8', 'replace')}"
            self.received.append((name, scope["path"], text))
            sent = False

            async def receive_again() -> Any:
                nonlocal sent
                if sent:
                    return await receive()
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}

            await app(scope, receive_again, send)

        return watched

    def find_strays(self) -> list[tuple[str, str]]:
        """Return where secrets were that do not belong there."""
        return [
            (name, path)
            for name, path, text in self.received
            if ("access-" in text and name != "server")
            or ("refresh-" in text and (name, path) != ("issuer", "/token"))
        ]


async def call_until(gateway: GatewayUnderTest, ends: asyncio.Event, errors: list[str]) -> int:
    calls = 0
    while not ends.is_set():
        result = await asyncio.wait_for(
            gateway.client.call_tool("call_tool", {"name": "notes.whoami"}), TIMEOUT_S
        )
        calls += 1
        if result.is_error:
            errors.append(str(result.content))
        await asyncio.sleep(0.02)
    return calls


async def meet_until(gateway: GatewayUnderTest, ends: asyncio.Event, errors: list[str]) -> int:
    """Make calls that end only when as many run at once: one after the other, none would."""
    meetings = 0
    while not ends.is_set():
        calls = [gateway.client.call_tool("call_tool", {"name": "notes.meet"}) for _ in range(4)]
        results = await asyncio.wait_for(asyncio.gather(*calls), TIMEOUT_S)
        errors.extend(str(result.content) for result in results if result.is_error)
        meetings += 1
        await asyncio.sleep(0.2)
    return meetings


async def disturb(
    issuer: ScriptedIssuer, recorder: Recorder, port: int, elsewhere: str
) -> dict[str, int]:
    """Do one thing after the other to the authorization server, for `CHAOS_S` seconds."""
    chance = random.Random(SEED)
    done: dict[str, int] = {}
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + CHAOS_S
    stack = AsyncExitStack()
    running = await stack.enter_async_context(run_watched(issuer, recorder, port))
    assert running
    while loop.time() < ends_at:
        fault = chance.choice(("errors", "html", "hang", "restart", "keys", "foreign", "nothing"))
        done[fault] = done.get(fault, 0) + 1
        if fault == "errors":
            issuer.token_trouble = lambda _: Response('{"error": "server_error"}', 500)
        elif fault == "html":
            issuer.token_trouble = lambda _: Response("<h1>bad gateway</h1>", 403)
        elif fault == "hang":
            issuer.answers.clear()
        elif fault == "restart":
            await stack.aclose()
        elif fault == "keys":
            issuer.revoke_access()
        elif fault == "foreign":
            issuer.token_trouble = lambda _: RedirectResponse(f"{elsewhere}/token", 307)
            issuer.metadata_changes = {"token_endpoint": f"{elsewhere}/token"}
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        issuer.token_trouble = None
        issuer.metadata_changes = {}
        issuer.answers.set()
        if fault == "restart":
            await stack.enter_async_context(run_watched(issuer, recorder, port))
        await asyncio.sleep(chance.uniform(0.5, 3.0))
    await stack.aclose()
    return done


def run_watched(issuer: ScriptedIssuer, recorder: Recorder, port: int) -> Any:
    return serve_at_url(lambda _: recorder.watch("issuer", issuer.make_app()), port)


@pytest.mark.timeout(CHAOS_S * 2 + 400)
async def test_no_call_fails_that_a_renewal_could_have_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_browser(*_: Any, **__: Any) -> bool:
        raise AssertionError("a browser was opened")

    monkeypatch.setattr(webbrowser, "open", open_browser)
    recorder = Recorder()
    issuer = ScriptedIssuer(token_s=TOKEN_S)
    server = ProtectedServer("", issuer)
    async with AsyncExitStack() as stack:
        async with run_authorization_server(issuer) as started:
            port = urlsplit(started.issuer).port or 0

        def make_app(url: str) -> ASGIApp:
            server.url = f"{url}/mcp"
            return recorder.watch("server", server.make_app())

        await stack.enter_async_context(serve_at_url(make_app))
        foreign = recorder.watch("elsewhere", Response("{}", 404))
        elsewhere = await stack.enter_async_context(serve_at_url(lambda _: foreign))
        config = make_config(server.url)
        tokens = await stack.enter_async_context(open_tokens(tmp_path))
        async with run_watched(issuer, recorder, port):
            await sign_in(tokens, target_of(config))
            gateways = [
                await stack.enter_async_context(open_gateway(config=config, data_dir=tmp_path))
                for _ in range(2)
            ]
        ends = asyncio.Event()
        errors: list[str] = []
        callers = [
            asyncio.create_task(call_until(gateway, ends, errors))
            for gateway in gateways
            for _ in range(CALLERS)
        ]
        meeting = asyncio.create_task(meet_until(gateways[0], ends, errors))
        faults = await disturb(issuer, recorder, port, elsewhere)
        async with run_watched(issuer, recorder, port):
            ends.set()
            counts = await asyncio.gather(*callers)
            meetings = await meeting
        assert errors == [], faults
        assert min(counts) > 0
        assert meetings > 0
        assert {name for name, _, _ in recorder.received} >= {"issuer", "server"}
        print(f"{sum(counts)} calls, {meetings} times {server.parties} at once, faults {faults}")
        renewed = issuer.count("/token", grant_type="refresh_token")
        assert renewed >= CHAOS_S / TOKEN_S / 2
        assert issuer.count("/authorize") == 1
        async with (
            run_watched(issuer, recorder, port),
            open_gateway(config=config, data_dir=tmp_path) as again,
        ):
            assert await again.call_text("call_tool", name="notes.whoami") == "you are ana"
    assert issuer.count("/authorize") == 1
    assert recorder.find_strays() == []
