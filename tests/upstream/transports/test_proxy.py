"""Remote servers and APIs are reached through the proxies of the environment, this machine never
is."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from portico.config.inherited_environment import PROXY_VARIABLES
from portico.errors import BackendUnavailable
from portico.upstream.backend import Raw
from portico.upstream.backends.http import HttpBackend
from portico.upstream.backends.openapi.backend import OpenApiBackend
from portico.upstream.transports.proxy import ProxyError, find_proxy
from tests.upstream.loopback_server import TEST_TIMEOUT_S, RecordingListener, serve
from tests.upstream.raw_server import RawServer, answer
from tests.upstream.transports.test_wire import write_certificate

HOST = "mcp.example.test"
RESULT: Raw = {"content": []}


@dataclass
class RunningProxy:
    """A proxy that leads every host to one local port, and what it was asked for."""

    port: int = 0
    requests: list[str] = field(default_factory=list[str])
    credentials: list[str] = field(default_factory=list[str])


@asynccontextmanager
async def run_proxy(target: str, *, status: int = 200) -> AsyncGenerator[RunningProxy]:
    """Serve CONNECT and requests with a whole URL."""
    running = RunningProxy()
    tasks: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, url, version = first.split(" ")
        running.requests.append(f"{method} {url}")
        names = [line.partition(": ") for line in lines if line]
        running.credentials += [value for name, _, value in names if name == "proxy-authorization"]
        if status != 200:
            writer.write(b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % status)
            writer.close()
            return
        upstream, onward = await asyncio.open_connection("127.0.0.1", urlsplit(target).port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = urlsplit(url).path or "/"
            kept = [line for line in lines if not line.startswith("proxy-")]
            onward.write("\r\n".join([f"{method} {path} {version}", *kept]).encode("latin-1"))
        for one in (copy(reader, onward), copy(upstream, writer)):
            task = asyncio.create_task(one)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXY_VARIABLES, "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)


def make_server() -> RawServer:
    async def call(request: Request, frame: Raw) -> Response:
        return answer(frame, RESULT)

    return RawServer(tools_call=call)


async def call_through(url: str) -> Raw:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        backend = HttpBackend("remote", url, protocol="legacy")
        connection = await backend.connect(RecordingListener())
        result = await connection.request("tools/call", {"name": "x"})
        await connection.close()
    return result


async def test_http_goes_through_the_proxy_with_whole_urls_and_its_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serve(make_server().app) as base, run_proxy(base) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://me:p%40ss@127.0.0.1:{proxy.port}")
        assert await call_through(f"http://{HOST}/mcp") == RESULT
    assert f"POST http://{HOST}:80/mcp" in proxy.requests
    assert set(proxy.credentials) == {"Basic bWU6cEBzcw=="}


async def test_https_goes_through_a_tunnel_that_the_proxy_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "certificate.pem"
    key = tmp_path / "key.pem"
    write_certificate(certificate, key)
    server = make_server()
    async with (
        serve(server.app, ssl_certfile=certificate, ssl_keyfile=key) as base,
        run_proxy(base) as proxy,
    ):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(BackendUnavailable, match="certificate is not trusted"):
            await call_through(f"https://{HOST}/mcp")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert await call_through(f"https://{HOST}/mcp") == RESULT
    assert set(proxy.requests) == {f"CONNECT {HOST}:443"}


async def test_this_machine_and_no_proxy_are_reached_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with serve(make_server().app) as base:
        assert await call_through(f"{base}/mcp") == RESULT
        port = urlsplit(base).port
        assert await call_through(f"http://localhost:{port}/mcp") == RESULT


@pytest.mark.parametrize(
    ("url", "no_proxy", "is_direct"),
    [
        ("https://api.example.com", "", False),
        ("https://api.example.com", "*", True),
        ("https://api.example.com", "example.com", True),
        ("https://api.example.com", ".example.com", True),
        ("https://api.example.com", "ample.com", False),
        ("https://api.example.com:8443", "api.example.com:8443", True),
        ("https://api.example.com", "api.example.com:8443", False),
        ("https://api.example.com", "other.test, *.example.com", True),
        ("https://10.1.2.3", "10.0.0.0/8", True),
        ("https://[fd00::7]", "fd00::/8", True),
        ("https://11.1.2.3", "10.0.0.0/8", False),
        ("https://127.8.9.1", "", True),
        ("https://[::1]:8443", "", True),
        ("https://app.localhost", "", True),
    ],
)
def test_no_proxy_lists_hosts_domains_and_networks(
    monkeypatch: pytest.MonkeyPatch, url: str, no_proxy: str, is_direct: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert (find_proxy(urlsplit(url)) is None) is is_direct


async def test_a_proxy_that_refuses_or_is_absent_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with run_proxy("http://127.0.0.1:9", status=407) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:s3cret-pass@127.0.0.1:{proxy.port}")
        with pytest.raises(BackendUnavailable) as refused:
            await call_through(f"https://{HOST}/mcp")
    assert f"the proxy 127.0.0.1:{proxy.port} refuses it (HTTP 407)" in refused.value.message
    with pytest.raises(BackendUnavailable, match=r"the proxy .* cannot be reached") as absent:
        await call_through(f"https://{HOST}/mcp")
    assert "s3cret" not in f"{refused.value} {absent.value}"


def test_another_kind_of_proxy_is_refused_rather_than_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:s3cret@proxy.example:1080")
    with pytest.raises(ProxyError, match="only http:// proxies are supported") as refused:
        find_proxy(urlsplit("https://api.example.com"))
    assert "s3cret" not in str(refused.value)


async def test_apis_and_their_descriptions_are_reached_through_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def describe(request: Request) -> Response:
        operation = {"operationId": "ping", "responses": {"200": {"description": "pong"}}}
        info = {"title": "Pings", "version": "1"}
        paths = {"/ping": {"get": operation}}
        return JSONResponse({"openapi": "3.1.0", "info": info, "paths": paths})

    async def ping(request: Request) -> Response:
        return JSONResponse({"pong": True})

    app = Starlette(routes=[Route("/openapi.json", describe), Route("/ping", ping)])
    async with serve(app) as base, run_proxy(base) as proxy, asyncio.timeout(TEST_TIMEOUT_S):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        api = f"http://{HOST}"
        backend = OpenApiBackend("api", f"{api}/openapi.json", api)
        connection = await backend.connect(RecordingListener())
        result = await connection.request("tools/call", {"name": "ping", "arguments": {}})
        await connection.close()
    assert json.loads(result["content"][0]["text"]) == {"pong": True}
    assert [one.partition("?")[0] for one in proxy.requests] == [
        f"GET {api}/openapi.json",
        f"GET {api}/ping",
    ]
