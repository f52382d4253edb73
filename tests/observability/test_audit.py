"""The audit log: when a client has its answer the line is there, it says what happened, and it
gives nothing away."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from portico.callers import Caller
from portico.calls.cache import ResultCache
from portico.calls.pipeline import CallContext, CallPipeline, CallSettings
from portico.config import AuditConfig as Settings
from portico.config import CacheConfig, Config
from portico.errors import BackendUnavailable
from portico.events import Event, ToolCalled
from portico.gateway import GatewayRuntime
from portico.observability.audit import MASK, AuditEntry, AuditLog, hash_arguments, redact_arguments
from portico.testing import FakeBackend, Transport, connect, gateway_over
from portico.upstream.backend import Era, Raw, RequestOptions

TIMEOUT_S = 240
SECRET = "Tr0ub4dor-planted-secret"
SCHEMA: Raw = {"type": "object", "properties": {"n": {"type": "integer"}}}
READ: Raw = {"name": "read", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
TOOLS: list[Raw] = [READ, {"name": "fail"}, {"name": "wait"}, {"name": "lost"}]
DONE: Raw = {"content": [{"type": "text", "text": "done"}]}


@dataclass
class AuditedGateway:
    """A gateway that keeps a log."""

    runtime: GatewayRuntime
    backend: FakeBackend
    path: Path
    waiting: asyncio.Event

    @property
    def lines(self) -> list[Raw]:
        return lines(self.path)

    @property
    def last(self) -> Raw:
        return self.lines[-1]


def lines(path: Path) -> list[Raw]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


@asynccontextmanager
async def open_audited(
    folder: Path, config: Config | None = None, *, secrets: tuple[str, ...] = (), **settings: Any
) -> AsyncGenerator[AuditedGateway]:
    backend, waiting = FakeBackend(TOOLS), asyncio.Event()

    async def wait(_: Raw) -> Raw:
        waiting.set()
        await asyncio.wait_for(asyncio.Event().wait(), TIMEOUT_S)
        return DONE

    def lost(_: Raw) -> Raw:
        raise BackendUnavailable("s: the conversation was lost")

    backend.on_call("read", lambda _: DONE)
    backend.on_call("fail", lambda _: {**DONE, "isError": True})
    backend.on_call("wait", wait)
    backend.on_call("lost", lost)
    async with gateway_over({"s": backend}, config) as gateway:
        audit = AuditLog.from_settings(Settings(**settings), folder, secrets)
        gateway.calls.recorder.audit = audit
        yield AuditedGateway(
            gateway, backend, settings.get("file") or folder / "audit.jsonl", waiting
        )
        if audit is not None:
            audit.close()


def asking(name: str, **arguments: Any) -> Raw:
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize(
    ("transport", "era"),
    [("memory", "modern"), ("http", "modern"), ("http", "legacy"), ("stdio", "legacy")],
)
async def test_the_line_is_there_when_the_client_has_its_answer(
    tmp_path: Path, transport: Transport, era: Era
):
    async with (
        open_audited(tmp_path) as audited,
        connect(audited.runtime, transport, era) as client,
    ):
        for number in range(3):
            async with asyncio.timeout(TIMEOUT_S):
                await client.call_tool("call_tool", asking("s.read", n=number))
            assert len(audited.lines) == number + 1
        line = audited.last
        known = {
            key: line[key]
            for key in ("tool", "outcome", "way", "attempts", "cached", "repaired", "profile")
        }
        assert known == {
            "tool": "s.read",
            "outcome": "ok",
            "way": "call_tool",
            "attempts": 1,
            "cached": False,
            "repaired": False,
            "profile": "",
        }
        assert line["hash"] == audited.runtime.catalog.snapshot.resolve_tool("s.read").hash
        assert line["client"] == "mcp"
        assert abs((datetime.now(UTC) - datetime.fromisoformat(line["at"])).total_seconds()) < 600
        assert line["at"].endswith("Z")
        assert 0 <= line["seconds"] < TIMEOUT_S
        assert len({one["id"] for one in audited.lines}) == 3
        # Sessions are distinguished; a client with neither session nor token is nobody in
        # particular.
        assert bool(line["who"]) == (era == "legacy" or transport != "http")
        assert len({one["who"] for one in audited.lines}) == 1


async def test_every_way_to_end_has_its_line(tmp_path: Path):
    async with open_audited(tmp_path) as audited, connect(audited.runtime) as client:
        for name, arguments, outcome in (
            ("s.fail", {}, "tool_error"),
            ("s.lost", {}, "unavailable"),
            ("s.read", {"n": "no number"}, "invalid_arguments"),
            ("s.nothing", {}, "unknown_name"),
            ("s.read", {"n": "7"}, "ok"),
        ):
            async with asyncio.timeout(TIMEOUT_S):
                await client.call_tool("call_tool", asking(name, **arguments))
            assert (audited.last["tool"], audited.last["outcome"]) == (name, outcome)
        assert audited.last["repaired"]
        assert len(audited.lines) == 5
        calling = asyncio.create_task(
            audited.runtime.calls.call(
                audited.runtime.catalog.snapshot.resolve_tool("s.wait"),
                {},
                CallContext(via="library"),
            )
        )
        await asyncio.wait_for(audited.waiting.wait(), TIMEOUT_S)
        calling.cancel()
        await asyncio.wait({calling}, timeout=TIMEOUT_S)
        assert (audited.last["tool"], audited.last["outcome"], audited.last["way"]) == (
            "s.wait",
            "cancelled",
            "library",
        )


async def test_the_event_of_a_call_names_the_kind_of_its_failure(tmp_path: Path):
    received: list[Event] = []
    async with open_audited(tmp_path) as audited, connect(audited.runtime) as client:
        audited.runtime.bus.subscribe(received.append, ToolCalled)
        for name in ("s.read", "s.fail", "s.lost"):
            async with asyncio.timeout(TIMEOUT_S):
                await client.call_tool("call_tool", asking(name))
    reported = [(one.tool, one.ok, one.error) for one in received if isinstance(one, ToolCalled)]
    assert reported == [
        ("s.read", True, ""),
        ("s.fail", False, "tool_error"),
        ("s.lost", False, "unavailable"),
    ]


async def test_an_elicitation_is_neither_success_nor_failure(tmp_path: Path):
    async with open_audited(tmp_path) as audited:
        audited.backend.on(
            "tools/call", lambda params, ask: {"resultType": "input_required", "inputRequests": {}}
        )
        async with asyncio.timeout(TIMEOUT_S):
            await audited.runtime.calls.call(
                audited.runtime.catalog.snapshot.resolve_tool("s.read"), {}
            )
        assert audited.last["outcome"] == "input_required"


async def test_ten_calls_of_a_script_are_ten_lines_and_a_plan_s_are_its_own(tmp_path: Path):
    code = "for n in range(10):\n    s.read(n=n)\n"
    steps = [{"id": "one", "tool": "s.read", "arguments": {"n": 1}}]
    async with open_audited(tmp_path) as audited, connect(audited.runtime) as client:
        async with asyncio.timeout(TIMEOUT_S):
            await client.call_tool("run_code", {"code": code, "language": "python"})
        assert [(one["tool"], one["way"]) for one in audited.lines] == [("s.read", "script")] * 10
        assert len({one["arguments"] for one in audited.lines}) == 10
        async with asyncio.timeout(TIMEOUT_S):
            await client.call_tool("run_workflow", {"steps": steps})
        assert [one["way"] for one in audited.lines[10:]] == ["workflow"]


async def test_tools_that_clients_list_themselves_are_called_flat(tmp_path: Path):
    config = Config.model_validate({"exposure": "full"})
    async with open_audited(tmp_path, config) as audited, connect(audited.runtime) as client:
        name = next(
            tool.name for tool in (await client.list_tools()).tools if tool.name.endswith("read")
        )
        async with asyncio.timeout(TIMEOUT_S):
            await client.call_tool(name, {"n": 1})
        assert (audited.last["tool"], audited.last["way"], audited.last["outcome"]) == (
            "s.read",
            "flat",
            "ok",
        )


async def test_a_tool_that_its_server_does_not_list_leaves_a_line_too(tmp_path: Path):
    async with open_audited(tmp_path) as audited:
        audited.backend.on_call("hidden", lambda _: DONE)
        async with asyncio.timeout(TIMEOUT_S):
            await audited.runtime.calls.request(
                "s", "tools/call", asking("hidden"), CallContext(via="flat")
            )
        assert (audited.last["tool"], audited.last["outcome"], audited.last["hash"]) == (
            "s.hidden",
            "ok",
            "",
        )


async def test_a_cached_answer_is_distinguished_from_a_fetched_one(tmp_path: Path):
    config = Config.model_validate({"data_dir": tmp_path, "servers": {}})
    async with open_audited(tmp_path, config) as audited:
        calls = CallPipeline(
            audited.runtime.upstreams,
            CallSettings(),
            audited.runtime.calls.recorder,
            cache=ResultCache({"s": CacheConfig(ttl_s=600)}),
        )
        for _ in range(2):
            async with asyncio.timeout(TIMEOUT_S):
                await calls.call(audited.runtime.catalog.snapshot.resolve_tool("s.read"), {"n": 1})
        assert [one["cached"] for one in audited.lines] == [False, True]


async def test_the_same_arguments_have_the_same_hash_and_only_with_the_same_key(tmp_path: Path):
    async with open_audited(tmp_path) as audited:
        tool = audited.runtime.catalog.snapshot.resolve_tool("s.fail")
        for given in ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 1, "b": [3]}):
            async with asyncio.timeout(TIMEOUT_S):
                await audited.runtime.calls.call(tool, given)
        first, second, third = (one["arguments"] for one in audited.lines)
        assert first == second != third
        assert first == hash_arguments({"a": 1, "b": [2]}, (tmp_path / "audit.key").read_bytes())
        assert first != hash_arguments({"a": 1, "b": [2]}, b"another")


async def test_large_arguments_have_the_hash_that_they_would_have_as_small_ones(tmp_path: Path):
    arguments = {"b": ["large"] * 50_000, "a": "x" * 100_000}
    async with open_audited(tmp_path) as audited:
        tool = audited.runtime.catalog.snapshot.resolve_tool("s.fail")
        async with asyncio.timeout(TIMEOUT_S):
            await audited.runtime.calls.call(tool, arguments)
        key = (tmp_path / "audit.key").read_bytes()
        assert audited.last["arguments"] == hash_arguments(arguments, key)


async def test_a_line_of_large_arguments_is_written_though_its_call_is_cancelled(tmp_path: Path):
    audit = AuditLog.from_settings(Settings(), tmp_path)
    assert audit is not None
    entry = AuditEntry("s.wait", "", {"a": "x" * 1_000_000}, "cancelled")
    writing = asyncio.create_task(audit.write_in_turns(entry))
    await asyncio.sleep(0)  # it has begun
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    audit.close()
    assert [line["tool"] for line in lines(tmp_path / "audit.jsonl")] == ["s.wait"]


@pytest.mark.parametrize("kind", ["hash", "redacted", "none"])
async def test_no_planted_secret_is_in_any_line(
    tmp_path: Path, kind: Literal["hash", "redacted", "none"]
):
    planted: Raw = {
        "password": "hunter2-is-planted",
        "nested": [{"api_key": ["planted-in-a-list"]}],
        "url": "https://me:planted-in-a-url@example.com/",
        "header": "Bearer planted.in.a.header",
        "text": f"the {SECRET} is in the middle of it",
        "long": "x" * 190 + " " + SECRET,
        f"name {SECRET}": 1,
        "shape": "ghp_plantedplantedplanted12",
    }
    async with open_audited(tmp_path, secrets=(SECRET,), arguments=kind) as audited:
        for name in ("s.fail", "s.lost"):
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await audited.runtime.calls.call(
                        audited.runtime.catalog.snapshot.resolve_tool(name),
                        {**planted, "plain": "seen"},
                    )
            except BackendUnavailable:
                continue
        written = audited.path.read_text(encoding="utf-8")
    assert len(written.splitlines()) == 2
    assert "planted" not in written
    assert "Tr0u" not in written
    assert ("seen" in written) == (kind == "redacted")
    assert ("arguments" in written) == (kind != "none")


def test_redacted_arguments_stay_small_however_large_they_are():
    assert len(json.dumps(redact_arguments({"a": ["x" * 1_000] * 10_000}))) < 150_000
    assert redact_arguments({"a": "x" * 201}) == {"a": "x" * 200 + "…"}
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert json.dumps(redact_arguments(deep)).count("[") <= 10
    assert redact_arguments({"n": 2**70, "pin": 4711, "t": True}, ("4711",)) == {
        "n": "…",
        "pin": MASK,
        "t": True,
    }


async def test_names_can_neither_break_a_line_nor_fill_it(tmp_path: Path):
    audit = AuditLog.from_settings(Settings(), tmp_path)
    assert audit is not None
    evil = '"}\n{"tool":"forged","outcome":"ok"}\n\u2028'
    audit.write(AuditEntry(evil, "", {}, "unknown_name", Caller("s", evil, "")))
    audit.write(
        AuditEntry("x" * 10_000, "", {}, "unknown_name", Caller("s", "\ud800" * 10_000, ""))
    )
    audit.close()
    first, second = lines(tmp_path / "audit.jsonl")
    assert (first["tool"], first["client"]) == (evil, evil)
    assert (len(second["tool"]), len(second["client"])) == (200, 200)


async def test_a_call_is_answered_though_its_line_cannot_be_written_and_the_gap_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with open_audited(tmp_path) as audited:
        (blocked := audited.path).mkdir()
        tool, audit = (
            audited.runtime.catalog.snapshot.resolve_tool("s.read"),
            audited.runtime.calls.recorder.audit,
        )
        assert audit is not None
        with caplog.at_level(logging.ERROR):
            for _ in range(3):
                async with asyncio.timeout(TIMEOUT_S):
                    assert await audited.runtime.calls.call(tool, {}) == DONE
        assert "cannot be written" in audit.problem
        assert sum("audit log cannot be written" in one.message for one in caplog.records) == 1
        blocked.rmdir()
        async with asyncio.timeout(TIMEOUT_S):
            await audited.runtime.calls.call(tool, {})
        assert audit.problem == ""
        gap, line = audited.lines
        assert gap["lost"] == 3
        assert line["outcome"] == "ok"


async def test_lines_can_be_waited_for_until_they_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))  # pyright: ignore
    async with open_audited(tmp_path, sync=True) as audited:
        calls, snapshot = audited.runtime.calls, audited.runtime.catalog.snapshot
        async with asyncio.timeout(TIMEOUT_S):
            await calls.call(snapshot.resolve_tool("s.read"), {})
            with pytest.raises(BackendUnavailable):
                await calls.call(snapshot.resolve_tool("s.lost"), {})
        sizes = [len(line) + 1 for line in audited.path.read_bytes().splitlines()]
        assert synced[-2:] == [sizes[0], sum(sizes)], "after the key, if that is written too"


async def test_where_it_is_off_nothing_is_kept(tmp_path: Path):
    assert AuditLog.from_settings(Settings(enabled=False), tmp_path) is None
    async with open_audited(tmp_path, enabled=False) as audited:
        async with asyncio.timeout(TIMEOUT_S):
            await audited.runtime.calls.call(
                audited.runtime.catalog.snapshot.resolve_tool("s.read"), {}
            )
        assert os.listdir(tmp_path) == []


async def test_a_call_that_was_tried_again_says_how_often(tmp_path: Path):
    async with open_audited(tmp_path) as audited:
        left = [1]

        def answer(params: Raw, ask: RequestOptions) -> Raw:
            if left[0]:
                left[0] -= 1
                audited.backend.die("it fell over")
                raise BackendUnavailable("s: the conversation was lost")
            return DONE

        audited.backend.on("tools/call", answer)
        async with asyncio.timeout(TIMEOUT_S):
            await audited.runtime.calls.call(
                audited.runtime.catalog.snapshot.resolve_tool("s.read"), {}
            )
        assert (audited.last["outcome"], audited.last["attempts"]) == ("ok", 2)
