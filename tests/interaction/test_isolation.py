"""A server that keeps a state: each client has its own instance, by session, pipe or handle, and no
other's."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psutil
import pytest

from portico.config import BackendConfig, Config, Profile
from portico.errors import RemoteError
from portico.gateway import GatewayRuntime
from portico.testing import gateway_over, serve_http
from portico.upstream.backend import Era
from tests.fixtures.counter import counter
from tests.gateways import wait_until
from tests.interaction.fake_servers import fake
from tests.interaction.raw_clients import Message, RawClient, call, raw_http, raw_lines, result

pytestmark = pytest.mark.usefixtures("line_transport")

TIMEOUT_S = 240.0
HANDLE = "portico/session"
TOKEN = "a token that nobody guesses"


def make_config(**more: Any) -> Config:
    command, *arguments = counter()
    server = BackendConfig(
        command=command, args=tuple(arguments), isolation="session", protocol="legacy", **more
    )
    return Config(
        servers={"own": server}, profiles={"full": Profile(exposure="full"), "other": Profile()}
    )


@asynccontextmanager
async def counter_gateway(**more: Any) -> AsyncGenerator[GatewayRuntime]:
    async with asyncio.timeout(2 * TIMEOUT_S), gateway_over(config=make_config(**more)) as gateway:
        yield gateway


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def texts(answer: Message) -> list[str]:
    return [block["text"] for block in answer["result"]["content"]]


async def count(client: RawClient, handle: str | None = None, **arguments: Any) -> tuple[int, int]:
    """One further: how far this client's own instance has counted, and its process."""
    params: Message = {"name": "call_tool", "arguments": {"name": "own.count", **arguments}}
    answer = await client.request(
        "tools/call", params | ({"_meta": {HANDLE: handle}} if handle else {})
    )
    number, pid = texts(answer)[0].split()
    return int(number), int(pid)


async def begin(client: RawClient) -> tuple[str, int]:
    """The first call of a client nobody knows: the handle it is issued, and its process."""
    answer = await call(client, "call_tool", name="own.count")
    handle = answer["result"]["_meta"][HANDLE]
    first, said = texts(answer)
    assert first.split()[0] == "1"
    assert f'session: "{handle}"' in said
    return handle, int(first.split()[1])


async def each_has_its_own(one: RawClient, two: RawClient) -> tuple[int, int]:
    first, second = await count(one), await count(two)
    assert (first[0], second[0]) == (1, 1)
    assert first[1] != second[1]
    assert await count(one) == (2, first[1])
    assert await count(one) == (3, first[1])
    assert await count(two) == (2, second[1])
    return first[1], second[1]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_each_client_over_a_pipe_counts_for_itself_and_takes_its_instance_along(
    era: Era,
) -> None:
    async with counter_gateway() as gateway, raw_lines(gateway.get_endpoint(), era) as one:
        async with raw_lines(gateway.get_endpoint(), era) as two:
            mine, others = await each_has_its_own(one, two)
        await wait_until(lambda: not alive(others))
        assert await count(one) == (4, mine)


async def test_each_session_over_http_counts_for_itself_and_takes_its_instance_along() -> None:
    async with (
        counter_gateway() as gateway,
        serve_http(gateway) as url,
        raw_http(url, "legacy") as one,
    ):
        async with raw_http(url, "legacy") as two:
            mine, others = await each_has_its_own(one, two)
            headers = two._headers  # pyright: ignore[reportPrivateUsage]
            await two.http.delete(url, headers=headers)
        await wait_until(lambda: not alive(others))
        assert await count(one) == (4, mine)


