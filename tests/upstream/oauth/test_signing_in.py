"""Signing in to a server, and calls with what that gave."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
from mcp.server.auth.provider import AccessToken
from pydantic import SecretStr
from starlette.responses import Response
from starlette.types import ASGIApp

from portico.config import Config
from portico.gateway.data_folder import open_credential_store
from portico.upstream.oauth.sign_in import begin_sign_in, discover_for, finish_sign_in
from portico.upstream.oauth.token_store import TokenStore
from portico.upstream.secret_reader import SecretReader
from portico.upstream.transports.process import ProcessGuard
from tests.auth.oidc_provider import run_oidc_provider, visit_authorization_url
from tests.fixtures.postgres import PostgresDatabase
from tests.fixtures.postgres import postgres as postgres
from tests.gateways import TIMEOUT_S, GatewayUnderTest, open_gateway
from tests.upstream.oauth.authorization_server import (
    ProtectedServer,
    ScriptedIssuer,
    get_query,
    run_authorization_server,
    run_protected_server,
    serve_at_url,
)
from tests.upstream.oauth.signing_in import (
    REDIRECT_URI,
    make_config,
    open_tokens,
    sign_in,
    target_of,
)


@dataclass
class World:
    """One issuer, one server that wants its tokens, and who is signed in there."""

    folder: Path
    issuer: ScriptedIssuer
    server: ProtectedServer
    tokens: TokenStore
    config: Config

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[GatewayUnderTest]:
        async with open_gateway(config=self.config, data_dir=self.folder) as gateway:
            yield gateway

    async def sign_in(self) -> None:
        await sign_in(self.tokens, target_of(self.config))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(run_authorization_server())
        server = await stack.enter_async_context(run_protected_server(issuer))
        tokens = await stack.enter_async_context(open_tokens(tmp_path))
        yield World(tmp_path, issuer, server, tokens, make_config(server.url))


async def whoami(gateway: GatewayUnderTest) -> str:
    return await gateway.call_text("call_tool", name="notes.whoami")


async def wait_until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


async def test_a_server_needs_a_sign_in_and_works_from_then_on(world: World) -> None:
    async with world.open() as gateway:
        (status,) = gateway.runtime.list_statuses()
        assert (status.state, status.failures) == ("needs sign-in", 0)
        error = await gateway.call_error("call_tool", name="notes.whoami", arguments={})
        assert "portico login notes" in error
        assert not world.issuer.requests  # nothing is asked, and no browser opened, for a call
        await world.sign_in()
        await gateway.runtime.upstreams["notes"].restart()
        await gateway.runtime.refresh(["notes"])
        assert await whoami(gateway) == "you are ana"
    asked = len(world.issuer.requests)
    async with world.open() as gateway:
        assert await whoami(gateway) == "you are ana"
    assert len(world.issuer.requests) == asked  # a restart needs no sign-in, and asks nobody


async def test_once_listed_it_is_found_marked_and_the_next_call_after_a_sign_in_works(
    world: World,
) -> None:
    await world.sign_in()
    async with world.open() as gateway:
        assert await whoami(gateway) == "you are ana"
    await world.tokens.forget(target_of(world.config))
    async with world.open() as gateway:
        error = await gateway.call_error("call_tool", name="notes.whoami")
        assert error.startswith("sign_in_needed: notes needs a sign-in")
        found = await gateway.call_text("search_tools", query="whose account is this")
        assert "notes.whoami" in found
        assert "[needs sign-in]" in found
        assert "needs sign-in" in await gateway.call_text("browse_tools")
        described = await gateway.call_text("describe_tools", names=["notes.whoami"])
        assert "needs sign-in" in described
        await world.sign_in()
        assert await whoami(gateway) == "you are ana"


async def test_a_token_is_renewed_ahead_of_its_end_while_calls_go_on_with_the_old_one(
    world: World,
) -> None:
    await world.sign_in()
    async with world.open() as gateway:
        assert await whoami(gateway) == "you are ana"
        make_due(gateway, world.issuer.token_s - 34)
        world.issuer.answers.clear()
        for _ in range(10):  # the renewal hangs, the calls do not
            assert await whoami(gateway) == "you are ana"
        await wait_until(lambda: world.issuer.count("/token", grant_type="refresh_token") == 1)
        before = len(world.issuer.tokens)
        world.issuer.answers.set()
        await wait_until(lambda: len(world.issuer.tokens) > before)
        newest = list(world.issuer.tokens)[-1]
        async with asyncio.timeout(TIMEOUT_S):
            while not world.server.received[f"Bearer {newest}"]:
                assert await whoami(gateway) == "you are ana"
        assert world.issuer.count("/token", grant_type="refresh_token") == 1


def get_source(gateway: GatewayUnderTest) -> Any:
    backend: Any = gateway.runtime.upstreams["notes"].backend
    return backend.credentials


def make_due(gateway: GatewayUnderTest, seconds: float = 18.5) -> None:
    """Let time pass for the credentials of the server."""
    source = get_source(gateway)
    now = source.clock
    source.clock = lambda: now() + seconds


async def test_parallel_calls_share_one_renewal_of_a_token_that_is_refused(world: World) -> None:
    await world.sign_in()
    async with world.open() as gateway:
        assert await whoami(gateway) == "you are ana"
        make_due(gateway, 2)
        world.issuer.revoke_access()
        answers = await asyncio.gather(*(whoami(gateway) for _ in range(20)))
        assert set(answers) == {"you are ana"}
        assert world.issuer.count("/token", grant_type="refresh_token") == 1


async def test_gateways_that_share_a_folder_renew_once(world: World) -> None:
    await world.sign_in()
    async with world.open() as first, world.open() as second:
        for gateway in (first, second):
            assert await whoami(gateway) == "you are ana"
            make_due(gateway, 2)
        world.issuer.revoke_access()
        answers = await asyncio.gather(*(whoami(gateway) for gateway in (first, second) * 5))
        assert set(answers) == {"you are ana"}
        assert world.issuer.count("/token", grant_type="refresh_token") == 1


async def test_gateways_of_several_machines_that_share_postgresql_renew_once(
    tmp_path: Path, postgres: PostgresDatabase
) -> None:
    shared = {"database_url": SecretStr(postgres.url), "credentials_key": SecretStr("k" * 32)}
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(run_authorization_server())
        server = await stack.enter_async_context(run_protected_server(issuer))
        config = make_config(server.url).model_copy(update=shared)
        store = open_credential_store(config)
        tokens = TokenStore(store, SecretReader(stack.enter_context(closing(ProcessGuard()))))
        stack.push_async_callback(tokens.close)
        await sign_in(tokens, target_of(config))
        gateways = [
            await stack.enter_async_context(
                open_gateway(config=config, data_dir=tmp_path / str(number))
            )
            for number in range(3)
        ]
        for gateway in gateways:
            assert await whoami(gateway) == "you are ana"
            make_due(gateway, 2)
        issuer.revoke_access()
        answers = await asyncio.gather(*(whoami(gateway) for gateway in gateways * 5))
        assert set(answers) == {"you are ana"}
        assert issuer.count("/token", grant_type="refresh_token") == 1


async def test_trouble_that_passes_costs_no_call_and_no_sign_in(world: World) -> None:
    await world.sign_in()
    trouble = iter([Response("<h1>bad gateway</h1>", 502), Response("{}", 500), Response("", 429)])
    async with world.open() as gateway:
        assert await whoami(gateway) == "you are ana"
        make_due(gateway, 2)
        world.issuer.token_trouble = lambda form: next(trouble, None)
        world.issuer.revoke_access()
        assert await whoami(gateway) == "you are ana"
        assert world.issuer.count("/token", grant_type="refresh_token") == 4


async def test_an_ended_sign_in_is_said_once_and_asked_for_no_more(world: World) -> None:
    await world.sign_in()
    async with world.open() as gateway:
        assert await whoami(gateway) == "you are ana"
        make_due(gateway, 2)
        world.issuer.revoke_access()
        world.issuer.refresh_tokens.clear()
        error = await gateway.call_error("call_tool", name="notes.whoami")
        assert "the sign-in has ended (invalid_grant)" in error
        assert gateway.runtime.upstreams["notes"].state == "needs sign-in"
        for _ in range(5):
            await gateway.call_error("call_tool", name="notes.whoami")
        assert world.issuer.count("/token", grant_type="refresh_token") == 1
        await world.sign_in()
        assert await whoami(gateway) == "you are ana"
        assert gateway.runtime.upstreams["notes"].state == "ready"


async def test_a_forgotten_client_is_registered_anew_at_the_next_sign_in(world: World) -> None:
    await world.sign_in()
    await world.sign_in()
    assert world.issuer.count("/register") == 1
    async with world.open() as gateway:
        assert await whoami(gateway) == "you are ana"
        make_due(gateway, 2)
        world.issuer.revoke_access()
        world.issuer.clients.clear()
        error = await gateway.call_error("call_tool", name="notes.whoami")
        assert "has forgotten Portico" in error
        await world.sign_in()
        assert world.issuer.count("/register") == 2
        assert await whoami(gateway) == "you are ana"


async def test_more_rights_are_asked_for_together_with_those_that_were_given(world: World) -> None:
    world.config = make_config(world.server.url, scopes=["read", "write"])
    world.server.admin_scope = "admin"
    await world.sign_in()
    async with world.open() as gateway:
        assert await whoami(gateway) == "you are ana"
        error = await gateway.call_error("call_tool", name="notes.admin")
        assert "notes wants more rights for this: admin" in error
        assert await whoami(gateway) == "you are ana"  # other calls go on
        assert gateway.runtime.upstreams["notes"].state == "ready"
        await world.sign_in()
        asked = [params for _, path, params in world.issuer.requests if path == "/authorize"]
        assert [set(one["scope"].split()) for one in asked] == [
            {"read", "write"},
            {"read", "write", "admin"},
        ]
        make_due(gateway, 3)
        await whoami(gateway)
        synchronized = get_source(gateway)._sync
        await asyncio.wait_for(synchronized, TIMEOUT_S)
        assert await gateway.call_text("call_tool", name="notes.admin") == "done"


async def test_a_machine_signs_in_by_itself(world: World) -> None:
    world.issuer.clients["robot"] = {"client_secret": "a secret of a robot"}
    world.config = make_config(
        world.server.url,
        grant="client_credentials",
        client_id="robot",
        client_secret="a secret of a robot",
    )
    async with world.open() as gateway:
        assert await whoami(gateway) == "you are robot"
        make_due(gateway, 2)
        world.issuer.revoke_access()
        assert await whoami(gateway) == "you are robot"
        world.issuer.clients.clear()
        make_due(gateway, 2)
        world.issuer.revoke_access()
        error = await gateway.call_error("call_tool", name="notes.whoami")
        assert "refuses: invalid_client" in error
        assert "a secret of a robot" not in error


async def test_no_secret_is_in_the_data_folder(world: World) -> None:
    await world.sign_in()
    async with world.open() as gateway:
        assert await whoami(gateway) == "you are ana"
    secrets = [*world.issuer.tokens, *world.issuer.refresh_tokens]
    stored = b"".join(path.read_bytes() for path in world.folder.rglob("*") if path.is_file())
    assert len(secrets) == 2
    assert not [secret for secret in secrets if secret.encode() in stored]


@pytest.mark.node
async def test_an_openid_provider_that_nobody_here_wrote(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        idp = await stack.enter_async_context(run_oidc_provider(tmp_path, accessTokenTtl=3))
        server = ProtectedServer("", ScriptedIssuer(idp.issuer))
        keys = jwt.PyJWKClient(f"{idp.issuer}/jwks")

        async def verify_token(token: str) -> AccessToken | None:
            try:
                key = await asyncio.to_thread(keys.get_signing_key_from_jwt, token)
                claims = jwt.decode(
                    token, key.key, ["RS256"], audience=server.url, issuer=idp.issuer
                )
            except jwt.PyJWTError:
                return None
            return AccessToken(
                token=token, client_id="x", scopes=[], resource=server.url, subject=claims["sub"]
            )

        server.verify_token = verify_token

        def make_app(url: str) -> ASGIApp:
            server.url = f"{url}/mcp"
            return server.make_app()

        await stack.enter_async_context(serve_at_url(make_app))
        config = make_config(server.url)
        store = await stack.enter_async_context(open_tokens(tmp_path))
        target = target_of(config)
        found, trusted, scope = await discover_for(store, target)
        pending = await begin_sign_in(store, target, found, trusted, scope, REDIRECT_URI)
        ended_at = await visit_authorization_url(pending.url, REDIRECT_URI)
        await finish_sign_in(store, pending, get_query(ended_at))
        async with open_gateway(config=config, data_dir=tmp_path) as gateway:
            seen: set[str] = set()
            async with asyncio.timeout(TIMEOUT_S):
                while len(seen) < 3:  # its refresh tokens are for one use
                    assert await whoami(gateway) == "you are ana"
                    seen = set(server.received)
                    await asyncio.sleep(0.1)
