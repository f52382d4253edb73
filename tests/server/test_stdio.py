"""MCP over stdin and stdout: only messages are written, and invalid lines are answered."""

import asyncio
import contextlib
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from portico.server.stdio import open_pipe_streams
from portico.testing import gateway_over
from portico.upstream.backend import Era, Raw, RequestOptions
from tests.fixtures.raw_client import raw_client
from tests.interaction.fake_servers import fake, shown, text
from tests.interaction.raw_clients import RawLines, call, hello, pipes_to, raw_lines, result

PATIENCE_S = 60.0
STDIO_GATEWAY = """
import asyncio, os, sys
from portico.server.stdio import serve
from portico.testing import FakeBackend, gateway_over

def loud(arguments):
    print("stray print")
    os.system("echo stray echo")
    os.write(1, b"stray write\\n")
    return {"content": [{"type": "text", "text": repr(sys.stdin.read())}]}

fake = FakeBackend([{"name": "loud", "inputSchema": {"type": "object"}}])
fake.on_call("loud", loud)

async def main():
    async with gateway_over({"s": fake}) as gateway:
        print("before it serves", file=sys.stderr)
        await serve(gateway.get_endpoint())

asyncio.run(main())
"""


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_no_stray_print_reaches_the_wire(era: Era) -> None:
    async with raw_client([sys.executable, "-c", STDIO_GATEWAY]) as client:
        await (client.handshake() if era == "legacy" else client.discover())
        answered = await client.call("call_tool", name="s.loud", arguments={})
        assert answered["content"][0]["text"] == "''", (
            "a tool that reads stdin finds it empty, not the wire"
        )
        assert (client.noise, client.unprompted) == ([], [])
        await client.close_stdin()
        assert await client.ended() == 0


