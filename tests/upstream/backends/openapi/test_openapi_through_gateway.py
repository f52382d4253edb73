"""An API behind the gateway: the same pipeline as every other server."""

import os
import re
from pathlib import Path

import pytest

from portico.cli.doctor.configuration_checks import check_openapi as check
from portico.cli.doctor.finding import ConfigLocations
from portico.config import BackendConfig, Config, compute_fingerprint
from portico.config_file import load
from portico.testing import connect, gateway_over
from tests.upstream.backends.openapi.petstore import FIXTURES, shop

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "openapi.md"
URL = "https://x.example/api.json"


async def test_an_api_is_searched_described_and_called_like_any_server():
    async with shop() as (opened, url):
        server = BackendConfig(
            openapi=str(FIXTURES / "petstore.yaml"),
            base_url=url,
            tools={"deny": ["login"], "rename": {"getPet": "pet"}},  # pyright: ignore[reportArgumentType]
        )
        async with (
            gateway_over(config=Config(servers={"shop": server})) as gateway,
            connect(gateway) as client,
        ):
            found = await client.call_tool("search_tools", {"query": "remove a pet"})
            assert "shop.deletePet" in str(found.content)
            read = await client.call_tool(
                "call_tool", {"name": "shop.pet", "arguments": {"petId": 2}}
            )
            assert read.structured_content == {"id": 2, "name": "Ada"}
            wrong = await client.call_tool(
                "call_tool", {"name": "shop.pet", "arguments": {"petId": "two"}}
            )
            assert wrong.is_error
            denied = await client.call_tool(
                "call_tool", {"name": "shop.login", "arguments": {"user": "x"}}
            )
            assert denied.is_error
            await client.call_tool(
                "call_tool", {"name": "shop.createPet", "arguments": {"name": "Tim"}}
            )
        assert opened.pets[3] == {"id": 3, "name": "Tim"}


async def test_the_documented_configuration_works(tmp_path: Path):
    files = re.findall(
        r"<!-- (?:runnable, )?file: (\S+) -->\n```yaml\n(.*?)```",
        PAGE.read_text("utf-8"),
        re.DOTALL,
    )
    assert {name for name, _ in files} == {"portico.yaml", "petstore.yaml"}
    async with shop() as (opened, url):
        for name, text in files:
            (tmp_path / name).write_text(
                text.replace("http://127.0.0.1:9000/api", f"{url}/api"), "utf-8"
            )
        config = load(
            [tmp_path / "portico.yaml"], environ={**os.environ, "PETSTORE_TOKEN": "tok-123456"}
        ).config
        assert config.servers["petstore"].openapi == str(tmp_path / "petstore.yaml")
        async with gateway_over(config=config) as gateway, connect(gateway) as client:
            await client.call_tool(
                "call_tool", {"name": "petstore.getPet", "arguments": {"petId": 7}}
            )
    assert opened.received[0]["path"] == "/api/pets/7"
    assert dict(opened.received[0]["headers"])["authorization"] == b"Bearer tok-123456"


def test_a_changed_file_is_another_server_and_a_renewed_key_is_not(tmp_path: Path):
    place = tmp_path / "api.yaml"
    place.write_text("openapi: 3.0.0")
    before = compute_fingerprint(BackendConfig(openapi=str(place), query={"key": "one"}))
    assert compute_fingerprint(BackendConfig(openapi=str(place), query={"key": "two"})) == before
    assert compute_fingerprint(BackendConfig(openapi=str(place), query={"other": "one"})) != before
    place.write_text("openapi: 3.0.0 # longer")
    assert compute_fingerprint(BackendConfig(openapi=str(place), query={"key": "one"})) != before


@pytest.mark.parametrize(
    ("settings", "finding"),
    [
        ({"openapi": "nowhere.yaml"}, "openapi.missing"),
        ({"openapi": URL, "base_url": "x.example"}, "openapi.base_url"),
        (
            {"openapi": URL, "headers": {"Authorization": "Bearer abcdefgh1"}},
            "openapi.credentials_follow",
        ),
        (
            {"openapi": URL, "base_url": "http://x.example", "query": {"api_key": "abcdefgh1"}},
            "openapi.plain_http",
        ),
    ],
)
def test_doctor_sees_what_is_wrong_with_a_description(settings: dict[str, object], finding: str):
    server = BackendConfig.model_validate(settings)
    assert [found.id for found in check("api", server, ConfigLocations({}))] == [finding]
