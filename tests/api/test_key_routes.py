"""Keys and the configuration over REST, and who may use them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from portico.api import activity_models as models
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.gateway.rest_app import RestApp
from portico.testing import serve_http
from tests.api.api_client import V1, backend, make_tools
from tests.gateways import TIMEOUT_S, run_gateway, wait_until
from tests.http import open_client

TOKEN = "s3cret-t0ken-of-the-test-0123456789"
CONFIG = {
    "gateway": {"token": TOKEN},
    "servers": {},
    "profiles": {"reading": {"servers": ["git"]}},
    "audit": {"enabled": True},
}


@asynccontextmanager
async def serve(tmp_path: Path) -> AsyncGenerator[tuple[GatewayRuntime, httpx2.AsyncClient]]:
    config = Config.model_validate(CONFIG)
    servers = {"git": backend(*make_tools("git", 1)), "mail": backend(*make_tools("mail", 1))}
    async with run_gateway(servers, config, data_dir=tmp_path) as gateway:
        await gateway.load_keys()
        async with (
            serve_http(gateway, token=TOKEN, keys=gateway.keys, api=RestApp(gateway)) as url,
            open_client(url, {"authorization": f"Bearer {TOKEN}"}) as http,
        ):
            yield gateway, http


async def test_a_key_is_made_shown_once_used_and_revoked(tmp_path: Path):
    async with serve(tmp_path) as (gateway, http):
        made = (await http.post(f"{V1}/keys", json={"name": "ana", "expires": "90d"})).json()
        models.NewKey.model_validate(made)
        listed = await http.get(f"{V1}/keys")
        assert made["key"] not in listed.text
        (card,) = listed.json()["keys"]
        assert (card["name"], card["state"]) == ("ana", "valid")
        await wait_until(lambda: gateway.keys.is_valid(made["id"]), TIMEOUT_S)
        own = {"authorization": f"Bearer {made['key']}"}
        assert (await http.get(f"{V1}/servers", headers=own)).status_code == 200
        revoked = (await http.delete(f"{V1}/keys/ana")).json()
        assert revoked == {"revoked": [made["id"]]}
        await wait_until(lambda: not gateway.keys.is_valid(made["id"]), TIMEOUT_S)
        assert (await http.get(f"{V1}/servers", headers=own)).status_code == 401
        log = (tmp_path / "audit.jsonl").read_text()
        assert '"keys/add"' in log
        assert '"keys/revoke"' in log
        assert made["key"] not in log


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"name": "no name"}, "cannot be the name"),
        ({"name": "ana", "expires": "soon"}, "no duration"),
        ({"name": "ana", "profiles": ["gone"]}, "gone"),
    ],
)
async def test_a_key_that_cannot_be_made_says_why(
    tmp_path: Path, body: dict[str, object], detail: str
):
    async with serve(tmp_path) as (_, http):
        reply = await http.post(f"{V1}/keys", json=body)
        assert reply.status_code == 422
        assert detail in reply.json()["detail"]


async def test_a_second_key_of_a_name_and_an_unknown_one_are_refused(tmp_path: Path):
    async with serve(tmp_path) as (_, http):
        assert (await http.post(f"{V1}/keys", json={"name": "ana"})).status_code == 200
        assert (await http.post(f"{V1}/keys", json={"name": "ana"})).status_code == 422
        assert (await http.delete(f"{V1}/keys/ben")).status_code == 404


ADMINISTRATION = [("GET", "keys"), ("POST", "keys"), ("DELETE", "keys/ana"), ("GET", "config")]


async def test_no_holder_of_a_key_administers_and_one_of_a_profile_sees_only_that(tmp_path: Path):
    async with serve(tmp_path) as (gateway, http):
        texts: dict[str, str] = {}
        for name, more in (
            ("full", {}),
            ("reader", {"read_only": True}),
            ("part", {"profiles": ["reading"]}),
        ):
            made = (await http.post(f"{V1}/keys", json={"name": name, **more})).json()
            texts[name] = made["key"]
            await wait_until(lambda key_id=made["id"]: gateway.keys.is_valid(key_id), TIMEOUT_S)

        async def request(name: str, method: str, path: str) -> int:
            headers = {"authorization": f"Bearer {texts[name]}"}
            body = {"name": "x", "tool": "git.git_0"} if method == "POST" else None
            reply = await http.request(method, f"{V1}/{path}", headers=headers, json=body)
            return reply.status_code

        for name in texts:
            for method, path in ADMINISTRATION:
                assert await request(name, method, path) == 403, (name, method, path)
        for path in ("calls", "stats", "stats/daily", "load", "servers/git/log"):
            assert await request("full", "GET", path) == 200, path
            assert await request("part", "GET", path) == 403, path
        assert await request("part", "GET", "servers/git") == 200
        assert await request("part", "GET", "servers/mail") == 404


async def test_the_configuration_is_shown_without_secrets(tmp_path: Path):
    async with serve(tmp_path) as (_, http):
        reply = await http.get(f"{V1}/config")
        models.EffectiveConfig.model_validate(reply.json())
        assert reply.json()["config"]["profiles"]["reading"]["servers"] == ["git"]
        assert TOKEN not in reply.text
