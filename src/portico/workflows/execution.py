"""Runs a plan once: every step after what it needs, independent ones at the same time, each call by
the pipeline.

A step that fails, or that would destroy something nobody approved, stops whatever depends on it and
nothing else. What is finished is written into the run at once, so that a run that is cut off can be
continued.
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
"""For the references of one step."""
MAX_APPROVALS = 8
"""Steps that one answer asks approval for: only what has been shown can be approved, and an answer
has its budget."""
_SETTLED_STATES = ("done", "skipped")
_FINAL_CODES = (INVALID_PARAMS, METHOD_NOT_FOUND)


@dataclass(frozen=True)
class _StepCall:
    """One call that a step makes."""

    element: int | None
    arguments: dict[str, Any]
    fingerprint: str
    scope: Mapping[str, Any]
    chars: int


class WorkflowExecution:
    """One way through a plan."""

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
        """What waits for approval: the step, and the fingerprint of its calls."""

    async def run(self) -> None:
        """Run what can be run, as long as there is time. Cancelled, it returns when every call has
        ended."""
        ends = time.monotonic() + self._wall_s
        for planned in self._run.plan:
            if (done := self._run.results.get(planned.id)) is not None:
                self.step_reports[planned.id] = _build_step_report(planned, done, earlier=True)
                self._held_chars += done.size
        self._held_chars += sum(
            one.size for some in self._run.element_results.values() for one in some.values()
        )
        left = [planned for planned in self._run.plan if planned.id not in self._run.results]
        at_work: dict[asyncio.Task[StepReport], PlannedStep] = {}
        try:
            await self._report_progress("begins")
            while True:
                for planned in [planned for planned in left if self._is_ready(planned.step)]:
                    left.remove(planned)
                    at_work[
                        asyncio.create_task(self._run_step(planned), name=f"step {planned.id}")
                    ] = planned
                if not at_work:
                    break
                left_s = max(ends - time.monotonic(), 0)
                over, _ = await asyncio.wait(
                    at_work, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not over:
                    await _cancel_tasks(at_work)
                    over = set(at_work)
                for task in over:
                    planned = at_work.pop(task)
                    if task.cancelled():
                        told = self._report_timeout(planned)
                    else:
                        told = task.result()
                    self.step_reports[told.id] = told
                    await self._report_progress(f"{told.id} {told.state}")
        finally:
            await _cancel_tasks(at_work)
        for planned in left:
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
            f"the workflow has run for {self._wall_s:g} s, which is the most; the calls of this step were cancelled",
            "Resume to go on with what is left, or do less in one workflow.",
            retryable=True,
        )
        made = len(self._run.element_results.get(planned.id, ()))
        if made:
            kept = f"{made} of its elements are done and will not be run again"
        else:
            kept = ""
        return StepReport(
            planned.id, planned.tool.address, "failed", calls=made, reason=kept, failure=failure
        )

    # --- one step

    async def _run_step(self, planned: PlannedStep) -> StepReport:
        step = planned.step
        tool = planned.tool
        try:
            if missing := self._find_skipped_dependency(step):
                return StepReport(
                    step.id, tool.address, "skipped", reason=f"it uses {missing}, which was skipped"
                )
            # What references find, and the fingerprints of that, may take a while.
            rounds = await asyncio.to_thread(
                self._build_calls, step, tool, time.monotonic() + RESOLVE_TIMEOUT_S
            )
            if rounds is None:
                return StepReport(
                    step.id, tool.address, "skipped", reason="its condition does not hold"
                )
        except PorticoError as error:
            return StepReport(
                step.id, tool.address, "failed", failure=StepFailure.from_error(error)
            )
        mark = _compute_fingerprint([one.fingerprint for one in rounds])
        if (
            rounds
            and self._needs_approval(tool)
            and self._run.granted_approvals.get(step.id) != mark
        ):
            if len(self.requested_approvals) >= MAX_APPROVALS:
                return StepReport(
                    step.id,
                    tool.address,
                    "waiting",
                    reason="it needs approval too, and is asked for next",
                )
            self.requested_approvals[step.id] = mark
            return StepReport(
                step.id,
                tool.address,
                "approval",
                pending_arguments=tuple(one.arguments for one in rounds),
            )
        return await self._make_calls(planned, rounds)

    def _find_skipped_dependency(self, step: WorkflowStep) -> str:
        """A skipped step that one of the references has nothing without."""
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
        """The calls of a step; None where its condition does not hold. Only reads what others have
        left."""
        scope = self._build_scope(step)
        if not step.has_item_condition and not _is_condition_met(step, scope, deadline):
            return None
        if step.for_each is None:
            return [_build_call(step, tool, scope, None, deadline)]
        elements = resolve_references(step.for_each, scope, deadline)
        if not isinstance(elements, list):
            raise InvalidArguments(
                f"for_each found {_describe_type(elements)}, not a list",
                advice="Refer to a list: ${step.items}, or ${values(step)} for what an object holds.",
            )
        if len(cast("list[Any]", elements)) > self._max_items:
            raise InvalidArguments(
                f"for_each found {len(cast('list[Any]', elements)):,} elements; {self._max_items} is the most",
                advice=f"Take a part: ${{step.items[0:{self._max_items}]}}.",
            )
        rounds: list[_StepCall] = []
        chars = 0
        for number, element in enumerate(cast("list[Any]", elements)):
            inside = {**scope, ITEM: element, INDEX: number}
            if not step.has_item_condition or _is_condition_met(step, inside, deadline):
                rounds.append(_build_call(step, tool, inside, number, deadline))
                chars += rounds[-1].chars
                if chars > MAX_RESOLVED_CHARS:
                    raise make_too_large_error()
        return rounds

    # --- its calls

    async def _make_calls(self, planned: PlannedStep, rounds: Sequence[_StepCall]) -> StepReport:
        step = planned.step
        started = time.perf_counter()
        if step.for_each is None:
            outcome = await self._call_with_retry(planned, rounds[0])
            if isinstance(outcome, StepFailure):
                failures = [outcome]
            else:
                failures = []
            if isinstance(outcome, StepFailure):
                done = None
            else:
                done = outcome
        else:
            made = self._run.element_results.setdefault(step.id, {})
            failures = await self._call_each(
                planned, [one for one in rounds if one.fingerprint not in made], made
            )
            if failures:
                done = None
            else:
                done = _combine_results(
                    [made[one.fingerprint] for one in rounds], time.perf_counter() - started
                )
        if done is not None:
            self._run.results[step.id] = done
            self._run.element_results.pop(step.id, None)
            return _build_step_report(planned, done)
        finished = sum(
            one.fingerprint in self._run.element_results.get(step.id, ()) for one in rounds
        )
        if finished:
            kept = f"{finished} of {len(rounds)} elements are done and will not be run again"
        else:
            kept = ""
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
        """Every call of a `for_each`; after a failure no other begins."""
        pending = iter(rounds)
        failures: list[StepFailure] = []

        async def work() -> None:
            for one in pending:
                outcome = await self._call_with_retry(planned, one)
                if isinstance(outcome, StepFailure):
                    failures.append(outcome)
                else:
                    made[one.fingerprint] = outcome
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
                outcome, again = await self._attempt_call(planned, one, started, attempt + 1)
            if not again:
                break
        assert outcome is not None
        return outcome

    async def _attempt_call(
        self, planned: PlannedStep, one: _StepCall, started: float, number: int
    ) -> tuple[StepResult | StepFailure, bool]:
        """What one call came to, and whether another could come to something else."""
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
            f"the call was made, and the answers of this workflow come to more than {self._max_held_bytes // 1024**2} MiB",
            "Ask the tool for less, or do this in several workflows.",
            element=element,
        )

    async def _report_progress(self, what: str) -> None:
        if self._relay is None or self._progress_token is None:
            return
        settled = sum(told.state in _SETTLED_STATES for told in self.step_reports.values())
        message = f"{what} (run {self._run.id})"
        params = {
            "progressToken": self._progress_token,
            "progress": settled,
            "total": len(self._run.plan),
            "message": message,
        }
        await self._relay.notify("notifications/progress", params)


async def _cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """End these tasks, and return when they have ended."""
    left = {task for task in tasks if not task.done()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)


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
            f"the reference that the arguments are found {_describe_type(arguments)}, not an object",
            advice="Give the arguments one by one.",
        )
    chars = estimate_size(arguments, MAX_RESOLVED_CHARS)
    if chars >= MAX_RESOLVED_CHARS:
        raise make_too_large_error()
    mark = _compute_fingerprint([tool.address, tool.hash, number, arguments])
    return _StepCall(number, cast("dict[str, Any]", arguments), mark, scope, chars)


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
    if earlier:
        notes = ()
    else:
        notes = done.repairs
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
    """Arguments that do not fit are often references that found nothing."""
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
        for piece in encode_compact(to_parts(value, ordered=True), _encode_sorted):
            digest.update(piece.encode(errors="surrogatepass"))
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
    """Where the calls come from: progress of several at once cannot be told as that of one, so it
    is not asked for."""
    meta = {key: value for key, value in _get_meta(origin).items() if key != "progressToken"}
    return CallContext(origin.caller, origin.relay, {"_meta": meta} if meta else {}, via="workflow")
