"""Annotations that the configuration corrects, as every part sees them."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico.callers import Caller, Principal
from portico.calls.pipeline import CallContext
from portico.config import Config
from portico.errors import PermissionDenied
from portico.gateway import GatewayRuntime
from portico.gateway.config_diff import get_enabled_servers
from portico.policy.target import Target
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.gateways import GatewayUnderTest, open_gateway, run_gateway, wait_until
from tests.interaction.fake_servers import text, tool

READS: Raw = {"readOnlyHint": True, "destructiveHint": False}
DESTROYS: Raw = {"readOnlyHint": False, "destructiveHint": True}
READER = Caller(principal=Principal("key", "reader", credential="k", is_read_only=True))


def make_server() -> FakeBackend:
    """A server that says of a tool that it only reads, and nothing of two others."""
    backend = FakeBackend(
        [
            {**tool("purge"), "annotations": {**READS, "title": "Purge", "openWorldHint": True}},
            tool("fetch"),
            tool("other"),
        ]
    )
    for name in ("purge", "fetch", "other"):
        backend.on_call(name, lambda _, name=name: text(f"{name} done"))
    return backend


def configure(**tools: Any) -> dict[str, Any]:
    return {"servers": {"s": {"command": "x", "tools": tools}}}


CORRECTED = configure(read_only=["fet*"], destructive=["purge"])


@asynccontextmanager
async def open_corrected(
    config: Mapping[str, Any] = CORRECTED, **more: Any
) -> AsyncGenerator[tuple[GatewayUnderTest, FakeBackend]]:
    backend = make_server()
    model = Config.model_validate({**config, **more})
    async with open_gateway({"s": backend}, model) as gateway:
        yield gateway, backend


async def test_the_definition_of_a_tool_has_the_corrected_annotations_and_all_others() -> None:
    async with open_corrected() as (gateway, _):
        tools = gateway.runtime.catalog.snapshot.tools
        purge = tools["s.purge"]
        assert purge.annotations == {**DESTROYS, "title": "Purge", "openWorldHint": True}
        assert (purge.is_read_only, purge.is_destructive) == (False, True)
        assert tools["s.fetch"].annotations == READS
        assert (tools["s.fetch"].is_read_only, tools["s.fetch"].is_destructive) == (True, False)
        assert not tools["s.other"].annotations
        assert not gateway.runtime.catalog.snapshot.servers["s"].changes


async def test_lists_and_descriptions_show_them() -> None:
    async with open_corrected(exposure="full") as (gateway, _):
        listed = {one.name: one for one in (await gateway.client.list_tools()).tools}
        found = listed["s__purge"].annotations
        assert found is not None
        assert (found.read_only_hint, found.destructive_hint) == (False, True)
    async with open_corrected() as (gateway, _):
        described = await gateway.call_text("describe_tools", names=["s.purge", "s.fetch"])
        purge, _, fetch = described.partition("s.fetch")
        assert "destructive" in purge
        assert "read-only" in fetch


async def test_rules_and_read_only_keys_decide_by_them() -> None:
    rules: list[Raw] = [
        {"destructive": True, "may": "deny", "visible": True, "say": "Not here."},
        {"read_only": True, "may": "allow"},
    ]
    async with open_corrected(rules=rules, default="deny") as (gateway, backend):
        calls = gateway.runtime.calls
        tools = gateway.runtime.catalog.snapshot.tools
        with pytest.raises(PermissionDenied, match=r"Not here\."):
            await calls.call(tools["s.purge"], {})
        assert await calls.call(tools["s.fetch"], {})
        target = calls.enforcement.make_target(tools["s.purge"])
        assert target == Target("tool", "s", "purge", is_destructive=True)
        assert len(get_calls(backend)) == 1
    async with open_corrected() as (gateway, backend):
        calls = gateway.runtime.calls
        tools = gateway.runtime.catalog.snapshot.tools
        assert await calls.call(tools["s.fetch"], {}, CallContext(READER))
        for name in ("s.purge", "s.other"):
            with pytest.raises(PermissionDenied):
                await calls.call(tools[name], {}, CallContext(READER))
        assert len(get_calls(backend)) == 1


def get_calls(backend: FakeBackend) -> list[Raw]:
    return [params for method, params in backend.requests if method == "tools/call"]


async def test_workflows_shapes_and_the_audit_log_go_by_them(tmp_path: Path) -> None:
    backend = make_server()
    config = Config.model_validate({**CORRECTED, "audit": {"enabled": True}})
    async with open_gateway({"s": backend}, config, data_dir=tmp_path) as gateway:
        stopped = await gateway.call_text("run_workflow", steps=[{"id": "a", "tool": "s.purge"}])
        assert "Stopped for approval" in stopped
        error = await gateway.call_error("call_tool", name="s.purge", view="shape")
        assert "not known to be read-only" in error
        await gateway.call_text("call_tool", name="s.fetch", view="shape")
        await gateway.call_text("call_tool", name="s.purge")
        assert len(get_calls(backend)) == 2
        lines = (tmp_path / "audit.jsonl").read_text().splitlines()
        assert ['"destructive":true' in line for line in lines][-2:] == [False, True]


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ({"read_only": ["*"], "destructive": ["purge"]}, DESTROYS),
        ({"rename": {"purge": "clean"}, "destructive": ["clean"]}, DESTROYS),
        ({"rename": {"purge": "clean"}, "destructive": ["purge"]}, DESTROYS),
        ({"destructive": ["PURGE"]}, READS),
    ],
)
async def test_what_destroys_wins_and_names_are_old_or_new(tools: Raw, expected: Raw) -> None:
    async with run_gateway({"s": make_server()}, Config.model_validate(configure(**tools))) as one:
        (found,) = [
            found for found in one.catalog.snapshot.tools.values() if found.upstream_name == "purge"
        ]
        hints = {name: found.annotations[name] for name in READS}
        assert hints == expected


async def test_a_correction_is_applied_to_a_running_gateway_and_to_the_next_start(
    tmp_path: Path,
) -> None:
    plain = Config.model_validate({**configure(), "data_dir": str(tmp_path)})
    corrected = Config.model_validate({**CORRECTED, "data_dir": str(tmp_path)})
    assert get_enabled_servers(plain) != get_enabled_servers(corrected)

    def is_destructive(gateway: GatewayRuntime) -> bool:
        return gateway.catalog.snapshot.tools["s.purge"].is_destructive

    async with run_gateway({"s": make_server()}, plain, data_dir=tmp_path) as gateway:
        assert not is_destructive(gateway)
        await gateway.apply(corrected)
        await wait_until(lambda: is_destructive(gateway), 60)
        # What its server says did not change: nothing is held back.
        assert not gateway.catalog.snapshot.servers["s"].changes
        await gateway.apply(plain)
        await wait_until(lambda: not is_destructive(gateway), 60)
    async with run_gateway({"s": make_server()}, corrected, data_dir=tmp_path) as gateway:
        assert is_destructive(gateway)
        assert not gateway.catalog.snapshot.servers["s"].changes
