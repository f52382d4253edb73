"""Tokens that only their issuer understands: looked up, briefly remembered, never shown around."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico.auth.introspection import MAX_PENDING
from portico.auth.issuer_verifier import IssuerVerifier
from portico.auth.keys import create_key
from portico.auth.token_verifier import Rejection
from portico.callers import Principal
from portico.config import Config, IssuerConfig
from tests.auth.fake_issuer import AUDIENCE, FakeIssuer, answer, run_issuer
from tests.auth.token_gateway import CAME_IN, post_token, serve_gateway
from tests.gateways import wait_until

CLIENT = {"client_id": "portico & co", "client_secret": "a secret: with signs"}
NOW = 1_000_000.0


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def open_verifier(
    clock: Clock | None = None, **settings: Any
) -> AsyncGenerator[tuple[FakeIssuer, IssuerVerifier]]:
    async with run_issuer() as issuer:
        config = {
            "issuer": issuer.url,
            "audience": AUDIENCE,
            "introspection": CLIENT,
            **settings,
        }
        verifier = IssuerVerifier(
            [IssuerConfig.model_validate(config)], None, clock=clock or Clock()
        )
        yield issuer, verifier
        await verifier.close()


def active(**members: Any) -> Mapping[str, Any]:
    return {"active": True, "sub": "ana", "aud": AUDIENCE, "exp": NOW + 600, **members}


async def test_an_active_token_is_of_the_person_that_its_issuer_names() -> None:
    async with open_verifier() as (issuer, verifier):
        issuer.introspected["opaque"] = active(name="Ana Lima", groups=["dev"], jti="opaque")
        principal = await verifier.verify("opaque")
        assert isinstance(principal, Principal)
        assert (principal.issuer, principal.subject) == (issuer.url, "ana")
        assert (principal.name, principal.groups) == ("Ana Lima", ("dev",))
        assert not principal.credential, "the token itself is in no log"
        assert principal.expires_at == NOW + 60, "and is looked up again in a minute"
        assert issuer.forms == [{"token": "opaque", "token_type_hint": "access_token"}]


REFUSED: dict[str, Mapping[str, Any]] = {
    "inactive": {"active": False},
    "active as text": active(active="true"),
    "nothing said": {},
    "expired": active(exp=NOW - 60),
    "not valid yet": active(nbf=NOW + 600),
    "no audience": {key: value for key, value in active().items() if key != "aud"},
    "another audience": active(aud="https://elsewhere.example"),
    "another issuer": active(iss="https://evil.example"),
    "no subject": {key: value for key, value in active().items() if key != "sub"},
    "a refresh token": active(token_type="refresh_token"),
    "a refresh token of Keycloak": active(typ="Refresh"),
    "an ID token": active(token_use="id"),
    "bound to a key": active(cnf={"jkt": "x"}),
}


@pytest.mark.parametrize("said", REFUSED)
async def test_a_token_of_which_that_is_said_does_not_get_in(said: str) -> None:
    async with open_verifier() as (issuer, verifier):
        issuer.introspected["opaque"] = REFUSED[said]
        verdict = await verifier.verify("opaque")
        assert isinstance(verdict, Rejection)
        assert verdict.status == 401


async def test_the_same_token_is_looked_up_once_at_a_time_and_a_wrong_one_is_remembered() -> None:
    async with open_verifier() as (issuer, verifier):
        issuer.introspected["opaque"] = active()
        found = await asyncio.gather(*(verifier.verify("opaque") for _ in range(50)))
        assert all(isinstance(one, Principal) for one in found)
        assert issuer.requests["/introspect"] == 1
        for _ in range(20):
            assert isinstance(await verifier.verify("wrong"), Rejection)
        assert issuer.requests["/introspect"] == 2


async def test_so_many_are_looked_up_at_a_time_and_no_more() -> None:
    may_answer = asyncio.Event()

    async def answer_later(send: Any) -> None:
        await may_answer.wait()
        await answer(send, 200, b'{"active": false}')

    async with open_verifier() as (issuer, verifier):
        issuer.introspected["first"] = active()
        await verifier.verify("first")
        issuer.faults["/introspect"] = answer_later
        asking = [
            asyncio.create_task(verifier.verify(f"token{number}"))
            for number in range(MAX_PENDING + 40)
        ]
        await wait_until(lambda: sum(task.done() for task in asking) == 40)
        refused = [task.result() for task in asking if task.done()]
        assert {one.status for one in refused if isinstance(one, Rejection)} == {503}
        may_answer.set()
        await asyncio.wait_for(asyncio.gather(*asking), 240)


@pytest.mark.parametrize("status", [302, 400, 401, 500])
async def test_an_issuer_that_does_not_answer_is_no_reason_to_sign_in_again(status: int) -> None:
    async with open_verifier() as (issuer, verifier):
        issuer.faults["/introspect"] = lambda send: answer(send, status, b"{}")
        for _ in range(20):
            verdict = await verifier.verify("opaque")
            assert isinstance(verdict, Rejection)
            assert (verdict.status, verdict.is_forged) == (503, False)
        assert issuer.requests["/introspect"] == 1, "it is left alone for a while"


async def test_what_cannot_be_its_token_is_not_shown_to_an_issuer() -> None:
    async with run_issuer() as issuer, serve_gateway(issuer, introspection=CLIENT) as url:
        issuer.introspected["opaque"] = active(exp=time.time() + 600)
        _, key = create_key("ana", time.time())
        elsewhere = issuer.sign(issuer.claims(iss="https://elsewhere.example"))
        for text in (key, elsewhere, "with space", '"quoted"', "x" * 20_000):
            assert (await post_token(url, text)).status_code in (401, 431), text
        assert not issuer.forms
        assert (await post_token(url, "opaque")).status_code == CAME_IN
        assert len(issuer.forms) == 1


def test_only_one_issuer_is_shown_tokens_that_name_none() -> None:
    both = [
        {"issuer": f"https://{name}.example", "audience": "x", "introspection": CLIENT}
        for name in ("one", "two")
    ]
    with pytest.raises(ValueError, match="only one issuer may have introspection"):
        Config.model_validate({"auth": both})
