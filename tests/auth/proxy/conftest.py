"""The authorization server on a loopback port, in front of an identity provider."""

import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from portico.auth.proxy.authorization_server import AuthorizationServer
from portico.auth.proxy.credentials import compute_challenge
from portico.auth.proxy.providers import ProviderQuirks
from portico.auth.token_verifier import Rejection
from portico.callers import Principal
from portico.config.auth import IssuerConfig
from portico.config.auth_proxy import ProxyConfig
from portico.server.http.authorization_endpoints import AuthorizationEndpoints
from portico.storage.authorization_store import AuthorizationStore
from tests.auth.proxy.fake_provider import CLIENT_ID, CLIENT_SECRET, FakeProvider
from tests.auth.proxy.scripted_browser import ScriptedBrowser
from tests.fixtures.postgres import postgres as postgres
from tests.upstream.loopback_server import serve

REDIRECT_URI = "http://127.0.0.1:7777/callback"
CLIENT_URL = "https://client.example/oauth/client.json"
CLIENT_DOCUMENT: dict[str, Any] = {
    "client_id": CLIENT_URL,
    "client_name": "A client with a document",
    "redirect_uris": ["https://client.example/callback", REDIRECT_URI],
    "token_endpoint_auth_method": "none",
}


class Clock:
    """A clock that stands until a test puts it forward: nothing expires on a busy machine."""

    def __init__(self) -> None:
        self._now = time.time()
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return self._now + self.ahead_s


@dataclass
class ProxyUnderTest:
    url: str
    server: AuthorizationServer
    provider: FakeProvider
    clock: Clock
    http: httpx2.AsyncClient
    browser: ScriptedBrowser
    store: AuthorizationStore
    document_host: str
    """Where `documents` are, whatever the address of a client says."""
    documents: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the servers of clients answer, by address."""
    verifiers: dict[str, str] = field(default_factory=dict[str, str])
    """PKCE verifiers by challenge."""

    async def register(self, *redirect_uris: str, **metadata: Any) -> str:
        """Register a client; return its id."""
        body = {
            "redirect_uris": redirect_uris or (REDIRECT_URI,),
            "client_name": "Test",
            **metadata,
        }
        reply = await self.http.post(f"{self.url}/oauth/register", json=body)
        assert reply.status_code == 201, reply.text
        return reply.json()["client_id"]

    def ask(self, client_id: str, **changes: str | None) -> str:
        """Return the URL of an authorization request; None leaves a parameter out."""
        verifier = secrets.token_urlsafe(32)
        challenge = compute_challenge(verifier)
        self.verifiers[challenge] = verifier
        params = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": REDIRECT_URI,
            "state": "the client's state",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": f"{self.url}/mcp",
            **changes,
        }
        given = {name: value for name, value in params.items() if value is not None}
        return f"{self.url}/oauth/authorize?{urlencode(given)}"

    async def authorize(self, url: str, until: str = "") -> dict[str, str]:
        """Let the person go through; return what the client gets."""
        redirect_uri = read_query(url)["redirect_uri"]
        reply = await self.browser.visit(url, until or redirect_uri)
        answered = str(reply.request.url)
        assert answered.startswith(redirect_uri), reply.text
        return read_query(answered)

    async def sign_in(self, client_id: str, **changes: str | None) -> dict[str, Any]:
        """Return the tokens of a person who went all the way."""
        url = self.ask(client_id, **changes)
        answer = await self.authorize(url)
        reply = await self.redeem(url, answer["code"])
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def redeem(self, url: str, code: str, **changes: str) -> httpx2.Response:
        """Exchange the code that a request was answered with."""
        asked = read_query(url)
        form = {
            "grant_type": "authorization_code",
            "client_id": asked["client_id"],
            "redirect_uri": asked["redirect_uri"],
            "code": code,
            "code_verifier": self.verifiers.get(asked.get("code_challenge", ""), ""),
            **changes,
        }
        return await self.post_token(**form)

    async def refresh(self, client_id: str, token: str, **changes: str) -> httpx2.Response:
        form = {"grant_type": "refresh_token", "client_id": client_id, "refresh_token": token}
        return await self.post_token(**{**form, **changes})

    async def post_token(self, **form: str) -> httpx2.Response:
        return await self.http.post(f"{self.url}/oauth/token", data=form)

    async def find_person(self, tokens: dict[str, Any]) -> Principal | Rejection | None:
        return await self.server.tokens.verify(tokens["access_token"])


def read_query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


@asynccontextmanager
async def run_proxy(
    folder: Path,
    database_url: str | None = None,
    *,
    quirks: ProviderQuirks | None = None,
    **issuer: Any,
) -> AsyncGenerator[ProxyUnderTest]:
    """Run an authorization server whose state is in `folder`, in front of a provider of ours."""
    clock = Clock()
    provider = FakeProvider(clock)
    documents: dict[str, Any] = {CLIENT_URL: CLIENT_DOCUMENT}
    apps: list[Starlette] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await apps[0](scope, receive, send)

    async def serve_document(scope: Scope, receive: Receive, send: Send) -> None:
        found = documents.get(scope["query_string"].decode())
        answer = JSONResponse(found, 200 if found is not None else 404)
        await answer(scope, receive, send)

    async with (
        serve(provider.app, lifespan="off") as provider.issuer,
        serve(serve_document, lifespan="off") as client_host,
        serve(app, lifespan="off") as url,
        httpx2.AsyncClient(timeout=240) as http,
        ScriptedBrowser() as browser,
    ):

        async def build_request(client: httpx2.AsyncClient, address: str) -> httpx2.Request:
            """The name of a client's server is none that exists: ask one of our own."""
            return client.build_request("GET", f"{client_host}/?{address}")

        proxy = ProxyConfig(client_id=CLIENT_ID, client_secret=CLIENT_SECRET)  # pyright: ignore
        store = AuthorizationStore(database_url, folder)
        server = AuthorizationServer(
            IssuerConfig(issuer=provider.issuer, **issuer),
            proxy,
            url,
            store,
            has_profile=lambda name: name in ("work", "ops"),
            build_request=build_request,
            quirks=quirks,
            clock=clock,
        )
        apps.append(Starlette(routes=AuthorizationEndpoints(server).list_routes()))
        yield ProxyUnderTest(
            url, server, provider, clock, http, browser, store, client_host, documents
        )
        await server.close()


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncGenerator[ProxyUnderTest]:
    async with run_proxy(tmp_path) as running:
        yield running
