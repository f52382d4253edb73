"""A client gets a readable answer to any bytes, and the next client or request is served."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.config import Config, Profile
from portico.errors import INVALID_REQUEST
from portico.gateway import GatewayRuntime
from portico.testing import gateway_over
from portico.upstream.backend import Era
from tests.fuzz.answer_checks import check_answer, plain
from tests.fuzz.frames import BODIES, METHODS, Message, request_of
from tests.fuzz.loop_thread import TIMEOUT_S, Running, examples, running
from tests.fuzz.transports import Http, Posted, Reply, serve
from tests.interaction.fake_servers import fake
from tests.interaction.raw_clients import (
    ACCEPT,
    LEGACY,
    MODERN,
    RawLines,
    envelope,
    hello,
    pipes_to,
)


@dataclass(frozen=True)
class ServedGateway:
    """A gateway that is served, and one client of it over HTTP."""

    running: Running
    gateway: GatewayRuntime
    http: Http
    root: str
    posted: dict[Era, Posted]


@pytest.fixture(scope="module")
def served_gateway() -> Iterator[ServedGateway]:
    with running() as loop:

        async def opened() -> ServedGateway:
            backend = fake("run", "other")
            config = Config(profiles={"all": Profile(exposure="full")})
            gateway = await loop.holder.hold(gateway_over({"fake": backend}, config))
            url = await serve(loop, gateway)
            http = Http(await loop.holder.hold(httpx2.AsyncClient(timeout=240)), url)
            eras: tuple[Era, Era] = ("legacy", "modern")
            posted: dict[Era, Posted] = {era: Posted(http, era) for era in eras}
            for one in posted.values():
                await one.introduce()
            return ServedGateway(loop, gateway, http, url.removesuffix("/mcp"), posted)

        yield loop.do(opened())


def healthy(served_gateway: ServedGateway, era: Era) -> None:
    """The next request is served, and nothing went wrong inside."""
    answer = served_gateway.running.do(
        served_gateway.posted[era].request(
            "tools/call", {"name": "call_tool", "arguments": {"name": "fake.run"}}
        )
    )
    assert answer["result"]["content"][0]["text"] == "run ran", answer
    assert served_gateway.running.complaints.taken() == []


def fair(reply: Reply) -> Reply:
    """A reply that is no failure of ours, and whose every message is an answer."""
    assert reply.status < 500, (reply.status, reply.text)
    plain(reply.text)
    for message in reply.messages:
        if "jsonrpc" in message and "method" not in message:
            check_answer(message)
    return reply


# ── HTTP


def answered_once(reply: Reply, frame: Message) -> None:
    answers = [message for message in reply.messages if "method" not in message]
    assert len(answers) == 1, (reply.status, reply.text)


@examples(150)
@given(body=BODIES, era=st.sampled_from(["legacy", "modern"]))
def test_any_body_in_good_headers_is_answered(
    served_gateway: ServedGateway, body: bytes, era: Era
) -> None:
    posted = served_gateway.posted[era]
    headers = dict(posted.headers)
    frame = request_of(body)
    if era == "modern" and frame and frame["method"].isascii() and frame["method"].isprintable():
        headers["mcp-method"] = frame["method"]
        params = frame.get("params")
        name = (params.get("uri") or params.get("name")) if isinstance(params, dict) else None
        if isinstance(name, str) and name.isascii() and name.isprintable():
            headers["mcp-name"] = name
    reply = fair(served_gateway.running.do(served_gateway.http.send(body, headers)))
    if frame is not None:
        answered_once(reply, frame)
    healthy(served_gateway, era)


@pytest.mark.parametrize(
    "frame", [{}, {"jsonrpc": "1.0", "id": 5, "method": "ping"}, [], {"jsonrpc": "2.0", "id": 5}]
)
def test_a_body_that_is_no_message_is_refused_in_plain_words(
    served_gateway: ServedGateway, frame: Any
) -> None:
    reply = served_gateway.running.do(
        served_gateway.http.send(
            json.dumps(frame).encode(), served_gateway.posted["legacy"].headers
        )
    )
    assert reply.status == 400
    assert reply.messages[0]["error"]["code"] == INVALID_REQUEST
    assert "pydantic" not in reply.text


ASCII = st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), max_size=30).map(
    str.strip
)
VALUES = {
    "accept": [
        "application/json",
        "text/event-stream",
        "*/*",
        "text/html",
        "",
        "application/json;q=0",
        ",,;=",
    ],
    "content-type": [
        "text/plain",
        "application/json; charset=utf-16",
        "multipart/form-data",
        "",
        "json",
    ],
    "mcp-protocol-version": [
        LEGACY,
        MODERN,
        "2024-11-05",
        "1999-01-01",
        "",
        "9999-99-99",
        "x" * 5_000,
    ],
    "mcp-session-id": ["", "0" * 32, "x" * 5_000, "../..", "{}", "\x7f"],
    "mcp-method": ["tools/call", "ping", "", "nothing"],
    "mcp-name": ["search_tools", "", "=?base64?////?=", "=?base64?eA==?="],
    "last-event-id": ["0", "-1", "x_1", "x" * 5_000, ""],
    "origin": ["null", "http://evil.example", "http://127.0.0.1", "http://localhost:x", "://"],
    "host": ["evil.example", "127.0.0.1:99999999", "127.0.0.1:x", "[::1", ""],
    "authorization": ["Bearer", "Basic eA==", "Bearer x y z"],
    "accept-encoding": ["gzip", "br, *;q=0", "identity;q=0"],
    "transfer-encoding": ["identity"],
    "content-length": [],
    "traceparent": ["00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x"],
    "expect": ["100-continue", "x"],
    "connection": ["upgrade", "close"],
    "upgrade": ["websocket", "h2c"],
}


@st.composite
def header_sets(
    draw: st.DrawFn, header_strategy: st.SearchStrategy[dict[str, str]]
) -> list[tuple[bytes, bytes]]:
    """Right headers with some of them gone, changed, or there twice."""
    given = draw(header_strategy)
    gone = draw(st.sets(st.sampled_from([*given]), max_size=2))
    found = [(key, value) for key, value in given.items() if key not in gone]
    for name in draw(
        st.lists(st.sampled_from([name for name in VALUES if VALUES[name]]), max_size=3)
    ):
        value = draw(st.one_of(st.sampled_from(VALUES[name]), ASCII))
        if not draw(st.booleans()):
            found = [(key, kept) for key, kept in found if key != name]
        found.append((name, value))
    return [
        (name.encode(), value.encode()) for name, value in found if name not in ("content-length",)
    ]


@examples(150)
@given(
    data=st.data(),
    era=st.sampled_from(["legacy", "modern"]),
    verb=st.sampled_from(["POST", "POST", "DELETE", "PUT"]),
)
def test_any_headers_are_answered(
    served_gateway: ServedGateway, data: st.DataObject, era: Era, verb: str
) -> None:
    base = dict(served_gateway.posted[era].headers)
    if verb == "DELETE":
        base.pop("mcp-session-id", None)
    headers = data.draw(header_sets(st.just(base)), label="headers")
    body = data.draw(
        st.one_of(
            st.sampled_from(METHODS).map(
                lambda method: json.dumps(
                    {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": envelope()}}
                ).encode()
            ),
            st.just(
                json.dumps(
                    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}
                ).encode()
            ),
            BODIES,
        ),
        label="body",
    )
    try:
        reply = served_gateway.running.do(served_gateway.http.send(body, headers, verb))
    except (httpx2.LocalProtocolError, httpx2.RemoteProtocolError, ValueError) as error:
        # The client's own library would not say it, or the server's would not hear it and hung up.
        plain(str(error))
    else:
        fair(reply)
    healthy(served_gateway, era)


PATHS = st.one_of(
    st.sampled_from(
        [
            "/",
            "/mcp/",
            "/mcp/p/",
            "/mcp/p/nobody",
            "/mcp/p/all",
            "/metrics",
            "/healthz",
            "/readyz",
            "/api/v1",
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="?#"), max_size=20).map(
        lambda text: "/" + text
    ),
    st.sampled_from(
        [
            "/mcp%00",
            "/mcp/p/%2e%2e%2f",
            "/mcp/p/%ff",
            "//mcp",
            "/mcp/../mcp",
            "/mcp;x",
            "/" + "a/" * 2_000,
        ]
    ),
)


@examples(80)
@given(
    path=PATHS,
    verb=st.sampled_from(["GET", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "BREW"]),
    query=st.sampled_from(["", "?x=%ff", "?" + "a=1&" * 500]),
    body=BODIES,
)
def test_any_path_is_answered(
    served_gateway: ServedGateway, path: str, verb: str, query: str, body: bytes
) -> None:
    with suppress(httpx2.InvalidURL, httpx2.LocalProtocolError, UnicodeError):
        address = served_gateway.root + path + query
        fair(served_gateway.running.do(served_gateway.http.send(body, ACCEPT, verb, address)))
    healthy(served_gateway, "modern")


@examples(60)
@given(
    noise_bytes=st.one_of(
        st.binary(min_size=1, max_size=200),
        st.sampled_from(
            [
                b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
                b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n"
                b"Content-Length: 6\r\n\r\nabcdef",
                b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: "
                b"chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
                b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                b"Content-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                b"POST /mcp HTTP/9.9\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"GET /mcp\r\n",
                b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
                b"GET /mcp HTTP/1.1\r\nHost : 127.0.0.1\r\n\x00: \xff\r\n\r\n",
                b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\n{",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            ]
        ),
    )
)
def test_any_bytes_on_a_connection_end_it_and_no_other(
    served_gateway: ServedGateway, noise_bytes: bytes
) -> None:
    host, port = served_gateway.root.removeprefix("http://").split(":")

    async def shouted() -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(noise_bytes)
            with suppress(ConnectionError):
                await writer.drain()
                writer.write_eof()
                return await asyncio.wait_for(reader.read(100_000), TIMEOUT_S / 2)
            return b""
        finally:
            writer.close()

    received = served_gateway.running.do(shouted())
    assert not received.startswith(b"HTTP/1.1 5"), received
    plain(received.decode(errors="replace"))
    healthy(served_gateway, "legacy")


# ── pipes


@pytest.fixture(scope="module")
def piped(served_gateway: ServedGateway) -> dict[Era, RawLines]:
    async def opened(era: Era) -> RawLines:
        lines = RawLines(
            *await served_gateway.running.holder.hold(
                pipes_to(served_gateway.gateway.get_endpoint())
            ),
            era,
            {},
        )
        await lines.introduce()
        return lines

    eras: tuple[Era, Era] = ("legacy", "modern")
    return {era: served_gateway.running.do(opened(era)) for era in eras}


async def exchange(lines: RawLines, data: bytes) -> tuple[list[Message], Message]:
    """Return what came between these bytes and the answer to a request after them; and that answer.

    Requests are worked on beside each other: a second one, asked when the first is answered, comes
    after the noise.
    """
    await lines.write(data)
    await lines.request("tools/list", {})
    answer = await lines.request(
        "tools/call", {"name": "call_tool", "arguments": {"name": "fake.run"}}
    )
    received, lines.unprompted[:] = list(lines.unprompted), []
    return received, answer


OWN = "portico"


@examples(150)
@given(body=BODIES, era=st.sampled_from(["legacy", "modern"]))
def test_any_line_is_answered_and_the_next_is_served(
    served_gateway: ServedGateway, piped: dict[Era, RawLines], body: bytes, era: Era
) -> None:
    frame = request_of(body)
    line = body.replace(b"\n", b" ") + b"\n"
    if frame is not None:
        # Ids of our own for what follows never collide with a text.
        frame["id"] = f"{OWN}:{frame['id']}"
        line = json.dumps(frame).encode() + b"\n"

    async def spoken() -> tuple[list[Message], Message]:
        received, answer = await exchange(piped[era], line)
        while frame is not None and not any(
            message.get("id") == frame["id"] for message in received
        ):
            received.append(await piped[era].answer_to(frame["id"]))
        return received, answer

    received, answer = served_gateway.running.do(asyncio.wait_for(spoken(), 240))
    for message in received:
        if "method" not in message:
            check_answer(message)
    if frame is not None:
        mine = [
            message
            for message in received
            if message.get("id") == frame["id"] and "method" not in message
        ]
        assert len(mine) == 1, received
    assert answer["result"]["content"][0]["text"] == "run ran", answer
    assert served_gateway.running.complaints.taken() == []


@examples(40)
@given(bodies=st.lists(BODIES, min_size=1, max_size=6), whole=st.booleans())
def test_a_pipe_full_of_noise_from_the_first_byte_ends_in_peace(
    served_gateway: ServedGateway, bodies: list[bytes], whole: bool
) -> None:
    """Before any greeting; the last line may be cut where the pipe closes."""

    async def spoken() -> list[Message]:
        async with pipes_to(served_gateway.gateway.get_endpoint()) as (reader, writer):
            with suppress(ConnectionError):
                writer.write(b"\n".join(bodies) + (b"\n" if whole else b""))
                await writer.drain()
                writer.close()
            received = await asyncio.wait_for(reader.read(), 240)
        return [json.loads(line) for line in received.splitlines()]

    for message in served_gateway.running.do(spoken()):
        if "method" not in message:
            check_answer(message)
    healthy(served_gateway, "legacy")
