"""Servers that each person uses with a token got for the one by which they came to the gateway."""

import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portico.auth.token_verifier import Rejection
from portico.callers import Principal
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.gateway.server_sign_ins import connect_as
from portico.gateway.subject_tokens import follow_subjects
from portico.testing import serve_http
from portico.upstream.backend import Era
from portico.upstream.oauth.credential import SubjectTokens
from tests.gateways import run_gateway, wait_until
from tests.interaction.raw_clients import call, raw_http
from tests.upstream.oauth.authorization_server import (
    ProtectedServer,
    ScriptedIssuer,
    run_authorization_server,
    run_protected_server,
)
from tests.upstream.oauth.test_personal_accounts import ask

SECRET = "the secret of the gateway"


@dataclass
class Company:
    """An identity provider, a server with an authorization server of its own, and what the gateway
    has to be at both."""

    provider: ScriptedIssuer
    issuer: ScriptedIssuer
    server: ProtectedServer
    folder: Path

    def configure(self, grant: str, **auth: Any) -> Config:
        client = {"client_id": "portico", "client_secret": SECRET}
        settings: dict[str, Any] = {"grant": grant, **client, **auth}
        settings["issuer"] = self.issuer.issuer
        if grant == "token_exchange":
            settings["issuer"] = self.provider.issuer
        else:
            settings["identity_provider"] = self.provider.issuer
            settings["identity_client_id"] = "portico"
            settings["identity_client_secret"] = SECRET
        return Config.model_validate(
            {"servers": {"notes": {"url": self.server.url, "auth": settings}}}
        )

    def come(self, name: str) -> tuple[Principal, SubjectTokens]:
        """Return a person who signed in at the provider, and by which tokens they come."""
        tokens = (f"access-at-provider-{name}", f"id-token-{name}")
        self.provider.subjects |= dict.fromkeys(tokens, name)
        ends_at = time.time() + 3_600
        subject = SubjectTokens(self.provider.issuer, *tokens, ends_at)
        return Principal(self.provider.issuer, name), subject


