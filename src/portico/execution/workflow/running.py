"""Runs a plan once: every step after what it needs, independent ones at the same time, each call by the pipeline.

A step that fails, or that would destroy something nobody approved, stops whatever depends on it and nothing else. What
is finished is written into the run at once, so that a run that is cut off can be continued.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.tool import Tool
from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, InvalidArguments, PorticoError, RemoteError
from portico.execution.call import Calls, Origin
from portico.execution.json_stream import compact, parts, weight
from portico.execution.marks import REPAIRED, marks_of
from portico.execution.workflow.answers import failure_of, value_and_size
from portico.execution.workflow.checking import Planned
from portico.execution.workflow.limits import HELD_BYTES, MAX_ITEMS, PARALLEL, WALL_S
from portico.execution.workflow.references import (
    INDEX,
    INPUTS,
    ITEM,
    MAX_FILLED,
    Template,
    filled,
    references,
    too_large,
)
from portico.execution.workflow.report import Failure, Told
from portico.execution.workflow.runs import Done, Run
from portico.execution.workflow.steps import Step

FILLING_S = 5.0
"""For the references of one step."""
MAX_ASKED = 8
"""Steps that one answer asks approval for: only what has been shown can be approved, and an answer has its budget."""
_SETTLED = ("done", "skipped")
_FINAL_CODES = (INVALID_PARAMS, METHOD_NOT_FOUND)


@dataclass(frozen=True)
class _Round:
    """One call that a step makes."""

    number: int | None
    arguments: dict[str, Any]
    mark: str
    scope: Mapping[str, Any]
    chars: int


class Execution:
    """One way through a plan."""

    def __init__(
        self,
        run: Run,
        calls: Calls,
        origin: Origin,
        *,
        parallel: int = PARALLEL,
        items: int = MAX_ITEMS,
        wall_s: float = WALL_S,
        held_bytes: int = HELD_BYTES,
        destructive: Callable[[Tool], bool],
    ) -> None:
        self._run = run
        self._calls = calls
        self._relay, self._token = origin.relay, _meta(origin).get("progressToken")
        self._origin = _inner(origin)
        self._slots = asyncio.Semaphore(parallel)
        self._parallel, self._items = parallel, items
        self._wall_s, self._held_bytes = wall_s, held_bytes
        self._held = 0
        self._destructive = destructive
        self.told: dict[str, Told] = {}
        self.shown: dict[str, str] = {}
        """What waits for approval: the step, and the fingerprint of its calls."""

    async def run(self) -> None:
        """Run what can be run, as long as there is time. Cancelled, it returns when every call has ended."""
        ends = time.monotonic() + self._wall_s
        for planned in self._run.plan:
            if (done := self._run.done.get(planned.id)) is not None:
                self.told[planned.id] = _told(planned, done, earlier=True)
                self._held += done.size
        self._held += sum(one.size for some in self._run.elements.values() for one in some.values())
        left = [planned for planned in self._run.plan if planned.id not in self._run.done]
        at_work: dict[asyncio.Task[Told], Planned] = {}
        try:
            await self._progress("begins")
            while True:
                for planned in [planned for planned in left if self._ready(planned.step)]:
                    left.remove(planned)
                    at_work[asyncio.create_task(self._step(planned), name=f"step {planned.id}")] = planned
                if not at_work:
                    break
                left_s = max(ends - time.monotonic(), 0)
                over, _ = await asyncio.wait(at_work, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                if not over:
                    await _ended(at_work)
                    over = set(at_work)
                for task in over:
                    planned = at_work.pop(task)
                    told = self._late(planned) if task.cancelled() else task.result()
                    self.told[told.id] = told
                    await self._progress(f"{told.id} {told.state}")
        finally:
            await _ended(at_work)
        for planned in left:
            self.told[planned.id] = Told(planned.id, planned.tool.address, "waiting", reason=self._awaited(planned))

    def _ready(self, step: Step) -> bool:
        return all(name in self.told and self.told[name].state in _SETTLED for name in step.before)

    def _awaited(self, planned: Planned) -> str:
        names = sorted(name for name in planned.step.before if name in self.told and self._is_open(name))
        return "it waits for " + ", ".join(names or sorted(planned.step.before))

    def _is_open(self, name: str) -> bool:
        return self.told[name].state not in _SETTLED

    def _late(self, planned: Planned) -> Told:
        failure = Failure(
            "timeout",
            f"the workflow has run for {self._wall_s:g} s, which is the most; the calls of this step were cancelled",
            "Resume to go on with what is left, or do less in one workflow.",
            retryable=True,
        )
        made = len(self._run.elements.get(planned.id, ()))
        kept = f"{made} of its elements are done and will not be run again" if made else ""
        return Told(planned.id, planned.tool.address, "failed", calls=made, reason=kept, failure=failure)

    # --- one step

    async def _step(self, planned: Planned) -> Told:
        step, tool = planned.step, planned.tool
        try:
            if missing := self._missing(step):
                return Told(step.id, tool.address, "skipped", reason=f"it uses {missing}, which was skipped")
            # What references find, and the fingerprints of that, may take a while.
            rounds = await asyncio.to_thread(self._rounds, step, tool, time.monotonic() + FILLING_S)
            if rounds is None:
                return Told(step.id, tool.address, "skipped", reason="its condition does not hold")
        except PorticoError as error:
            return Told(step.id, tool.address, "failed", failure=Failure.of(error))
        mark = _fingerprint([one.mark for one in rounds])
        if rounds and self._destructive(tool) and self._run.approved.get(step.id) != mark:
            if len(self.shown) >= MAX_ASKED:
                return Told(step.id, tool.address, "waiting", reason="it needs approval too, and is asked for next")
            self.shown[step.id] = mark
            return Told(step.id, tool.address, "approval", would=tuple(one.arguments for one in rounds))
        return await self._made(planned, rounds)

    def _missing(self, step: Step) -> str:
        """A skipped step that one of the references has nothing without."""
        for need in (need for reference in step.uses for need in reference.needs):
            if all(name in self.told and self.told[name].state == "skipped" for name in need):
                return " and ".join(sorted(need))
        return ""

    def _scope(self, step: Step) -> dict[str, Any]:
        return {INPUTS: self._run.inputs, **{name: self.told[name].value for name in step.before}}

    def _rounds(self, step: Step, tool: Tool, until: float) -> list[_Round] | None:
        """The calls of a step; None where its condition does not hold. Only reads what others have left."""
        scope = self._scope(step)
        if not step.by_item and not _holds(step, scope, until):
            return None
        if step.each is None:
            return [_round(step, tool, scope, None, until)]
        elements = filled(step.each, scope, until)
        if not isinstance(elements, list):
            raise InvalidArguments(
                f"for_each found {_kind(elements)}, not a list",
                advice="Refer to a list: ${step.items}, or ${values(step)} for what an object holds.",
            )
        if len(cast("list[Any]", elements)) > self._items:
            raise InvalidArguments(
                f"for_each found {len(cast('list[Any]', elements)):,} elements; {self._items} is the most",
                advice=f"Take a part: ${{step.items[0:{self._items}]}}.",
            )
        rounds: list[_Round] = []
        chars = 0
        for number, element in enumerate(cast("list[Any]", elements)):
            inside = {**scope, ITEM: element, INDEX: number}
            if not step.by_item or _holds(step, inside, until):
                rounds.append(_round(step, tool, inside, number, until))
                chars += rounds[-1].chars
                if chars > MAX_FILLED:
                    raise too_large()
        return rounds

    # --- its calls

    async def _made(self, planned: Planned, rounds: Sequence[_Round]) -> Told:
        step, started = planned.step, time.perf_counter()
        if step.each is None:
            outcome = await self._call(planned, rounds[0])
            failures = [outcome] if isinstance(outcome, Failure) else []
            done = None if isinstance(outcome, Failure) else outcome
        else:
            made = self._run.elements.setdefault(step.id, {})
            failures = await self._each(planned, [one for one in rounds if one.mark not in made], made)
            done = None if failures else _gathered([made[one.mark] for one in rounds], time.perf_counter() - started)
        if done is not None:
            self._run.done[step.id] = done
            self._run.elements.pop(step.id, None)
            return _told(planned, done)
        finished = sum(one.mark in self._run.elements.get(step.id, ()) for one in rounds)
        kept = f"{finished} of {len(rounds)} elements are done and will not be run again" if finished else ""
        seconds = time.perf_counter() - started
        return Told(step.id, planned.tool.address, "failed", None, seconds, finished, reason=kept, failure=failures[0])

    async def _each(self, planned: Planned, rounds: Sequence[_Round], made: dict[str, Done]) -> list[Failure]:
        """Every call of a `for_each`; after a failure no other begins."""
        pending = iter(rounds)
        failures: list[Failure] = []

        async def work() -> None:
            for one in pending:
                outcome = await self._call(planned, one)
                if isinstance(outcome, Failure):
                    failures.append(outcome)
                else:
                    made[one.mark] = outcome
                if failures:
                    return

        workers = {asyncio.create_task(work()) for _ in range(min(self._parallel, len(rounds)))}
        try:
            for worker in list(workers):
                await worker
        finally:
            await _ended(workers)
        return failures

    async def _call(self, planned: Planned, one: _Round) -> Done | Failure:
        retry, started = planned.step.retry, time.perf_counter()
        outcome: Done | Failure | None = None
        for attempt in range(retry.attempts + 1):
            if attempt:
                await asyncio.sleep(retry.delay_s * 2 ** (attempt - 1))
            async with self._slots:
                outcome, again = await self._attempt(planned, one, started, attempt + 1)
            if not again:
                break
        assert outcome is not None
        return outcome

    async def _attempt(self, planned: Planned, one: _Round, started: float, number: int) -> tuple[Done | Failure, bool]:
        """What one call came to, and whether another could come to something else."""
        try:
            result = await self._calls.call(planned.tool, one.arguments, self._origin)
        except PorticoError as error:
            failure = Failure.of(error, one.number)
            if isinstance(error, InvalidArguments):
                return _explained(failure, planned.step, one.scope), False
            return failure, error.retryable or (isinstance(error, RemoteError) and error.code not in _FINAL_CODES)
        if (failure := failure_of(result, one.number)) is not None:
            return failure, failure.kind == "tool_error"
        value, size = await value_and_size(result)
        self._held += size
        if self._held > self._held_bytes:
            return self._too_much(one.number), False
        repaired = tuple(map(str, marks_of(result).get(REPAIRED, ())))
        return Done(value, time.perf_counter() - started, number, size, repaired), False

    def _too_much(self, element: int | None) -> Failure:
        return Failure(
            "too_large",
            f"the call was made, and the answers of this workflow come to more than {self._held_bytes // 1024**2} MiB",
            "Ask the tool for less, or do this in several workflows.",
            element=element,
        )

    async def _progress(self, what: str) -> None:
        if self._relay is None or self._token is None:
            return
        settled = sum(told.state in _SETTLED for told in self.told.values())
        message = f"{what} (run {self._run.id})"
        params = {"progressToken": self._token, "progress": settled, "total": len(self._run.plan), "message": message}
        await self._relay.notify("notifications/progress", params)


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """End these tasks, and return when they have ended."""
    left = {task for task in tasks if not task.done()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)


def _holds(step: Step, scope: Mapping[str, Any], until: float) -> bool:
    condition = step.condition
    return condition if isinstance(condition, bool) else bool(filled(Template((condition,)), scope, until))


def _round(step: Step, tool: Tool, scope: Mapping[str, Any], number: int | None, until: float) -> _Round:
    arguments = filled(step.arguments, scope, until)
    if not isinstance(arguments, dict):
        raise InvalidArguments(
            f"the reference that the arguments are found {_kind(arguments)}, not an object",
            advice="Give the arguments one by one.",
        )
    chars = weight(arguments, MAX_FILLED)
    if chars >= MAX_FILLED:
        raise too_large()
    mark = _fingerprint([tool.address, tool.hash, number, arguments])
    return _Round(number, cast("dict[str, Any]", arguments), mark, scope, chars)


def _gathered(parts: Sequence[Done], seconds: float) -> Done:
    return Done(
        [part.value for part in parts],
        seconds,
        sum(part.calls for part in parts),
        sum(part.size for part in parts) + 2,
        tuple(dict.fromkeys(note for part in parts for note in part.repaired)),
    )


def _told(planned: Planned, done: Done, *, earlier: bool = False) -> Told:
    notes = () if earlier else done.repaired
    return Told(planned.id, planned.tool.address, "done", done.value, done.seconds, done.calls, earlier, repaired=notes)


def _explained(failure: Failure, step: Step, scope: Mapping[str, Any]) -> Failure:
    """Arguments that do not fit are often references that found nothing."""
    empty = list(dict.fromkeys(_empty(step, scope)))
    if not empty:
        return failure
    advice = f"{', '.join(empty[:5])} found nothing. {failure.advice}".strip()
    return Failure(failure.kind, failure.message, advice, failure.retryable, failure.element)


def _empty(step: Step, scope: Mapping[str, Any]) -> Iterator[str]:
    for reference in references(step.arguments):
        if reference.way is not None and reference.found(scope) is None:
            yield f"${{{reference.text}}}"


def _fingerprint(value: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    try:
        for piece in compact(parts(value, ordered=True), _ordered):
            digest.update(piece.encode(errors="surrogatepass"))
    except (TypeError, ValueError, RecursionError):
        raise InvalidArguments("the arguments cannot be written as JSON", advice="Refer to less at a time.") from None
    return digest.hexdigest()


def _ordered(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else type(value).__name__


def _meta(origin: Origin) -> Mapping[str, Any]:
    meta = origin.extra.get("_meta")
    return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}


def _inner(origin: Origin) -> Origin:
    """Where the calls come from: progress of several at once cannot be told as that of one, so it is not asked for."""
    meta = {key: value for key, value in _meta(origin).items() if key != "progressToken"}
    return Origin(origin.caller, origin.relay, {"_meta": meta} if meta else {}, way="workflow")
