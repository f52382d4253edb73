"""`approvals: split`: three meta-tools in place of `call_tool`, each for its kind of tools."""

from typing import Any

import pytest

from portico import Gateway
from portico.config import Config
from portico.meta_tools.tool_definitions import META_TOOL_NAMES, SPLIT_CALL_NAMES
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.gateways import open_gateway
from tests.interaction.fake_servers import text, tool

RIGHT = {
    "s.read": "call_tool_read",
    "s.write": "call_tool_write",
    "s.wipe": "call_tool_destructive",
    "s.lies": "call_tool_destructive",
    "s.both": "call_tool_destructive",
}


def make_server() -> FakeBackend:
    reads: Raw = {"readOnlyHint": True}
    destroys: Raw = {"destructiveHint": True}
    backend = FakeBackend(
        [
            {**tool("read"), "annotations": reads},
            tool("write"),
            {**tool("wipe"), "annotations": destroys},
            {**tool("lies"), "annotations": reads},
            {**tool("both"), "annotations": {**reads, **destroys}},
        ]
    )
    for name in ("read", "write", "wipe", "lies", "both"):
        backend.on_call(name, lambda _, name=name: text(f"{name} done"))
    return backend


def configure(**more: Any) -> Config:
    own = {"command": "x", "tools": {"destructive": ["lies"]}}
    return Config.model_validate({"servers": {"s": own}, "approvals": "split", **more})


async def test_three_are_listed_in_place_of_one_each_with_its_annotations() -> None:
    async with open_gateway({"s": make_server()}, configure()) as gateway:
        listed = {one.name: one for one in (await gateway.client.list_tools()).tools}
        names = [
            split
            for name in META_TOOL_NAMES
            for split in (SPLIT_CALL_NAMES if name == "call_tool" else (name,))
        ]
        assert list(listed) == names
        hints: list[tuple[bool | None, bool | None]] = []
        for name in SPLIT_CALL_NAMES:
            annotations = listed[name].annotations
            assert annotations is not None
            hints.append((annotations.read_only_hint, annotations.destructive_hint))
        assert hints == [(True, False), (False, False), (False, True)]
        assert "call_tool_read" in await gateway.call_text("search_tools", query="read")


@pytest.mark.parametrize("name", RIGHT)
async def test_a_tool_is_called_by_the_right_one_and_refused_by_the_others(name: str) -> None:
    backend = make_server()
    async with open_gateway({"s": backend}, configure()) as gateway:
        for call_tool in SPLIT_CALL_NAMES:
            if call_tool != RIGHT[name]:
                for form in (name, name.replace(".", "__"), name.replace(".", "::").upper()):
                    error = await gateway.call_error(call_tool, name=form)
                    assert f"Call {RIGHT[name]} with the same arguments." in error
                shape = await gateway.call_error(call_tool, name=name, view="shape")
                assert RIGHT[name] in shape
        assert not [method for method, _ in backend.requests if method == "tools/call"]
        answer = await gateway.call_text(RIGHT[name], name=name)
        assert answer == f"{name.partition('.')[2]} done"


async def test_call_tool_is_not_there_and_the_error_names_the_others() -> None:
    backend = make_server()
    async with open_gateway({"s": backend}, configure()) as gateway:
        with pytest.raises(Exception, match="call_tool_destructive"):
            await gateway.call("call_tool", name="s.read")
        assert not [method for method, _ in backend.requests if method == "tools/call"]


async def test_without_the_setting_the_three_are_not_there() -> None:
    async with open_gateway({"s": make_server()}, Config()) as gateway:
        with pytest.raises(Exception, match="no tool 'call_tool_read'"):
            await gateway.call("call_tool_read", name="s.read")


async def test_switched_off_none_of_the_three_is_there() -> None:
    config = configure(metatools={"call_tool": False})
    async with open_gateway({"s": make_server()}, config) as gateway:
        listed = {one.name for one in (await gateway.client.list_tools()).tools}
        assert not listed & {"call_tool", *SPLIT_CALL_NAMES}


async def test_it_is_applied_to_a_running_gateway() -> None:
    async with open_gateway({"s": make_server()}, Config()) as gateway:
        assert await gateway.call_text("call_tool", name="s.read")
        await gateway.runtime.apply(configure())
        assert await gateway.call_text("call_tool_read", name="s.read")


async def test_the_library_calls_as_before() -> None:
    config: Raw = {"approvals": "split"}
    async with Gateway(config, servers={"s": make_server()}, in_memory=True) as gateway:
        for name in RIGHT:
            done = f"{name.partition('.')[2]} done"
            assert (await gateway.call(name)).text == done
            assert (await gateway.call(name, whole=True)).text == done
