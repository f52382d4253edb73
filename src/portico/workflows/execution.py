"""Runs a plan once: each step after its dependencies, independent ones concurrently.

A step that fails, or that needs an approval nobody gave, stops its dependents and nothing else.
Results are stored in the run at once, so that an interrupted run can be resumed.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from portico.calls.pipeline import CallContext, CallPipeline
from portico.catalog.tool import Tool
from portico.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    InvalidArguments,
    PorticoError,
    RemoteError,
)
from portico.json_text.part_stream import encode_compact, estimate_size, to_parts
from portico.results.marks import REPAIRED, get_marks
from portico.workflows.call_results import extract_value_and_size, to_failure
from portico.workflows.limits import MAX_HELD_BYTES, MAX_ITEMS, MAX_PARALLEL, MAX_WALL_S
from portico.workflows.references import (
    INDEX,
    INPUTS,
    ITEM,
    MAX_RESOLVED_CHARS,
    TextTemplate,
    iter_references,
    make_too_large_error,
    resolve_references,
)
from portico.workflows.report import StepFailure, StepReport
from portico.workflows.runs import StepResult, WorkflowRun
from portico.workflows.steps import WorkflowStep
from portico.workflows.validation import PlannedStep

RESOLVE_TIMEOUT_S = 5.0
"""Seconds to resolve the references of one step."""
MAX_APPROVALS = 8
"""Steps that one answer asks approval for: only what was shown can be approved, and an answer
has a budget."""
_SETTLED_STATES = ("done", "skipped")
_FINAL_CODES = (INVALID_PARAMS, METHOD_NOT_FOUND)


@dataclass(frozen=True)
class _StepCall:
    """One call of a step."""

    element: int | None
    arguments: dict[str, Any]
    fingerprint: str
    scope: Mapping[str, Any]
    chars: int


class WorkflowExecution:
    """One pass over a plan."""

    def __init__(
        self,
        run: WorkflowRun,
        calls: CallPipeline,
        origin: CallContext,
        *,
        max_parallel: int = MAX_PARALLEL,
        max_items: int = MAX_ITEMS,
        wall_s: float = MAX_WALL_S,
        max_held_bytes: int = MAX_HELD_BYTES,
        needs_approval: Callable[[Tool], bool],
    ) -> None:
        self._run = run
        self._calls = calls
        self._relay = origin.relay
        self._progress_token = _get_meta(origin).get("progressToken")
        self._origin = _make_call_origin(origin)
        self._slots = asyncio.Semaphore(max_parallel)
        self._max_parallel = max_parallel
        self._max_items = max_items
        self._wall_s = wall_s
        self._max_held_bytes = max_held_bytes
        self._held_chars = 0
        self._needs_approval = needs_approval
        self.step_reports: dict[str, StepReport] = {}
        self.requested_approvals: dict[str, str] = {}
        """Steps that wait for approval, with the fingerprint of their calls."""

    async def run(self) -> None:
        """Run what is possible within the time limit; if cancelled, wait for calls to end."""
        deadline = time.monotonic() + self._wall_s
        for planned in self._run.plan:
            if (result := self._run.results.get(planned.id)) is not None:
                self.step_reports[planned.id] = _build_step_report(planned, result, earlier=True)
                self._held_chars += result.size
        self._held_chars += sum(
            part.size for parts in self._run.element_results.values() for part in parts.values()
        )
        pending = [planned for planned in self._run.plan if planned.id not in self._run.results]
        running: dict[asyncio.Task[StepReport], PlannedStep] = {}
        try:
            await self._report_progress("begins")
            while True:
                for planned in [planned for planned in pending if self._is_ready(planned.step)]:
                    pending.remove(planned)
                    running[
                        asyncio.create_task(self._run_step(planned), name=f"step {planned.id}")
                    ] = planned
                if not running:
                    break
                remaining_s = max(deadline - time.monotonic(), 0)
                finished_tasks, _ = await asyncio.wait(
                    running, timeout=remaining_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not finished_tasks:
                    await _cancel_tasks(running)
                    finished_tasks = set(running)
                for task in finished_tasks:
                    planned = running.pop(task)
                    if task.cancelled():
                        report = self._report_timeout(planned)
                    else:
                        report = task.result()
                    self.step_reports[report.id] = report
                    await self._report_progress(f"{report.id} {report.state}")
        finally:
            await _cancel_tasks(running)
        for planned in pending:
            self.step_reports[planned.id] = StepReport(
                planned.id, planned.tool.address, "waiting", reason=self._describe_wait(planned)
            )

    def _is_ready(self, step: WorkflowStep) -> bool:
        return all(
            name in self.step_reports and self.step_reports[name].state in _SETTLED_STATES
            for name in step.dependencies
        )

    def _describe_wait(self, planned: PlannedStep) -> str:
        names = sorted(
            name
            for name in planned.step.dependencies
            if name in self.step_reports and self._is_open(name)
        )
        return "it waits for " + ", ".join(names or sorted(planned.step.dependencies))

    def _is_open(self, name: str) -> bool:
        return self.step_reports[name].state not in _SETTLED_STATES

    def _report_timeout(self, planned: PlannedStep) -> StepReport:
        failure = StepFailure(
            "timeout",
            f"the workflow has run for {self._wall_s:g} s, which is the most;"
            " the calls of this step were cancelled",
            "Resume to go on with what is left, or do less in one workflow.",
            retryable=True,
        )
        done = len(self._run.element_results.get(planned.id, ()))
        kept = f"{done} of its elements are done and will not be run again" if done else ""
        return StepReport(
            planned.id, planned.tool.address, "failed", calls=done, reason=kept, failure=failure
        )

    # One step

    async def _run_step(self, planned: PlannedStep) -> StepReport:
        step = planned.step
        tool = planned.tool
        try:
            if missing := self._find_skipped_dependency(step):
                return StepReport(
                    step.id, tool.address, "skipped", reason=f"it uses {missing}, which was skipped"
                )
            # In a thread: resolving references and fingerprinting may take a while.
            step_calls = await asyncio.to_thread(
                self._build_calls, step, tool, time.monotonic() + RESOLVE_TIMEOUT_S
            )
            if step_calls is None:
                return StepReport(
                    step.id, tool.address, "skipped", reason="its condition does not hold"
                )
        except PorticoError as error:
            return StepReport(
                step.id, tool.address, "failed", failure=StepFailure.from_error(error)
            )
        fingerprint = _compute_fingerprint([step_call.fingerprint for step_call in step_calls])
        if (
            step_calls
            and self._needs_approval(tool)
            and self._run.granted_approvals.get(step.id) != fingerprint
        ):
            if len(self.requested_approvals) >= MAX_APPROVALS:
                return StepReport(
                    step.id,
                    tool.address,
                    "waiting",
                    reason="it needs approval too, and is asked for next",
                )
            self.requested_approvals[step.id] = fingerprint
            return StepReport(
                step.id,
                tool.address,
                "approval",
                pending_arguments=tuple(step_call.arguments for step_call in step_calls),
            )
        return await self._make_calls(planned, step_calls)

    def _find_skipped_dependency(self, step: WorkflowStep) -> str:
        """Return the skipped steps that a reference cannot do without, or an empty string."""
        for need in (need for reference in step.call_references for need in reference.needs):
            if all(
                name in self.step_reports and self.step_reports[name].state == "skipped"
                for name in need
            ):
                return " and ".join(sorted(need))
        return ""

    def _build_scope(self, step: WorkflowStep) -> dict[str, Any]:
        return {
            INPUTS: self._run.inputs,
            **{name: self.step_reports[name].value for name in step.dependencies},
        }

    def _build_calls(
        self, step: WorkflowStep, tool: Tool, deadline: float
    ) -> list[_StepCall] | None:
        """Build the calls of a step; None if its condition is false."""
        scope = self._build_scope(step)
        if not step.has_item_condition and not _is_condition_met(step, scope, deadline):
            return None
        if step.for_each is None:
            return [_build_call(step, tool, scope, None, deadline)]
        elements = resolve_references(step.for_each, scope, deadline)
        if not isinstance(elements, list):
            raise InvalidArguments(
                f"for_each found {_describe_type(elements)}, not a list",
                advice="Refer to a list: ${step.items}, or ${values(step)} for what an object"
                " holds.",
            )
        count = len(cast("list[Any]", elements))
        if count > self._max_items:
            raise InvalidArguments(
                f"for_each found {count:,} elements; {self._max_items} is the most",
                advice=f"Take a part: ${{step.items[0:{self._max_items}]}}.",
            )
        step_calls: list[_StepCall] = []
        chars = 0
        for number, element in enumerate(cast("list[Any]", elements)):
            item_scope = {**scope, ITEM: element, INDEX: number}
            if not step.has_item_condition or _is_condition_met(step, item_scope, deadline):
                step_calls.append(_build_call(step, tool, item_scope, number, deadline))
                chars += step_calls[-1].chars
                if chars > MAX_RESOLVED_CHARS:
                    raise make_too_large_error()
        return step_calls

    # Calls of a step

    async def _make_calls(self, planned: PlannedStep, rounds: Sequence[_StepCall]) -> StepReport:
        step = planned.step
        started = time.perf_counter()
        if step.for_each is None:
            outcome = await self._call_with_retry(planned, rounds[0])
            failures = [outcome] if isinstance(outcome, StepFailure) else []
            done = None if isinstance(outcome, StepFailure) else outcome
        else:
            made = self._run.element_results.setdefault(step.id, {})
            remaining = [call for call in rounds if call.fingerprint not in made]
            failures = await self._call_each(planned, remaining, made)
            done = None
            if not failures:
                parts = [made[call.fingerprint] for call in rounds]
                done = _combine_results(parts, time.perf_counter() - started)
        if done is not None:
            self._run.results[step.id] = done
            self._run.element_results.pop(step.id, None)
            return _build_step_report(planned, done)
        finished = sum(
            call.fingerprint in self._run.element_results.get(step.id, ()) for call in rounds
        )
        kept = ""
        if finished:
            kept = f"{finished} of {len(rounds)} elements are done and will not be run again"
        seconds = time.perf_counter() - started
        return StepReport(
            step.id,
            planned.tool.address,
            "failed",
            None,
            seconds,
            finished,
            reason=kept,
            failure=failures[0],
        )

    async def _call_each(
        self, planned: PlannedStep, rounds: Sequence[_StepCall], made: dict[str, StepResult]
    ) -> list[StepFailure]:
        """Make every call of a `for_each`; after a failure no further one starts."""
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

        workers = {asyncio.create_task(work()) for _ in range(min(self._max_parallel, len(rounds)))}
        try:
            for worker in list(workers):
                await worker
        finally:
            await _cancel_tasks(workers)
        return failures

    async def _call_with_retry(
        self, planned: PlannedStep, one: _StepCall
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
        self, planned: PlannedStep, one: _StepCall, started: float, number: int
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
        if self._held_chars > self._max_held_bytes:
            return self._make_too_large_failure(one.element), False
        repaired = tuple(map(str, get_marks(result).get(REPAIRED, ())))
        return StepResult(value, time.perf_counter() - started, number, size, repaired), False

    def _make_too_large_failure(self, element: int | None) -> StepFailure:
        return StepFailure(
            "too_large",
            "the call was made, and the answers of this workflow come to more than"
            f" {self._max_held_bytes // 1024**2} MiB",
            "Ask the tool for less, or do this in several workflows.",
            element=element,
        )

    async def _report_progress(self, what: str) -> None:
        if self._relay is None or self._progress_token is None:
            return
        settled = sum(report.state in _SETTLED_STATES for report in self.step_reports.values())
        message = f"{what} (run {self._run.id})"
        params = {
            "progressToken": self._progress_token,
            "progress": settled,
            "total": len(self._run.plan),
            "message": message,
        }
        await self._relay.notify("notifications/progress", params)


async def _cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel these tasks and wait until they have ended."""
    running = {task for task in tasks if not task.done()}
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def _is_condition_met(step: WorkflowStep, scope: Mapping[str, Any], deadline: float) -> bool:
    condition = step.condition
    if isinstance(condition, bool):
        return condition
    return bool(resolve_references(TextTemplate((condition,)), scope, deadline))