@pytest.fixture(params=["token_exchange", "identity_assertion"])
async def company(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncGenerator[tuple[Company, Config]]:
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(run_authorization_server())
        issuer = await stack.enter_async_context(run_authorization_server())
        # Who verifies the tokens of the server is who issued them.
        if request.param == "token_exchange":
            issuer = provider
        else:
            issuer.assertions = provider.assertions
        for one in (provider, issuer):
            one.clients["portico"] = {"client_secret": SECRET, "redirect_uris": []}
        server = await stack.enter_async_context(run_protected_server(issuer))
        made = Company(provider, issuer, server, tmp_path)
        yield made, made.configure(request.param)


async def keep(gateway: GatewayRuntime, principal: Principal, tokens: SubjectTokens) -> None:
    await gateway.servers.accounts.store.keep_subject(principal.id, tokens)


def is_listed(gateway: GatewayRuntime) -> bool:
    return gateway.catalog.snapshot.servers["notes"].is_listed


async def connect(gateway: GatewayRuntime, person: str) -> None:
    await connect_as(gateway, "notes", person)
    await wait_until(lambda: is_listed(gateway))


async def test_each_person_is_at_the_server_who_they_are_at_the_provider(
    company: tuple[Company, Config],
) -> None:
    office, config = company
    async with run_gateway(config=config, data_dir=office.folder) as gateway:
        people = [office.come(name) for name in ("ana", "ben")]
        for principal, tokens in people:
            await keep(gateway, principal, tokens)
        await connect(gateway, people[0][0].id)
        for principal, _ in people * 2:
            answer = await ask(gateway, principal)
            assert answer == f"you are {principal.subject}"
        assert not any(SECRET in str(params) for _, _, params in office.issuer.requests)


async def test_who_came_with_a_key_or_from_elsewhere_gets_nobodys_token(
    company: tuple[Company, Config],
) -> None:
    office, config = company
    async with run_gateway(config=config, data_dir=office.folder) as gateway:
        ana, tokens = office.come("ana")
        await keep(gateway, ana, tokens)
        elsewhere = Principal("https://other.example", "ana")
        foreign = SubjectTokens("https://other.example", "access-elsewhere", "", time.time() + 99)
        await keep(gateway, elsewhere, foreign)
        await connect(gateway, ana.id)
        for stranger in (Principal("key", "ben"), elsewhere):
            answer = await ask(gateway, stranger)
            assert answer.startswith("sign_in_needed")
            assert office.provider.issuer in answer
        # What is of another issuer goes nowhere.
        assert "access-elsewhere" not in str(office.provider.requests)


async def test_a_token_that_ends_is_got_again_while_the_person_is_there(
    company: tuple[Company, Config],
) -> None:
    office, config = company
    office.issuer.token_s = 1
    async with run_gateway(config=config, data_dir=office.folder) as gateway:
        ana, tokens = office.come("ana")
        await keep(gateway, ana, tokens)
        await connect(gateway, ana.id)
        for _ in range(3):
            office.issuer.revoke_access()
            assert await ask(gateway, ana) == "you are ana"
        # Gone at the provider: what was issued ends, and there is no other.
        office.provider.subjects.clear()
        office.issuer.revoke_access()
        answer = await ask(gateway, ana)
        assert "invalid_grant" in answer


async def test_another_gateway_knows_by_which_token_somebody_came(
    company: tuple[Company, Config],
) -> None:
    office, config = company
    ana, tokens = office.come("ana")
    async with run_gateway(config=config, data_dir=office.folder) as gateway:
        await keep(gateway, ana, tokens)
        await connect(gateway, ana.id)
    async with run_gateway(config=config, data_dir=office.folder) as again:
        assert await ask(again, ana) == "you are ana"
    stored = b"".join(path.read_bytes() for path in office.folder.iterdir() if path.is_file())
    assert tokens.access_token.encode() not in stored


@dataclass
class ProviderVerifier:
    """Accepts the access tokens of the provider."""

    office: Company

    @property
    def authorization_servers(self) -> tuple[str, ...]:
        return (self.office.provider.issuer,)

    def list_scopes(self, profile: str) -> tuple[str, ...]:
        return ()

    async def verify(self, token: str) -> Principal | Rejection | None:
        name = self.office.provider.subjects.get(token)
        ends_at = time.time() + 3_600
        return Principal(self.office.provider.issuer, name, expires_at=ends_at) if name else None

    def accepts(self, principal: Principal) -> bool:
        return True

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_token_of_a_request_is_the_one_that_is_exchanged(
    company: tuple[Company, Config], era: Era
) -> None:
    office, config = company
    async with run_gateway(config=config, data_dir=office.folder) as gateway:
        options: dict[str, Any] = {
            "verifiers": (ProviderVerifier(office),),
            "on_verified": follow_subjects(gateway),
        }
        async with serve_http(gateway, **options) as url:
            for name in ("ana", "ben"):
                _, tokens = office.come(name)
                async with raw_http(url, era, token=tokens.access_token) as client:
                    # Who comes first has the tools listed, without any call.
                    await wait_until(lambda: is_listed(gateway))
                    answer = await call(client, "call_tool", name="notes.whoami")
                    assert f"you are {name}" in str(answer)


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ({"grant": "token_exchange"}, "token_exchange needs issuer"),
        ({"grant": "token_exchange", "issuer": "https://a.example"}, "needs client_id"),
        (
            {"grant": "identity_assertion", "issuer": "https://a.example", "client_id": "x"},
            "needs identity_provider",
        ),
        ({"grant": "jwt_bearer", "client_id": "x"}, "and an assertion"),
        ({"grant": "jwt_bearer", "client_id": "x", "assertion": "y", "per_user": True}, "people"),
    ],
)
def test_a_configuration_without_what_is_needed_says_so(auth: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Config.model_validate({"servers": {"notes": {"url": "https://n.example", "auth": auth}}})


async def test_a_workload_comes_with_its_own_jwt(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(run_authorization_server())
        issuer.clients["workload"] = {"redirect_uris": []}
        issuer.assertions[("a workload's JWT", issuer.issuer)] = "robot"
        server = await stack.enter_async_context(run_protected_server(issuer))
        file = tmp_path / "token"
        file.write_text("a workload's JWT\n")
        auth = {"grant": "jwt_bearer", "client_id": "workload", "assertion": file.read_text()}
        config = Config.model_validate({"servers": {"notes": {"url": server.url, "auth": auth}}})
        gateway = await stack.enter_async_context(run_gateway(config=config, data_dir=tmp_path))
        answer = await ask(gateway, Principal("key", "ana"))
        assert answer == "you are robot"
