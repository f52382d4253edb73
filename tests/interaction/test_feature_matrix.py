"""What of the protocol is relayed: each feature × era of the client × era of the server × transport
of the client. (Transports of servers: `test_matrix.py`; subscriptions: `test_subscriptions.py`.)
"""

import asyncio
from typing import Any

import mcp_types as types
import pytest

from portico.config import Config
from portico.testing import FakeBackend, Transport
from portico.upstream.backend import Era, Raw, RequestOptions
from tests.gateways import TIMEOUT_S, open_gateway

ICONS = [{"src": "https://example.org/i.png", "mimeType": "image/png", "sizes": ["48x48"]}]
META = {"com.example/key": {"deep": [1, None]}}


@pytest.fixture(params=["legacy", "modern"], ids=lambda era: f"from_{era}")
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


@pytest.fixture(params=["memory", "http", "stdio"])
def transport(request: pytest.FixtureRequest) -> Transport:
    return request.param


@pytest.fixture(params=["legacy", "modern"], ids=lambda era: f"to_{era}")
def server(request: pytest.FixtureRequest) -> FakeBackend:
    """A server that offers one of each, with icons and `_meta`."""
    described: Raw = {"title": "T", "icons": ICONS, "_meta": META}
    capabilities = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}, "logging": {}}
    server = FakeBackend(
        [{"name": "work", "inputSchema": {"type": "object"}, **described}],
        resources=[{"uri": "file:///a", "name": "a", **described}],
        templates=[{"uriTemplate": "file:///{x}", "name": "t", **described}],
        prompts=[{"name": "ask", "arguments": [{"name": "x"}], **described}],
        era=request.param,
        capabilities=capabilities,
    )
    server.on("completion/complete", lambda *_: {"completion": {"values": ["v"], "total": 1}})
    content = {"uri": "file:///a", "text": "x", "_meta": META}
    server.on("resources/read", lambda *_: {"contents": [content], "_meta": META})
    text = {"type": "text", "text": "x", "_meta": META, "annotations": {"priority": 0.5}}
    message = {"role": "user", "content": text}
    server.on("prompts/get", lambda *_: {"messages": [message], "_meta": META})

    async def work(params: Raw, options: RequestOptions) -> Raw:
        assert options.relay is not None
        for level in ("debug", "warning", "emergency"):
            data = {"level": level, "data": level, "logger": "l", "_meta": META}
            await options.relay.notify("notifications/message", data)
        return {"content": [text], "_meta": META}

    server.on("tools/call", work)
    return server


FULL = Config(exposure="full")


async def test_icons_titles_and_meta_of_everything_that_is_listed(
    server: FakeBackend, era: Era, transport: Transport
) -> None:
    async with open_gateway({"s": server}, FULL, era=era, transport=transport) as host:
        client = host.client
        listed: list[Any] = [
            *(await client.list_tools()).tools,
            *[one for one in (await client.list_resources()).resources if one.name == "a"],
            *[
                one
                for one in (await client.list_resource_templates()).resource_templates
                if one.name == "t"
            ],
            *[one for one in (await client.list_prompts()).prompts if one.name == "s__ask"],
        ]
    assert len(listed) == 4
    for one in listed:
        assert one.title == "T"
        assert one.meta == META
        assert [icon.model_dump(by_alias=True, exclude_none=True) for icon in one.icons] == ICONS


async def test_meta_and_annotations_of_results(
    server: FakeBackend, era: Era, transport: Transport
) -> None:
    async with open_gateway({"s": server}, FULL, era=era, transport=transport) as host:
        called: Any = await host.call("s__work")
        read: Any = await host.client.read_resource("portico://backend/s/resource/file:///a")
        got: Any = await host.client.get_prompt("s__ask", {"x": "y"})
    for result in (called, read, got):
        assert META.items() <= result.meta.items()
    assert called.content[0].meta == read.contents[0].meta == got.messages[0].content.meta == META
    assert called.content[0].annotations.priority == 0.5


async def test_completion_with_the_context_of_other_arguments(
    server: FakeBackend, era: Era, transport: Transport
) -> None:
    references = (
        types.PromptReference(type="ref/prompt", name="s__ask"),
        types.ResourceTemplateReference(
            type="ref/resource", uri="portico://backend/s/resource/file:///{x}"
        ),
    )
    async with open_gateway({"s": server}, FULL, era=era, transport=transport) as host:
        for reference in references:
            found = await host.client.complete(
                reference, {"name": "x", "value": "v"}, context_arguments={"other": "o"}
            )
            assert found.completion.values == ["v"]
    sent = [params for method, params in server.requests if method == "completion/complete"]
    assert [params["context"] for params in sent] == [{"arguments": {"other": "o"}}] * 2
    assert [params["ref"].get("name", params["ref"].get("uri")) for params in sent] == [
        "ask",
        "file:///{x}",
    ]


async def test_log_messages_of_the_level_that_the_client_wants(
    server: FakeBackend, era: Era, transport: Transport
) -> None:
    received: list[types.LoggingMessageNotificationParams] = []
    has_last = asyncio.Event()

    async def collect(params: types.LoggingMessageNotificationParams) -> None:
        received.append(params)
        if params.level == "emergency":
            has_last.set()

    wanted: Any = {"log_level": "warning"} if era == "modern" else {}
    async with open_gateway(
        {"s": server}, FULL, era=era, transport=transport, logging_callback=collect, **wanted
    ) as host:
        if era == "legacy":
            await host.client.set_logging_level("warning")  # pyright: ignore[reportDeprecated]
        await host.call("s__work")
        await asyncio.wait_for(has_last.wait(), TIMEOUT_S)
    assert [params.level for params in received] == ["warning", "emergency"]
    assert received[0].logger == "l"
