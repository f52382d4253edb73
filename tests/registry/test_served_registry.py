"""The gateway as a registry: endpoints under the caller's rights, and servers that are listed."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import jsonschema_rs
import pytest

from portico import __version__
from portico.auth.authenticator import KeyRing
from portico.auth.keys import create_key
from portico.config import Config
from portico.gateway.rest_app import RestApp
from portico.registry.server_catalogue import ServerCatalogue
from portico.storage.rows import KeyRow
from portico.testing import serve_http
from tests.gateways import run_gateway
from tests.registry.server_schema import SERVER_SCHEMA

OFFICIAL = "io.modelcontextprotocol.registry/official"
TOKEN = "a-token-of-thirty-two-characters"


def make_config(folder: Path, **registry: Any) -> Config:
    return Config.model_validate(
        {
            "data_dir": str(folder),
            "gateway": {"public_url": "https://portico.example.org"},
            "profiles": {"work": {}, "home": {}},
            "registry": registry,
        }
    )


def keep_snapshot(folder: Path) -> None:
    servers = [
        {
            "name": f"io.github.{owner}/{name}",
            "description": "Does things",
            "version": "1.2.0",
        }
        for owner in ("acme", "other")
        for name in ("crm", "wiki")
    ]
    ServerCatalogue(folder).replace("https://registry.example", servers, datetime.now(UTC))


@asynccontextmanager
async def open_http(
    config: Config, *, key: KeyRow | None = None, **options: Any
) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of a gateway over HTTP, which may have a key."""
    async with run_gateway({}, config) as gateway:
        if key is not None:
            options["keys"] = KeyRing()
            options["keys"].replace([key])
        async with (
            serve_http(gateway, api=RestApp(gateway), **options) as url,
            httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as http,
        ):
            yield http


async def test_the_endpoints_are_listed_page_by_page_and_keep_the_schema(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    async with open_http(config) as http:
        names: list[str] = []
        cursor = ""
        for _ in range(3):
            query = {"limit": "1", "version": "latest"} | ({"cursor": cursor} if cursor else {})
            page = (await http.get("/v0.1/servers", params=query)).json()
            assert page["metadata"]["count"] == 1
            answer = page["servers"][0]
            assert answer["_meta"][OFFICIAL]["status"] == "active"
            assert answer["_meta"][OFFICIAL]["isLatest"] is True
            problems = jsonschema_rs.Draft202012Validator(SERVER_SCHEMA).iter_errors(
                answer["server"]
            )
            assert not list(problems)
            names.append(answer["server"]["name"])
            cursor = page["metadata"].get("nextCursor", "")
        assert cursor == ""
        assert names == [
            "org.example.portico/portico",
            "org.example.portico/portico-home",
            "org.example.portico/portico-work",
        ]
        found = await http.get("/v0.1/servers", params={"search": "WORK"})
        assert [one["server"]["remotes"][0]["url"] for one in found.json()["servers"]] == [
            "https://portico.example.org/mcp/p/work"
        ]


async def test_one_server_and_its_versions_are_found_by_their_encoded_name(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    async with open_http(config) as http:
        path = f"/v0.1/servers/{quote('org.example.portico/portico-work', safe='')}/versions"
        for version in ("latest", __version__):
            found = await http.get(f"{path}/{version}")
            assert found.status_code == 200, found.text
            assert found.json()["server"]["name"] == "org.example.portico/portico-work"
        versions = (await http.get(path)).json()
        assert [one["server"]["version"] for one in versions["servers"]] == [__version__]
        for wrong in (f"{path}/9.9.9", "/v0.1/servers/a%2Fb/versions/latest"):
            missing = await http.get(wrong)
            assert (missing.status_code, missing.json()) == (404, {"error": "Server not found"})


async def test_servers_of_the_snapshot_are_listed_where_the_configuration_says_so(
    tmp_path: Path,
) -> None:
    keep_snapshot(tmp_path)
    config = make_config(tmp_path, servers=["io.github.acme/*"], namespace="com.acme")
    async with open_http(config) as http:
        listed = (await http.get("/v0.1/servers")).json()["servers"]
        assert [one["server"]["name"] for one in listed] == [
            *("com.acme/portico", "com.acme/portico-home", "com.acme/portico-work"),
            *("io.github.acme/crm", "io.github.acme/wiki"),
        ]


@pytest.mark.parametrize("scheme", ["token", "none"])
async def test_without_a_credential_nothing_is_listed(tmp_path: Path, scheme: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"} if scheme == "token" else {}
    async with open_http(make_config(tmp_path), token=TOKEN) as http:
        reply = await http.get("/v0.1/servers", headers=headers)
    if scheme == "none":
        assert reply.status_code == 401
        return
    remote = reply.json()["servers"][0]["server"]["remotes"][0]
    assert remote["headers"][0]["name"] == "Authorization"
    assert TOKEN not in reply.text


async def test_a_key_of_one_profile_sees_that_profile_alone(tmp_path: Path) -> None:
    key, text = create_key("ana", time.time(), profiles=("work",))
    headers = {"Authorization": f"Bearer {text}"}
    async with open_http(make_config(tmp_path), key=key) as http:
        listed = (await http.get("/v0.1/servers", headers=headers)).json()["servers"]
        assert [one["server"]["name"] for one in listed] == ["org.example.portico/portico-work"]
        hidden = await http.get(
            "/v0.1/servers/org.example.portico%2Fportico-home/versions/latest", headers=headers
        )
        assert hidden.status_code == 404
