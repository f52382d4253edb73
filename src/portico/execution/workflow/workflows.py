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

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.errors import InvalidArguments
from portico.execution.call import NOBODY, Calls, Origin
from portico.execution.learned import Shapes
from portico.execution.retrying import ONCE_MORE
from portico.execution.workflow.checking import Checked, Problems, check, is_destructive
from portico.execution.workflow.limits import Limits
from portico.execution.workflow.report import Report
from portico.execution.workflow.running import Execution
from portico.execution.workflow.runs import Run, Runs
from portico.execution.workflow.steps import Problem

MAX_TOLD = 20
"""Problems that are told at once."""
MAX_DOUBTS = 5
"""Of what is only doubted, beside them."""


@dataclass(frozen=True)
class Request:
    """What a caller asks."""

    steps: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    resume: str = ""
    """The run to go on with. Steps that are given replace those of the same id or are added, and so are inputs."""
    intent: str = ""
    """What it is for, in words, where that is known."""


class Workflows:
    """Runs workflows. One event loop's own."""

    def __init__(
        self,
        calls: Calls,
        shapes: Shapes | None = None,
        *,
        limits: Limits | None = None,
        policy: Callable[[Tool], bool] = lambda tool: False,
        twice: Callable[[Tool], bool] = ONCE_MORE.allows,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`policy` names tools that need approval beside those that say they destroy, `twice` those that may be
        tried again.
        """
        self._calls = calls
        self._shapes = shapes
        self._limits = limits or Limits()
        self._policy = policy
        self._twice = twice
        kept = self._limits
        self._runs = Runs(most=kept.runs, total_bytes=kept.total_bytes, ttl_s=kept.ttl_s, clock=clock)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def held_bytes(self) -> int:
        """About how much memory the kept runs take."""
        return self._runs.held_bytes

    def expire(self) -> None:
        """Let go of runs that are over their time; for housekeeping."""
        self._runs.expire()

    async def run(self, request: Request, snapshot: Snapshot, origin: Origin = NOBODY) -> Report:
        """Run a workflow, or go on with one.

        Raises InvalidArguments, with every problem, before anything runs; UnknownName where there is no such run.
        What fails while it runs is in the report.
        """
        run = self._runs.find(origin.caller, request.resume) if request.resume else self._runs.new(origin.caller)
        with self._runs.using(run):
            # A thousand references take a while to be read.
            checked = await asyncio.to_thread(self._checked, run, request, snapshot)
            run.plan, run.inputs = checked.plan, {**run.inputs, **request.inputs}
            run.written = await asyncio.to_thread(run.weigh_written)
            run.intent = request.intent or run.intent
            # Whoever goes on has seen what the last answer asked; what that would do must still be the same.
            run.approved |= run.shown
            run.shown = {}
            started = time.perf_counter()
            limits = self._limits
            execution = Execution(
                run,
                self._calls,
                origin,
                parallel=limits.parallel,
                items=limits.items,
                wall_s=limits.wall_s,
                held_bytes=limits.held_bytes,
                destructive=lambda tool: is_destructive(tool) or self._policy(tool),
            )
            await execution.run()
            run.shown = execution.shown
        return Report(
            run.id if self._runs.keeps(run) else "",
            _state(execution),
            tuple(execution.told[planned.id] for planned in run.plan),
            time.perf_counter() - started,
            run.plan,
            run.inputs,
            checked.warnings,
            origin.caller,
            limits.ttl_s,
            run.intent,
        )

    def _checked(self, run: Run, request: Request, snapshot: Snapshot) -> Checked:
        over = tuple(planned for planned in run.plan if planned.id in run.done)
        left = [dict(planned.step.given) for planned in run.plan if planned.id not in run.done]
        steps, notes = left, list[Problem]()
        if request.steps is not None:
            steps, notes = _merged(request.steps, run)
        elif not request.resume:
            steps = None
        inputs = {**run.inputs, **request.inputs}
        most = self._limits.steps
        found = check(steps, inputs, snapshot, self._shapes, most=most, over=over, twice=self._twice)
        if isinstance(found, Problems):
            raise _refusal(found, request.resume)
        return Checked(found.plan, (*notes, *found.warnings))


def _merged(steps: Any, run: Run) -> tuple[Any, list[Problem]]:
    """The steps that are to run, with those that were sent with `resume`; and what is not done as it was sent."""
    if not isinstance(steps, list):
        return steps, []
    sent = cast("list[Any]", steps)
    if any(not isinstance(one, dict) or not isinstance(one.get("id"), str) for one in sent):
        return sent, []  # it cannot be read, and that is told of it as it was sent
    notes = [
        Problem(one["id"], "it has run already; its result stands, whatever is sent for it now")
        for one in sent
        if one["id"] in run.done and any(old.id == one["id"] and old.step.given != one for old in run.plan)
    ]
    known = {planned.id: dict(planned.step.given) for planned in run.plan}
    # One id twice stays twice, to be refused.
    by_id = {name: [one for one in sent if one["id"] == name] or [old] for name, old in known.items()}
    kept = (one for name, some in by_id.items() if name not in run.done for one in some)
    return [*kept, *(one for one in sent if one["id"] not in known)], notes


def _refusal(found: Problems, resume: str) -> InvalidArguments:
    told = [str(problem) for problem in found.problems]
    more = [f"and {len(told) - MAX_TOLD} more"] if len(told) > MAX_TOLD else []
    steps = {problem.step for problem in found.problems}
    doubts = [f"perhaps because: {warning}" for warning in found.warnings if warning.step in steps]
    wrong = "1 problem" if len(told) == 1 else f"{len(told)} problems"
    again = f'pass those you change with resume="{resume}"' if resume else "pass them again"
    return InvalidArguments(
        f"the workflow cannot run: {wrong}\n"
        + "\n".join(f"- {line}" for line in (*told[:MAX_TOLD], *more, *doubts[:MAX_DOUBTS])),
        problems=tuple(told),
        advice=f"Nothing was run. Correct the steps and {again}.",
    )


def _state(execution: Execution) -> Literal["finished", "failed", "approval"]:
    states = {told.state for told in execution.told.values()}
    return "failed" if "failed" in states else "approval" if "approval" in states else "finished"
