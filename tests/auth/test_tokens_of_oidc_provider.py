"""A certified OpenID provider issues the tokens: people sign in there and come in here."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.config import Config
from portico.server.http.app import make_app
from portico.testing import FakeBackend, serve_http
from tests.auth.oidc_provider import (
    CLIENT_ID,
    MACHINE_ID,
    MACHINE_SECRET,
    REDIRECT_URI,
    OidcProvider,
    run_oidc_provider,
    visit_authorization_url,
)
from tests.auth.test_oidc_provider import read_claims
from tests.auth.token_gateway import CAME_IN, post_token
from tests.gateways import TIMEOUT_S, run_gateway
from tests.interaction.fake_servers import text, tool
from tests.interaction.raw_clients import raw_http
from tests.upstream.loopback_server import serve

pytestmark = pytest.mark.node
RESOURCE = "https://portico.example/mcp"
USERS = {"ana": {"name": "Ana Lima", "groups": ["dev"]}, "eve": {"name": "Eve", "groups": []}}


@asynccontextmanager
async def serve_gateway(idp: OidcProvider, **settings: Any) -> AsyncGenerator[str]:
    config = Config.model_validate(
        {
            "gateway": {"public_url": RESOURCE.removesuffix("/mcp")},
            "auth": {"issuer": idp.issuer, **settings},
        }
    )
    async with (
        run_gateway({}, config) as gateway,
        serve_http(
            gateway, verifiers=gateway.open_verifiers(), public_url=config.gateway.public_url
        ) as url,
    ):
        yield url


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_people_and_machines_come_in_and_their_id_tokens_do_not(
    tmp_path: Path, algorithm: str
) -> None:
    async with (
        run_oidc_provider(tmp_path, users=USERS, algorithm=algorithm) as idp,
        serve_gateway(idp) as url,
    ):
        tokens = await idp.sign_in("ana", resource=RESOURCE)
        assert (await post_token(url, tokens["access_token"])).status_code == CAME_IN
        assert (await post_token(url, tokens["id_token"])).status_code == 401
        assert (await post_token(url, tokens["refresh_token"])).status_code == 401
        elsewhere = await idp.sign_in("ana", resource="https://elsewhere.example/mcp")
        assert (await post_token(url, elsewhere["access_token"])).status_code == 401
        machine = await idp.request_token(
            grant_type="client_credentials",
            client_id=MACHINE_ID,
            client_secret=MACHINE_SECRET,
            resource=RESOURCE,
        )
        assert (await post_token(url, machine["access_token"])).status_code == CAME_IN


async def test_a_session_goes_on_with_the_token_that_a_refresh_token_gave(tmp_path: Path) -> None:
    async with run_oidc_provider(tmp_path, users=USERS) as idp, serve_gateway(idp) as url:
        tokens = await idp.sign_in("ana", resource=RESOURCE)
        async with raw_http(url, "legacy", token=tokens["access_token"]) as client:
            renewed = await idp.request_token(
                grant_type="refresh_token",
                client_id=CLIENT_ID,
                refresh_token=tokens["refresh_token"],
                resource=RESOURCE,
            )
            assert renewed["access_token"] != tokens["access_token"]
            client.http.headers["authorization"] = f"Bearer {renewed['access_token']}"
            assert "result" in await client.request("ping")
            eve = await idp.sign_in("eve", resource=RESOURCE)
            client.http.headers["authorization"] = f"Bearer {eve['access_token']}"
            with pytest.raises(AssertionError, match="404"):
                await client.request("ping")


async def test_groups_open_what_they_should(tmp_path: Path) -> None:
    async with (
        run_oidc_provider(tmp_path, users=USERS) as idp,
        serve_gateway(idp, profiles={"*": ["group:dev"]}) as url,
    ):
        found: dict[str, int] = {}
        for person in USERS:
            tokens = await idp.sign_in(person, resource=RESOURCE)
            found[person] = (await post_token(url, tokens["access_token"])).status_code
        assert found == {"ana": CAME_IN, "eve": 403}


async def test_keys_that_the_provider_changes_are_found_without_a_restart_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.auth.issuer_keys.REFETCH_S", 0.0)
    async with run_oidc_provider(tmp_path, users=USERS) as idp, serve_gateway(idp) as url:
        before = await idp.sign_in("ana", resource=RESOURCE)
        assert (await post_token(url, before["access_token"])).status_code == CAME_IN
        await idp.stop()
        assert (await post_token(url, before["access_token"])).status_code == CAME_IN
        await idp.start(newKeys=True)
        after = await idp.sign_in("ana", resource=RESOURCE)
        assert (await post_token(url, after["access_token"])).status_code == CAME_IN


async def test_opaque_tokens_are_looked_up_and_end_when_they_are_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    introspection = {"client_id": MACHINE_ID, "client_secret": MACHINE_SECRET}
    monkeypatch.setattr("portico.auth.issuer_verifier.ANSWER_S", 0.0)
    async with (
        run_oidc_provider(tmp_path, users=USERS, tokenFormat="opaque") as idp,
        serve_gateway(idp, introspection=introspection) as url,
    ):
        tokens = await idp.sign_in("ana", resource=RESOURCE)
        opaque = tokens["access_token"]
        assert "." not in opaque
        assert (await post_token(url, opaque)).status_code == CAME_IN
        assert (await post_token(url, tokens["refresh_token"])).status_code == 401
        async with httpx2.AsyncClient() as http:
            form = {"token": opaque, "client_id": CLIENT_ID}
            revoked = await http.post(f"{idp.issuer}/token/revocation", data=form)
            assert revoked.status_code == 200
        assert (await post_token(url, opaque)).status_code == 401


class ClientMemory:
    """What a client of the SDK keeps."""

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


class LateApp:
    """An application that is made when its address is known."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.app(scope, receive, send)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/p/work"])