async def test_a_modern_client_over_http_gets_a_handle_and_continues_with_it() -> None:
    async with (
        counter_gateway() as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        handle, mine = await begin(client)
        other, others = await begin(client)
        assert handle != other
        assert mine != others
        assert await count(client, handle) == (2, mine)
        assert await count(client, session=handle) == (3, mine), "as a model passes it"
        assert await count(client, session=other) == (2, others)
        again = await client.request(
            "tools/call",
            {"name": "call_tool", "arguments": {"name": "own.count"}, "_meta": {HANDLE: handle}},
        )
        assert len(texts(again)) == 1, "a client with a handle is issued no other"
        assert HANDLE not in again["result"].get("_meta", {})


async def test_a_client_without_a_handle_uses_no_others_for_resources_either() -> None:
    async with (
        counter_gateway() as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        handle, mine = await begin(client)
        uri = "portico://backend/own/resource/count://now"
        strange = await result(client, "resources/read", {"uri": uri})
        assert strange["contents"][0]["text"].split()[0] == "0"
        assert strange["_meta"][HANDLE] != handle
        own = await result(client, "resources/read", {"uri": uri, "_meta": {HANDLE: handle}})
        assert own["contents"][0]["text"] == f"1 {mine}"


async def test_a_handle_that_was_not_issued_here_is_refused_with_advice() -> None:
    async with (
        counter_gateway() as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        handle, _ = await begin(client)
        async with raw_http(f"{url}/p/other", "modern") as other:
            for asked, wrong in ((client, "made-up"), (other, handle)):
                params: Message = {
                    "name": "call_tool",
                    "arguments": {"name": "own.count"},
                    "_meta": {HANDLE: wrong},
                }
                refused = (await asked.request("tools/call", params))["error"]
                assert refused["code"] == -32602
                assert "Call without a session" in refused["message"]
                answer = await call(asked, "call_tool", name="own.count", session=wrong)
                assert answer["result"]["isError"]
                assert "Call without a session" in texts(answer)[0]


async def test_a_modern_client_with_a_token_needs_a_handle_like_any_other() -> None:
    async with counter_gateway() as gateway, serve_http(gateway, token=TOKEN) as url:
        async with (
            raw_http(url, "modern", token=TOKEN) as one,
            raw_http(url, "modern", token=TOKEN) as two,
        ):
            handle, mine = await begin(one)
            other, others = await begin(two)
            assert mine != others, "the token and the name are not one client's alone"
            assert await count(one, handle) == (2, mine)
            assert await count(two, session=other) == (2, others)
        for upstream in gateway.upstreams.values():
            assert TOKEN not in str(vars(upstream))


async def test_a_tool_that_is_listed_itself_says_the_handle_beside_its_result_only() -> None:
    async with (
        counter_gateway() as gateway,
        serve_http(gateway) as url,
        raw_http(f"{url}/p/full", "modern") as client,
    ):
        answer = await call(client, "own__count")
        assert len(texts(answer)) == 1
        handle = answer["result"]["_meta"][HANDLE]
        again = await client.request(
            "tools/call", {"name": "own__count", "_meta": {HANDLE: handle}}
        )
        assert texts(again) == [f"2 {texts(answer)[0].split()[1]}"]


async def test_a_large_result_of_the_first_call_can_be_read_with_the_handle_and_without() -> None:
    async with (
        counter_gateway() as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        answer = await call(client, "call_tool", name="own.long")
        handle = answer["result"]["_meta"][HANDLE]
        found = re.search(r"portico://result/([\w-]+)", str(answer))
        assert found is not None, answer
        for meta in ({}, {"_meta": {HANDLE: handle}}):
            params: Message = {
                "name": "read_result",
                "arguments": {"result_id": found[1], "grep": "^39999$"},
                **meta,
            }
            assert "39999" in texts(await client.request("tools/call", params))[0]


async def test_no_server_sees_a_handle() -> None:
    backend = fake("run")
    async with (
        gateway_over({"s": backend}) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        handle = gateway.get_view().state_handles.issue()
        params: Message = {
            "name": "call_tool",
            "arguments": {"name": "s.run"},
            "_meta": {HANDLE: handle.text, "traceparent": "t"},
        }
        assert "result" in await client.request("tools/call", params)
    sent = [params for method, params in backend.requests if method == "tools/call"]
    assert sent[0]["_meta"]["traceparent"] == "t"
    assert handle.text not in str(sent)


async def test_a_call_that_never_reached_an_instance_says_nothing_of_one() -> None:
    async with (
        counter_gateway() as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        for name, arguments in (
            ("search_tools", {"query": "count"}),
            ("call_tool", {"name": "own.nothing"}),
        ):
            answer = await call(client, name, **arguments)
            assert HANDLE not in answer["result"].get("_meta", {})
        assert len(gateway.get_view().state_handles) == 0


async def test_the_session_argument_is_listed_only_where_a_server_is_isolated() -> None:
    shared = make_config().model_copy(update={"servers": {}})
    for config, there in ((make_config(), True), (shared, False)):
        async with (
            gateway_over(config=config) as gateway,
            raw_lines(gateway.get_endpoint(), "modern") as client,
        ):
            tools = {tool["name"]: tool for tool in (await result(client, "tools/list"))["tools"]}
            assert ("session" in tools["call_tool"]["inputSchema"]["properties"]) is there


async def test_over_the_bound_the_longest_unused_goes_and_the_others_stay() -> None:
    async with (
        counter_gateway(max_instances=2) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        first, gone = await begin(client)
        second, kept = await begin(client)
        assert await count(client, second) == (2, kept)
        third, new = await begin(client)
        await wait_until(lambda: not alive(gone))
        assert await count(client, second) == (3, kept)
        assert await count(client, third) == (2, new)
        assert (await count(client, first))[0] == 1, "it begins again"


async def test_strangers_that_come_at_once_are_kept_apart() -> None:
    async with (
        counter_gateway() as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        begun = await asyncio.gather(*(begin(client) for _ in range(4)))
        assert len({pid for _, pid in begun}) == len({handle for handle, _ in begun}) == 4
        assert gateway.upstreams["own"].get_status().diagnostics["instances"] == 4


async def test_the_death_of_one_instance_is_nobody_elses() -> None:
    async with (
        counter_gateway() as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        handle, mine = await begin(client)
        other, others = await begin(client)
        answer = await call(client, "call_tool", name="own.die", session=handle)
        assert answer["result"]["isError"]
        await wait_until(lambda: not alive(mine))
        assert await count(client, other) == (2, others)
        assert (await count(client, handle))[0] == 1


async def test_an_idle_instance_is_stopped_while_another_lives() -> None:
    async with (
        counter_gateway() as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        handle, mine = await begin(client)
        other, others = await begin(client)
        async with asyncio.timeout(TIMEOUT_S):
            with gateway.upstreams["own"].in_use(gateway.get_view().state_handles.redeem(other)):
                await gateway.upstreams["own"].stop_if_idle(0)
        assert not alive(mine)
        assert await count(client, other) == (2, others)
        assert (await count(client, handle))[0] == 1


async def test_what_an_instance_says_goes_to_its_own_client_only() -> None:
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(counter_gateway())
        one, two = [
            await stack.enter_async_context(raw_lines(gateway.get_endpoint(), "legacy"))
            for _ in range(2)
        ]
        uri = "portico://backend/own/resource/count://now"
        for client in (one, two):
            await result(client, "resources/subscribe", {"uri": uri})
        await count(one)
        reported = await one.wait_for(
            lambda message: message.get("method") == "notifications/resources/updated"
        )
        assert reported["params"]["uri"] == uri
        assert await result(two, "tools/list")
        assert not [
            message for message in two.unprompted if "updated" in str(message.get("method"))
        ]


async def test_what_a_stranger_began_and_cannot_come_back_to_ends() -> None:
    backend = fake("run")

    def refuse(params: Message, how: Any) -> Message:
        raise RemoteError(-32000, "no")

    backend.on("tools/call", refuse)
    async with gateway_over({"s": backend}) as gateway:
        gateway.upstreams["s"].isolated = True
        await wait_until(lambda: backend.connected == 1)
        async with serve_http(gateway) as url, raw_http(url, "modern") as client:
            assert (await call(client, "s__run"))["error"]["message"] == "no"
            await wait_until(lambda: backend.connections == 2 and backend.connected == 1)
            assert len(gateway.get_view().state_handles) == 0
