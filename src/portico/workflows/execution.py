"""Runs a plan once: each step after its dependencies, independent ones concurrently.

A step that fails, or that needs an approval nobody gave, stops its dependents and nothing else.
Results are stored in the run at once, so that an interrupted run can be resumed.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from portico.calls.call import make_call_id
from portico.calls.pipeline import CallContext, CallPipeline
from portico.catalog.tool import Tool
from portico.config import WorkflowConfig
from portico.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    ApprovalRequired,
    InvalidArguments,
    PorticoError,
    RemoteError,
)
from portico.results.result_meta import REPAIRED, get_gateway_meta
from portico.scripts.sandbox.clock import PausableClock
from portico.workflows.references import INPUTS, iter_references
from portico.workflows.runs import StepFailure, StepReport, StepResult, StepState, WorkflowRun
from portico.workflows.step_calls import (
    StepCall,
    build_step_calls,
    compute_fingerprint,
    extract_value_and_size,
    to_failure,
)
from portico.workflows.steps import WorkflowStep
from portico.workflows.validation import PlannedStep

RESOLVE_TIMEOUT_S = 5.0
"""Seconds to resolve the references of one step."""
MAX_APPROVALS = 8
"""Steps that one answer asks approval for: only what was shown can be approved, and an answer
has a budget."""
MAX_HELD_BYTES = 128 * 1024**2
"""Approximate total size of the results of one run."""
_PAUSE_CHECK_S = 0.5
"""Seconds between looks at the time of a workflow while a call of it waits for a person."""
_SETTLED_STATES = ("done", "skipped")
_FINAL_CODES = (INVALID_PARAMS, METHOD_NOT_FOUND)


class WorkflowExecution:
    def __init__(
        self,
        run: WorkflowRun,
        calls: CallPipeline,
        origin: CallContext,
        limits: WorkflowConfig,
        needs_approval: Callable[[Tool], bool],
    ) -> None:
        self._run = run
        self._calls = calls
        self._relay = origin.relay
        meta = origin.extra.get("_meta")
        # The calls of steps get the client's metadata without the token for the run's progress.
        call_meta: dict[str, Any] = {**meta} if isinstance(meta, dict) else {}
        self._progress_token = call_meta.pop("progressToken", None)
        extra = {"_meta": call_meta} if call_meta else {}
        self._clock = PausableClock()
        self._origin = CallContext(
            origin.caller,
            origin.relay,
            extra,
            via="workflow",
            # Not the id of the run, which is as good as a key.
            run_id=make_call_id(),
            pause_clock=self._clock.pause,
        )
        self._slots = asyncio.Semaphore(limits.parallel)
        self._limits = limits
        self._held_chars = 0
        self._needs_approval = needs_approval
        self.step_reports: dict[str, StepReport] = {}
        self.requested_approvals: dict[str, str] = {}
        """Steps that wait for approval, with the fingerprint of their calls."""

    async def run(self) -> None:
        """Run what is possible within the time limit; if cancelled, wait for calls to end."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.wall_s
        for planned in self._run.plan:
            if (result := self._run.results.get(planned.id)) is not None:
                self.step_reports[planned.id] = _build_step_report(planned, result, earlier=True)
                self._held_chars += result.size
        for parts in self._run.element_results.values():
            self._held_chars += sum(part.size for part in parts.values())
        pending = [planned for planned in self._run.plan if planned.id not in self._run.results]
        running: dict[asyncio.Task[StepReport], PlannedStep] = {}
        try:
            await self._report_progress("begins")
            while True:
                for planned in [planned for planned in pending if self._is_ready(planned.step)]:
                    pending.remove(planned)
                    task = asyncio.create_task(self._run_step(planned), name=f"step {planned.id}")
                    running[task] = planned
                if not running:
                    break
                finished_tasks = await self._wait_for_first(running, deadline)
                if not finished_tasks:
                    await _cancel_tasks(running)
                    finished_tasks = set(running)
                for task in finished_tasks:
                    planned = running.pop(task)
                    report = self._report_timeout(planned) if task.cancelled() else task.result()
                    self.step_reports[report.id] = report
                    await self._report_progress(f"{report.id} {report.state}")
        finally:
            await _cancel_tasks(running)
        for planned in pending:
            before = sorted(planned.step.dependencies)
            names = [name for name in before if self._get_state(name) not in ("", *_SETTLED_STATES)]
            reason = f"it waits for {', '.join(names or before)}"
            self.step_reports[planned.id] = _make_report(planned, "waiting", reason=reason)

    async def _wait_for_first(
        self, running: Iterable[asyncio.Task[StepReport]], deadline: float
    ) -> set[asyncio.Task[StepReport]]:
        """Wait for a step to end; none if the time is up, which stands still while a call waits for
        a person."""
        loop = asyncio.get_running_loop()
        while True:
            remaining_s = max(deadline + self._clock.paused_s - loop.time(), 0)
            finished, _ = await asyncio.wait(
                running, timeout=remaining_s, return_when=asyncio.FIRST_COMPLETED
            )
            if finished or deadline + self._clock.paused_s <= loop.time():
                return finished
            if self._clock.is_paused:
                await asyncio.wait(
                    running, timeout=_PAUSE_CHECK_S, return_when=asyncio.FIRST_COMPLETED
                )

    def _get_state(self, name: str) -> str:
        report = self.step_reports.get(name)
        return report.state if report else ""

    def _is_ready(self, step: WorkflowStep) -> bool:
        return all(self._get_state(name) in _SETTLED_STATES for name in step.dependencies)

    def _report_timeout(self, planned: PlannedStep) -> StepReport:
        failure = StepFailure(
            "timeout",
            f"the workflow has run for {self._limits.wall_s:g} s, which is the most;"
            " the calls of this step were cancelled",
            "Resume to go on with what is left, or do less in one workflow.",
            retryable=True,
        )
        done = len(self._run.element_results.get(planned.id, ()))
        kept = f"{done} of its elements are done and will not be run again" if done else ""
        return _make_report(planned, "failed", calls=done, reason=kept, failure=failure)

    # One step

    async def _run_step(self, planned: PlannedStep) -> StepReport:
        step = planned.step
        tool = planned.tool
        if missing := self._find_skipped_dependency(step):
            return _make_report(planned, "skipped", reason=f"it uses {missing}, which was skipped")
        try:
            # In a thread: resolving references and fingerprinting may take a while.
            scope = {name: self.step_reports[name].value for name in step.dependencies}
            scope[INPUTS] = self._run.inputs
            deadline = time.monotonic() + RESOLVE_TIMEOUT_S
            step_calls = await asyncio.to_thread(
                build_step_calls, step, tool, scope, self._limits.items, deadline
            )
            if step_calls is None:
                return _make_report(planned, "skipped", reason="its condition does not hold")
            fingerprint = compute_fingerprint([call.fingerprint for call in step_calls])
        except PorticoError as error:
            return _make_report(planned, "failed", failure=StepFailure.from_error(error))
        is_approved = self._run.granted_approvals.get(step.id) == fingerprint
        if not step_calls or is_approved or not self._needs_approval(tool):
            return await self._make_calls(planned, step_calls)
        if len(self.requested_approvals) >= MAX_APPROVALS:
            return _make_report(
                planned, "waiting", reason="it needs approval too, and is asked for next"
            )
        self.requested_approvals[step.id] = fingerprint
        arguments = tuple(step_call.arguments for step_call in step_calls)
        return _make_report(planned, "approval", pending_arguments=arguments)

    def _find_skipped_dependency(self, step: WorkflowStep) -> str:
        """Return the skipped steps that a reference cannot do without, or an empty string."""
        for reference in step.call_references:
            for need in reference.needs:
                if all(self._get_state(name) == "skipped" for name in need):
                    return " and ".join(sorted(need))
        return ""

    # Calls of a step

    async def _make_calls(self, planned: PlannedStep, rounds: Sequence[StepCall]) -> StepReport:
        step = planned.step
        started = time.perf_counter()
        made: dict[str, StepResult] = {}
        if step.for_each is None:
            done = await self._call_with_retry(planned, rounds[0])
        else:
            made = self._run.element_results.setdefault(step.id, {})
            remaining = [call for call in rounds if call.fingerprint not in made]
            failure = await self._call_each(planned, remaining, made)
            parts = [made[call.fingerprint] for call in rounds if not failure]
            done = failure or _combine_results(parts, started)
        if isinstance(done, StepResult):
            self._run.results[step.id] = done
            self._run.element_results.pop(step.id, None)
            return _build_step_report(planned, done)
        finished = sum(call.fingerprint in made for call in rounds)
        kept = ""
        if finished:
            kept = f"{finished} of {len(rounds)} elements are done and will not be run again"
        if done.kind == ApprovalRequired.kind:
            # Nothing was sent: resuming makes the same call, which runs once it is approved.
            reason = "; ".join(filter(None, (f"{done.message}. {done.advice}", kept)))
            return _make_report(planned, "approval", calls=finished, reason=reason)
        return _make_report(
            planned,
            "failed",
            seconds=time.perf_counter() - started,
            calls=finished,
            reason=kept,
            failure=done,
        )

    async def _call_each(
        self, planned: PlannedStep, rounds: Sequence[StepCall], made: dict[str, StepResult]
    ) -> StepFailure | None:
        """Make every call of a `for_each`; return the first failure, after which none starts."""
        pending = iter(rounds)
        failures: list[StepFailure] = []

        async def work() -> None:
            for call in pending:
                outcome = await self._call_with_retry(planned, call)
                if isinstance(outcome, StepFailure):
                    failures.append(outcome)
                else:
                    made[call.fingerprint] = outcome
                if failures:
                    return

        workers = {
            asyncio.create_task(work()) for _ in range(min(self._limits.parallel, len(rounds)))
        }
        try:
            for worker in list(workers):
                await worker
        finally:
            await _cancel_tasks(workers)
        return failures[0] if failures else None

    async def _call_with_retry(
        self, planned: PlannedStep, one: StepCall
    ) -> StepResult | StepFailure:
        retry = planned.step.retry
        started = time.perf_counter()
        outcome: StepResult | StepFailure | None = None
        for attempt in range(retry.attempts + 1):
            if attempt:
                await asyncio.sleep(retry.delay_s * 2 ** (attempt - 1))
            async with self._slots:
                outcome, can_retry = await self._attempt_call(planned, one, started, attempt + 1)
            if not can_retry:
                break
        assert outcome is not None
        return outcome

    async def _attempt_call(
        self, planned: PlannedStep, one: StepCall, started: float, number: int
    ) -> tuple[StepResult | StepFailure, bool]:
        """Make one call; return its outcome and whether a retry makes sense."""
        try:
            result = await self._calls.call(planned.tool, one.arguments, self._origin)
        except PorticoError as error:
            failure = StepFailure.from_error(error, one.element)
            if isinstance(error, InvalidArguments):
                return _explain_failure(failure, planned.step, one.scope), False
            return failure, error.retryable or (
                isinstance(error, RemoteError) and error.code not in _FINAL_CODES
            )
        if (failure := to_failure(result, one.element)) is not None:
            return failure, failure.kind == "tool_error"
        value, size = await extract_value_and_size(result)
        self._held_chars += size
        if self._held_chars > MAX_HELD_BYTES:
            failure = StepFailure(
                "too_large",
                "the call was made, and the answers of this workflow come to more than"
                f" {MAX_HELD_BYTES // 1024**2} MiB",
                "Ask the tool for less, or do this in several workflows.",
                element=one.element,
            )
            return failure, False
        repaired = tuple(map(str, get_gateway_meta(result).get(REPAIRED, ())))
        return StepResult(value, time.perf_counter() - started, number, size, repaired), False

    async def _report_progress(self, what: str) -> None:
        if self._relay is None or self._progress_token is None:
            return
        settled = sum(report.state in _SETTLED_STATES for report in self.step_reports.values())
        params = {
            "progressToken": self._progress_token,
            "progress": settled,
            "total": len(self._run.plan),
            "message": f"{what} (run {self._run.id})",
        }
        await self._relay.notify("notifications/progress", params)


