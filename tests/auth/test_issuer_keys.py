"""The keys of an issuer in a running gateway: fetched once, and again when that helps."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico.auth.issuer_client import (
    IssuerClient,
    IssuerUnavailable,
    list_metadata_urls,
    parse_object,
    read_endpoint,
)
from portico.auth.issuer_keys import FRESH_S, MAX_STALE_S, REFETCH_S, RETRY_S, IssuerKeys
from portico.auth.public_keys import parse_keys
from portico.auth.signed_token import SignedToken, parse_signed_token
from portico.config import IssuerConfig
from tests.auth.fake_issuer import FakeIssuer, answer, make_key, run_issuer, sign, to_jwk
from tests.gateways import wait_until


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def watch(clock: Clock) -> AsyncGenerator[tuple[FakeIssuer, IssuerKeys]]:
    async with run_issuer() as issuer:
        client = IssuerClient()
        keys = IssuerKeys(IssuerConfig(issuer=issuer.url), client, clock=clock)
        yield issuer, keys
        await keys.close()
        await client.close()


def token_of(issuer: FakeIssuer, kid: str | None = None) -> SignedToken:
    return parse_signed_token(issuer.sign(kid=kid or issuer.kid))


async def fail(send: Any) -> None:
    await answer(send, 500, b"")


async def test_a_hundred_tokens_at_once_fetch_the_keys_once() -> None:
    async with watch(Clock()) as (issuer, keys):
        found = await asyncio.gather(*(keys.find(token_of(issuer)) for _ in range(100)))
        assert all(len(one) == 1 for one in found)
        assert issuer.requests["/jwks"] == 1


async def test_a_key_that_is_new_is_fetched_and_a_flood_of_unknown_ones_is_not() -> None:
    clock = Clock()
    async with watch(clock) as (issuer, keys):
        await keys.find(token_of(issuer))
        clock.now += REFETCH_S
        issuer.keys.append(to_jwk(make_key("new").public_key(), "new"))
        text = sign(make_key("new"), {"alg": "RS256", "kid": "new"}, b"{}")
        assert len(await keys.find(parse_signed_token(text))) == 1
        for number in range(200):
            assert not await keys.find(token_of(issuer, f"made up {number}"))
        assert issuer.requests["/jwks"] == 2


async def test_old_keys_are_fetched_again_beside_the_requests_that_use_them() -> None:
    clock = Clock()
    async with watch(clock) as (issuer, keys):
        await keys.find(token_of(issuer))
        clock.now += FRESH_S + 1
        assert await keys.find(token_of(issuer))
        await wait_until(lambda: issuer.requests["/jwks"] == 2)


async def test_a_key_that_its_issuer_withdrew_is_not_used_after_the_next_look() -> None:
    clock = Clock()
    async with watch(clock) as (issuer, keys):
        old = token_of(issuer)
        await keys.find(old)
        issuer.keys = [to_jwk(make_key("new").public_key(), "new")]
        clock.now += FRESH_S + 1
        await keys.find(old)
        await wait_until(lambda: issuer.requests["/jwks"] == 2)
        await keys.find(old)
        assert not await keys.find(old)


async def test_while_an_issuer_fails_its_last_keys_stay_in_use_for_a_day() -> None:
    clock = Clock()
    async with watch(clock) as (issuer, keys):
        await keys.find(token_of(issuer))
        issuer.faults["/jwks"] = fail
        clock.now += FRESH_S + 1
        assert await keys.find(token_of(issuer))
        await wait_until(lambda: bool(keys.problem))
        assert await keys.find(token_of(issuer))
        with pytest.raises(IssuerUnavailable):
            await keys.find(token_of(issuer, "maybe new"))
        clock.now = MAX_STALE_S + 1
        with pytest.raises(IssuerUnavailable, match="answers 500"):
            await keys.find(token_of(issuer))


async def test_an_issuer_that_failed_is_asked_again_after_a_while_only() -> None:
    clock = Clock()
    async with watch(clock) as (issuer, keys):
        issuer.faults["/jwks"] = fail
        for _ in range(50):
            with pytest.raises(IssuerUnavailable):
                await keys.find(token_of(issuer))
        assert issuer.requests["/jwks"] == 1
        del issuer.faults["/jwks"]
        clock.now += RETRY_S
        assert await keys.find(token_of(issuer))
        assert not keys.problem


async def test_a_hanging_issuer_holds_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portico.auth.issuer_client.FETCH_S", 0.2)

    async def hang(_: Any) -> None:
        await asyncio.Event().wait()

    async with watch(Clock()) as (issuer, keys):
        issuer.faults["/jwks"] = hang
        with pytest.raises(IssuerUnavailable, match="did not answer"):
            await keys.find(token_of(issuer))


async def test_a_request_that_is_given_up_does_not_end_the_fetch_of_the_others() -> None:
    clock = Clock()
    may_answer = asyncio.Event()

    async with watch(clock) as (issuer, keys):

        async def answer_later(send: Any) -> None:
            await may_answer.wait()
            await answer(send, 200, json.dumps({"keys": issuer.keys}).encode())

        issuer.faults["/jwks"] = answer_later
        impatient = asyncio.create_task(asyncio.wait_for(keys.find(token_of(issuer)), 600))
        patient = asyncio.create_task(asyncio.wait_for(keys.find(token_of(issuer)), 600))
        await wait_until(lambda: issuer.requests["/jwks"] == 1)
        impatient.cancel()
        await asyncio.wait({impatient})
        may_answer.set()
        assert await patient
        assert issuer.requests["/jwks"] == 1


def test_metadata_are_looked_for_where_the_specifications_put_them() -> None:
    assert list_metadata_urls("https://id.example/realms/a") == [
        "https://id.example/realms/a/.well-known/openid-configuration",
        "https://id.example/.well-known/oauth-authorization-server/realms/a",
        "https://id.example/.well-known/openid-configuration/realms/a",
    ]
    assert list_metadata_urls("https://id.example") == [
        "https://id.example/.well-known/openid-configuration",
        "https://id.example/.well-known/oauth-authorization-server",
    ]


@pytest.mark.parametrize(
    "url", ["http://id.example/jwks", "file:///etc/passwd", "", None, "http://127.0.0.1/jwks", 7]
)
def test_an_issuer_on_https_cannot_send_the_gateway_elsewhere(url: Any) -> None:
    with pytest.raises(IssuerUnavailable):
        read_endpoint({"jwks_uri": url}, "jwks_uri", "https://id.example")


def test_documents_of_nothing_but_lists_are_not_decoded() -> None:
    lists = b'{"keys":[' + b"[]," * 100_000 + b"[]]}"
    with pytest.raises(IssuerUnavailable, match="JSON values"):
        parse_object(lists, "https://issuer.example")
    with pytest.raises(ValueError, match="JSON values"):
        parse_keys(lists, ["RS256"])
