"""What a server says and no library can write: its client hears that, and everything after it."""

import json
import os
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCResponse

from portico.errors import RemoteError
from portico.server.http.large_values import MAX_DEPTH, ensure_encodable
from portico.server.stdio import open_pipe_streams
from portico.testing import gateway_over, serve_http
from portico.upstream.backend import Era, Raw, RequestOptions
from tests.interaction.fake_servers import fake, shown, text
from tests.interaction.raw_clients import RawClient, call, raw_http, raw_lines

DEEP = 1_000


def nested(levels: int) -> Any:
    value: Any = "core"
    for _ in range(levels):
        value = [value]
    return value


def server() -> Any:
    async def deep(params: Raw, how: RequestOptions) -> Raw:
        if params["name"] == "log" and how.relay is not None:
            await how.relay.notify(
                "notifications/message", {"level": "error", "data": nested(DEEP)}
            )
        if params["name"] == "error":
            raise RemoteError(-32000, "no", nested(DEEP))
        answers = {
            "deep": {"content": [], "structuredContent": {"a": nested(DEEP)}},
            "half": text("cut \ud83d"),
        }
        return answers.get(params["name"], text("fine"))

    backend = fake("deep", "log", "error", "half", "fine")
    backend.on("tools/call", deep)
    return backend


async def check(client: RawClient) -> None:
    refused = await call(client, "call_tool", name="s.deep")
    assert refused["error"]["code"] == -32603
    assert "cannot be passed on" in refused["error"]["message"]
    assert (await call(client, "call_tool", name="s.log"))["result"]["content"] == shown("fine")[
        "content"
    ]
    failed = (await call(client, "call_tool", name="s.error"))["result"]
    assert failed["_meta"]["portico/error"]["message"] == "no"
    assert "data" not in failed["_meta"]["portico/error"]
    assert "cut" in (await call(client, "call_tool", name="s.half"))["result"]["content"][0]["text"]
    assert (await call(client, "call_tool", name="s.fine"))["result"]["content"] == shown("fine")[
        "content"
    ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_cannot_be_written_to_http_is_answered(era: Era) -> None:
    async with (
        gateway_over({"s": server()}) as gateway,
        serve_http(gateway) as url,
        raw_http(url, era) as client,
    ):
        await check(client)
        assert (await call(client, "call_tool", name="s.half"))["result"]["content"][0][
            "text"
        ] == "cut �"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_cannot_be_written_to_stdout_is_answered(era: Era) -> None:
    async with (
        gateway_over({"s": server()}) as gateway,
        raw_lines(gateway.get_endpoint(), era) as client,
    ):
        await check(client)


def test_only_what_cannot_be_carried_is_touched() -> None:
    ordinary = {"a": [1, 2**70, "é", None, {"b": 1.5}]}
    assert ensure_encodable(ordinary, allow_surrogates=True) is ordinary
    assert ensure_encodable(ordinary, allow_surrogates=False) == ordinary
    assert ensure_encodable({"a": "x\ud800y"}, allow_surrogates=False) == {"a": "x�y"}
    assert ensure_encodable(nested(MAX_DEPTH), allow_surrogates=True) is not None
    with pytest.raises(RemoteError):
        ensure_encodable(nested(DEEP), allow_surrogates=True)


async def test_the_writer_outlives_what_it_cannot_write() -> None:
    (wire_in, theirs_out), (theirs_in, wire_out) = os.pipe(), os.pipe()
    deep = {"a": nested(DEEP)}
    with os.fdopen(theirs_out, "wb", 0), os.fdopen(theirs_in, "rb") as heard:
        async with open_pipe_streams(os.fdopen(wire_in, "rb", 0), os.fdopen(wire_out, "wb", 0)) as (
            _,
            sending,
        ):
            await sending.send(
                SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="n", params=deep))
            )
            await sending.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=7, result=deep)))
            await sending.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=8, result={})))
        refused, answered = (json.loads(line) for line in heard.readlines())
    assert (refused["id"], refused["error"]["code"]) == (7, -32603)
    assert (answered["id"], answered["result"]) == (8, {})
