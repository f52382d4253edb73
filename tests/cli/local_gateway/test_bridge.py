"""`stdio` through a running gateway: as over a pipe of one's own, and no client ever hangs."""

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import Any

import psutil
import pytest

from tests.cli.conftest import EVERYTHING, Home, command
from tests.cli.local_gateway.conftest import SERVERS, Serve
from tests.fixtures.counter import counter
from tests.fixtures.raw_client import RawClient, raw_client

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def bridge(home: Home, *arguments: str) -> Any:
    return raw_client([*command(), "stdio", *arguments], env=home.environment, cwd=str(home.folder))


async def test_a_client_of_either_era_is_served_by_a_thin_process(home: Home, serve: Serve) -> None:
    home.write({"servers": SERVERS, "profiles": {"measures": {"servers": ["units"]}}})
    await asyncio.to_thread(serve)
    async with bridge(home) as client:
        assert (await client.handshake())["result"]["serverInfo"]["name"] == "portico"
        found = await client.call("call_tool", name="units.list_units", arguments={})
        assert not found.get("isError"), found
        loaded = [one.path for one in psutil.Process(client.process.pid).memory_maps()]
        assert loaded
        assert not [path for path in loaded if "pydantic" in path], "it does not load the gateway"
        await client.close_stdin()
        assert await client.ended() == 0
    async with bridge(home, "--profile", "measures") as client:
        await client.discover()
        browsed = await client.call("browse_tools")
        assert "text" not in browsed["content"][0]["text"].split()


async def test_when_the_gateway_dies_a_request_fails_at_once_and_the_session_goes_on_at_the_next(
    home: Home, serve: Serve
) -> None:
    home.write({"servers": {"every": EVERYTHING}})
    process, _ = await asyncio.to_thread(serve)
    async with bridge(home) as client:
        await client.handshake()
        await client.request("logging/setLevel", {"level": "info"})
        arguments = {"name": "every.slow", "arguments": {"seconds": 600, "steps": 600}}
        running = await client.send_request(
            "tools/call",
            {"name": "call_tool", "arguments": arguments, "_meta": {"progressToken": "p"}},
        )
        await client.wait_for(lambda one: one.get("method") == "notifications/progress")
        process.kill()
        answer = await client.answer_to(running)
        assert "ended before it had answered" in answer["error"]["message"]
        process.wait(20)
        await asyncio.to_thread(serve)
        # Sent while nobody listens or after: it is answered by the gateway that came back.
        assert len((await client.request("tools/list"))["result"]["tools"]) > 1
        assert await client.wait_for(
            lambda one: one.get("method") == "notifications/tools/list_changed"
        )
        assert client.noise == []


async def test_when_no_gateway_comes_back_the_session_goes_on_at_one_of_its_own(
    home: Home, serve: Serve
) -> None:
    home.write({"servers": SERVERS})
    process, _ = await asyncio.to_thread(serve)
    async with bridge(home) as client, bridge(home) as silent:
        await client.handshake()
        await silent.handshake()
        process.kill()
        process.wait(20)
        found = await client.call("call_tool", name="units.list_units", arguments={})
        assert not found.get("isError"), found
        [own] = psutil.Process(client.process.pid).children()
        assert "--alone" in own.cmdline()
        assert psutil.Process(silent.process.pid).children() == [], "nobody waits for an answer"
        await asyncio.to_thread(serve)
        assert len((await silent.request("tools/list"))["result"]["tools"]) > 1
        assert psutil.Process(silent.process.pid).children() == []
        await client.close_stdin()
        assert await client.ended() == 0
        own.wait(20)


async def test_alone_or_with_another_exposure_it_serves_itself(home: Home, serve: Serve) -> None:
    home.write({"servers": SERVERS})
    process, _ = await asyncio.to_thread(serve)
    async with bridge(home, "--alone") as alone, bridge(home, "--exposure", "full") as full:
        await alone.handshake()
        await full.handshake()
        process.kill()
        process.wait(20)
        assert len((await alone.request("tools/list"))["result"]["tools"]) > 1
        names = [one["name"] for one in (await full.request("tools/list"))["result"]["tools"]]
        assert "units__list_units" in names


CLIENTS = 8


async def test_no_client_sees_what_another_is_asked_answered_or_keeps(
    home: Home, serve: Serve
) -> None:
    program, *arguments = counter()
    own = {"command": program, "args": arguments, "isolation": "session"}
    home.write({"servers": {"every": EVERYTHING, "own": own}})
    await asyncio.to_thread(serve)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(bridge(home)) for _ in range(CLIENTS)]
        await asyncio.gather(*(client.handshake(elicitation={}) for client in clients))
        answers = await asyncio.gather(
            *(_ask_and_count(client, number) for number, client in enumerate(clients))
        )
    for number, (form, counted, loaded, unprompted) in enumerate(answers):
        assert f"client {number}" in form, "its own answer, to its own question"
        assert counted == [str(turn) for turn in range(1, number + 2)], "its own state"
        assert str(number) in loaded
        assert [one for one in unprompted if "id" in one or "progress" in one["method"]] == []


async def _ask_and_count(
    client: RawClient, number: int
) -> tuple[str, list[str], str, list[dict[str, Any]]]:
    """Let a server ask this client, count in its own instance, and keep a value for scripts."""
    question = {"name": "every.ask_client", "arguments": {"kind": "form"}}
    running = await client.send_request("tools/call", {"name": "call_tool", "arguments": question})
    asked = await client.wait_for(lambda one: one.get("method") == "elicitation/create")
    accepted = {"action": "accept", "content": {"name": f"client {number}"}}
    await client.send({"id": asked["id"], "result": accepted})
    form = (await client.answer_to(running))["result"]["content"][0]["text"]
    counted = [
        (await client.call("call_tool", name="own.count"))["content"][0]["text"].split()[0]
        for _ in range(number + 1)
    ]
    await client.call("run_code", code=f"store('mine', {number})")
    loaded = await client.call("run_code", code="load('mine')")
    return form, counted, loaded["content"][0]["text"], client.unprompted