def _build_call(
    step: WorkflowStep, tool: Tool, scope: Mapping[str, Any], number: int | None, deadline: float
) -> _StepCall:
    arguments = resolve_references(step.arguments, scope, deadline)
    if not isinstance(arguments, dict):
        raise InvalidArguments(
            f"the reference that the arguments are found {_describe_type(arguments)},"
            " not an object",
            advice="Give the arguments one by one.",
        )
    chars = estimate_size(arguments, MAX_RESOLVED_CHARS)
    if chars >= MAX_RESOLVED_CHARS:
        raise make_too_large_error()
    fingerprint = _compute_fingerprint([tool.address, tool.hash, number, arguments])
    return _StepCall(number, cast("dict[str, Any]", arguments), fingerprint, scope, chars)


def _combine_results(parts: Sequence[StepResult], seconds: float) -> StepResult:
    return StepResult(
        [part.value for part in parts],
        seconds,
        sum(part.calls for part in parts),
        sum(part.size for part in parts) + 2,
        tuple(dict.fromkeys(note for part in parts for note in part.repairs)),
    )


def _build_step_report(
    planned: PlannedStep, done: StepResult, *, earlier: bool = False
) -> StepReport:
    notes = () if earlier else done.repairs
    return StepReport(
        planned.id,
        planned.tool.address,
        "done",
        done.value,
        done.seconds,
        done.calls,
        earlier,
        repairs=notes,
    )


