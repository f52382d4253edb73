"""Workflows: checks, runs, keeps and continues them.

workflows = Workflows(calls, shapes)
report = await workflows.run(Request(steps=[…], inputs={…}), snapshot, origin)
report = await workflows.run(Request(resume=report.run), snapshot, origin)
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
"""Problems that are told at once."""
MAX_REPORTED_WARNINGS = 5
"""Of what is only doubted, beside them."""


@dataclass(frozen=True)
class WorkflowRequest:
    """What a caller asks."""

    steps: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    resume: str = ""
    """The run to go on with. Steps that are given replace those of the same id or are added, and so
    are inputs."""
    intent: str = ""
    """What it is for, in words, where that is known."""


class WorkflowRunner:
    """Runs workflows. One event loop's own."""

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
        """`policy` names tools that need approval beside those that say they destroy, `twice` those that may be
        tried again.
        """
        self._calls = calls
        self._shapes = shapes
        self._limits = limits or WorkflowLimits()
        self._needs_approval = needs_approval
        self._may_retry = may_retry
        kept = self._limits
        self._runs = WorkflowRunStore(
            max_runs=kept.runs, max_total_bytes=kept.total_bytes, ttl_s=kept.ttl_s, clock=clock
        )

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def held_bytes(self) -> int:
        """About how much memory the kept runs take."""
        return self._runs.held_bytes

    def expire(self) -> None:
        """Let go of runs that are over their time; for housekeeping."""
        self._runs.expire()

    async def run(
        self, request: WorkflowRequest, snapshot: Snapshot, origin: CallContext = DEFAULT_CONTEXT
    ) -> WorkflowReport:
        """Run a workflow, or go on with one.

        Raises InvalidArguments, with every problem, before anything runs; UnknownName where there
        is no such run. What fails while it runs is in the report.
        """
        if request.resume:
            run = self._runs.find(origin.caller, request.resume)
        else:
            run = self._runs.create(origin.caller)
        with self._runs.check_out(run):
            # A thousand references take a while to be read.
            checked = await asyncio.to_thread(self._validate, run, request, snapshot)
            run.plan = checked.plan
            run.inputs = {**run.inputs, **request.inputs}
            run.definition_chars = await asyncio.to_thread(run.measure_definition)
            run.intent = request.intent or run.intent
            # Whoever goes on has seen what the last answer asked; what that would do must still be
            # the same.
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
        over = tuple(planned for planned in run.plan if planned.id in run.results)
        left = [
            dict(planned.step.definition) for planned in run.plan if planned.id not in run.results
        ]
        steps = left
        notes = list[WorkflowProblem]()
        if request.steps is not None:
            steps, notes = _merge_steps(request.steps, run)
        elif not request.resume:
            steps = None
        inputs = {**run.inputs, **request.inputs}
        most = self._limits.steps
        found = validate_workflow(
            steps,
            inputs,
            snapshot,
            self._shapes,
            max_steps=most,
            finished=over,
            may_retry=self._may_retry,
        )
        if isinstance(found, InvalidWorkflow):
            raise _make_invalid_error(found, request.resume)
        return ValidatedWorkflow(found.plan, (*notes, *found.warnings))


def _merge_steps(steps: Any, run: WorkflowRun) -> tuple[Any, list[WorkflowProblem]]:
    """The steps that are to run, with those that were sent with `resume`; and what is not done as
    it was sent."""
    if not isinstance(steps, list):
        return steps, []
    sent = cast("list[Any]", steps)
    if any(not isinstance(one, dict) or not isinstance(one.get("id"), str) for one in sent):
        return sent, []  # it cannot be read, and that is told of it as it was sent
    notes = [
        WorkflowProblem(
            one["id"], "it has run already; its result stands, whatever is sent for it now"
        )
        for one in sent
        if one["id"] in run.results
        and any(old.id == one["id"] and old.step.definition != one for old in run.plan)
    ]
    known = {planned.id: dict(planned.step.definition) for planned in run.plan}
    # One id twice stays twice, to be refused.
    by_id = {
        name: [one for one in sent if one["id"] == name] or [old] for name, old in known.items()
    }
    kept = (one for name, some in by_id.items() if name not in run.results for one in some)
    return [*kept, *(one for one in sent if one["id"] not in known)], notes


def _make_invalid_error(found: InvalidWorkflow, resume: str) -> InvalidArguments:
    told = [str(problem) for problem in found.problems]
    if len(told) > MAX_REPORTED_PROBLEMS:
        more = [f"and {len(told) - MAX_REPORTED_PROBLEMS} more"]
    else:
        more = []
    steps = {problem.step for problem in found.problems}
    doubts = [f"perhaps because: {warning}" for warning in found.warnings if warning.step in steps]
    if len(told) == 1:
        wrong = "1 problem"
    else:
        wrong = f"{len(told)} problems"
    if resume:
        again = f'pass those you change with resume="{resume}"'
    else:
        again = "pass them again"
    return InvalidArguments(
        f"the workflow cannot run: {wrong}\n"
        + "\n".join(
            f"- {line}"
            for line in (*told[:MAX_REPORTED_PROBLEMS], *more, *doubts[:MAX_REPORTED_WARNINGS])
        ),
        problems=tuple(told),
        advice=f"Nothing was run. Correct the steps and {again}.",
    )


def _get_state(execution: WorkflowExecution) -> Literal["finished", "failed", "approval"]:
    states = {told.state for told in execution.step_reports.values()}
    if "failed" in states:
        return "failed"
    if "approval" in states:
        return "approval"
    return "finished"
