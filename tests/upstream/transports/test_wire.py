"""Connections are kept, replaced, drained and given up as they should be."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from portico.errors import BackendUnavailable
from portico.upstream.backend import Raw
from portico.upstream.backends.http import HttpBackend
from portico.upstream.transports.wire import HttpConnectionPool, WireError
from tests.upstream.loopback_server import TEST_TIMEOUT_S, RecordingListener, serve, serve_bytes
from tests.upstream.raw_server import RawServer, answer, event, stream

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
RESULT: Raw = {"content": []}


async def ports_used(respond: Callable[[Raw], Response], calls: int = 20) -> int:
    async def call(request: Request, frame: Raw) -> Response:
        return respond(frame)

    server = RawServer(tools_call=call)
    async with serve(server.app) as base:
        connection = await HttpBackend("raw", f"{base}/mcp", protocol="legacy").connect(
            RecordingListener()
        )
        for _ in range(calls):
            assert await connection.request("tools/call", {"name": "x"}) == RESULT
        await connection.close()
    return len(server.ports)


async def test_one_connection_serves_one_request_after_the_other():
    # The GET beside them may take one, too.
    assert await ports_used(lambda frame: answer(frame, RESULT)) <= 2


async def test_answers_on_streams_do_not_cost_a_connection_each():
    def said(frame: Raw) -> Response:
        return stream(event({"jsonrpc": "2.0", "id": frame["id"], "result": RESULT}), b": bye\n\n")

    assert await ports_used(said) <= 3


async def test_a_connection_the_server_closes_is_replaced():
    assert await ports_used(lambda frame: answer(frame, RESULT, connection="close"), 5) >= 5


@pytest.mark.parametrize(
    ("said", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\n", 200, b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (
            b"HTTP/1.1 103 Hints\r\nx: y\r\n\r\nHTTP/1.1 201 Made\r\ncontent-length: 1\r\n\r\nx",
            201,
            b"x",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\n"
            b"c\r\n0\r\n\r\n",
            200,
            b"abc",
        ),
    ],
)
async def test_replies_are_read_to_their_end(said: bytes, status: int, body: bytes):
    async with serve_bytes(lambda request: said) as base:
        wire = HttpConnectionPool(urlsplit(base), TEST_TIMEOUT_S)
        async with asyncio.timeout(TEST_TIMEOUT_S):
            reply = await wire.send(GET)
            assert (reply.status, await reply.read_body(100)) == (status, body)
            assert "x" not in reply.headers
            reply.release()
            await wire.close()


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\n" + b"z" * 200,
        b"hello",
    ],
)
async def test_replies_that_break_off_or_run_over_are_errors(said: bytes):
    async with serve_bytes(lambda request: said) as base:
        wire = HttpConnectionPool(urlsplit(base), TEST_TIMEOUT_S)
        with pytest.raises(WireError):
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await (await wire.send(GET)).read_body(100)
        await wire.close()


@pytest.mark.parametrize(
    "begun",
    [
        b"HTTP/1.1 200 OK\r\nx: ",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ",
    ],
    ids=["head", "trailer"],
)
async def test_a_header_that_never_ends_is_cut_off(begun: bytes):
    hung_up = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        try:
            while True:
                writer.write(b"y" * 10_000)
                await writer.drain()
        except ConnectionError:
            hung_up.set()
        writer.close()

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        wire = HttpConnectionPool(
            urlsplit(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), TEST_TIMEOUT_S
        )
        async with asyncio.timeout(TEST_TIMEOUT_S):
            with pytest.raises(WireError, match="a head of more than"):
                await (await wire.send(GET)).read_body(100)
            await hung_up.wait()
        await wire.close()


async def test_a_body_far_larger_than_a_head_may_be_arrives_whole():
    body = b"z" * 1_000_000
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with serve_bytes(lambda request: head + body) as base:
        wire = HttpConnectionPool(urlsplit(base), TEST_TIMEOUT_S)
        async with asyncio.timeout(TEST_TIMEOUT_S):
            assert await (await wire.send(GET)).read_body(len(body)) == body
        await wire.close()


async def test_a_second_reply_nobody_asked_for_is_not_taken_for_the_next_answer():
    reply = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n"
    async with serve_bytes(lambda request: reply + b"1" + reply + b"2") as base:
        wire = HttpConnectionPool(urlsplit(base), TEST_TIMEOUT_S)
        async with asyncio.timeout(TEST_TIMEOUT_S):
            for _ in range(3):
                first = await wire.send(GET)
                assert await first.read_body(10) == b"1"
                first.release()
        await wire.close()


async def test_a_reader_that_is_slow_slows_the_server():
    sent = 0
    total = 200

    async def endless(scope: Raw, receive: object, send: object) -> None:
        async def body():
            nonlocal sent
            for _ in range(total):
                sent += 1
                yield b"x" * 262_144

        await StreamingResponse(body())(scope, receive, send)  # type: ignore[arg-type]

    async with serve(endless) as base:
        wire = HttpConnectionPool(urlsplit(base), TEST_TIMEOUT_S)
        async with asyncio.timeout(TEST_TIMEOUT_S):
            reply = await wire.send(GET)
            await reply.read_chunk()
            before = -1
            while before != sent:  # until the server stands still
                before = sent
                for _ in range(50):
                    await asyncio.sleep(0)
            assert sent < total
            assert len(await reply.read_body(2**30)) > 0
            assert sent == total
        await wire.close()


async def test_a_certificate_must_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    certificate = tmp_path / "certificate.pem"
    key = tmp_path / "key.pem"
    write_certificate(certificate, key)

    async def call(request: Request, frame: Raw) -> Response:
        return answer(frame, RESULT)

    server = RawServer(tools_call=call)
    async with serve(server.app, ssl_certfile=certificate, ssl_keyfile=key) as base:
        with pytest.raises(BackendUnavailable, match="its certificate is not trusted"):
            await HttpBackend("raw", f"{base}/mcp").connect(RecordingListener())
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        connection = await HttpBackend("raw", f"{base}/mcp").connect(RecordingListener())
        assert await connection.request("tools/call", {"name": "x"}) == RESULT
        await connection.close()


def write_certificate(certificate: Path, key: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("mcp.example.test")]
            ),
            critical=False,
        )
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
