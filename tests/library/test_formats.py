"""Definitions, calls and results in each provider's format."""

import json
import re
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from portico import Format, Gateway, InvalidArguments, PorticoError
from portico.testing import FakeBackend

PNG = "iVBORw0KGgo="


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail() -> str:
    """Fail every time."""
    raise ValueError("it is broken")


def rows() -> list[int]:
    """List thousands of numbers."""
    return list(range(30_000))


def pictures() -> FakeBackend:
    backend = FakeBackend(
        [
            {"name": "look", "description": "See.", "inputSchema": {"type": "object"}},
            {
                "name": "filter.by",
                "inputSchema": {"type": "object", "properties": {"$top": {"type": "integer"}}},
            },
        ]
    )
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    odd = {"type": "image", "data": PNG, "mimeType": "image/tiff"}
    backend.on_call("look", lambda _: {"content": [{"type": "text", "text": "here"}, image, odd]})
    backend.on_call(
        "filter.by", lambda given: {"content": [{"type": "text", "text": json.dumps(given)}]}
    )
    return backend


def gateway(**options: Any) -> Gateway:
    return Gateway(
        servers={"mine": [add, fail, rows], "my-eye": pictures()}, in_memory=True, **options
    )


def calls(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """One call in every format."""
    written = json.dumps(arguments)
    return {
        "anthropic": {"type": "tool_use", "id": "1", "name": name, "input": arguments},
        "openai": {"type": "function_call", "call_id": "1", "name": name, "arguments": written},
        "openai-chat": {
            "type": "function",
            "id": "1",
            "function": {"name": name, "arguments": written},
        },
        "mcp": {"name": name, "arguments": arguments},
    }


async def test_by_default_a_model_gets_the_seven_meta_tools_in_a_stable_order():
    async with gateway() as mine:
        shown = await mine.tools("anthropic")
        assert [tool["name"] for tool in shown] == [
            "search_tools",
            "browse_tools",
            "describe_tools",
            "call_tool",
            "run_code",
            "run_workflow",
            "read_result",
        ]
        assert shown == await mine.tools("anthropic")
        assert shown[0].keys() == {"name", "description", "input_schema"}
        assert [tool["name"] for tool in await mine.tools("mcp", exposure="code")] == [
            "search_tools",
            "describe_tools",
            "run_code",
        ]


async def test_a_model_that_has_only_scripts_reads_of_no_other_way():
    async with gateway(exposure="code") as mine:
        shown = await mine.tools("openai")
        assert [tool["name"] for tool in shown] == ["search_tools", "describe_tools", "run_code"]
        assert "call_tool" not in shown[0]["description"]
        found = (
            await mine.handle("openai", calls("search_tools", {"query": "add numbers"})["openai"])
        )["output"]
        assert "mine.add" in found
        assert "call_tool" not in found
        assert (
            "no tool"
            in (await mine.handle("openai", calls("call_tool", {"name": "mine.add"})["openai"]))[
                "output"
            ]
        )
        assert (await mine.call("mine.add", {"a": 1, "b": 2})).text == "3", "the program itself may"


async def test_chosen_tools_are_listed_in_order_under_portable_names():
    async with gateway() as mine:
        shown = await mine.tools("openai", names=["my-eye.filter.by", "read_result", "add"])
        assert [tool["name"] for tool in shown][1:] == ["read_result", "mine__add"]
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", shown[0]["name"])
        assert shown[2] == {
            "type": "function",
            "name": "mine__add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
            "strict": False,
        }
        (chat,) = await mine.tools("openai-chat", names=["add"])
        assert chat.keys() == {"type", "function"}
        assert chat["function"].keys() == {"name", "description", "parameters"}
        (plain,) = await mine.tools("mcp", names=["add"])
        assert plain["inputSchema"]["required"] == ["a", "b"]
        with pytest.raises(PorticoError, match="no tool"):
            await mine.tools("openai", names=["mine.nothing"])


async def test_an_intent_adds_matching_tools_to_the_meta_tools():
    async with gateway() as mine:
        names = [tool["name"] for tool in await mine.tools("openai", intent="add two numbers")]
        assert names[0] == "search_tools"
        assert "mine__add" in names
    config = {"exposure": "semantic", "intent": "add two numbers"}
    async with gateway(config=config) as mine:
        assert "mine__add" in [tool["name"] for tool in await mine.tools("openai")]


async def test_in_full_exposure_every_tool_is_listed():
    async with gateway(exposure="full") as mine:
        assert len(await mine.tools("anthropic")) == 5
        answered = await mine.handle("anthropic", calls("mine__add", {"a": 1, "b": 2})["anthropic"])
        assert answered["content"] == [{"type": "text", "text": "3"}]


async def test_definitions_are_marked_for_a_providers_cache_and_search_on_request():
    async with gateway() as mine:
        assert (await mine.tools("anthropic", cache=True))[-1]["cache_control"] == {
            "type": "ephemeral"
        }
        shown = await mine.tools("anthropic", names=["search_tools", "add"], cache=True, defer=True)
        assert "defer_loading" not in shown[0]
        assert shown[0]["cache_control"], "a tool that is loaded later cannot carry the mark"
        assert shown[1]["defer_loading"] is True
        assert (await mine.tools("openai", names=["add"], defer=True))[0]["defer_loading"] is True
        with pytest.raises(InvalidArguments):
            await mine.tools("openai", cache=True)
        with pytest.raises(InvalidArguments):
            await mine.tools("openai-chat", defer=True)
        with pytest.raises(InvalidArguments, match="openai-chat"):
            await mine.tools("gemini")  # pyright: ignore[reportArgumentType]


async def test_a_models_call_is_answered_in_its_own_format():
    async with gateway() as mine:
        call = calls("call_tool", {"name": "mine.add", "arguments": {"a": 1, "b": 2}})
        assert await mine.handle("anthropic", call["anthropic"]) == {
            "type": "tool_result",
            "tool_use_id": "1",
            "content": [{"type": "text", "text": "3"}],
        }
        assert await mine.handle("openai", call["openai"]) == {
            "type": "function_call_output",
            "call_id": "1",
            "output": "3",
        }
        assert await mine.handle("openai-chat", call["openai-chat"]) == {
            "role": "tool",
            "tool_call_id": "1",
            "content": "3",
        }
        assert (await mine.handle("mcp", call["mcp"]))["structuredContent"] == {"result": 3}


async def test_calls_may_be_the_objects_of_a_providers_library_among_others():
    async with gateway() as mine:
        await mine.tools("anthropic", names=["add"])
        said = SimpleNamespace(type="text", text="Let me see.")
        first = SimpleNamespace(type="tool_use", id="a", name="mine__add", input={"a": 1, "b": 1})
        second = SimpleNamespace(type="tool_use", id="b", name="mine__add", input={"a": 2, "b": 2})
        answers = await mine.handle_all("anthropic", [said, first, second])
        assert [(one["tool_use_id"], one["content"][0]["text"]) for one in answers] == [
            ("a", "2"),
            ("b", "4"),
        ]
        assert await mine.handle_all("openai-chat", None) == []
        with pytest.raises(InvalidArguments, match="no tool call"):
            await mine.handle("anthropic", said)


@pytest.mark.parametrize("format", ["anthropic", "openai", "openai-chat", "mcp"])
async def test_every_error_is_returned_to_the_model(format: Format):
    async with gateway() as mine:
        await mine.tools(format, names=["add", "mine.fail", "call_tool"])
        for name, arguments, said in (
            ("mine__fail", {}, "it is broken"),
            ("mine__add", {"a": "x"}, "not of type"),
            ("call_tool", {"name": "mine.ad"}, "mine.add"),
            ("mine__subtract", {}, "There is: call_tool, mine__add, mine__fail."),
        ):
            shown = json.dumps(await mine.handle(format, calls(name, arguments)[format]))
            assert said in shown
            assert "rror" in shown, "it can be distinguished from an answer"


async def test_arguments_that_are_no_json_are_the_models_to_correct():
    async with gateway() as mine:
        for written in ('{"query": ', "[1]", '"x"'):
            call = {
                "type": "function_call",
                "call_id": "1",
                "name": "search_tools",
                "arguments": written,
            }
            assert "the arguments are not" in (await mine.handle("openai", call))["output"]
        empty = {"type": "function_call", "call_id": "1", "name": "browse_tools", "arguments": ""}
        assert "mine" in (await mine.handle("openai", empty))["output"]


async def test_a_model_can_call_only_offered_tools():
    async with gateway() as mine:
        assert not mine.offers("mine__add")
        assert (
            "no tool"
            in (await mine.handle("openai", calls("mine__add", {"a": 1, "b": 2})["openai"]))[
                "output"
            ]
        )
        await mine.tools("openai", names=["add"])
        assert mine.offers("mine__add")
        assert not mine.offers("call_tool")
        refused = await mine.handle("openai", calls("call_tool", {"name": "mine.fail"})["openai"])
        assert "no tool" in refused["output"]
        assert (await mine.handle("openai", calls("mine__add", {"a": 1, "b": 2})["openai"]))[
            "output"
        ] == "3"


async def test_pictures_are_shown_to_models_that_can_look_and_named_to_those_that_cannot():
    async with gateway(exposure="full") as mine:
        call = calls("my-eye__look", {})
        seen = (await mine.handle("anthropic", call["anthropic"]))["content"]
        assert seen[:2] == [
            {"type": "text", "text": "here"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ]
        assert "image/tiff" in seen[2]["text"]
        output = (await mine.handle("openai", call["openai"]))["output"]
        assert output[1] == {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
        assert "image/png" in (await mine.handle("openai-chat", call["openai-chat"]))["content"]


async def test_renamed_parameters_arrive_under_their_real_names():
    async with gateway() as mine:
        (shown,) = await mine.tools("anthropic", names=["my-eye.filter.by"])
        (name,) = shown["input_schema"]["properties"]
        assert name != "$top"
        answered = await mine.handle("anthropic", calls(shown["name"], {name: 5})["anthropic"])
        assert answered["content"][0]["text"] == '{"$top": 5}'


async def test_a_large_result_of_a_chosen_tool_keeps_to_the_budget_too():
    async with gateway() as mine:
        await mine.tools("openai", names=["mine.rows", "read_result"])
        output = (await mine.handle("openai", calls("mine__rows", {})["openai"]))["output"]
        assert len(output) < 10_000
        result_id = re.search(r'result_id="([^"]+)"', output)
        assert result_id
        part = calls("read_result", {"result_id": result_id[1], "path": "result[5]"})["openai"]
        assert (await mine.handle("openai", part))["output"] == "5"


async def test_without_langchain_the_error_names_the_package():
    try:
        import langchain_core  # pyright: ignore # noqa: F401
    except ImportError:
        async with gateway() as mine:
            with pytest.raises(PorticoError, match="langchain") as error:
                await mine.tools("langchain")
            assert "pip install" in error.value.advice
    else:
        pytest.skip("langchain-core is installed")


def test_every_format_is_listed():
    assert get_args(Format) == ("anthropic", "openai", "openai-chat", "langchain", "mcp")
