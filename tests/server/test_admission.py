"""Admission control: queues that are fair to callers, and quick refusals with a time to retry."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from portico.config.limits import LimitsConfig
from portico.gateway import GatewayRuntime
from portico.server.admission import AdmissionControl, classify_request
from portico.testing import FakeBackend, gateway_over, serve_http
from portico.upstream.backend import Era, Raw
from tests.interaction.fake_servers import fake, text
from tests.interaction.raw_clients import RawClient, call, raw_http, raw_lines, result

PATIENCE_S = 30.0


class Slow:
    """A server whose `wait` answers when it is let."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.backend: FakeBackend = fake("wait", "quick")
        self.backend.on_call("wait", self._wait)
        self.backend.on_call("quick", lambda _: text("quick ran"))

    async def _wait(self, arguments: Raw) -> Raw:
        self.begun.append(str(arguments.get("n")))
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.cancelled.append(str(arguments.get("n")))
            raise
        return text(f"{arguments.get('n')} waited")


@asynccontextmanager
async def busy(**limits: Any) -> AsyncGenerator[tuple[GatewayRuntime, Slow, AdmissionControl]]:
    slow, admission = Slow(), AdmissionControl(LimitsConfig(**limits))
    async with gateway_over({"s": slow.backend}) as gateway:
        gateway.admission = admission
        await gateway.wait_until_listed()
        yield gateway, slow, admission


async def until(met: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not met():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.005)


def waiting(client: RawClient, number: int) -> "asyncio.Task[dict[str, Any]]":
    return asyncio.create_task(call(client, "call_tool", name="s.wait", arguments={"n": number}))


def wait(number: int) -> dict[str, Any]:
    return {"name": "call_tool", "arguments": {"name": "s.wait", "arguments": {"n": number}}}


def cancelling(request_id: int) -> bytes:
    message = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": request_id},
    }
    return json.dumps(message).encode() + b"\n"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_request_too_many_is_rejected_at_once_with_a_time_to_retry(era: Era) -> None:
    async with (
        busy(requests=1, waiting=1) as (gateway, slow, admission),
        serve_http(gateway) as url,
        raw_http(url, era) as client,
    ):
        first = waiting(client, 1)
        await until(lambda: slow.begun)
        second = waiting(client, 2)
        await until(lambda: admission.limiter.waiting == 1)
        refused = (await asyncio.wait_for(call(client, "call_tool", name="s.quick"), PATIENCE_S))[
            "result"
        ]
        assert refused["isError"]
        about = refused["_meta"]["portico/error"]
        assert (about["kind"], about["retryable"]) == ("overloaded", True)
        assert about["retry_after_s"] > 0
        assert f"Try again in {about['retry_after_s']:g} s" in refused["content"][0]["text"]
        protocol = await client.request("resources/read", {"uri": "portico://overview"})
        assert protocol["error"]["data"] == {
            "kind": "overloaded",
            "retryable": True,
            "retry_after_s": about["retry_after_s"],
        }
        slow.free.set()
        answers = [await asyncio.wait_for(one, PATIENCE_S) for one in (first, second)]
        assert [one["result"]["content"][0]["text"] for one in answers] == ["1 waited", "2 waited"]
        assert (await call(client, "call_tool", name="s.quick"))["result"]["content"][0][
            "text"
        ] == "quick ran"
        assert (admission.limiter.running, admission.limiter.waiting, admission.rejected_count) == (
            0,
            0,
            2,
        )


