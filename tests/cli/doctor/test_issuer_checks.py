"""What `portico doctor` says about identity providers."""

import asyncio
from typing import Any

from tests.auth.fake_issuer import FakeIssuer, answer, run_issuer
from tests.cli.conftest import Home

NO_SCRIPTS = {"run_code": False, "run_workflow": False}


async def examine(home: Home, issuer: FakeIssuer, **settings: Any) -> dict[str, dict[str, Any]]:
    auth = {"issuer": issuer.url, "audience": "x", **settings}
    home.write({"gateway": {"port": 0}, "metatools": NO_SCRIPTS, "auth": auth})
    result = await asyncio.to_thread(home.run, "doctor", "--json")
    return {finding["id"]: finding for finding in result.data["findings"]}


async def test_an_issuer_whose_keys_can_be_fetched_is_no_finding(home: Home) -> None:
    async with run_issuer() as issuer:
        found = await examine(home, issuer)
        assert issuer.requests["/jwks"] == 1
    assert not [name for name in found if name.startswith("auth.")]


async def test_an_issuer_that_could_not_vouch_for_anybody_is_broken(home: Home) -> None:
    async with run_issuer() as issuer:
        issuer.faults["/jwks"] = lambda send: answer(send, 404, b"")
        found = await examine(home, issuer)
    assert found["auth.issuer"]["severity"] == "broken"
    assert "/jwks answers 404" in found["auth.issuer"]["message"]


async def test_a_secret_in_the_file_and_a_missing_endpoint_are_found(home: Home) -> None:
    client = {"client_id": "portico", "client_secret": "plain words"}
    async with run_issuer() as issuer:
        issuer.metadata = {"introspection_endpoint": None}
        found = await examine(home, issuer, introspection=client)
    assert "introspection_endpoint" in found["auth.issuer"]["message"]
    assert found["secret.in_file"]["key"] == "auth.0.introspection.client_secret"


def test_a_provider_without_keys_of_its_own_is_not_asked_for_them(home: Home) -> None:
    proxy = {"client_id": "portico", "client_secret": "plain words"}
    auth = {"issuer": "https://github.com", "proxy": proxy, "profiles": {"*": ["group:acme"]}}
    gateway = {"port": 0, "public_url": "https://portico.example"}
    home.write({"gateway": gateway, "metatools": NO_SCRIPTS, "auth": auth})
    result = home.run("doctor", "--json")
    found = {finding["id"]: finding for finding in result.data["findings"]}
    assert "auth.issuer" not in found
    assert found["secret.in_file"]["key"] == "auth.0.proxy.client_secret"