@pytest.mark.parametrize(
    ("line", "code", "id"),
    [
        (b"hello", -32700, None),
        (b"{", -32700, None),
        (b"\xff\xfe\x00", -32700, None),
        (b"[]", -32600, None),
        (b"null", -32600, None),
        (b'"text"', -32600, None),
        (b'{"jsonrpc":"2.0"}', -32600, None),
        (b'{"jsonrpc":"1.0","id":5,"method":"ping"}', -32600, 5),
        (b'{"id":"a","method":"ping"}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":6,"method":7}', -32600, 6),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":7,"result":3}', -32600, None),
        (b"[" * 100_000, -32700, None),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_line_that_is_no_message_is_answered(line: bytes, code: int, id: Any) -> None:
    async with (
        gateway_over({"s": fake("run")}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        await client.write(line + b"\n")
        refused = await client.wait_for(lambda message: "error" in message)
        assert (refused["error"]["code"], refused["id"]) == (code, id)
        assert "result" in await client.request("tools/list")


async def test_empty_lines_are_nothing() -> None:
    async with (
        gateway_over({"s": fake("run")}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        await client.write(b"\n\r\n  \n")
        assert "result" in await client.request("tools/list")
        assert client.unprompted == []


@pytest.mark.parametrize(
    ("before", "after", "id"),
    [
        (b'{"jsonrpc":"2.0","id":99,"method":"ping","params":{"x":"', b'"}}\n', 99),
        (b'{"method":"ping","params":{"x":"', b'"},"jsonrpc":"2.0","id":"a-1"}\n', "a-1"),
        (b'{"method":"ping","params":{"x":"', b'","id":5},"jsonrpc":"2.0"}\n', None),
        (b"", b"\n", None),
    ],
    ids=["id first", "id last", "somebody else's id", "no JSON"],
)
async def test_a_line_that_is_too_long_is_refused_once_and_the_next_is_served(
    before: bytes, after: bytes, id: int | str | None
) -> None:
    async with (
        gateway_over({"s": fake("run")}) as gateway,
        pipes_to(gateway.get_endpoint(), max_line_bytes=10_000) as (reader, writer),
    ):
        client = RawLines(reader, writer, "legacy", {})
        await client.introduce()
        await client.write(before + b"x" * 500_000 + after)
        refused = await client.wait_for(lambda message: "error" in message)
        assert "10000 bytes" in refused["error"]["message"]
        assert (refused["error"]["code"], refused.get("id")) == (-32600, id)
        assert "result" in await client.request("tools/list")
        assert not [message for message in client.unprompted if "error" in message], (
            "it is refused once"
        )


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{}}\n']
)
async def test_a_client_that_never_reads_is_not_read_from_and_then_hung_up_on(
    line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        gateway_over({"s": fake("run")}) as gateway,
        pipes_to(gateway.get_endpoint(), send_timeout_s=0.3, max_line_bytes=65_536) as (
            reader,
            writer,
        ),
    ):
        client = RawLines(reader, writer, "legacy", {})
        await client.introduce()
        reader._transport.pause_reading()  # pyright: ignore
        sent = 0
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                while sent < 100_000:
                    writer.write(line % sent if b"%d" in line else line)
                    sent += 1
                    await writer.drain()
        assert sent < 100_000, "what it sends is held back long before that"
        assert "left" in caplog.text
        assert "unread" in caplog.text


def test_the_last_answer_is_whole_when_the_process_ends_with_it() -> None:
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    ending = threading.Event()

    async def served() -> None:
        async with open_pipe_streams(os.fdopen(ours_in, "rb", 0), os.fdopen(ours_out, "wb", 0)) as (
            _,
            sending,
        ):
            for number in range(2):
                # More than a pipe holds, less than what is waited for while it is sent.
                answer = JSONRPCResponse(jsonrpc="2.0", id=number, result={"text": "x" * 60_000})
                await sending.send(SessionMessage(answer))
            later = asyncio.create_task(read_later())
        later.cancel()

    async def read_later() -> None:
        for _ in range(50):  # turns of the loop, in which all would be over if nobody waited
            await asyncio.sleep(0)
        ending.set()

    with (
        os.fdopen(theirs_in, "rb") as answers,
        os.fdopen(theirs_out, "wb"),
        ThreadPoolExecutor(1) as pool,
    ):
        reading = pool.submit(lambda: (ending.wait(PATIENCE_S), answers.read())[1])
        asyncio.run(served())
        ending.set()
        lines = reading.result(PATIENCE_S).splitlines()
    assert [json.loads(line)["id"] for line in lines] == [0, 1]


async def test_a_lone_surrogate_in_a_result_does_not_end_the_connection() -> None:
    backend = fake("run")
    backend.on_call("run", lambda _: text("cut \ud83d"))
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        answered = await call(client, "call_tool", name="s.run")
        assert answered["result"]["content"][0]["text"] == "cut \ud83d"
        assert "result" in await client.request("tools/list")


async def test_the_first_request_must_open_the_conversation() -> None:
    async with (
        gateway_over({"s": fake("run")}) as gateway,
        pipes_to(gateway.get_endpoint()) as (reader, writer),
    ):
        client = RawLines(reader, writer, "legacy", {})
        assert (await client.request("tools/list"))["error"]["code"] == -32600
        assert await result(client, "ping") == {}
        assert "result" in await client.request("initialize", hello())
        assert "result" in await client.request("tools/list")


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_handshake_version_is_spoken(version: str) -> None:
    async with (
        gateway_over({"s": fake("run")}) as gateway,
        pipes_to(gateway.get_endpoint()) as (reader, writer),
    ):
        client = RawLines(reader, writer, "legacy", {})
        opened = await result(client, "initialize", hello(version))
        assert opened["protocolVersion"] == version
        assert opened["serverInfo"]["name"] == "portico"
        assert (await call(client, "call_tool", name="s.run"))["result"] == shown("run ran")


async def test_an_unknown_version_is_answered_with_one_we_speak() -> None:
    async with (
        gateway_over({"s": fake("run")}) as gateway,
        pipes_to(gateway.get_endpoint()) as (reader, writer),
    ):
        client = RawLines(reader, writer, "legacy", {})
        assert (await result(client, "initialize", hello("1999-01-01")))[
            "protocolVersion"
        ] == "2025-11-25"


async def test_a_request_of_an_unknown_version_is_answered_with_the_supported_ones() -> None:
    async with (
        gateway_over({"s": fake("run")}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern") as client,
    ):
        meta = {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}
        error = (await client.request("tools/list", {"_meta": meta}))["error"]
        assert error["code"] == -32022
        assert error["data"]["supported"] == ["2026-07-28"]


async def test_a_client_that_leaves_in_the_middle_of_a_call_cancels_it() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def forever(params: Raw, how: RequestOptions) -> Raw:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return {}

    backend = fake("run")
    backend.on("tools/call", forever)
    async with gateway_over({"s": backend}) as gateway:
        async with raw_lines(gateway.get_endpoint(), "legacy") as client:
            await client.ask("tools/call", {"name": "call_tool", "arguments": {"name": "s.run"}})
            await asyncio.wait_for(started.wait(), PATIENCE_S)
        await asyncio.wait_for(cancelled.wait(), PATIENCE_S)


async def test_an_internal_failure_is_reported_without_details() -> None:
    def broken(_: Raw) -> Raw:
        raise ZeroDivisionError("the password is swordfish")

    backend = fake("run")
    backend.on_call("run", broken)
    async with gateway_over({"s": backend}) as gateway:
        for era in ("legacy", "modern"):
            async with raw_lines(gateway.get_endpoint(), era) as client:
                answered = await call(client, "call_tool", name="s.run")
                assert "swordfish" not in json.dumps(answered)
                assert answered["error"]["code"] == -32603
                assert "tools/call" in answered["error"]["message"]


async def test_answers_come_as_they_are_ready_not_in_turn() -> None:
    release = asyncio.Event()

    async def wait(params: Raw, how: RequestOptions) -> Raw:
        if params["name"] == "slow":
            await release.wait()
        return text(params["name"])

    backend = fake("slow", "fast")
    backend.on("tools/call", wait)
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        slow = await client.ask(
            "tools/call", {"name": "call_tool", "arguments": {"name": "s.slow"}}
        )
        assert (await call(client, "call_tool", name="s.fast"))["result"] == shown("fast")
        release.set()
        assert (await client.answer_to(slow))["result"] == shown("slow")