async def test_looking_around_is_never_held_up_by_calls() -> None:
    async with (
        busy(requests=1, waiting=0) as (gateway, slow, _),
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        await client.ask("tools/call", wait(1))
        await until(lambda: slow.begun)
        async with asyncio.timeout(PATIENCE_S):
            assert await result(client, "ping") == {}
            assert (await result(client, "tools/list"))["tools"]
            assert (await result(client, "resources/list"))["resources"]
            for name, arguments in (
                ("search_tools", {"query": "wait"}),
                ("browse_tools", {}),
                ("describe_tools", {"names": ["s.wait"]}),
            ):
                assert not (await call(client, name, **arguments))["result"].get("isError"), name
            assert (await call(client, "call_tool", name="s.quick"))["result"]["isError"]
        slow.free.set()


async def test_one_client_s_flood_keeps_no_other_from_its_turn() -> None:
    async with (
        busy(requests=4, waiting=100, caller_requests=2, caller_waiting=50) as (
            gateway,
            slow,
            admission,
        ),
        AsyncExitStack() as stack,
    ):
        url = await stack.enter_async_context(serve_http(gateway))
        flood = await stack.enter_async_context(raw_http(url, "legacy"))
        other = await stack.enter_async_context(raw_http(url, "legacy"))
        many = [waiting(flood, number) for number in range(12)]
        await until(lambda: admission.limiter.waiting == 10)
        assert len(slow.begun) == 2, "a client's own limit is below that of all"
        answer = await asyncio.wait_for(call(other, "call_tool", name="s.quick"), PATIENCE_S)
        assert answer["result"]["content"][0]["text"] == "quick ran"
        slow.free.set()
        answers = await asyncio.wait_for(asyncio.gather(*many), PATIENCE_S)
        assert not any(one["result"].get("isError") for one in answers)
        assert slow.begun == sorted(slow.begun, key=int), "in the order they came"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_who_goes_while_it_waits_leaves_the_line_and_its_call_is_never_begun(
    era: Era,
) -> None:
    async with (
        busy(requests=1) as (gateway, slow, admission),
        raw_lines(gateway.get_endpoint(), era) as client,
    ):
        ids = [
            await client.ask(
                "tools/call",
                {"name": "call_tool", "arguments": {"name": "s.wait", "arguments": {"n": n}}},
            )
            for n in (1, 2, 3)
        ]
        await until(lambda: admission.limiter.waiting == 2)
        await client.write(cancelling(ids[1]))
        await until(lambda: admission.limiter.waiting == 1)
        await client.write(cancelling(ids[0]))
        await until(lambda: slow.cancelled == ["1"])
        await until(lambda: slow.begun == ["1", "3"])
        slow.free.set()
        await until(lambda: admission.limiter.running == 0)


async def test_a_client_that_hangs_up_while_it_waits_over_http_is_gone() -> None:
    async with (
        busy(requests=1) as (gateway, slow, admission),
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        first = waiting(client, 1)
        await until(lambda: slow.begun)
        second = waiting(client, 2)
        await until(lambda: admission.limiter.waiting == 1)
        second.cancel()
        await until(lambda: admission.limiter.waiting == 0)
        slow.free.set()
        assert (await asyncio.wait_for(first, PATIENCE_S))["result"]["content"][0][
            "text"
        ] == "1 waited"
        assert slow.begun == ["1"]


async def test_a_request_that_waits_too_long_is_rejected() -> None:
    async with (
        busy(requests=1, wait_s=0.05) as (gateway, slow, _),
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        await client.ask("tools/call", wait(1))
        await until(lambda: slow.begun)
        refused = await asyncio.wait_for(call(client, "call_tool", name="s.quick"), PATIENCE_S)
        assert "no turn within 0.05 s" in refused["result"]["content"][0]["text"]
        slow.free.set()


async def test_a_client_s_rate_counts_searches_too() -> None:
    async with (
        busy(caller_rate_per_s=0.01, caller_burst=3) as (gateway, _, _admission),
        raw_lines(gateway.get_endpoint(), "legacy") as client,
        raw_lines(gateway.get_endpoint(), "legacy") as other,
    ):
        kinds = [
            (await call(client, "search_tools", query="wait"))["result"]
            .get("_meta", {})
            .get("portico/error", {})
            for _ in range(4)
        ]
        assert [about.get("kind") for about in kinds] == [None, None, None, "overloaded"]
        assert kinds[3]["retry_after_s"] == 60, "the longest time to wait"
        assert not (await call(other, "search_tools", query="wait"))["result"].get("isError")


@pytest.mark.parametrize(
    ("method", "tool", "need"),
    [
        ("ping", "", "nothing"),
        ("tools/list", "", "nothing"),
        ("server/discover", "", "nothing"),
        ("tools/call", "search_tools", "rate"),
        ("tools/call", "call_tool", "place"),
        ("tools/call", "", "place"),
        ("resources/read", "", "place"),
        ("something/new", "", "place"),
    ],
)
def test_only_what_may_take_long_needs_a_place(method: str, tool: str, need: str) -> None:
    assert classify_request(method, tool) == need
