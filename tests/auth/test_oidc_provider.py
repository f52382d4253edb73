"""The identity provider of the tests does what they rely on."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.auth.oidc_provider import CLIENT_ID, MACHINE_ID, MACHINE_SECRET, run_oidc_provider

pytestmark = pytest.mark.node
RESOURCE = "http://127.0.0.1:1/mcp"


def read_claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


async def test_it_issues_tokens_for_a_resource_to_people_and_machines(tmp_path: Path) -> None:
    users = {"ana": {"name": "Ana Lima", "groups": ["dev"]}}
    async with run_oidc_provider(tmp_path, users=users, scopes=["mail"]) as idp:
        tokens = await idp.sign_in("ana", resource=RESOURCE, scope="openid mail")
        claims = read_claims(tokens["access_token"])
        assert (claims["iss"], claims["sub"], claims["aud"]) == (idp.issuer, "ana", RESOURCE)
        assert (claims["groups"], claims["scope"]) == (["dev"], "openid mail")
        machine = await idp.request_token(
            grant_type="client_credentials",
            client_id=MACHINE_ID,
            client_secret=MACHINE_SECRET,
            resource=RESOURCE,
        )
        assert read_claims(machine["access_token"])["sub"] == MACHINE_ID


async def test_a_refresh_token_works_once_and_over_a_restart(tmp_path: Path) -> None:
    async with run_oidc_provider(tmp_path) as idp:
        tokens = await idp.sign_in("ana", resource=RESOURCE)
        issuer = idp.issuer
        await idp.stop()
        await idp.start()
        assert idp.issuer == issuer
        form = {"grant_type": "refresh_token", "client_id": CLIENT_ID}
        renewed = await idp.request_token(**form, refresh_token=tokens["refresh_token"])
        assert renewed["refresh_token"] != tokens["refresh_token"]
        async with httpx2.AsyncClient() as http:
            again = {**form, "refresh_token": tokens["refresh_token"]}
            reply = await http.post(f"{idp.issuer}/token", data=again)
        assert reply.json()["error"] == "invalid_grant"