async def test_the_client_of_the_sdk_finds_the_provider_registers_and_signs_in(
    tmp_path: Path, path: str
) -> None:
    backend = FakeBackend([tool("read")])
    backend.on_call("read", lambda _: text("read done"))
    answered: list[dict[str, list[str]]] = []

    async def visit(url: str) -> None:
        location = await visit_authorization_url(url)
        answered.append(parse_qs(urlsplit(location).query))

    async def read_answer() -> AuthorizationCodeResult:
        [found] = answered
        return AuthorizationCodeResult(
            code=found["code"][0], state=found["state"][0], iss=found["iss"][0]
        )

    late = LateApp()
    async with run_oidc_provider(tmp_path, users=USERS) as idp, serve(late) as root:
        config = Config.model_validate(
            {
                "gateway": {"public_url": root},
                "auth": {"issuer": idp.issuer, "required_scopes": "openid"},
                "profiles": {"work": {}},
                "exposure": "full",
            }
        )
        async with run_gateway({"mail": backend}, config) as gateway:
            verifiers = gateway.open_verifiers()
            app = make_app(gateway.get_endpoints(), verifiers=verifiers, public_url=root)
            late.app = app
            memory = ClientMemory()
            metadata = OAuthClientMetadata.model_validate(
                {"redirect_uris": [REDIRECT_URI], "application_type": "native"}
            )
            sign_in = OAuthClientProvider(root + path, metadata, memory, visit, read_answer)
            async with (
                app.router.lifespan_context(app),
                httpx2.AsyncClient(auth=sign_in, timeout=TIMEOUT_S) as http,
                Client(streamable_http_client(root + path, http_client=http)) as client,
            ):
                result = await client.call_tool("mail__read", {})
                assert "read done" in str(result)
                assert memory.tokens is not None
                claims = read_claims(memory.tokens.access_token)
                assert (claims["aud"], claims["iss"]) == (root + path, idp.issuer)
