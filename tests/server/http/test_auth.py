"""Who may come in over HTTP: this machine's own pages and programs, and elsewhere only who has the
token."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from portico.config import Config, Profile
from portico.config import GatewayConfig as GatewayConfig
from portico.errors import ConfigError
from portico.server.http.app import check_exposure, is_loopback
from portico.testing import gateway_over, serve_http
from portico.upstream.backend import Era
from tests.interaction.fake_servers import fake
from tests.interaction.raw_clients import ACCEPT, MODERN, call, envelope, hello, raw_http, result

TOKEN = "s3cret-t0ken-of-the-test"
CONFIG = Config(profiles={"p": Profile()})


@asynccontextmanager
async def served(**options: Any) -> AsyncGenerator[tuple[httpx2.AsyncClient, str]]:
    async with (
        gateway_over({"s": fake("run")}, CONFIG) as gateway,
        serve_http(gateway, **options) as url,
        httpx2.AsyncClient(timeout=240) as http,
    ):
        yield http, url


def opening(era: Era) -> dict[str, Any]:
    """A request that opens a conversation, as keywords of `post`."""
    if era == "legacy":
        frame = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}
        return {"json": frame, "headers": ACCEPT}
    frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": envelope()}}
    return {
        "json": frame,
        "headers": {**ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": "tools/list"},
    }


async def status(http: httpx2.AsyncClient, url: str, era: Era, **headers: str) -> int:
    request = opening(era)
    request["headers"] = {**request["headers"], **headers}
    return (await http.post(url, **request)).status_code


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_strange_host_is_misdirected(era: Era) -> None:
    async with served() as (http, url):
        assert await status(http, url, era) == 200
        for host in (
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "evil.example:1",
            "[::]",
        ):
            assert await status(http, url, era, host=host) == 421, host
        for method in ("GET", "DELETE"):
            asked = {**opening(era)["headers"], "host": "evil.example"}
            assert (await http.request(method, url, headers=asked)).status_code == 421, method
        for host in ("localhost", "localhost:1234", "127.0.0.1", "[::1]:8420"):
            assert await status(http, url, era, host=host) == 200, host


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_strange_origin_is_forbidden(era: Era) -> None:
    async with served() as (http, url):
        for origin in (
            "https://evil.example",
            "http://localhost.evil.example",
            "null",
            "file://",
            "http://127.0.0.1.x",
        ):
            assert await status(http, url, era, origin=origin) == 403, origin
        for origin in ("http://localhost:5173", "http://127.0.0.1", "https://[::1]:1"):
            assert await status(http, url, era, origin=origin) == 200, origin


async def test_hosts_and_origins_can_be_allowed_by_name() -> None:
    async with served(allowed_hosts=("box.lan",), allowed_origins=("https://app.example",)) as (
        http,
        url,
    ):
        assert await status(http, url, "legacy", host="box.lan:8420") == 200
        assert (
            await status(http, url, "legacy", host="box.lan", origin="https://app.example") == 200
        )
        assert await status(http, url, "legacy", host="box.lan.evil") == 421
        assert await status(http, url, "legacy", origin="https://app.example.evil") == 403


@pytest.mark.parametrize("path", ["", "/p/p"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_requests_without_the_token_are_refused(era: Era, path: str) -> None:
    async with served(token=TOKEN) as (http, url):
        url += path
        for headers in (
            {},
            {"authorization": ""},
            {"authorization": "Bearer"},
            {"authorization": f"Bearer {TOKEN}x"},
            {"authorization": f"Bearer {TOKEN[:-1]}"},
            {"authorization": f"Bearer {TOKEN.upper()}"},
            {"authorization": f"Basic {TOKEN}"},
            {"authorization": TOKEN},
            {"authorization": "Bearer \xff"},
            {"x-token": TOKEN},
        ):
            request = opening(era)
            sent = [
                (key.encode(), value.encode("latin-1"))
                for key, value in (request["headers"] | headers).items()
            ]
            refused = await http.post(f"{url}?token={TOKEN}", json=request["json"], headers=sent)
            assert refused.status_code == 401, headers
            assert refused.headers["www-authenticate"].startswith("Bearer")
            assert "Authorization: Bearer" in refused.json()["advice"]
        for method in ("GET", "DELETE", "PUT", "OPTIONS"):
            assert (await http.request(method, url, headers=ACCEPT)).status_code == 401, method
        assert await status(http, url, era, authorization=f"Bearer {TOKEN}") == 200
        assert await status(http, url, era, authorization=f"bearer  {TOKEN}") == 200


async def test_a_whole_conversation_works_with_the_token() -> None:
    async with served(token=TOKEN) as (_, url):
        for era in ("legacy", "modern"):
            async with raw_http(url, era, token=TOKEN) as client:
                assert (await call(client, "call_tool", name="s.run"))["result"]["content"][0][
                    "text"
                ] == "run ran"


async def test_the_token_is_in_no_answer_and_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for noisy in (
        "httpx2",
        "httpcore2",
    ):  # the client's own, in this process only by the test's doing
        logging.getLogger(noisy).setLevel(logging.WARNING)
    right = {"authorization": f"Bearer {TOKEN}"}
    heard: list[str] = []
    async with served(token=TOKEN, max_request_bytes=2_000) as (http, url):
        for era in ("legacy", "modern"):
            request = opening(era)
            for headers in (
                right,
                {"authorization": f"Bearer {TOKEN}x"},
                {**right, "host": "evil.example"},
            ):
                sent = {**request["headers"], **headers}
                heard.append(_whole(await http.post(url, json=request["json"], headers=sent)))
            sent = {**request["headers"], **right}
            nonsense = (b"{", b"[]", b"x" * 3_000, b'{"jsonrpc":"2.0","id":1,"method":"nope"}')
            heard += [
                _whole(await http.post(url, content=content, headers=sent)) for content in nonsense
            ]
            async with raw_http(url, era, token=TOKEN) as client:
                heard.append(json.dumps(await client.request("no/such/method")))
                heard.append(json.dumps(await call(client, "call_tool", name="s.nope")))
                heard.append(json.dumps(await result(client, "tools/list")))
        heard.append(_whole(await http.get(f"{url}/elsewhere", headers=right)))
        heard.append(_whole(await http.put(url, headers=right)))
    assert TOKEN not in "\n".join(heard)
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(Config(gateway=GatewayConfig(token=TOKEN)))  # pyright: ignore[reportArgumentType]


def _whole(reply: httpx2.Response) -> str:
    return f"{reply.status_code} {dict(reply.headers)} {reply.text}"


async def test_other_paths_do_not_exist() -> None:
    async with served() as (http, url):
        root = url.removesuffix("/mcp")
        for path in (
            "/",
            "/mcp/p/",
            "/mcp/p/none",
            "/mcp/p/p/more",
            "/mcpx",
            "/sse",
            "/mcp/../etc",
        ):
            assert (await http.post(root + path, **opening("legacy"))).status_code == 404, path


async def test_a_request_that_is_too_large_is_refused_before_it_is_read() -> None:
    async with served(max_request_bytes=1_000) as (http, url):
        body = b"x" * 1_001

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(11):
                yield b"x" * 100

        for content in (body, chunks()):
            assert (await http.post(url, content=content, headers=ACCEPT)).status_code == 413
        assert await status(http, url, "legacy") == 200


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_invalid_requests_are_refused_and_the_endpoint_goes_on_serving(era: Era) -> None:
    async with served() as (http, url):
        headers = opening(era)["headers"]
        for content in (
            b"",
            b"{",
            b"null",
            b"[]",
            b'"text"',
            b"\xff\xfe",
            b'{"id":1}',
            b"[" * 5_000,
        ):
            refused = await http.post(url, content=content, headers=headers)
            assert 400 <= refused.status_code < 500, content
        for name, value, refusal in (
            ("content-type", "text/plain", 400),
            ("accept", "text/html", 406),
        ):
            assert (
                await http.post(url, content=b"{}", headers={**headers, name: value})
            ).status_code == refusal
        assert await status(http, url, era) == 200


async def test_headers_that_contradict_the_body_are_refused() -> None:
    async with served() as (http, url):
        request = opening("modern")
        for name, value in (("mcp-method", "tools/call"), ("mcp-protocol-version", "2031-01-01")):
            refused = await http.post(
                url, json=request["json"], headers={**request["headers"], name: value}
            )
            assert refused.status_code == 400
            assert refused.json()["error"]["code"] in (-32020, -32022)


async def test_blanks_around_a_header_are_no_part_of_it() -> None:
    async with served(token=TOKEN) as (_, url):
        # By hand: a proper client does not send such headers.
        address = httpx2.URL(url)
        request = opening("modern")
        body = json.dumps(request["json"]).encode()
        lines = [
            "POST /mcp HTTP/1.1",
            f"host: \t127.0.0.1:{address.port} ",
            f"authorization:  Bearer {TOKEN} \t",
        ]
        lines += [f"{name}: {value} \t" for name, value in request["headers"].items()]
        lines += [f"content-length: {len(body)}", "connection: close", "", ""]
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write("\r\n".join(lines).encode() + body)
        async with asyncio.timeout(240):
            reply = await reader.read()
        writer.close()
        assert reply.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.4", "box.lan", "", "[::]", "127.0.0.1.evil.example"]
)
def test_listening_beyond_this_machine_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="anyone on the network") as refused:
        check_exposure(host, None)
    assert "gateway.token" in refused.value.advice
    check_exposure(host, TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_this_machine_needs_none(host: str) -> None:
    assert is_loopback(host)
    check_exposure(host, None)


@pytest.mark.parametrize("token", ["", " "])
@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_an_empty_token_is_refused(host: str, token: str) -> None:
    with pytest.raises(ConfigError, match="empty"):
        check_exposure(host, token)


async def test_an_empty_token_authorizes_no_request() -> None:
    async with served(token="") as (http, url):
        for given in ("Bearer", "Bearer x"):
            assert await status(http, url, "legacy", authorization=given) == 401


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_host_or_origin_that_can_be_read_in_two_ways_is_refused(era: Era) -> None:
    async with served() as (http, url):
        for host in (
            "localhost:80@evil.example",
            "localhost:x",
            "127.0.0.1:",
            "localhost:8://x",
            "[::1]:a",
        ):
            assert await status(http, url, era, host=host) == 421, host
        for origin in (
            "http://localhost:80@evil.example",
            "http://localhost:1/x://",
            "http://[::1]:a",
        ):
            assert await status(http, url, era, origin=origin) == 403, origin
        assert await status(http, url, era, host="[::1]", origin="http://[::1]") == 200
        request = opening(era)
        twice = [*request["headers"].items(), *(("origin", "http://localhost") for _ in range(2))]
        assert (await http.post(url, json=request["json"], headers=twice)).status_code == 400
        address = httpx2.URL(url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert b" 400 " in await asyncio.wait_for(reader.readline(), 240)
        writer.close()


# --- what a platform asks


@asynccontextmanager
async def watched(**options: Any) -> AsyncGenerator[tuple[httpx2.AsyncClient, str]]:
    """As `served`, with everything else that `portico serve` answers."""
    async with gateway_over({"s": fake("run")}, CONFIG) as gateway:
        found = gateway.ensure_monitoring()
        async with (
            serve_http(
                gateway,
                metrics=lambda: found.metrics,
                health=found.readiness.check_health,
                **options,
            ) as url,
            httpx2.AsyncClient(timeout=240) as http,
        ):
            yield http, url.removesuffix("/mcp")


MONITORED = ("/metrics", "/healthz", "/readyz")


async def test_figures_are_for_who_has_the_token_and_whether_it_lives_is_for_everybody() -> None:
    async with watched(token=TOKEN) as (http, root):
        for wrong in ({}, {"authorization": f"Bearer {TOKEN}x"}, {"authorization": TOKEN}):
            found = {path: (await http.get(root + path, headers=wrong)) for path in MONITORED}
            assert {path: one.status_code for path, one in found.items()} == {
                "/metrics": 401,
                "/healthz": 200,
                "/readyz": 200,
            }
            assert "portico_" not in found["/metrics"].text
            assert found["/readyz"].json() == {"ready": True, "phase": "serving"}
        right = {"authorization": f"Bearer {TOKEN}"}
        assert "portico_" in (await http.get(f"{root}/metrics", headers=right)).text
        assert "checks" in (await http.get(f"{root}/readyz", headers=right)).json()


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_foreign_pages_and_hosts_get_no_health(token: str | None) -> None:
    async with watched(token=token) as (http, root):
        right = {"authorization": f"Bearer {TOKEN}"} if token else {}
        for path in MONITORED:
            for headers, status in (
                ({}, 200),
                ({"host": "evil.example"}, 421),
                ({"host": "127.0.0.1:evil"}, 421),
                ({"origin": "https://evil.example"}, 403),
                ({"origin": "null"}, 403),
            ):
                asked = await http.get(root + path, headers={**right, **headers})
                assert asked.status_code == status, (path, headers)
                assert status == 200 or "portico_" not in asked.text


async def test_how_it_is_can_only_be_read() -> None:
    async with watched() as (http, root):
        for path in MONITORED:
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                assert (await http.request(method, root + path)).status_code == 405, (method, path)
            other = [
                (await http.get(f"{root}{one}")).status_code
                for one in (f"/{path}", f"{path}%2fx", f"{path}/x")
            ]
            assert other == [404, 404, 404], path
