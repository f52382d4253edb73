"""Scripts and workflows publish how they ended."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from portico.calls.pipeline import DEFAULT_CONTEXT
from portico.config import Config
from portico.errors import PorticoError
from portico.events import Event, ScriptRan, WorkflowRan
from portico.meta_tools.runtimes import MAX_PENDING_PLANS, Runtimes
from portico.scripts.runner import MAX_CODE_CHARS, ScriptContext
from portico.scripts.sandbox.script import Language
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Raw
from portico.workflows.runner import WorkflowRequest
from tests.interaction.fake_servers import text, tool

TIMEOUT_S = 240


@dataclass
class Office:
    """Means over one server, whose tool `wait` says when it is called and never answers."""

    means: Runtimes
    snapshot: Any
    called: asyncio.Event
    heard: list[Event] = field(default_factory=list[Event])

    async def script(self, code: str, language: Language = "lua") -> None:
        await self.means.run_script(code, language, ScriptContext(self.snapshot), DEFAULT_CONTEXT)

    async def workflow(self, *steps: Raw) -> None:
        await self.means.run_workflow(WorkflowRequest(list(steps)), self.snapshot, DEFAULT_CONTEXT)

    @property
    def outcome(self) -> str:
        (event,) = self.heard
        assert isinstance(event, ScriptRan | WorkflowRan)
        assert event.seconds >= 0
        return event.outcome


@asynccontextmanager
async def office() -> AsyncGenerator[Office]:
    called = asyncio.Event()

    async def wait(_: Raw) -> Raw:
        called.set()
        return await asyncio.get_running_loop().create_future()

    backend = FakeBackend([tool("run"), tool("fail"), tool("wait")])
    backend.on_call("run", lambda _: text("done"))
    backend.on_call("fail", lambda _: {**text("no"), "isError": True})
    backend.on_call("wait", wait)
    async with gateway_over({"s": backend}) as gateway:
        shapes = gateway.calls.shapes
        means = Runtimes(
            gateway.calls, shapes, Config(), gateway.learner, gateway.store, gateway.bus
        )
        made = Office(means, gateway.catalog.snapshot, called)
        gateway.bus.subscribe(made.heard.append, ScriptRan, WorkflowRan)
        try:
            yield made
        finally:
            await means.close()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [("return s.run({}):await()", "ok"), ("error('no')", "runtime"), ("this is no lua", "syntax")],
)
async def test_a_script_is_published_with_its_language_and_outcome(code: str, outcome: str) -> None:
    async with office() as gateway:
        await asyncio.wait_for(gateway.script(code), TIMEOUT_S)
        assert gateway.outcome == outcome
        assert isinstance(gateway.heard[0], ScriptRan)
        assert gateway.heard[0].language == "lua"
        assert set(gateway.means.scripts.worker_counts) == {"lua"}


async def test_a_script_that_is_not_run_at_all_is_refused() -> None:
    async with office() as gateway:
        with pytest.raises(PorticoError):
            await gateway.script("x" * (MAX_CODE_CHARS + 1))
        assert gateway.outcome == "refused"


async def test_a_script_at_work_has_a_worker_until_its_caller_gives_up() -> None:
    async with office() as gateway:
        running = asyncio.create_task(gateway.script("return s.wait({}):await()"))
        await asyncio.wait_for(gateway.called.wait(), TIMEOUT_S)
        assert gateway.means.scripts.worker_counts["lua"][0] == 1
        running.cancel()
        await asyncio.wait({running}, timeout=TIMEOUT_S)
        assert gateway.outcome == "cancelled"
        assert gateway.means.scripts.worker_counts["lua"][0] == 0


@pytest.mark.parametrize(("name", "outcome"), [("s.run", "finished"), ("s.fail", "failed")])
async def test_a_workflow_is_published_with_its_outcome(name: str, outcome: str) -> None:
    async with office() as gateway:
        await asyncio.wait_for(
            gateway.workflow({"id": "one", "tool": name, "arguments": {}}), TIMEOUT_S
        )
        assert gateway.outcome == outcome


async def test_a_workflow_with_wrong_steps_is_refused() -> None:
    async with office() as gateway:
        with pytest.raises(PorticoError):
            await gateway.workflow({"id": "one", "tool": "s.nothing"})
        assert gateway.outcome == "refused"


async def test_a_workflow_whose_caller_gives_up_is_cancelled() -> None:
    async with office() as gateway:
        running = asyncio.create_task(
            gateway.workflow({"id": "one", "tool": "s.wait", "arguments": {}})
        )
        await asyncio.wait_for(gateway.called.wait(), TIMEOUT_S)
        running.cancel()
        await asyncio.wait({running}, timeout=TIMEOUT_S)
        assert gateway.outcome == "cancelled"


async def test_plans_that_come_faster_than_they_are_written_do_not_pile_up() -> None:
    async with office() as gateway:
        steps: list[Raw] = [
            {"id": name, "tool": "s.run", "arguments": {}} for name in ("one", "two")
        ]
        report = await gateway.means.run_workflow(
            WorkflowRequest(steps, intent="run both"), gateway.snapshot, DEFAULT_CONTEXT
        )
        for _ in range(10 * MAX_PENDING_PLANS):
            gateway.means.remember_plan(report, gateway.snapshot)
        keeping = [task for task in asyncio.all_tasks() if task.get_name() == "keep a plan"]
        assert len(keeping) == MAX_PENDING_PLANS
        await asyncio.wait(keeping, timeout=TIMEOUT_S)
        assert all(task.result() for task in keeping)
        gateway.means.remember_plan(report, gateway.snapshot)
        assert any(task.get_name() == "keep a plan" for task in asyncio.all_tasks()), (
            "there is room again"
        )
