"""Workflow runner: validates, runs, stores and resumes workflows.

runner = WorkflowRunner(calls, shapes)
report = await runner.run(WorkflowRequest(steps=[…], inputs={…}), snapshot, origin)
report = await runner.run(WorkflowRequest(resume=report.run_id), snapshot, origin)
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from portico.calls.pipeline import DEFAULT_CONTEXT, CallContext, CallPipeline
from portico.calls.retry import DEFAULT_RETRY_RULE
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.errors import InvalidArguments
from portico.results.learned_shapes import LearnedShapes
from portico.workflows.execution import WorkflowExecution
from portico.workflows.limits import WorkflowLimits
from portico.workflows.report import WorkflowReport
from portico.workflows.runs import WorkflowRun, WorkflowRunStore
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
    """A request to run or resume a workflow."""

    steps: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    resume: str = ""
    """Id of the run to resume. Given steps replace those of the same id or are added, as are
    inputs."""
    intent: str = ""
    """Purpose in words, if known."""


class WorkflowRunner:
    """Runs workflows. For one event loop."""

    def __init__(
        self,
        calls: CallPipeline,
        shapes: LearnedShapes | None = None,
        *,
        limits: WorkflowLimits | None = None,
        needs_approval: Callable[[Tool], bool] = lambda tool: False,
        may_retry: Callable[[Tool], bool] = DEFAULT_RETRY_RULE.can_run_twice,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`needs_approval` adds to tools marked destructive; `may_retry`: safe to retry."""
        self._calls = calls
        self._shapes = shapes
        self._limits = limits or WorkflowLimits()
        self._needs_approval = needs_approval
        self._may_retry = may_retry
        run_limits = self._limits
        self._runs = WorkflowRunStore(
            max_runs=run_limits.runs,
            max_total_bytes=run_limits.total_bytes,
            ttl_s=run_limits.ttl_s,
            clock=clock,
        )

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the stored runs."""
        return self._runs.held_bytes

    def expire(self) -> None:
        """Delete expired runs; called periodically."""
        self._runs.expire()

    async def run(
        self, request: WorkflowRequest, snapshot: Snapshot, origin: CallContext = DEFAULT_CONTEXT
    ) -> WorkflowReport:
        """Run a workflow, or resume one.

        Raises InvalidArguments with every problem before anything runs, and UnknownName for an
        unknown run. Failures of steps are in the report.
        """
        if request.resume:
            run = self._runs.find(origin.caller, request.resume)
        else:
            run = self._runs.create(origin.caller)
        with self._runs.check_out(run):
            # In a thread, because parsing a thousand references takes a while.
            checked = await asyncio.to_thread(self._validate, run, request, snapshot)
            run.plan = checked.plan
            run.inputs = {**run.inputs, **request.inputs}
            run.definition_chars = await asyncio.to_thread(run.measure_definition)
            run.intent = request.intent or run.intent
            # Resuming approves what the last answer asked for, as long as the calls are unchanged.
            run.granted_approvals |= run.requested_approvals
            run.requested_approvals = {}
            started = time.perf_counter()
            limits = self._limits
            execution = WorkflowExecution(
                run,
                self._calls,
                origin,
                max_parallel=limits.parallel,
                max_items=limits.items,
                wall_s=limits.wall_s,
                max_held_bytes=limits.held_bytes,
                needs_approval=lambda tool: is_destructive(tool) or self._needs_approval(tool),
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
            limits.ttl_s,
            run.intent,
        )

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
    warnings = [
        WorkflowProblem(
            step["id"], "it has run already; its result stands, whatever is sent for it now"
        )
        for step in sent
        if step["id"] in run.results
        and any(
            previous.id == step["id"] and previous.step.definition != step for previous in run.plan
        )
    ]
    known = {planned.id: dict(planned.step.definition) for planned in run.plan}
    # A duplicate id stays duplicate, to be refused.
    by_id = {
        name: [step for step in sent if step["id"] == name] or [previous]
        for name, previous in known.items()
    }
    remaining = (
        step for name, same_id in by_id.items() if name not in run.results for step in same_id
    )
    return [*remaining, *(step for step in sent if step["id"] not in known)], warnings


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
    if "approval" in states:
        return "approval"
    return "finished"
