"""`per_user: true`: each person uses an own account at a server, and nobody else's."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portico.callers import LOCAL_USER, TOKEN_HOLDER, Caller, Principal
from portico.calls.call import CallContext
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.upstream.oauth.token_store import TokenStore
from tests.gateways import TIMEOUT_S, run_gateway
from tests.upstream.oauth.authorization_server import (
    ProtectedServer,
    ScriptedIssuer,
    run_authorization_server,
    run_protected_server,
)
from tests.upstream.oauth.signing_in import open_tokens, sign_in, target_of

PEOPLE = 60
CALLS = 1_000
SEED = 4


@dataclass
class Office:
    issuer: ScriptedIssuer
    server: ProtectedServer
    tokens: TokenStore
    config: Config
    folder: Path

    async def sign_in(self, principal: Principal, user: str) -> None:
        await sign_in(self.tokens, target_of(self.config, principal.id), user)

    def list_requests_of_people(self) -> dict[str, int]:
        """Return how often which token came, without those of the operator, whose connection lists
        the tools when it likes."""
        received = self.server.received.items()
        return {token: count for token, count in received if "access-operator" not in token}


@pytest.fixture
async def office(tmp_path: Path) -> AsyncGenerator[Office]:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(run_authorization_server())
        server = await stack.enter_async_context(run_protected_server(issuer))
        tokens = await stack.enter_async_context(open_tokens(tmp_path))
        config = Config.model_validate(
            {
                "servers": {
                    "notes": {
                        "url": server.url,
                        "auth": {"per_user": True},
                        "cache": {"ttl_s": 600},
                        "limits": {"concurrency": 0},
                    }
                }
            }
        )
        yield Office(issuer, server, tokens, config, tmp_path)


async def ask(gateway: GatewayRuntime, principal: Principal, tool: str = "notes.whoami") -> str:
    context = CallContext(Caller(principal=principal))
    view = gateway.get_view()
    result: Any = await asyncio.wait_for(view.run_tool(tool, {}, context), TIMEOUT_S)
    return result["content"][0]["text"]


def key_of(name: str) -> Principal:
    return Principal("key", name)


async def test_nobodys_answer_or_token_reaches_another(office: Office) -> None:
    """Tokens end all the time, connections are opened for each person, and a cache is on."""
    people = {f"person{number}": key_of(f"person{number}") for number in range(PEOPLE)}
    await office.sign_in(LOCAL_USER, "operator")
    for name, principal in people.items():
        await office.sign_in(principal, name)
    chance = random.Random(SEED)
    async with run_gateway(config=office.config, data_dir=office.folder) as gateway:
        slots = asyncio.Semaphore(16)
        crossed: list[tuple[str, str]] = []

        async def call(number: int) -> None:
            name = chance.choice(list(people))
            async with slots:
                answer = await ask(gateway, people[name])
            if answer != f"you are {name}":
                crossed.append((name, answer))
            if number % 300 == 150:
                office.issuer.revoke_access()
                gateway.calls.cache.invalidate("notes")

        await asyncio.gather(*(call(number) for number in range(CALLS)))
        assert crossed == []
        assert await ask(gateway, LOCAL_USER) == "you are operator"


async def test_who_has_no_account_gets_nobody_elses(office: Office) -> None:
    await office.sign_in(LOCAL_USER, "operator")
    ana = key_of("ana")
    await office.sign_in(ana, "ana")
    async with run_gateway(config=office.config, data_dir=office.folder) as gateway:
        assert await ask(gateway, LOCAL_USER) == "you are operator"
        assert await ask(gateway, ana) == "you are ana"
        before = office.list_requests_of_people()
        for stranger in (key_of("ben"), TOKEN_HOLDER, Principal("https://idp.example", "ana")):
            assert (await ask(gateway, stranger)).startswith("sign_in_needed")
        assert office.list_requests_of_people() == before  # not even a request without a token
        assert gateway.upstreams["notes"].state == "ready"
        assert await ask(gateway, ana) == "you are ana"


async def test_an_account_that_ends_ends_for_its_owner_alone(office: Office) -> None:
    ana = key_of("ana")
    ben = key_of("ben")
    for principal, name in ((LOCAL_USER, "operator"), (ana, "ana"), (ben, "ben")):
        await office.sign_in(principal, name)
    async with run_gateway(config=office.config, data_dir=office.folder) as gateway:
        assert await ask(gateway, ana) == "you are ana"
        assert await ask(gateway, ben) == "you are ben"
        for tokens in (office.issuer.tokens, office.issuer.refresh_tokens):
            for token in [token for token, found in tokens.items() if found.subject == "ben"]:
                del tokens[token]
        gateway.calls.cache.invalidate("notes")
        assert (await ask(gateway, ben)).startswith("sign_in_needed")
        assert await ask(gateway, ana) == "you are ana"
        assert gateway.upstreams["notes"].state == "ready"
        await office.sign_in(ben, "ben")
        assert await ask(gateway, ben) == "you are ben"