def _explain_failure(
    failure: StepFailure, step: WorkflowStep, scope: Mapping[str, Any]
) -> StepFailure:
    """Add references that found nothing, a frequent cause of invalid arguments, to the advice."""
    empty = list(dict.fromkeys(_find_empty_references(step, scope)))
    if not empty:
        return failure
    advice = f"{', '.join(empty[:5])} found nothing. {failure.advice}".strip()
    return StepFailure(failure.kind, failure.message, advice, failure.retryable, failure.element)


def _find_empty_references(step: WorkflowStep, scope: Mapping[str, Any]) -> Iterator[str]:
    for reference in iter_references(step.arguments):
        if reference.plain_path is not None and reference.resolve(scope) is None:
            yield f"${{{reference.text}}}"


def _compute_fingerprint(value: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    try:
        for part in encode_compact(to_parts(value, ordered=True), _encode_sorted):
            digest.update(part.encode(errors="surrogatepass"))
    except (TypeError, ValueError, RecursionError):
        raise InvalidArguments(
            "the arguments cannot be written as JSON", advice="Refer to less at a time."
        ) from None
    return digest.hexdigest()


def _encode_sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _describe_type(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return type(value).__name__


def _get_meta(origin: CallContext) -> Mapping[str, Any]:
    meta = origin.extra.get("_meta")
    if isinstance(meta, dict):
        return cast("dict[str, Any]", meta)
    return {}


def _make_call_origin(origin: CallContext) -> CallContext:
    """Return the context of a step's calls, without the token for the run's progress."""
    meta = {key: value for key, value in _get_meta(origin).items() if key != "progressToken"}
    return CallContext(origin.caller, origin.relay, {"_meta": meta} if meta else {}, via="workflow")