async def _cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    running = {task for task in tasks if not task.done()}
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def _combine_results(parts: Sequence[StepResult], started: float) -> StepResult:
    return StepResult(
        [part.value for part in parts],
        time.perf_counter() - started,
        sum(part.calls for part in parts),
        sum(part.size for part in parts) + 2,
        tuple(dict.fromkeys(note for part in parts for note in part.repairs)),
    )


def _make_report(planned: PlannedStep, state: StepState, **details: Any) -> StepReport:
    return StepReport(planned.id, planned.tool.address, state, **details)


def _build_step_report(
    planned: PlannedStep, done: StepResult, *, earlier: bool = False
) -> StepReport:
    return _make_report(
        planned,
        "done",
        value=done.value,
        seconds=done.seconds,
        calls=done.calls,
        is_from_earlier=earlier,
        repairs=() if earlier else done.repairs,
    )


def _explain_failure(
    failure: StepFailure, step: WorkflowStep, scope: Mapping[str, Any]
) -> StepFailure:
    """Add references that found nothing, a frequent cause of invalid arguments, to the advice."""
    empty = dict.fromkeys(
        f"${{{reference.text}}}"
        for reference in iter_references(step.arguments)
        if reference.plain_path is not None and reference.resolve(scope) is None
    )
    if not empty:
        return failure
    advice = f"{', '.join(list(empty)[:5])} found nothing. {failure.advice}".strip()
    return replace(failure, advice=advice)
