"""Scripts below MCP: what an HTTP server, or a proxy before it, can do to a reply."""

from __future__ import annotations

import gzip

from tests.faults.misbehaving.steps import (
    close,
    encode,
    forget,
    hang,
    reply,
    reset,
    say,
    send_bytes,
    strikes,
    wait,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tests.faults.misbehaving.steps import Script, Step, Strike

_JSON = "application/json"
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_EVENTS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_PAGE = b"<html><h1>Bad Gateway</h1></html>"

_STATUSES: dict[str, tuple[Any, ...]] = {
    "status_500": (500, _PAGE, "text/html"),
    "status_502": (502, _PAGE, "text/html"),
    "status_503": (503, b"busy", "text/plain", "retry-after: 1"),
    "status_429": (429, b"slow down", "text/plain", "retry-after: 1"),
    "status_404": (404, b"", "text/plain"),
    "status_400_session": (
        400,
        b'{"id":null,"error":{"code":-32000,"message":"No valid session"}}',
        _JSON,
    ),
    "status_401": (401, b"", "text/plain", "www-authenticate: Bearer"),
    "status_403": (403, b"forbidden", "text/plain"),
    "status_307": (307, b"", "text/plain", "location: http://127.0.0.1:1/elsewhere"),
    "status_202": (202, b"", "text/plain"),
    "status_204": (204, b"", "text/plain"),
    "status_999": (999, b"?", "text/plain"),
}


def _replying(given: tuple[Any, ...]) -> Script:
    def script(strike: Strike) -> Iterator[Step]:
        yield reply(*given)

    return script


for _name, _given in _STATUSES.items():
    strikes("call", _name)(_replying(_given))
for _name in ("status_500", "status_401", "status_307"):
    strikes("greeting", f"greeting_{_name}")(_replying(_STATUSES[_name]))


@strikes("call")
def loses_its_sessions(strike: Strike) -> Iterator[Step]:
    yield forget()
    yield reply(404, b"")


def _body(strike: Strike) -> bytes:
    return encode(strike.answer)


@strikes("call")
def reset_before_a_reply(strike: Strike) -> Iterator[Step]:
    yield reset()


@strikes("call")
def closed_before_a_reply(strike: Strike) -> Iterator[Step]:
    yield close()


@strikes("call")
def reset_in_the_head(strike: Strike) -> Iterator[Step]:
    yield send_bytes(b"HTTP/1.1 200 OK\r\ncontent-ty")
    yield wait(0.05)
    yield reset()


@strikes("call")
def reset_in_the_body(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_OK + b"content-length: 1000\r\n\r\n" + _body(strike))
    yield wait(0.05)
    yield reset()


@strikes("call")
def closed_in_the_body(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_OK + b"content-length: 1000\r\n\r\n" + _body(strike))
    yield close()


@strikes("call")
def length_too_short(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_OK + b"content-length: 30\r\n\r\n" + _body(strike))
    yield hang()


@strikes("call")
def length_for_ever(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_OK + b"content-length: 99999999999999999999999\r\n\r\n" + _body(strike))
    yield hang()


@strikes("call")
def length_never_reached(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_OK + b"content-length: 5000\r\n\r\n" + _body(strike))
    yield hang()


@strikes("call")
def length_negative(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_OK + b"content-length: -5\r\n\r\n" + _body(strike))
    yield close()


@strikes("call")
def two_lengths(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_OK + b"content-length: 5\r\ncontent-length: 500\r\n\r\n" + _body(strike))
    yield close()


@strikes("call")
def length_and_chunks(strike: Strike) -> Iterator[Step]:
    yield send_bytes(
        _OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n" + _body(strike)
    )
    yield close()


@strikes("call")
def until_the_end_of_the_connection(strike: Strike) -> Iterator[Step]:
    yield send_bytes(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + _body(strike))
    yield close()


@strikes("call")
def wrong_content_type(strike: Strike) -> Iterator[Step]:
    yield reply(200, _body(strike), "text/html")


@strikes("call")
def html_for_an_answer(strike: Strike) -> Iterator[Step]:
    yield reply(200, _PAGE, "text/html")


@strikes("call")
def stream_called_json(strike: Strike) -> Iterator[Step]:
    yield reply(200, b"data: " + _body(strike) + b"\n\n")


@strikes("call")
def json_called_stream(strike: Strike) -> Iterator[Step]:
    yield reply(200, _body(strike), "text/event-stream")


@strikes("call")
def no_content_type(strike: Strike) -> Iterator[Step]:
    body = _body(strike)
    yield send_bytes(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))


@strikes("call")
def chunks_of_garbage(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_OK + b"transfer-encoding: chunked\r\n\r\nzzz\r\nnot a size\r\n")
    yield hang()


