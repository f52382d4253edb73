"""Answers of the handshake era over HTTP: plain where nothing else is said, a stream where
something is."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from portico.json_text import chunked_decoder
from portico.server.http import json_first_transport
from portico.testing import gateway_over, serve_http
from portico.upstream.backend import Raw, RequestOptions
from tests.interaction.fake_servers import fake, text
from tests.interaction.raw_clients import RawHttp, messages, raw_http

PATIENCE_S = 60.0


@asynccontextmanager
async def visiting(
    go: "asyncio.Event | None" = None, progress: int = 0, begun: "asyncio.Event | None" = None
) -> AsyncGenerator[RawHttp]:
    """A client of a gateway whose tool reports so often, and waits until it may go."""

    async def run(given: Raw, how: RequestOptions) -> Raw:
        if begun is not None:
            begun.set()
        for step in range(progress):
            assert how.relay is not None
            await how.relay.notify("notifications/progress", {"progressToken": 7, "progress": step})
        if go is not None:
            await asyncio.wait_for(go.wait(), PATIENCE_S)
        return text("ran")

    backend = fake("run")
    backend.on("tools/call", run)
    async with (
        gateway_over({"s": backend}) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "legacy") as client,
    ):
        yield client


def frame(key: Any = 77) -> Raw:
    params = {"name": "call_tool", "arguments": {"name": "s.run"}, "_meta": {"progressToken": 7}}
    return {"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": params}


async def call(client: RawHttp, key: Any = 77, **headers: str) -> httpx2.Response:
    given = {**client._headers, **headers}  # pyright: ignore[reportPrivateUsage]
    return await client.http.post(client.url, json=frame(key), headers=given)


async def test_an_answer_without_anything_before_it_is_plain_json() -> None:
    async with visiting() as client:
        reply = await call(client)
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["mcp-session-id"]
        assert reply.json()["id"] == 77
        assert "ran" in str(reply.json()["result"])


async def test_what_is_said_before_the_answer_comes_on_a_stream_in_order() -> None:
    async with visiting(progress=3) as client:
        reply = await call(client)
        assert reply.headers["content-type"].startswith("text/event-stream")
        *earlier, answer = messages(reply)
        assert [one["params"]["progress"] for one in earlier] == [0, 1, 2]
        assert answer["id"] == 77


async def test_an_answer_that_takes_a_while_comes_on_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_first_transport, "STREAM_AFTER_S", 0.01)
    go = asyncio.Event()
    async with visiting(go) as client, asyncio.timeout(PATIENCE_S):
        given = client._headers  # pyright: ignore[reportPrivateUsage]
        async with client.http.stream("POST", client.url, json=frame(), headers=given) as reply:
            assert reply.headers["content-type"].startswith("text/event-stream"), (
                "before there is an answer"
            )
            go.set()
            heard = "".join([piece async for piece in reply.aiter_text()])
        assert '"id":77' in heard
        assert "ran" in heard


async def test_many_at_once_get_each_its_own_answer() -> None:
    async with visiting() as client:
        replies = await asyncio.gather(*(call(client, key) for key in (*range(40), "a", "b")))
        assert [reply.json()["id"] for reply in replies] == [*range(40), "a", "b"]


async def test_the_same_id_can_be_used_again_after_its_answer() -> None:
    async with visiting() as client:
        for _ in range(3):
            assert (await call(client, "again")).json()["id"] == "again"


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "text/html"])
async def test_a_client_that_does_not_accept_both_forms_is_refused(accept: str) -> None:
    async with visiting() as client:
        reply = await call(client, accept=accept)
        assert reply.status_code == 406
        assert "text/event-stream" in reply.text


async def test_a_request_that_is_decoded_in_pieces_is_answered_like_any_other() -> None:
    async with visiting() as client:
        request = frame()
        request["params"]["arguments"]["arguments"] = {"text": "é\n" * chunked_decoder.LARGE_BYTES}
        reply = await client.http.post(client.url, json=request, headers=client._headers)  # pyright: ignore[reportPrivateUsage]
        assert "ran" in str(reply.json()["result"])


@pytest.mark.parametrize(
    "body", ['{"a":"%s"', '{"a":"%s\\ud8"}', '{"a":"\\ud800%s"}', "[" * 100 + '"%s"']
)
async def test_a_large_body_that_is_not_json_is_refused_like_a_small_one(body: str) -> None:
    async with visiting() as client:
        replies: list[Raw] = []
        for size in (1, chunked_decoder.LARGE_BYTES):
            content = body % ("x" * size)
            reply = await client.http.post(client.url, content=content, headers=client._headers)  # pyright: ignore[reportPrivateUsage]
            assert reply.status_code == 400
            replies.append(reply.json())
        small, large = (reply["error"]["code"] for reply in replies)
        assert small == large == -32700


async def test_a_session_that_ends_while_a_call_runs_ends_its_stream() -> None:
    go, begun = asyncio.Event(), asyncio.Event()
    async with visiting(go, begun=begun) as client, asyncio.timeout(PATIENCE_S):
        calling = asyncio.create_task(call(client))
        await begun.wait()
        given = client._headers  # pyright: ignore[reportPrivateUsage]
        assert (await client.http.delete(client.url, headers=given)).status_code == 200
        assert "ran" not in (await calling).text
        go.set()
