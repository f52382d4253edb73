"""What the authorization server keeps, in a file and in PostgreSQL: bounded, and each once."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from portico.storage.authorization_rows import GrantRow, OAuthClientRow, SignInRow
from portico.storage.authorization_store import (
    FILE_NAME,
    MAX_GRANTS_PER_PERSON,
    AuthorizationStore,
)
from portico.storage.gateway_store import StoreUnavailable
from tests.fixtures.postgres import postgres as postgres

NOW = 1_000_000.0
GRANT = GrantRow(
    id="g",
    digest="one",
    is_code=True,
    expires_at=NOW + 60,
    ends_at=NOW + 1_000,
    client_id="c-1",
    redirect_uri="http://127.0.0.1/callback",
    challenge="x",
    resource="https://portico.example/mcp",
    issuer="https://id.example",
    subject="ana",
    claims="{}",
    confirmed_at=NOW,
    sealed=b"\0sealed",
)
SIGN_IN = SignInRow("s", "b", "c-1", "http://127.0.0.1/", "", "x", "https://p/mcp", NOW + 600)


def make_client(number: int) -> OAuthClientRow:
    return OAuthClientRow(f"c-{number}", f"Client {number}", ("http://127.0.0.1/",), NOW + number)


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[AuthorizationStore]:
    url = request.getfixturevalue("postgres").url if request.param == "postgresql" else None
    opened = AuthorizationStore(url, tmp_path, max_clients=3)
    yield opened
    await opened.close()


async def test_clients_that_nobody_signed_in_with_go_first(store: AuthorizationStore) -> None:
    for number in range(3):
        await store.add_client(make_client(number))
    await store.add_grant(replace(GRANT, client_id="c-0"), NOW)
    await store.add_client(make_client(3))
    assert await store.find_client("c-1") is None
    assert (await store.find_client("c-0")) is not None, "it is older, and somebody uses it"
    assert await store.find_client("c-3") == make_client(3)


async def test_a_sign_in_is_found_once(store: AuthorizationStore) -> None:
    await store.add_sign_in(SIGN_IN, NOW)
    found = await asyncio.gather(*(store.take_sign_in("s") for _ in range(5)))
    assert [one for one in found if one is not None] == [SIGN_IN]


async def test_a_grant_is_replaced_by_who_has_its_current_credential(
    store: AuthorizationStore,
) -> None:
    await store.add_grant(GRANT, NOW)
    renewed = [replace(GRANT, digest=f"of {number}", is_code=False) for number in range(4)]
    replaced = await asyncio.gather(
        *(
            store.replace_grant("one", grant, f"access {grant.digest}", NOW + 900, NOW)
            for grant in renewed
        )
    )
    assert sorted(replaced) == [False, False, False, True]
    winner = renewed[replaced.index(True)]
    assert await store.find_grant("g") == winner
    assert await store.find_access(f"access {winner.digest}") == (winner, NOW + 900)
    await store.end_grant("g")
    assert await store.find_access(f"access {winner.digest}") is None


async def test_expired_grants_and_tokens_go(store: AuthorizationStore) -> None:
    await store.add_grant(GRANT, NOW)
    await store.replace_grant("one", replace(GRANT, digest="two"), "access", NOW + 30, NOW)
    other = replace(GRANT, id="h", subject="bob", expires_at=NOW + 9_000)
    await store.add_grant(other, NOW + 100)
    assert await store.find_grant("g") is None
    assert await store.find_access("access") is None
    assert await store.find_grant("h") == other


async def test_a_person_has_so_many_sign_ins_and_costs_others_none(
    store: AuthorizationStore,
) -> None:
    await store.add_grant(replace(GRANT, id="of bob", subject="bob"), NOW)
    for number in range(MAX_GRANTS_PER_PERSON + 1):
        grant = replace(GRANT, id=f"g{number}", expires_at=NOW + 60 + number)
        await store.add_grant(grant, NOW)
    assert await store.find_grant("g0") is None
    assert await store.find_grant("g1") is not None
    assert await store.find_grant("of bob") is not None


async def test_a_file_that_is_no_database_is_an_error_until_it_is_gone(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 100)
    store = AuthorizationStore(None, tmp_path)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.find_client("c-1")
    (tmp_path / FILE_NAME).unlink()
    assert await store.find_client("c-1") is None
    await store.close()
