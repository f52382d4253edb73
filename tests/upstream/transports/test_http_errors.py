"""Streamable HTTP against servers that do the wrong thing: every wrong gets a clear error, and
nothing hangs."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from portico.errors import BackendUnavailable, PorticoError, RemoteError
from portico.upstream.backend import Raw, RequestOptions
from portico.upstream.backends.http import HttpBackend
from tests.upstream.loopback_server import (
    TEST_TIMEOUT_S,
    Caller,
    RecordingListener,
    get_soon,
    serve,
    serve_bytes,
)
from tests.upstream.raw_server import DISCOVERY, RawServer, answer, conversation, error


async def refused(server: Any, **options: Any) -> BackendUnavailable:
    async with serve(server.app if isinstance(server, RawServer) else server) as base:
        backend = HttpBackend("raw", f"{base}/mcp", **options)
        with pytest.raises(BackendUnavailable) as caught:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await backend.connect(RecordingListener())
        assert backend.diagnostics()["last_error"] == caught.value.message
        return caught.value


# --- finding the era


@pytest.mark.parametrize("status", [400, 404, 405, 406, 500, 501])
async def test_a_server_that_refuses_the_probe_is_met_with_the_handshake(status: int):
    async def refuse(request: Request, frame: Raw) -> Response:
        return Response("<html>no</html>", status, media_type="text/html")

    server = RawServer(server_discover=refuse)
    async with conversation(server) as (connection, _):
        assert (connection.initialize_info.era, connection.initialize_info.protocol_version) == (
            "legacy",
            "2025-11-25",
        )
    initialize, headers = server.heard("initialize")[0]
    assert initialize["params"]["protocolVersion"] == "2025-11-25"
    assert "mcp-protocol-version" not in headers
    _, headers = server.heard("notifications/initialized")[0]
    assert (headers["mcp-protocol-version"], headers["mcp-session-id"]) == (
        "2025-11-25",
        "session-1",
    )
    assert await get_soon(server.deleted) == "session-1"


async def test_a_server_that_knows_discovery_but_no_modern_version_is_legacy():
    async def discover(request: Request, frame: Raw) -> Response:
        return answer(frame, {**DISCOVERY, "supportedVersions": ["2025-11-25"]})

    async with conversation(RawServer(server_discover=discover)) as (connection, _):
        assert connection.initialize_info.era == "legacy"


async def test_a_server_that_asks_for_another_version_is_met_with_the_handshake():
    async def discover(request: Request, frame: Raw) -> Response:
        return error(
            frame, -32022, "Unsupported protocol version", 400, {"supported": ["2025-11-25"]}
        )

    async with conversation(RawServer(server_discover=discover)) as (connection, _):
        assert connection.initialize_info.era == "legacy"


async def test_a_probe_that_is_never_answered_does_not_keep_the_handshake_waiting():
    async def never(request: Request, frame: Raw) -> Response:
        await request.receive()  # nothing comes but the end of the connection
        return Response()

    async with conversation(RawServer(server_discover=never)) as (connection, _):
        assert connection.initialize_info.era == "legacy"


async def test_a_remembered_era_that_is_refused_is_detected_again():
    async def discover(request: Request, frame: Raw) -> Response:
        return answer(frame, DISCOVERY)

    async def initialize(request: Request, frame: Raw) -> Response:
        return error(frame, -32601, "Method not found", 404)

    async with serve(RawServer(server_discover=discover, initialize=initialize).app) as base:
        connection = await HttpBackend("raw", f"{base}/mcp").connect(RecordingListener(), "legacy")
        assert connection.initialize_info.era == "modern"
        await connection.close()


async def test_a_version_nobody_knows_is_accepted_and_noted():
    async def initialize(request: Request, frame: Raw) -> Response:
        return answer(frame, {"protocolVersion": "2031-01-01", "capabilities": {}})

    async with conversation(RawServer(initialize=initialize)) as (connection, backend):
        assert connection.initialize_info.protocol_version == "2031-01-01"
        assert "2031-01-01" in backend.diagnostics()["note"]


# --- who cannot be reached


async def test_nobody_there():
    with pytest.raises(BackendUnavailable, match="connection refused") as caught:
        await HttpBackend("raw", "http://user:secret@127.0.0.1:1/mcp?key=secret").connect(
            RecordingListener()
        )
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("status", [401, 403])
async def test_missing_credentials_are_asked_for_and_wrong_ones_named_but_not_shown(status: int):
    async def refuse(request: Request, frame: Raw) -> Response:
        return Response("no", status, {"www-authenticate": 'Bearer realm="x"'})

    server = RawServer(server_discover=refuse)
    without = await refused(server)
    assert f"HTTP {status}" in without.message
    assert "Authorization header" in without.advice
    given = await refused(server, headers={"X-Api-Key": "s3cret"})
    assert "X-Api-Key" in given.advice
    assert "s3cret" not in str(given)
    assert server.heard("initialize") == []
    assert given.retryable is False


async def test_a_redirect_is_named_not_followed():
    async def elsewhere(request: Request, frame: Raw) -> Response:
        return RedirectResponse("https://user:pw@example.org/mcp?token=1", 307)

    error = await refused(RawServer(server_discover=elsewhere, initialize=elsewhere))
    assert "redirects to https://example.org/mcp?…" in error.message


async def test_an_html_error_page_is_quoted_briefly():
    async def broken(request: Request, frame: Raw) -> Response:
        return Response("<h1>Bad gateway</h1>" + "x" * 5000, 502, media_type="text/html")

    error = await refused(RawServer(server_discover=broken, initialize=broken))
    assert "HTTP 502: <h1>Bad gateway</h1>xxx" in error.message
    assert len(error.message) < 400


async def test_a_wrong_path_says_what_to_check():
    async def missing(request: Request, frame: Raw) -> Response:
        return Response("Not Found", 404)

    error = await refused(RawServer(server_discover=missing, initialize=missing))
    assert "type: sse" in error.advice


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{",
        b"HTTP/1.1 101 X\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_an_error(said: bytes):
    async with serve_bytes(lambda request: said) as base:
        with pytest.raises(BackendUnavailable, match="raw"):
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await HttpBackend("raw", f"{base}/mcp").connect(RecordingListener())


async def test_a_header_that_would_break_its_line_is_refused():
    with pytest.raises(BackendUnavailable, match="the header 'x-note' cannot be sent") as caught:
        await HttpBackend(
            "raw", "http://127.0.0.1:1/mcp", {"X-Note": "secret\r\nHost: evil"}
        ).connect(RecordingListener())
    assert "secret" not in str(caught.value)


# --- answers that are none


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (Response("{not json", media_type="application/json"), "not JSON"),
        (Response("[1, 2]", media_type="application/json"), "not a JSON-RPC message"),
        (Response("<html>", media_type="text/html"), "not JSON"),
        (
            Response('{"jsonrpc":"2.0","id":99,"result":{}}', media_type="application/json"),
            "without a JSON-RPC answer",
        ),
        (Response(status_code=202), "will not answer"),
        (
            Response("{}", media_type="application/json", headers={"content-encoding": "br"}),
            "compressed",
        ),
        (Response("event: message\ndata: {oops\n\n", media_type="text/event-stream"), "not JSON"),
        (
            Response(": nothing\n\n", media_type="text/event-stream"),
            "ended the stream before it answered",
        ),
        (Response("gone", 503), "HTTP 503: gone"),
    ],
)
async def test_nonsense_instead_of_an_answer_says_what_came(response: Response, reason: str):
    async def nonsense(request: Request, frame: Raw) -> Response:
        return response

    async with conversation(RawServer(tools_call=nonsense)) as (connection, backend):
        with pytest.raises(BackendUnavailable, match=reason):
            await connection.request(
                "tools/call", {"name": "x"}, RequestOptions(timeout=TEST_TIMEOUT_S)
            )
        assert backend.diagnostics()["last_error"]
        with pytest.raises(RemoteError, match="Method not found"):
            await connection.request("tools/list")


@pytest.mark.parametrize("status", [200, 500])
async def test_json_too_deep_to_read_fails_its_own_request_only(status: int):
    async def deep(request: Request, frame: Raw) -> Response:
        nested = "[" * 100_000 + "]" * 100_000
        error = f'{{"code":1,"message":"x","data":{nested}}}'
        said = f'{{"jsonrpc":"2.0","id":{frame["id"]},"n":{2**70},"error":{error}}}'
        return Response(said, status, media_type="application/json")

    async with conversation(RawServer(tools_call=deep)) as (connection, _):
        with pytest.raises(BackendUnavailable, match=r"not JSON|HTTP 500"):
            await connection.request("tools/call", {"name": "x"})
        with pytest.raises(RemoteError, match="Method not found"):
            await connection.request("tools/list")


SECRET = "tok-123456789"


@pytest.mark.parametrize("status", [200, 401, 403, 405, 500])
@pytest.mark.parametrize("body", ["plain", "json"])
async def test_a_credential_that_the_server_echoes_does_not_come_back(status: int, body: str):
    async def echo(request: Request, frame: Raw) -> Response:
        given = request.headers["authorization"]
        if body == "json":
            return error(
                frame,
                -32000,
                f"bad header {given}",
                status,
                {"seen": [{SECRET: given}], "tail": SECRET},
            )
        return Response("x" * 190 + f" {SECRET} and {given}", status)

    async with conversation(
        RawServer(tools_call=echo),
        protocol="legacy",
        headers={"Authorization": f"Bearer {SECRET}", "X-Short": "x"},
    ) as (connection, backend):
        with pytest.raises(PorticoError) as caught:
            await connection.request("tools/call", {"name": "x"})
        shown = f"{caught.value}{getattr(caught.value, 'data', '')}{backend.diagnostics()}"
    assert "tok-1" not in shown
    assert "***" in shown


@pytest.mark.parametrize("media_type", ["application/json", "text/event-stream"])
async def test_a_message_over_the_limit_is_refused(media_type: str):
    async def flood(request: Request, frame: Raw) -> Response:
        text = "x" * 300_000
        return Response(f'data: {{"text": "{text}"}}\n\n', media_type=media_type)

    async with conversation(RawServer(tools_call=flood), max_message_bytes=100_000) as (
        connection,
        _,
    ):
        with pytest.raises(BackendUnavailable, match="over 100000 bytes"):
            await connection.request("tools/call", {"name": "x"})


async def test_an_error_keeps_code_message_and_data_whatever_the_status():
    async def refuse(request: Request, frame: Raw) -> Response:
        return error(frame, -32042, "pay first", 402, {"price": 3})

    async with conversation(RawServer(tools_call=refuse)) as (connection, _):
        with pytest.raises(RemoteError) as caught:
            await connection.request("tools/call", {"name": "x"})
    assert (caught.value.code, caught.value.message, caught.value.data) == (
        -32042,
        "pay first",
        {"price": 3},
    )


async def test_an_answer_with_its_id_as_text_and_among_a_batch_is_still_the_answer():
    async def batch(request: Request, frame: Raw) -> Response:
        note = '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"hi"}}'
        return Response(f'[{note},{{"jsonrpc":"2.0","id":"{frame["id"]}","result":{{"a":1}}}}]')

    caller = Caller()
    async with conversation(RawServer(tools_call=batch)) as (connection, _):
        assert await connection.request(
            "tools/call", {"name": "x"}, RequestOptions(relay=caller)
        ) == {"a": 1}
    assert caller.notifications == [("notifications/message", {"data": "hi"})]
