"""The public test kit does what its users' tests rely on."""

import asyncio
from typing import Any

import pytest

from portico.config import Config, Profile
from portico.errors import BackendUnavailable, RemoteError
from portico.testing import FakeBackend, Transport, connect, gateway_over, serve_http
from portico.upstream.backend import Era, Raw, RequestOptions

TIMEOUT_S = 240.0
ECHO: Raw = {"name": "echo", "inputSchema": {"type": "object"}}


def text(content: str) -> Raw:
    return {"content": [{"type": "text", "text": content}]}


def echoing() -> FakeBackend:
    backend = FakeBackend([ECHO])
    backend.on_call("echo", lambda arguments: text(str(arguments)))
    return backend


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
async def test_a_real_client_is_connected_over_every_transport_in_both_eras(
    transport: Transport, era: Era
) -> None:
    async with (
        gateway_over({"fake": echoing()}) as gateway,
        connect(gateway, transport, era) as client,
    ):
        assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
        called = await client.call_tool("call_tool", {"name": "fake.echo", "arguments": {"a": 1}})
        assert getattr(called.content[0], "text", "") == "{'a': 1}"


@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
async def test_a_client_may_come_by_a_profile(transport: Transport) -> None:
    config = Config(profiles={"plain": Profile(exposure="full")})
    async with (
        gateway_over({"fake": echoing()}, config) as gateway,
        connect(gateway, transport, profile="plain") as client,
    ):
        assert [tool.name for tool in (await client.list_tools()).tools] == ["fake__echo"]


async def test_a_fake_answers_as_scripted_and_records_its_requests() -> None:
    backend = echoing()

    async def later(params: Raw, how: RequestOptions) -> Raw:
        await asyncio.sleep(0)
        return {"messages": [], "description": params["name"]}

    backend.listing["prompts"] = [{"name": "greet"}]
    backend.on("prompts/get", later)
    async with gateway_over({"fake": backend}) as gateway, connect(gateway) as client:
        await client.call_tool("call_tool", {"name": "fake.echo", "arguments": {"a": 1}})
        assert (await client.get_prompt("fake__greet")).description == "greet"
        called = next(params for method, params in backend.requests if method == "tools/call")
        assert (called["name"], called["arguments"]) == ("echo", {"a": 1})
        assert backend.connected == 1
    assert backend.connected == 0, "a gateway that ends hangs up"


async def test_a_fake_refuses_fails_and_has_no_answer_to_unscripted_methods() -> None:
    def refuse(_: Raw) -> Raw:
        raise RemoteError(-1, "not today", {"why": None})

    backend = FakeBackend([ECHO, {**ECHO, "name": "silent"}])
    backend.on_call("echo", refuse)
    async with gateway_over({"fake": backend}) as gateway, connect(gateway) as client:
        refused: Any = await client.call_tool("call_tool", {"name": "fake.echo"})
        assert "not today" in refused.content[0].text
        reported = refused.meta["portico/error"]
        assert (reported["code"], reported["data"]) == (-1, {"why": None})
        silent: Any = await client.call_tool("call_tool", {"name": "fake.silent"})
        assert "no answer to tools/call" in silent.content[0].text


async def test_a_fake_that_is_too_slow_times_out_like_any_server() -> None:
    async def never(_: Raw, __: RequestOptions) -> Raw:
        await asyncio.Event().wait()
        return {}

    backend = echoing()
    backend.on("tools/list", never)
    connection = await backend.connect(_Deaf())
    with pytest.raises(BackendUnavailable, match="tools/list"):
        await connection.request("tools/list", None, RequestOptions(timeout=0.01))
    await connection.close()


class _Deaf:
    def on_notification(self, method: str, params: Raw) -> None: ...

    def on_lost(self, reason: str) -> None: ...


async def test_a_fake_changes_dies_and_comes_back() -> None:
    backend = echoing()
    async with (
        gateway_over({"fake": backend}, Config(exposure="full")) as gateway,
        connect(gateway) as client,
    ):
        backend.refuses = BackendUnavailable("out for lunch")
        backend.die("it was told to")
        called = await client.call_tool("fake__echo", {})
        assert called.is_error
        assert "out for lunch" in getattr(called.content[0], "text", "")
    assert backend.connections > 1


async def test_a_gateway_is_served_over_http_with_options() -> None:
    async with gateway_over({"fake": echoing()}) as gateway, serve_http(gateway, token="t") as url:
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/mcp")


async def test_two_gateways_over_fakes_know_nothing_of_each_other() -> None:
    async with gateway_over({"fake": echoing()}), gateway_over({"fake": FakeBackend()}) as other:
        assert other.get_view().snapshot.tools == {}
