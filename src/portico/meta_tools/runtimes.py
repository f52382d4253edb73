"""Runtimes for scripts and workflows, each imported and created on first use."""

import asyncio
import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from portico.callers import Caller
from portico.calls.dispatcher import can_run_twice
from portico.calls.pipeline import CallContext, CallPipeline
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.config import Config
from portico.errors import PorticoError
from portico.events import EventBus, ScriptRan, WorkflowRan
from portico.results.learned_shapes import LearnedShapes
from portico.scripts.runner import ScriptContext, ScriptResult, ScriptRunner
from portico.scripts.sandbox.script import Language
from portico.storage.gateway_store import GatewayStore
from portico.usage.learner import Learner

if TYPE_CHECKING:
    from portico.workflows.planning.clause_search import FindTools
    from portico.workflows.planning.plan_memory import PlanMemory
    from portico.workflows.planning.planner import PlanSuggestion
    from portico.workflows.runner import WorkflowRequest, WorkflowRunner
    from portico.workflows.runs import WorkflowReport

_PLAN_WRITE_TIMEOUT_S = 2.0
"""Seconds that shutdown waits for pending plan writes."""
MAX_PENDING_PLANS = 32
"""Maximum number of pending plan writes. A plan dropped above it is stored by its next run."""


class Runtimes:
    """Script and workflow runtimes of a gateway."""

    def __init__(
        self,
        calls: CallPipeline,
        shapes: LearnedShapes,
        config: Config,
        learner: Learner,
        store: GatewayStore,
        bus: EventBus | None = None,
    ) -> None:
        """Create the runtimes; how each script and workflow ended is published on `bus`."""
        self._bus = bus or EventBus()
        self._calls = calls
        self._shapes = shapes
        self._learner = learner
        self._store = store
        self._plan_writes: set[asyncio.Task[bool]] = set()
        self._workflow_config = config.workflow
        # Workflow steps state their own retries, so only the rule's `tools` matter here.
        self._retry_globs = {name: server.retry.tools for name, server in config.servers.items()}
        self.scripts = ScriptRunner.from_config(calls, config.code)

    @cached_property
    def workflows(self) -> "WorkflowRunner":
        """The workflow runner, created by the first workflow to keep start-up fast."""
        from portico.workflows.runner import WorkflowRunner

        return WorkflowRunner(
            self._calls,
            self._shapes,
            limits=self._workflow_config,
            may_retry=self._can_run_twice,
        )

    @cached_property
    def _plans(self) -> "PlanMemory":
        from portico.workflows.planning.plan_memory import PlanMemory

        return PlanMemory(self._store, self._learner.read_key, self._learner.is_enabled)

    async def run_script(
        self,
        code: str,
        language: Language,
        script_context: ScriptContext,
        context: CallContext,
        timeout_s: float | None = None,
    ) -> ScriptResult:
        """Run a script; see `ScriptRunner.run`."""
        started = time.perf_counter()
        outcome = "crash"
        try:
            result = await self.scripts.run(code, language, script_context, context, timeout_s)
            fault = result.outcome.fault
            outcome = fault.kind if fault is not None else "ok"
            return result
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except PorticoError:
            outcome = "refused"
            raise
        finally:
            self._bus.publish(ScriptRan(language, time.perf_counter() - started, outcome))

    async def run_workflow(
        self, request: "WorkflowRequest", snapshot: Snapshot, context: CallContext
    ) -> "WorkflowReport":
        """Run or resume a workflow; see `WorkflowRunner.run`."""
        started = time.perf_counter()
        outcome = "failed"
        try:
            report = await self.workflows.run(request, snapshot, context)
            outcome = report.state
            return report
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except PorticoError:
            outcome = "refused"
            raise
        finally:
            self._bus.publish(WorkflowRan(time.perf_counter() - started, outcome))

    async def plan_workflow(
        self,
        intent: str,
        snapshot: Snapshot,
        find: "FindTools",
        caller: Caller,
        inputs: Mapping[str, Any],
    ) -> "PlanSuggestion":
        """Return a plan for an intent and its inputs."""
        from portico.workflows.planning.planner import suggest_plan

        scope = self._learner.to_scope_key(caller)
        worked = await self._plans.recall(scope, intent, snapshot)
        return await suggest_plan(
            intent, inputs, snapshot, find, shapes=self._shapes.get, worked=worked
        )

    def remember_plan(self, report: "WorkflowReport", snapshot: Snapshot) -> None:
        """Store the plan of a successful workflow in the background."""
        if not report.is_newly_finished or len(self._plan_writes) >= MAX_PENDING_PLANS:
            return
        scope = self._learner.to_scope_key(report.caller)
        steps = [dict(planned.step.definition) for planned in report.plan]
        write = asyncio.create_task(
            self._plans.remember(scope, steps, snapshot, report.intent), name="keep a plan"
        )
        self._plan_writes.add(write)
        write.add_done_callback(self._plan_writes.discard)

    def expire(self) -> None:
        """Drop expired script state and workflow runs; called periodically."""
        self.scripts.state_store.expire()
        if "workflows" in self.__dict__:
            self.workflows.expire()

    async def close(self) -> None:
        """End every script process and finish pending writes."""
        await self.scripts.close()
        if self._plan_writes:
            await asyncio.wait(self._plan_writes, timeout=_PLAN_WRITE_TIMEOUT_S)

    def _can_run_twice(self, tool: Tool) -> bool:
        return can_run_twice(tool, self._retry_globs.get(tool.server, ()))
