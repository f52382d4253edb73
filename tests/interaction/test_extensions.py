"""Methods and notifications of extensions that the gateway does not know: between a client and a
server that both declare them, under the caller's rules, with ids that name their server."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client, advertise
from mcp.shared.exceptions import MCPError
from pydantic import RootModel

from portico.calls.elicitation import LabelledRelay
from portico.config import Config
from portico.testing import FakeBackend, Transport
from portico.upstream.backend import Era, Raw, RequestOptions
from portico.upstream.protocol.extension_ids import MAX_NODES
from tests.gateways import TIMEOUT_S, GatewayUnderTest, open_gateway

THING = "com.example/things"


class Message:
    """A request or notification that the SDK has no type for."""

    name_param = None

    def __init__(self, method: str, params: Raw) -> None:
        self.method = method
        self.params = params

    def model_dump(self, **_: Any) -> Raw:
        return {"method": self.method, "params": self.params}


class AnyResult(RootModel[dict[str, Any]]):
    """A result as it came."""


def make_server(name: str, era: Era = "legacy", *, declares: bool = True) -> FakeBackend:
    capabilities: Raw = {"tools": {}}
    if declares:
        capabilities["extensions"] = {THING: {"from": name}}
    tool = {"name": "work", "inputSchema": {"type": "object"}}
    server = FakeBackend([tool], era=era, capabilities=capabilities)

    def answer(params: Raw, _: RequestOptions) -> Raw:
        got = {key: value for key, value in params.items() if key != "_meta"}
        things = [{"id": "7", "parentId": "3", "title": "7", "thingIds": ["1", "2"], "n": 1}]
        return {"things": things, "from": name, "got": got, "_meta": {"id": "7"}}

    server.on("things/list", answer)
    return server


async def ask(host: GatewayUnderTest, method: str, params: Raw | None = None) -> Raw:
    message: Any = Message(method, params or {})
    async with asyncio.timeout(TIMEOUT_S):
        found = await host.client.session.send_request(message, AnyResult)
    return found.root


@asynccontextmanager
async def open_client(
    *servers: FakeBackend,
    declares: bool = True,
    config: Mapping[str, Any] | None = None,
    **client: Any,
) -> AsyncGenerator[GatewayUnderTest]:
    extensions = [advertise(THING)] if declares else None
    backends = dict(zip("abcdefgh", servers, strict=False))
    whole = Config.model_validate(dict(config or {}))
    async with open_gateway(backends, whole, extensions=extensions, **client) as gateway:
        yield gateway


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


@pytest.fixture(params=["legacy", "modern"])
def server_era(request: pytest.FixtureRequest) -> Era:
    return request.param


@pytest.mark.parametrize("transport", ["memory", "http", "stdio"])
async def test_a_method_reaches_the_server_that_shares_the_extension(
    era: Era, server_era: Era, transport: Transport
) -> None:
    server = make_server("one", server_era)
    async with open_client(
        server, make_server("two", declares=False), era=era, transport=transport
    ) as host:
        assert host.client.server_capabilities.extensions == {THING: {"from": "one"}}
        found = await ask(host, "things/list", {"thingId": "portico+a:7", "x": "y"})
        assert found["got"] == {"thingId": "7", "x": "y"}
        assert found["things"] == [
            {
                "id": "portico+a:7",
                "parentId": "portico+a:3",
                "title": "7",
                "thingIds": ["portico+a:1", "portico+a:2"],
                "n": 1,
            }
        ]
        assert found["_meta"]["id"] == "7"
        (sent,) = [params for method, params in server.requests if method == "things/list"]
        if server_era == "modern":
            meta = sent["_meta"]["io.modelcontextprotocol/clientCapabilities"]
            assert THING in meta["extensions"]


@pytest.mark.parametrize(("client", "server"), [(True, False), (False, True), (False, False)])
async def test_nothing_passes_where_one_side_does_not_declare_it(
    client: bool, server: bool, era: Era
) -> None:
    fake = make_server("one", declares=server)
    async with open_client(fake, declares=client, era=era) as host:
        with pytest.raises(MCPError, match="Method not found") as refused:
            await ask(host, "things/list")
        assert refused.value.code == -32601
        assert not [method for method, _ in fake.requests if method == "things/list"]
        assert not host.client.server_capabilities.extensions


async def test_of_several_servers_one_has_to_be_named(era: Era) -> None:
    async with open_client(make_server("one"), make_server("two"), era=era) as host:
        with pytest.raises(MCPError, match="may be for a, b"):
            await ask(host, "things/list")
        named = await ask(host, "things/list", {"_meta": {"portico/server": "b"}})
        assert named["from"] == "two"
        by_id = await ask(host, "things/list", {"thing": {"id": "portico+a:7"}})
        assert (by_id["from"], by_id["got"]) == ("one", {"thing": {"id": "7"}})
        for params in (
            {"id": "portico+a:1", "otherId": "portico+b:1"},
            {"id": "portico+a:1", "_meta": {"portico/server": "b"}},
            {"id": "portico+nobody:1"},
        ):
            with pytest.raises(MCPError):
                await ask(host, "things/list", params)


async def test_the_rules_decide_on_the_methods_of_a_server(era: Era) -> None:
    config = {"rules": [{"for": ["everyone"], "may": "deny"}]}
    server = make_server("one")
    async with open_client(server, config=config, era=era) as host:
        with pytest.raises(MCPError):
            await ask(host, "things/list")
        await notify(host.client, "notifications/things/seen", {"id": "1"})
    assert "things/list" not in [method for method, _ in server.requests]


async def test_a_message_with_too_many_members_is_refused_before_anything_is_sent() -> None:
    server = make_server("one")
    deep: Any = {}
    for _ in range(80):
        deep = {"a": deep}
    async with open_client(server) as host:
        for params in ({"ids": ["x"] * MAX_NODES}, {"deep": deep}):
            with pytest.raises(MCPError, match="members"):
                await ask(host, "things/list", params)
        assert "things/list" not in [method for method, _ in server.requests]
        server.on("things/list", lambda *_: {"ids": ["x"] * MAX_NODES})
        with pytest.raises(MCPError, match="members"):
            await ask(host, "things/list")


class RecordingRelay:
    """A client that declares an extension, and what it was notified of."""

    client_key = "c"

    def __init__(self, extensions: Raw) -> None:
        self.capabilities: Raw = {"extensions": extensions}
        self.notified: list[tuple[str, Raw]] = []

    async def notify(self, method: str, params: Raw) -> None:
        self.notified.append((method, params))

    async def request(self, method: str, params: Raw) -> Raw:
        return {}

    async def pause(self) -> None:
        return


@pytest.mark.parametrize("client", [{THING: {}}, {}])
@pytest.mark.parametrize("server", [{THING: {}}, {}, {"com.example/other": {}}])
async def test_a_servers_notification_passes_where_both_declare_the_extension(
    client: Raw, server: Raw
) -> None:
    relay = RecordingRelay(client)
    labelled = LabelledRelay("a", relay, lambda _: server)
    await labelled.notify("notifications/things/made", {"thingId": "7", "text": "x"})
    await labelled.notify("notifications/things/made", {"ids": ["x"] * MAX_NODES})
    expected = [("notifications/things/made", {"thingId": "portico+a:7", "text": "x"})]
    assert relay.notified == (expected if THING in client and THING in server else [])
    await labelled.notify("notifications/message", {"level": "info", "data": {"id": "7"}})
    assert relay.notified[-1] == ("notifications/message", {"level": "info", "data": {"id": "7"}})


async def test_a_clients_notification_reaches_the_server_that_shares_the_extension(
    era: Era, server_era: Era
) -> None:
    for declares in (True, False):
        server = make_server("one", server_era)
        async with open_client(server, declares=declares, era=era) as host:
            await notify(host.client, "notifications/things/seen", {"thingId": "portico+a:7"})
            if declares:
                async with asyncio.timeout(TIMEOUT_S):
                    while not find_notified(server):
                        await host.client.list_tools()
                assert find_notified(server) == [{"thingId": "7"}]
            else:
                # What comes after it is answered after it.
                await host.client.list_tools()
                assert find_notified(server) == []


def find_notified(server: FakeBackend) -> list[Raw]:
    """Return the params of the client's notifications that a server got, without `_meta`."""
    return [
        {key: value for key, value in params.items() if key != "_meta"}
        for method, params in server.requests
        if method == "notifications/things/seen"
    ]


async def notify(client: Client, method: str, params: Raw) -> None:
    message: Any = Message(method, params)
    await client.session.send_notification(message)
