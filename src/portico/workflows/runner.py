"""Workflow runner: validates, runs, stores and resumes workflows.

runner = WorkflowRunner(calls, shapes)
report = await runner.run(WorkflowRequest(steps=[…], inputs={…}), snapshot, origin)
report = await runner.run(WorkflowRequest(resume=report.run_id), snapshot, origin)
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from portico.callers import Caller
from portico.calls.cache import is_read_only
from portico.calls.dispatcher import can_run_twice
from portico.calls.pipeline import DEFAULT_CONTEXT, CallContext, CallPipeline
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.config import WorkflowConfig
from portico.errors import InvalidArguments
from portico.results.learned_shapes import LearnedShapes
from portico.results.store import get_owner_key
from portico.workflows.execution import WorkflowExecution
from portico.workflows.references import nest_inputs
from portico.workflows.runs import WorkflowReport, WorkflowRun, WorkflowRunStore
from portico.workflows.steps import WorkflowProblem
from portico.workflows.validation import (
    InvalidWorkflow,
    ValidatedWorkflow,
    is_destructive,
    validate_workflow,
)

MAX_REPORTED_PROBLEMS = 20
"""Problems reported at once."""
MAX_REPORTED_WARNINGS = 5
"""Warnings reported with them."""


@dataclass(frozen=True)
class WorkflowRequest:
    steps: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    resume: str = ""
    """Id of the run to resume. Given steps replace those of the same id or are added, as are
    inputs."""
    intent: str = ""
    """Purpose in words, if known."""
    is_planned: bool = False
    """Planned here from the intent: what is not known to be read-only needs approval."""


class WorkflowRunner:
    """Runs workflows. For one event loop."""

    def __init__(
        self,
        calls: CallPipeline,
        shapes: LearnedShapes | None = None,
        *,
        limits: WorkflowConfig | None = None,
        may_retry: Callable[[Tool], bool] = can_run_twice,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`may_retry`: safe to retry."""
        self._calls = calls
        self._shapes = shapes
        self._limits = limits or WorkflowConfig()
        self._may_retry = may_retry
        self._runs = WorkflowRunStore(self._limits, clock)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def held_bytes(self) -> int:
        return self._runs.held_bytes

    def expire(self) -> None:
        self._runs.expire()

    async def run(
        self, request: WorkflowRequest, snapshot: Snapshot, origin: CallContext = DEFAULT_CONTEXT
    ) -> WorkflowReport:
        """Run a workflow, or resume one.

        Raises InvalidArguments with every problem before anything runs, and UnknownName for an
        unknown run. Failures of steps are in the report.
        """
        request = replace(request, inputs=nest_inputs(request.inputs))
        caller = origin.caller
        run = self._runs.find(caller, request.resume) if request.resume else _create_run(caller)
        with self._runs.check_out(run):
            # In a thread, because parsing a thousand references takes a while.
            checked = await asyncio.to_thread(self._validate, run, request, snapshot)
            run.plan = checked.plan
            run.inputs = {**run.inputs, **request.inputs}
            run.definition_chars = await asyncio.to_thread(run.measure_definition)
            run.intent = request.intent or run.intent
            run.is_planned = request.is_planned or run.is_planned
            # Resuming approves what the last answer asked for, as long as the calls are unchanged.
            run.granted_approvals |= run.requested_approvals
            run.requested_approvals = {}
            started = time.perf_counter()
            execution = WorkflowExecution(
                run,
                self._calls,
                origin,
                self._limits,
                lambda tool: self._must_approve(tool, run),
            )
            await execution.run()
            run.requested_approvals = execution.requested_approvals
        return WorkflowReport(
            run.id if self._runs.has_run(run) else "",
            _get_state(execution),
            tuple(execution.step_reports[planned.id] for planned in run.plan),
            time.perf_counter() - started,
            run.plan,
            run.inputs,
            checked.warnings,
            origin.caller,
            self._limits.ttl_s,
            run.intent,
        )

    def _must_approve(self, tool: Tool, run: WorkflowRun) -> bool:
        if run.is_planned and not is_read_only(tool):
            return True
        return is_destructive(tool)

    def _validate(
        self, run: WorkflowRun, request: WorkflowRequest, snapshot: Snapshot
    ) -> ValidatedWorkflow:
        finished = tuple(planned for planned in run.plan if planned.id in run.results)
        steps: Any = [
            dict(planned.step.definition) for planned in run.plan if planned.id not in run.results
        ]
        warnings = list[WorkflowProblem]()
        if request.steps is not None:
            steps, warnings = _merge_steps(request.steps, run)
        elif not request.resume:
            steps = None
        inputs = {**run.inputs, **request.inputs}
        found = validate_workflow(
            steps,
            inputs,
            snapshot,
            self._shapes,
            max_steps=self._limits.steps,
            finished=finished,
            may_retry=self._may_retry,
        )
        if isinstance(found, InvalidWorkflow):
            raise _make_invalid_error(found, request.resume)
        return ValidatedWorkflow(found.plan, (*warnings, *found.warnings))


def _merge_steps(steps: Any, run: WorkflowRun) -> tuple[Any, list[WorkflowProblem]]:
    """Merge steps sent with `resume` into a run; also return warnings about ignored ones."""
    if not isinstance(steps, list):
        return steps, []
    sent = cast("list[Any]", steps)
    if any(not isinstance(step, dict) or not isinstance(step.get("id"), str) for step in sent):
        return sent, []  # not parseable; validation reports it as it was sent
    known = {planned.id: dict(planned.step.definition) for planned in run.plan}
    warnings = [
        WorkflowProblem(
            step["id"], "it has run already; its result stands, whatever is sent for it now"
        )
        for step in sent
        if step["id"] in run.results and known.get(step["id"], step) != step
    ]
    merged: list[Any] = []
    for name, previous in known.items():
        if name not in run.results:
            # A duplicate id stays duplicate, to be refused.
            merged += [step for step in sent if step["id"] == name] or [previous]
    return [*merged, *(step for step in sent if step["id"] not in known)], warnings


def _create_run(caller: Caller) -> WorkflowRun:
    return WorkflowRun(secrets.token_urlsafe(16), get_owner_key(caller), caller.state_key)


def _make_invalid_error(found: InvalidWorkflow, resume: str) -> InvalidArguments:
    problems = [str(problem) for problem in found.problems]
    lines = problems[:MAX_REPORTED_PROBLEMS]
    if len(problems) > MAX_REPORTED_PROBLEMS:
        lines.append(f"and {len(problems) - MAX_REPORTED_PROBLEMS} more")
    steps = {problem.step for problem in found.problems}
    doubts = [f"perhaps because: {warning}" for warning in found.warnings if warning.step in steps]
    lines += doubts[:MAX_REPORTED_WARNINGS]
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    again = f'pass those you change with resume="{resume}"' if resume else "pass them again"
    return InvalidArguments(
        f"the workflow cannot run: {count}\n" + "\n".join(f"- {line}" for line in lines),
        problems=tuple(problems),
        advice=f"Nothing was run. Correct the steps and {again}.",
    )


def _get_state(execution: WorkflowExecution) -> Literal["finished", "failed", "approval"]:
    states = {report.state for report in execution.step_reports.values()}
    if "failed" in states:
        return "failed"
    return "approval" if "approval" in states else "finished"
