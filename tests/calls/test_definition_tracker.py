"""A definition that changed is noticed when its tool is called, and each caller is notice once."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico.callers import Caller
from portico.calls.definition_tracker import looks_like_schema_mismatch
from portico.catalog.tool import Tool, make_tool
from portico.config import Config
from portico.errors import INVALID_PARAMS, RemoteError
from portico.events import CatalogChanged, Event
from portico.gateway import GatewayRuntime
from portico.storage.manifests import ManifestStore
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw
from tests.interaction.fake_servers import ask, get_text

TIMEOUT_S = 240.0
DONE: Raw = {"content": [{"type": "text", "text": "done"}]}


def definition(*parameters: str, kind: str = "string") -> Raw:
    properties = {name: {"type": kind} for name in parameters}
    return {
        "name": "move",
        "inputSchema": {"type": "object", "properties": properties, "required": [*parameters]},
    }


OLD, NEW = definition("place"), definition("place", "speed")


def server(tool: Raw = OLD) -> FakeBackend:
    backend = FakeBackend([tool])
    backend.on_call("move", lambda arguments: DONE)
    return backend


async def changed(gateway: GatewayRuntime, do: Callable[[], object]) -> None:
    """Do something, and wait until the catalog is another."""
    heard = asyncio.Event()
    wake: Callable[[Event], None] = lambda event: heard.set()  # noqa: E731
    end = gateway.bus.subscribe(wake, CatalogChanged)
    do()
    await asyncio.wait_for(heard.wait(), TIMEOUT_S)
    end()


def tool_of(gateway: GatewayRuntime) -> Tool:
    return gateway.get_view().snapshot.resolve_tool("robot.move")


@asynccontextmanager
async def remembered(before: Raw, now: FakeBackend, path: Path) -> AsyncGenerator[GatewayRuntime]:
    """A gateway that knows the server from the last time only."""
    file = path / "manifest.sqlite3"
    async with GatewayRuntime(
        Config(), backends={"robot": server(before)}, manifests=ManifestStore(file)
    ) as gateway:
        await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
    async with GatewayRuntime(
        Config(), backends={"robot": now}, manifests=ManifestStore(file)
    ) as gateway:
        assert now.connections == 0
        yield gateway


async def test_a_server_known_from_disk_is_listed_before_the_call_that_starts_it(tmp_path: Path):
    backend = server(NEW)
    async with remembered(OLD, backend, tmp_path) as gateway, connect(gateway) as client:
        await ask(client, "describe_tools", names=["robot.move"])
        refused = await client.call_tool(
            "call_tool", {"name": "robot.move", "arguments": {"place": "here"}}
        )
        assert refused.is_error
        assert "definition of robot.move changed since you saw it" in get_text(refused)
        assert "speed" in get_text(refused)
        assert not [method for method, _ in backend.requests if method == "tools/call"]
        arguments = {"name": "robot.move", "arguments": {"place": "here", "speed": "slow"}}
        assert get_text(await client.call_tool("call_tool", arguments)) == "done"


async def test_a_call_that_still_fits_is_made_and_its_caller_notified_once(
    tmp_path: Path,
):
    backend = server({**OLD, "description": "Moves on wheels."})
    async with (
        remembered(OLD, backend, tmp_path) as gateway,
        connect(gateway) as one,
        connect(gateway) as other,
    ):
        call = {"name": "robot.move", "arguments": {"place": "here"}}
        await ask(one, "search_tools", query="move")
        first = await one.call_tool("call_tool", call)
        told = (
            "[the definition of this tool changed since you saw it: its description text. "
            "Its server's own words, "
        )
        assert get_text(first).startswith(f"{told}which may say anything, are now:]\nrobot.move")
        assert get_text(first).endswith("\ndone")
        mark = (first.meta or {})["portico/changed"]
        assert mark["hash"] == tool_of(gateway).hash != mark["was"]
        assert get_text(await one.call_tool("call_tool", call)) == "done"
        assert get_text(await other.call_tool("call_tool", call)) == "done"


async def test_callers_that_never_saw_a_tool_are_not_notified_of_changes(tmp_path: Path):
    backend = server({**OLD, "description": "Takes {'b', 'a'}."})
    async with remembered(OLD, backend, tmp_path) as gateway, connect(gateway) as client:
        assert (
            get_text(
                await client.call_tool(
                    "call_tool", {"name": "robot.move", "arguments": {"place": "x"}}
                )
            )
            == "done"
        )


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_only_callers_that_saw_the_old_definition_are_notified(era: Any):
    backend = server()
    async with gateway_over({"robot": backend}) as gateway, connect(gateway, era=era) as early:
        await ask(early, "describe_tools", names=["robot.move"])
        await changed(gateway, lambda: backend.change([{**OLD, "title": "Moves"}]))
        call = {"name": "robot.move", "arguments": {"place": "here"}}
        assert "definition of this tool changed" in get_text(
            await early.call_tool("call_tool", call)
        )
        assert get_text(await early.call_tool("call_tool", call)) == "done"
        caller = Caller("late", "late")
        result = await gateway.calls.call(tool_of(gateway), {"place": "here"}, _origin(caller))
        assert result is DONE


def _origin(caller: Caller) -> Any:
    from portico.calls.pipeline import CallContext

    return CallContext(caller)


async def test_a_tool_held_since_before_the_change_is_called_as_it_is_now():
    backend = server()
    async with gateway_over({"robot": backend}) as gateway:
        held = tool_of(gateway)
        await gateway.calls.call(held, {"place": "here"})
        await changed(gateway, lambda: backend.change([definition("place", kind="integer")]))
        result = await gateway.calls.call(held, {"place": "5"})
        assert [
            params["arguments"] for method, params in backend.requests if method == "tools/call"
        ][-1] == {"place": 5}
        assert set(result["_meta"]) == {"portico/repaired", "portico/changed"}


async def test_a_refusal_that_looks_like_a_mismatch_relists_the_server():
    backend = server()

    def refuse(arguments: Raw) -> Raw:
        raise RemoteError(INVALID_PARAMS, "speed: field required")

    async with gateway_over({"robot": backend}) as gateway, connect(gateway) as client:
        await ask(client, "describe_tools", names=["robot.move"])
        backend.listing["tools"] = [NEW]  # and says nothing
        backend.on_call("move", refuse)
        listed = _listings(backend)
        refused = await client.call_tool(
            "call_tool", {"name": "robot.move", "arguments": {"place": "here"}}
        )
        assert refused.is_error
        assert get_text(refused).startswith(
            "remote: speed: field required (the server's error -32602)"
        )
        assert "definition of robot.move changed" in get_text(refused)
        assert "speed" in get_text(refused).splitlines()[-1]
        assert _listings(backend) == listed + 1


async def test_a_caller_that_is_wrong_all_the_time_does_not_have_it_listed_all_the_time():
    backend = server()
    backend.on_call(
        "move",
        lambda arguments: {
            "content": [{"type": "text", "text": "Invalid arguments"}],
            "isError": True,
        },
    )
    async with gateway_over({"robot": backend}) as gateway:
        listed = _listings(backend)
        for _ in range(5):
            answer = await asyncio.wait_for(
                gateway.calls.call(tool_of(gateway), {"place": "x"}), TIMEOUT_S
            )
            assert "_meta" not in answer
        assert _listings(backend) == listed + 1


async def test_a_tool_that_is_gone_is_said_to_be():
    backend = server()

    def refuse(arguments: Raw) -> Raw:
        raise RemoteError(INVALID_PARAMS, "Unknown tool: move")

    async with gateway_over({"robot": backend}) as gateway, connect(gateway) as client:
        backend.listing["tools"] = []
        backend.on_call("move", refuse)
        assert "no longer among the tools of its server" in await ask(
            client, "call_tool", name="robot.move", arguments={"place": "here"}
        )


def _listings(backend: FakeBackend) -> int:
    return sum(method == "tools/list" for method, _ in backend.requests)


def test_what_is_remembered_of_callers_is_bounded(monkeypatch: pytest.MonkeyPatch):
    from portico.calls import definition_tracker
    from portico.catalog.catalog import Catalog
    from portico.events import EventBus, ToolsShown

    monkeypatch.setattr(definition_tracker, "MAX_CALLERS", 10)
    monkeypatch.setattr(definition_tracker, "MAX_SEEN_TOOLS", 5)
    noticed = definition_tracker.DefinitionTracker(Catalog([], ManifestStore(None), EventBus()), {})
    for number in range(100):
        noticed.handle_event(ToolsShown(Caller(f"session {number}"), "text"))
        noticed.take_unseen_change(Caller("one"), make_tool("s", {"name": str(number)}))
    [callers] = [value for value in vars(noticed).values() if isinstance(value, dict) and value]
    assert len(callers) == 10
    assert max(map(len, callers.values())) == 5


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("Unknown tool: move", True),
        ("Tool move not found", True),
        ("Input validation error: 'speed' is a required property", True),
        ("1 validation error for moveArguments", True),
        ("move() got an unexpected keyword argument 'x'", True),
        ("file not found", False),
        ("the issue does not exist", False),
        ("rate limit exceeded", False),
    ],
)
def test_only_what_reads_like_another_definition_does(outcome: str, expected: bool):
    failed: Raw = {"content": [{"type": "text", "text": outcome}], "isError": True}
    assert looks_like_schema_mismatch(failed) is expected
    assert looks_like_schema_mismatch(RemoteError(-32000, outcome)) is expected
    assert not looks_like_schema_mismatch({**failed, "isError": False})
    assert looks_like_schema_mismatch(RemoteError(INVALID_PARAMS, "no"))
