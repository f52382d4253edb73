"""Our own prompts: a way in, the tool for a task, and how the servers are."""

import json

import pytest

from portico.errors import INVALID_PARAMS, RemoteError
from portico.events import Event, ToolsFound
from portico.profiles.prompts import PROMPTS
from portico.rendering.token_budget import count_tokens
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.interaction.fake_servers import tool
from tests.profiles.viewing import ME, Viewing, viewing


async def messages(view: Viewing, name: str, **arguments: str) -> list[Raw]:
    got = await view.ask("prompts/get", {"name": name, "arguments": arguments})
    assert all(message["role"] == "user" for message in got["messages"])
    return [message["content"] for message in got["messages"]]


async def test_ours_come_before_the_servers():
    async with viewing() as view:
        listed = (await view.ask("prompts/list"))["prompts"]
        assert listed[: len(PROMPTS)] == list(PROMPTS)
        assert [prompt["name"] for prompt in listed[len(PROMPTS) :]] == ["github__greet"]


async def test_discover_leads_step_by_step_and_embeds_the_overview():
    async with viewing() as view:
        guide, overview = await messages(view, "discover")
        assert "1. For a task that you see no tool for" in guide["text"]
        assert overview["resource"]["uri"] == "portico://overview"
        assert overview["resource"]["text"] == await view.read("portico://overview")


@pytest.mark.parametrize("exposure", ["full", "code"])
async def test_discover_names_only_tools_that_are_there(exposure: str):
    async with viewing(exposure=exposure) as view:
        guide, _ = await messages(view, "discover")
        assert "call_tool" not in guide["text"]
        assert ("server__tool" in guide["text"]) == (exposure == "full")


async def test_find_tool_has_the_matches_and_the_best_with_its_whole_schema():
    async with viewing() as view:
        text, best = await messages(view, "find_tool", task="create an issue")
        assert text["text"].startswith(
            "Use a tool for this task: create an issue\n\nBest matches for 'create an issue':"
        )
        assert "github.create_issue(title?)" in text["text"]
        assert best["type"] == "resource"
        assert best["resource"]["uri"] == "portico://tool/github.create_issue"
        whole = json.loads(best["resource"]["text"])
        assert whole["definition"]["inputSchema"]["properties"] == {"title": {"type": "string"}}


async def test_find_tool_is_published_as_a_search():
    async with viewing() as view:
        heard: list[ToolsFound] = []

        def hear(event: Event) -> None:
            if isinstance(event, ToolsFound):
                heard.append(event)

        view.gateway.bus.subscribe(hear, ToolsFound)
        await messages(view, "find_tool", task="create an issue")
        assert [(event.query, event.shown[0], event.caller) for event in heard] == [
            ("create an issue", "github.create_issue", ME)
        ]


async def test_find_tool_embeds_nothing_where_nothing_fits():
    async with viewing() as view:
        (text,) = await messages(view, "find_tool", task="zzzzzz")
        assert "No tool here matches 'zzzzzz'." in text["text"]


@pytest.mark.parametrize("arguments", [{}, {"task": ""}, {"task": "  "}, None])
async def test_find_tool_without_a_task_says_what_it_needs(arguments: Raw | None):
    async with viewing() as view:
        with pytest.raises(
            RemoteError, match="find_tool needs a task: say in plain words"
        ) as caught:
            await view.ask("prompts/get", {"name": "find_tool", "arguments": arguments})
        assert caught.value.code == INVALID_PARAMS


async def test_backend_status_has_the_troubled_first_and_the_latency_where_known():
    async with viewing() as view:
        view.gateway.upstreams["post"].set_state("down", "the post office is closed")
        await view.use("github.create_issue", 4)
        (text,) = await messages(view, "backend_status")
        lines = text["text"].splitlines()[1:]
        assert lines[0] == "- post: down (the post office is closed), 2 tools"
        assert lines[1] == "- bare: ready, 0 tools"
        assert lines[2].startswith("- github: ready, 2 tools, 4 calls, 100% successful, 2")
        assert "ms on average, p95 up to" in lines[2]


async def test_the_status_of_very_many_servers_says_what_was_left_out():
    many = {f"a-server-with-a-long-name-{n:03}": FakeBackend([tool("t")]) for n in range(400)}
    async with viewing(many) as view:
        (text,) = await messages(view, "backend_status")
        assert count_tokens(text["text"]) <= 4_000
        shown = sum(line.startswith("- ") for line in text["text"].splitlines())
        assert f"… and {400 - shown} more: portico://backends" in text["text"]


async def test_a_prompt_is_published_as_shown():
    async with viewing() as view:
        got = await view.ask("prompts/get", {"name": "backend_status"})
        assert [event.content for event in view.shown] == [got]
