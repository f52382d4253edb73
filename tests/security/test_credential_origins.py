"""The credentials of an API go to the origin they went to first, whatever its description says
later."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from portico.config import BackendConfig, Config
from portico.errors import PorticoError
from portico.gateway import GatewayRuntime
from portico.testing import connect
from portico.upstream.backends.openapi import reader
from tests.cli.conftest import Home
from tests.upstream.loopback_server import serve

TOKEN = "tk-5f3a9c2b7d1e4f60"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Host:
    """A web server that keeps the credentials it was sent, and gives a description of an API."""

    url: str = ""
    servers: list[Any] = field(default_factory=list[Any])
    got: list[str | None] = field(default_factory=list[str | None])

    async def thing(self, request: Request) -> Response:
        self.got.append(request.headers.get("authorization"))
        return JSONResponse({"ok": True})

    async def description(self, request: Request) -> Response:
        return JSONResponse(make_description(self.servers))


@asynccontextmanager
async def host() -> AsyncGenerator[Host]:
    one = Host()
    routes = [
        Route("/thing", one.thing),
        Route("/v1/thing", one.thing),
        Route("/openapi.json", one.description),
    ]
    async with serve(Starlette(routes=routes)) as url:
        one.url = url
        yield one


def make_description(servers: list[Any], **operation: Any) -> dict[str, Any]:
    paths = {"/thing": {"get": {"operationId": "getThing", **operation}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "T", "version": "1"},
        "servers": servers,
        "paths": paths,
    }


def make_config(tmp_path: Path, place: str | Path, data: str = "data", **more: Any) -> Config:
    server = BackendConfig.model_validate({"openapi": str(place), "headers": HEADERS, **more})
    return Config(servers={"api": server}, data_dir=tmp_path / data)


async def call_operation(config: Config) -> str:
    """Return the answer to a client of a new gateway when it calls the one operation of the
    API."""
    async with GatewayRuntime(config) as gateway, connect(gateway) as client:
        result: Any = await client.call_tool("call_tool", {"name": "api.getThing", "arguments": {}})
        return result.content[0].text


def write_description(place: Path, *servers: Any, **operation: Any) -> Path:
    place.write_text(json.dumps(make_description(list(servers), **operation)))
    return place


async def test_an_edited_description_does_not_get_the_credentials_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with host() as good, host() as evil:
        place = write_description(tmp_path / "api.json", {"url": good.url})
        config = make_config(tmp_path, place)
        assert "ok" in await call_operation(config)
        write_description(place, {"url": evil.url})
        reported = await call_operation(config)
        assert (good.got, evil.got) == ([HEADERS["Authorization"]], [])
        assert f"`base_url: {evil.url}" in reported
        assert "and before it was" in reported
        write_description(place, {"url": good.url})
        assert "ok" in await call_operation(config)


async def test_an_edited_description_does_not_get_the_credentials_at_the_next_reconnect(
    tmp_path: Path,
) -> None:
    async with host() as good, host() as evil:
        place = write_description(tmp_path / "api.json", {"url": good.url})
        async with (
            GatewayRuntime(make_config(tmp_path, place)) as gateway,
            connect(gateway) as client,
        ):
            await client.call_tool("call_tool", {"name": "api.getThing", "arguments": {}})
            write_description(place, {"url": evil.url}, description="changed")
            with pytest.raises(PorticoError, match="and before it was"):
                await gateway.upstreams["api"].restart()
            result: Any = await client.call_tool(
                "call_tool", {"name": "api.getThing", "arguments": {}}
            )
            assert result.is_error or "credentials" in result.content[0].text
        assert (len(good.got), evil.got) == (1, [])


async def test_a_renewed_token_does_not_make_the_gateway_forget_the_origin(tmp_path: Path) -> None:
    async with host() as good, host() as evil:
        place = write_description(tmp_path / "api.json", {"url": good.url})
        assert "ok" in await call_operation(make_config(tmp_path, place))
        write_description(place, {"url": evil.url})
        await call_operation(
            make_config(tmp_path, place, headers={"Authorization": "Bearer another", "X-More": "1"})
        )
        assert evil.got == []


async def test_base_url_says_that_the_other_origin_is_right(tmp_path: Path) -> None:
    async with host() as good, host() as moved:
        place = write_description(tmp_path / "api.json", {"url": good.url})
        assert "ok" in await call_operation(make_config(tmp_path, place))
        write_description(place, {"url": moved.url})
        assert "ok" in await call_operation(make_config(tmp_path, place, base_url=moved.url))
        assert moved.got == [HEADERS["Authorization"]]


async def test_a_description_from_the_web_gets_credentials_for_its_own_origin_only(
    tmp_path: Path,
) -> None:
    async with host() as own, host() as other:
        own.servers = [{"url": "/v1"}]
        assert "ok" in await call_operation(make_config(tmp_path, f"{own.url}/openapi.json", "one"))
        own.servers = [{"url": other.url}]
        reported = await call_operation(make_config(tmp_path, f"{own.url}/openapi.json", "two"))
        assert "another origin than its own" in reported
        assert f"`base_url: {other.url}`" in reported
        assert other.got == []
        assert "ok" in await call_operation(
            make_config(tmp_path, f"{own.url}/openapi.json", "two", base_url=other.url)
        )


async def test_an_api_without_credentials_may_be_where_its_description_says(tmp_path: Path) -> None:
    async with host() as own, host() as other:
        own.servers = [{"url": other.url}]
        assert "ok" in await call_operation(
            make_config(tmp_path, f"{own.url}/openapi.json", headers={})
        )
        assert other.got == [None]


@pytest.mark.parametrize("where", ["operation", "path", "variable"])
async def test_no_other_way_to_name_a_server_gets_the_credentials(
    tmp_path: Path, where: str
) -> None:
    async with host() as good, host() as evil:
        place = write_description(tmp_path / "api.json", {"url": good.url})
        config = make_config(tmp_path, place)
        assert "ok" in await call_operation(config)
        document = make_description([{"url": good.url}])
        if where == "operation":
            document["paths"]["/thing"]["get"]["servers"] = [{"url": evil.url}]
        elif where == "path":
            document["paths"]["/thing"]["servers"] = [{"url": evil.url}]
        else:
            document["servers"] = [
                {"url": "{where}", "variables": {"where": {"default": evil.url}}}
            ]
        place.write_text(json.dumps(document))
        assert "base_url" in await call_operation(config)
        assert evil.got == []


@pytest.mark.parametrize(
    "url",
    [
        "https://api.good.example@evil.example/",
        "https://user:password@api.good.example/",
        "https://api.good.example\\@evil.example/",
        "https://api.good.example\\.evil.example/",
        "https://api.good.example%2eevil.example/",
        "https://api.good example/",
    ],
)
def test_an_address_that_programs_read_differently_is_no_server(url: str) -> None:
    assert reader.find_server_url([{"url": url}], "file:///api.yaml") == ""


def test_origins_are_compared_as_they_are_meant() -> None:
    show_origin, is_own_origin = reader.format_origin, reader.is_own_origin
    for same in ("HTTPS://API.example", "https://api.example:443/v1?x#y"):
        assert show_origin(same) == "https://api.example:443"
    assert show_origin("http://[::1]:80/") == "http://[::1]:80"
    others = (
        "http://api.example",
        "https://api.example:8443",
        "https://\u0430pi.example",
        "https://api.example.",
    )
    assert all(show_origin(other) != "https://api.example:443" for other in others)
    assert is_own_origin("http://api.example/x.json", "https://api.example/v1")
    for other in (*others, "//evil.example", "https://api.example.evil"):
        assert not is_own_origin("https://api.example/x.json", other)
    assert not is_own_origin("http://api.example:8080/x.json", "https://api.example/v1")
    assert not is_own_origin("http://api.example/x.json", "https://api.example:8443/v1")


async def test_the_doctor_says_that_the_origin_is_another_and_remembers_none_itself(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import asyncio

    home = Home(tmp_path, capfd)
    async with host() as good, host() as evil:
        place = write_description(tmp_path / "api.json", {"url": good.url})
        home.write(
            {
                "servers": {"api": {"openapi": str(place), "headers": HEADERS}},
                "gateway": {"port": 0},
            }
        )

        async def found() -> dict[str, Any]:
            reported = await asyncio.to_thread(home.spawn, "doctor", "--json", "--server", "api")
            return {one["id"]: one for one in reported.data["findings"]}

        assert "openapi.origin_refused" not in await found()
        assert not (tmp_path / "data" / "origins").exists()
        assert "ok" in await call_operation(make_config(tmp_path, place))
        write_description(place, {"url": evil.url})
        refused = (await found())["openapi.origin_refused"]
        assert (refused["severity"], f"base_url: {evil.url}" in refused["remedy"]) == (
            "broken",
            True,
        )
        assert evil.got == []
