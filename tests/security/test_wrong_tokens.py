"""Tokens: weak ones are refused beyond this machine, wrong ones are slowed down by address and
audited."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from portico.config import AuditConfig, Config
from portico.errors import ConfigError
from portico.server.http.app import check_exposure
from portico.testing import gateway_over, serve_http
from tests.cli.conftest import Home
from tests.interaction.fake_servers import fake
from tests.interaction.raw_clients import ACCEPT, hello

TOKEN = "s3cret-t0ken-of-the-test"
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
TIMEOUT_S = 240.0
OPENING = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}


@asynccontextmanager
async def serve(config: Config | None = None, **options: Any) -> AsyncGenerator[str]:
    async with (
        gateway_over({"s": fake("run")}, config) as gateway,
        serve_http(gateway, token=TOKEN, **options) as url,
    ):
        yield url


async def try_token(
    url: str, token: str | None, address: str = HERE, **more: str
) -> httpx2.Response:
    transport = httpx2.AsyncHTTPTransport(local_address=address)
    headers = (
        {**ACCEPT, **more}
        if token is None
        else {**ACCEPT, **more, "authorization": f"Bearer {token}"}
    )
    async with httpx2.AsyncClient(transport=transport, timeout=TIMEOUT_S) as http:
        return await http.post(url, json=OPENING, headers=headers)


@pytest.mark.parametrize(
    "token",
    [
        "a",
        "changeme",
        "open-sesame-42",
        "a" * 64,
        "ab" * 20,
        "passwordpassword",
        "1234567812345678",
    ],
)
def test_a_weak_token_is_refused_beyond_this_machine(token: str) -> None:
    check_exposure("127.0.0.1", token)
    with pytest.raises(ConfigError, match="easy to guess") as refused:
        check_exposure("0.0.0.0", token)
    assert "openssl rand -hex 32" in refused.value.advice
    assert token not in refused.value.message + refused.value.advice or token == "a"


@pytest.mark.parametrize(
    "token",
    [
        "9f86d081884c7d659a2feaa0c55ad015",
        "Xb3kQ9-zT0aLw_7d",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        TOKEN,
    ],
)
def test_a_random_token_is_good_anywhere(token: str) -> None:
    check_exposure("0.0.0.0", token)


def test_serve_and_doctor_refuse_a_weak_token_also_from_a_variable(tmp_path: Path) -> None:
    home = Home(tmp_path, cast("Any", None))
    home.write({"servers": {}, "gateway": {"host": "0.0.0.0", "port": 0, "token": "${DOOR_TOKEN}"}})
    weak = {"DOOR_TOKEN": "weakling"}
    ran = home.spawn("serve", env=weak)
    assert (ran.code, ran.out) == (2, "")
    assert "openssl rand -hex 32" in ran.err
    examined = home.spawn("doctor", "--offline", env=weak)
    assert "endpoint.token_weak" in examined.out
    assert "weakling" not in ran.err + examined.out + examined.err


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
async def test_an_address_that_a_request_claims_makes_guessing_no_faster(header: str) -> None:
    async with serve() as url:
        claims = [
            {header: f"for=10.1.2.{number}" if header == "forwarded" else f"10.1.2.{number}"}
            for number in range(40)
        ]
        refused = [await try_token(url, "wrong", **claim) for claim in claims]
        assert refused[-1].status_code == 429


async def test_wrong_tokens_are_slowed_down_by_address() -> None:
    async with serve() as url:
        refused = [await try_token(url, f"wrong-{number}") for number in range(40)]
        statuses = [one.status_code for one in refused]
        assert statuses[0] == 401
        assert statuses[-1] == 429
        assert int(refused[-1].headers["retry-after"]) >= 1
        assert (await try_token(url, TOKEN)).status_code == 429, (
            "it is not even looked at: guessing is slow"
        )
        assert (await try_token(url, TOKEN, ELSEWHERE)).status_code == 200


async def test_a_client_with_the_right_token_goes_on_beside_a_guesser_at_its_address() -> None:
    async with serve() as url:
        assert (await try_token(url, TOKEN)).status_code == 200
        statuses = [(await try_token(url, f"wrong-{number}")).status_code for number in range(40)]
        assert statuses[-1] == 429
        assert (await try_token(url, TOKEN)).status_code == 200


async def test_who_sends_no_token_is_asked_for_one_however_often() -> None:
    async with serve() as url:
        statuses = {(await try_token(url, None)).status_code for _ in range(40)}
        assert statuses == {401}
        assert (await try_token(url, TOKEN)).status_code == 200


async def test_whether_it_is_ready_tells_no_guesser_that_it_guessed_right() -> None:
    async with gateway_over({"s": fake("run")}) as gateway:
        health = gateway.ensure_monitoring().readiness.check_health
        async with (
            serve_http(gateway, token=TOKEN, health=health) as url,
            httpx2.AsyncClient(timeout=240) as http,
        ):
            ready = url.replace("/mcp", "/readyz")
            for number in range(40):
                await http.get(ready, headers={"authorization": f"Bearer wrong-{number}"})
            right = await http.get(ready, headers={"authorization": f"Bearer {TOKEN}"})
            assert "checks" not in right.json()
            assert (await try_token(url, TOKEN)).status_code == 429, "they count as any others"


async def test_wrong_tokens_are_audited_together(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with serve(Config(data_dir=tmp_path, audit=AuditConfig(file=log))) as url:
        for number in range(60):
            await try_token(url, f"wrong-{number}")
        async with asyncio.timeout(TIMEOUT_S):
            while not log.exists() or not log.read_text():  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.01)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) <= 2, "a flood does not roll the log over"
    assert sum(line["refused_tokens"] for line in lines) == 60
    assert {peer for line in lines for peer in line["peers"]} == {HERE}
    assert "wrong-" not in log.read_text()
