"""Our own prompts through real clients of both eras."""

import json
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import EmbeddedResource, PromptReference, TextContent, TextResourceContents

from portico.config import Config
from portico.testing import FakeBackend, Transport, connect, gateway_over
from portico.upstream.backend import Era
from tests.interaction.fake_servers import tool

WAYS = [("legacy", "memory"), ("legacy", "http"), ("modern", "stdio"), ("modern", "http")]


def servers() -> dict[str, FakeBackend]:
    tracker = FakeBackend(
        [
            tool("create_issue", "Create an issue in a repository.", title="string"),
            tool("list_issues", "List issues."),
        ],
        prompts=[{"name": "discover"}],
    )
    tracker.on(
        "prompts/get",
        lambda params, _: {"messages": [], "description": f"the server's {params['name']}"},
    )
    return {"tracker": tracker, "mail": FakeBackend([tool("send_mail", "Send an e-mail.")])}


async def blocks(client: Client, name: str, **arguments: str) -> list[Any]:
    return [message.content for message in (await client.get_prompt(name, arguments)).messages]


@pytest.mark.parametrize(("era", "transport"), WAYS)
async def test_all_three_are_listed_and_given(era: Era, transport: Transport) -> None:
    async with gateway_over(servers()) as gateway, connect(gateway, transport, era) as client:
        listed = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in listed] == [
            "discover",
            "find_tool",
            "backend_status",
            "tracker__discover",
        ]
        (task,) = listed[1].arguments or []
        assert (task.name, task.required) == ("task", True)
        guide, overview = await blocks(client, "discover")
        assert isinstance(guide, TextContent)
        assert "search_tools" in guide.text
        assert isinstance(overview, EmbeddedResource)
        found, best = await blocks(client, "find_tool", task="create an issue")
        assert "tracker.create_issue(title?)" in found.text
        assert isinstance(best.resource, TextResourceContents)
        assert str(best.resource.uri) == "portico://tool/tracker.create_issue"
        assert json.loads(best.resource.text)["definition"]["inputSchema"]["properties"]["title"]
        (status,) = await blocks(client, "backend_status")
        assert "- tracker: ready, 2 tools" in status.text


async def test_a_server_s_prompt_of_the_same_name_is_still_its_own() -> None:
    async with gateway_over(servers()) as gateway, connect(gateway) as client:
        assert (await client.get_prompt("tracker__discover")).description == "the server's discover"
        assert len((await client.get_prompt("discover")).messages) == 2


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("arguments", [None, {}, {"task": " "}])
async def test_find_tool_says_what_it_needs(era: Era, arguments: Any) -> None:
    async with gateway_over(servers()) as gateway, connect(gateway, "http", era) as client:
        with pytest.raises(MCPError, match="needs a task: say in plain words") as refused:
            await client.get_prompt("find_tool", arguments)
        assert refused.value.code == -32602
        completion = (
            await client.complete(PromptReference(name="find_tool"), {"name": "task", "value": "c"})
        ).completion
        assert completion.values == []


async def test_in_full_the_found_tools_are_there_without_meta_tools() -> None:
    full = Config(exposure="full")
    async with gateway_over(servers(), full) as gateway, connect(gateway) as client:
        found, _ = await blocks(client, "find_tool", task="send an e-mail")
        assert "mail.send_mail" in found.text
        assert "call_tool" not in found.text
        assert "server.tool is named server__tool" in found.text
