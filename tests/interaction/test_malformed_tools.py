"""One malformed tool costs its siblings nothing: what can be saved is listed, and strict clients
can read the list."""

import json
from typing import Any

import pytest

from portico.config import BackendConfig, Config, Profile
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Era
from tests.fixtures import broken_command
from tests.interaction.fake_servers import ask, get_text, names, text
from tests.interaction.raw_clients import pages, raw_lines

SAVED = [
    "echo",
    "pid",
    "env",
    "empty_schema",
    "no_schema",
    "null_schema",
    "list_schema",
    "twin",
    "wordy",
    "painted",
    "described_by_a_list",
    "spaces in its name",
]
WRONG: dict[str, Any] = {
    "description is a list": {"description": ["x"]},
    "description is null": {"description": None},
    "title is a number": {"title": 3},
    "annotations is a list": {"annotations": []},
    "annotations is null": {"annotations": None},
    "a hint is a word": {"annotations": {"readOnlyHint": "maybe", "x-kept": 1}},
    "a hint's title is a number": {"annotations": {"title": 5, "readOnlyHint": True}},
    "icons is a text": {"icons": "x"},
    "an icon has no source": {"icons": [{"a": 1}, {"src": "data:,"}, None]},
    "an icon's sizes is a text": {"icons": [{"src": "data:,", "sizes": "any"}]},
    "an icon has its own theme": {"icons": [{"src": "data:,", "theme": "pink"}]},
    "_meta is a list": {"_meta": []},
    "execution is a text": {"execution": "x"},
    "execution says maybe": {"execution": {"taskSupport": "maybe"}},
    "output schema is a list": {"outputSchema": []},
    "output schema is an array": {"outputSchema": {"type": "array"}},
    "output schema is empty": {"outputSchema": {}},
    "properties is a list": {"inputSchema": {"type": "object", "properties": []}},
    "a property is true": {
        "inputSchema": {"type": "object", "properties": {"a": True, "b": False, "c": "text"}}
    },
    "required is a text": {"inputSchema": {"type": "object", "required": "a"}},
    "required has a number": {"inputSchema": {"type": "object", "required": [1]}},
    "$schema is a number": {"inputSchema": {"type": "object", "$schema": 4}},
    "type is a list": {
        "inputSchema": {"type": ["object"], "properties": {"a": {"type": "string"}}}
    },
}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_strict_client_lists_and_calls_what_could_be_saved(era: Era) -> None:
    command, *arguments = broken_command("malformed_tools")
    config = Config(
        servers={"bad": BackendConfig(command=command, args=tuple(arguments))},
        exposure="full",
        profiles={"meta": Profile(exposure="meta")},
    )
    async with gateway_over(config=config) as gateway:
        async with connect(gateway, era=era) as client:
            listed = await names(client)
            assert len(listed) == len(SAVED)
            assert listed[: len(SAVED) - 1] == [f"bad__{name}" for name in SAVED[:-1]]
            for name in (
                "bad__null_schema",
                "bad__list_schema",
                "bad__described_by_a_list",
                listed[-1],
            ):
                assert not (await client.call_tool(name, {"any": "thing"})).is_error
        async with connect(gateway, era=era, profile="meta") as client:
            assert (
                await ask(client, "call_tool", name="bad.spaces in its name")
                == "spaces in its name"
            )
            described = await ask(
                client, "describe_tools", names=["bad.painted", "bad.twin"], detail="full"
            )
            assert "first twin" in described
            assert "\x1b[31m" not in described
            assert "\u200b" not in described


async def test_what_was_left_out_is_reported() -> None:
    command, *arguments = broken_command("malformed_tools")
    config = Config(servers={"bad": BackendConfig(command=command, args=tuple(arguments))})
    async with gateway_over(config=config) as gateway:
        warnings = gateway.get_view().snapshot.servers["bad"].warnings
    assert sum("no name" in warning for warning in warnings) == 7
    assert sum("more than once" in warning for warning in warnings) == 1


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("wrong", WRONG)
async def test_one_wrong_field_does_not_cost_a_strict_client_the_list(wrong: str, era: Era) -> None:
    definition = {"name": "odd", "inputSchema": {"type": "object"}, **WRONG[wrong]}
    backend = FakeBackend([{"name": "fine", "inputSchema": {"type": "object"}}, definition])
    backend.on_call("odd", lambda arguments: text(json.dumps(arguments)))
    async with (
        gateway_over({"s": backend}, Config(exposure="full")) as gateway,
        connect(gateway, era=era) as client,
    ):
        assert await names(client) == ["s__fine", "s__odd"]
        if "output schema" not in wrong:
            assert get_text(await client.call_tool("s__odd", {"a": "b"})) == '{"a": "b"}'


async def test_what_a_strict_client_takes_is_not_touched() -> None:
    right = {
        "name": "right",
        "title": "Right",
        "annotations": {"readOnlyHint": True, "x-kept": None},
        "icons": [{"src": "data:,", "theme": "dark", "sizes": ["any"], "x-kept": None}],
        "execution": {"taskSupport": "required"},
        "outputSchema": {"type": "object", "anyOf": []},
        "inputSchema": {
            "properties": {"a": {"x": None}},
            "type": "object",
            "required": ["a"],
            "$schema": "x",
        },
        "_meta": {"a": None},
        "x-vendor": None,
    }
    backend = FakeBackend([right])
    async with gateway_over({"s": backend}, Config(exposure="full")) as gateway:
        for era in ("legacy", "modern"):
            async with raw_lines(gateway.get_endpoint(), era) as client:
                listed = await pages(client, "tools/list", "tools")
                assert json.dumps(listed) == json.dumps([{**right, "name": "s__right"}])


async def test_an_output_that_is_no_object_is_kept_for_the_era_that_knows_it() -> None:
    backend = FakeBackend(
        [{"name": "rows", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}}]
    )
    async with gateway_over({"s": backend}, Config(exposure="full")) as gateway:
        async with raw_lines(gateway.get_endpoint(), "modern") as client:
            assert (await pages(client, "tools/list", "tools"))[0]["outputSchema"] == {
                "type": "array"
            }
        async with raw_lines(gateway.get_endpoint(), "legacy") as client:
            assert "outputSchema" not in (await pages(client, "tools/list", "tools"))[0]