@strikes("call")
def chunk_extensions_for_ever(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_OK + b"transfer-encoding: chunked\r\n\r\n5;")
    for _ in range(1_000):
        yield send_bytes(b"x" * 100_000)


@strikes("call")
def gzip_unprompted(strike: Strike) -> Iterator[Step]:
    yield reply(200, gzip.compress(_body(strike)), _JSON, "content-encoding: gzip")


@strikes("call")
def gzip_unsaid(strike: Strike) -> Iterator[Step]:
    yield reply(200, gzip.compress(_body(strike)))


@strikes("call")
def head_for_ever(strike: Strike) -> Iterator[Step]:
    yield send_bytes(b"HTTP/1.1 200 OK\r\nx-long: ")
    for _ in range(1_000):
        yield send_bytes(b"x" * 100_000)


@strikes("call")
def headers_for_ever(strike: Strike) -> Iterator[Step]:
    yield send_bytes(b"HTTP/1.1 200 OK\r\n")
    for _ in range(1_000):
        yield send_bytes(b"x-one: more\r\n" * 1_000)


@strikes("call")
def head_that_drips(strike: Strike) -> Iterator[Step]:
    for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"x" * 100:
        yield send_bytes(bytes((byte,)))
        yield wait(0.05)
    yield hang()


@strikes("call")
def interim_replies(strike: Strike) -> Iterator[Step]:
    for _ in range(100):
        yield send_bytes(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
    yield reply(200, _body(strike))


@strikes("call")
def interim_replies_for_ever(strike: Strike) -> Iterator[Step]:
    for _ in range(100_000):
        yield send_bytes(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
    yield hang()


@strikes("call")
def another_protocol(strike: Strike) -> Iterator[Step]:
    yield send_bytes(b"SSH-2.0-OpenSSH_9.6\r\n")
    yield hang()


@strikes("call")
def upgrade_unprompted(strike: Strike) -> Iterator[Step]:
    yield send_bytes(
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: "
        b"upgrade\r\n\r\n\x81\x05hello"
    )
    yield hang()


@strikes("call")
def two_replies(strike: Strike) -> Iterator[Step]:
    yield reply(200, _body(strike))
    yield reply(200, _body(strike).replace(b"work", b"fake"))


@strikes("call")
def closes_after_each_reply(strike: Strike) -> Iterator[Step]:
    yield reply(200, _body(strike))
    yield close()


# event streams


@strikes("call")
def stream_without_end(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_EVENTS)
    for _ in range(100):
        yield send_bytes(b"8\r\n: ping\n\n\r\n")
        yield wait(0.05)
    yield hang()


@strikes("call")
def stream_that_ends_unanswered(strike: Strike) -> Iterator[Step]:
    yield send_bytes(_EVENTS + b"8\r\n: ping\n\n\r\n0\r\n\r\n")


@strikes("call")
def event_cut(strike: Strike) -> Iterator[Step]:
    data = b"data: " + _body(strike)[:-10]
    yield send_bytes(_EVENTS + b"%x\r\n%s\r\n" % (len(data), data))
    yield close()


@strikes("call")
def event_cut_with_an_id(strike: Strike) -> Iterator[Step]:
    # An id promises that the stream can be taken up again; this one cannot.
    data = b"id: 1\nretry: 60\ndata: {}\n\ndata: " + _body(strike)[:-10]
    yield send_bytes(_EVENTS + b"%x\r\n%s\r\n" % (len(data), data))
    yield close()


@strikes("call")
def event_without_its_last_line(strike: Strike) -> Iterator[Step]:
    data = b"data: " + _body(strike) + b"\n"
    yield send_bytes(_EVENTS + b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))


@strikes("call")
def events_of_other_kinds(strike: Strike) -> Iterator[Step]:
    for data in (
        b"event: ping\ndata: {}\n\n",
        b"event: error\ndata: no\n\n",
        b"data\n\n",
        b": x\n\n",
        b"id: \x00\n\n",
    ):
        yield send_bytes(
            (_EVENTS if data.startswith(b"event: ping") else b"")
            + b"%x\r\n%s\r\n" % (len(data), data)
        )
    data = b"data: " + _body(strike) + b"\n\n"
    yield send_bytes(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))


# the stream beside the requests


@strikes("stream")
def stream_beside_resets(strike: Strike) -> Iterator[Step]:
    yield reset()


@strikes("stream")
def stream_beside_garbage(strike: Strike) -> Iterator[Step]:
    yield send_bytes(b"5\r\ndata:\r\n3\r\n{x\n\r\n1\r\n\n\r\n")


@strikes("stream")
def stream_beside_storm(strike: Strike) -> Iterator[Step]:
    for _ in range(10_000):
        yield say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    yield hang()
