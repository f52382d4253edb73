"""Workflows as they are told: what became of a run, what it stopped for, and plans to be passed back. Pure.

A run that finished answers with the values of its last steps. One that did not says first what failed or asks for
approval, then how to go on, then what the steps that ran answered, as far as there is room: their whole values stay
with the run.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from portico.catalog.visible import literal, shown
from portico.disclosure import answer
from portico.disclosure.budget import cut, pack
from portico.disclosure.lines import counted, one_paragraph, room
from portico.disclosure.tokens import count
from portico.execution.json_stream import compact, parts, weight
from portico.execution.shape import described, infer
from portico.execution.workflow.planning.arranging import Input
from portico.execution.workflow.planning.suggesting import Suggestion
from portico.execution.workflow.report import Failure, Report, Told
from portico.upstream.backend import Raw

_TABLE_SHARE, _FAILURE_SHARE, _NOTE_SHARE = 0.125, 0.2, 0.1
"""Of a budget. What stands beside a large value has to stay short."""
_APPROVAL_SHARE = 0.7
"""Of what is left: whoever approves should see all of it."""
_FAILURE_TOKENS = (40, 300)
"""Of one failure: at least, at most."""
_NOTE_TOKENS = 80
_FRAME = 25
"""Tokens of our own words around the arguments of a call."""
_CALLS = 5
"""Calls of one step that are shown, if all of them are long."""
_LEAST, _MOST_VALUE = 30, 400
"""Tokens of one value; with fewer it would say nothing."""
_CHARS = 8
"""A token has seldom more: nobody counts what is plainly too long."""
_UNREACHED = frozenset(("unavailable", "timeout"))
_STATES = {"done": "done", "skipped": "skipped", "failed": "FAILED", "approval": "needs approval", "waiting": "not run"}


def told(report: Report, budget: int) -> Raw:
    """A run as a tool result."""
    return _finished(report, budget) if report.state == "finished" else _stopped(report, budget)


def suggested(plan: Suggestion, budget: int, *, asked_to_run: bool = False) -> Raw:
    """A plan, ready to be passed back, what it lacks, and why it was not run where that was asked."""
    notes = [
        f"Nothing here serves {literal(cut(one.clause, _NOTE_TOKENS))}"
        + (f"; nearest: {', '.join(map(shown, one.nearest))}" if one.nearest else "")
        for one in plan.unserved
    ]
    if plan.unused and plan.steps:
        words = ", ".join(literal(cut(one, _LEAST)) for one in plan.unused[:_CALLS])
        notes.append(f"You said {words}, and no step takes it: see whether these are the right tools.")
    if not plan.steps:
        lines = ["No plan: no tool here serves this.", *pack(notes, room(budget)).texts]
        return answer.text("\n".join([*lines, "Say it in other words, or look with search_tools."]))
    worked = f"; one like it has worked {counted(plan.worked, 'time')}" if plan.worked else ""
    why_not = f": {_held_back(plan)}" if asked_to_run else ""
    head = f"A plan of {counted(len(plan.steps), 'step')}, not run{why_not}{worked}:"
    steps = f"steps={literal(list(plan.steps))}"
    given = ", ".join(f"{literal(name)}: …" for name in (*plan.given, *plan.inputs))
    last = f"To run it: run_workflow(steps=[…]{f', inputs={{{given}}}' if given else ''}); change what you like first."
    lacking = [_lacking(name, one) for name, one in plan.inputs.items()]
    if lacking:
        lacking.insert(0, "Still missing, to be passed in inputs:")
    why = ["Why:", *(f"- {one_paragraph(line, _NOTE_TOKENS)}" for line in plan.why)] if plan.why else []
    rest = pack([*lacking, *notes, *why], room(budget, head, steps, last)).texts if lacking or notes or why else ()
    structured: Raw = {"steps": [dict(step) for step in plan.steps], "missing": list(plan.inputs)}
    return {**answer.text("\n".join([head, steps, *rest, last])), "structuredContent": structured}


def _held_back(plan: Suggestion) -> str:
    """Why a plan does not run at once."""
    some = ((plan.missing, "missing"), (plan.changing, "not marked read-only"))
    reasons = [
        f"{', '.join(map(shown, names[:_CALLS]))} {'is' if len(names) == 1 else 'are'} {what}"
        for names, what in some
        if names
    ]
    return "; ".join([*reasons, *(["not all that you said is in it"] if plan.unserved or plan.unused else [])])


def _lacking(name: str, one: Input) -> str:
    words = f" — {one_paragraph(one.description, _LEAST)}" if one.description else ""
    told_by = f" (may be told by {', '.join(map(shown, one.told_by[:3]))})" if one.told_by else ""
    return f"- {shown(name)}: {shown(one.type)}, for {', '.join(map(shown, one.needed_by[:5]))}{words}{told_by}"


def _finished(report: Report, budget: int) -> Raw:
    head = f"Workflow finished: {counted(len(report.steps), 'step')} in {_seconds(report.seconds)}."
    first = "\n".join(
        [head, *_table(report.steps, int(budget * _TABLE_SHARE)), *_notes(report, int(budget * _NOTE_SHARE))]
    )
    outputs = report.outputs
    whole: Any = next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs)
    left = room(budget, first)
    if not outputs:
        return answer.text(f"{first}\nNo step gave a value.")
    text = _written(whole, left)
    content = [answer.block(first), *([answer.block(text)] if text is not None else [])]
    if isinstance(whole, dict):
        return {"content": content, "structuredContent": whole}
    # What does not fit goes on as a value, so that it can be kept and read in parts.
    return {"content": content} if text is not None else {"content": content, "structuredContent": dict(outputs)}


def _stopped(report: Report, budget: int) -> Raw:
    by_state = {state: [one for one in report.steps if one.state == state] for state in _STATES}
    failed, asking = by_state["failed"], by_state["approval"]
    head = ", ".join(f"{len(some)} {_STATES[state]}" for state, some in by_state.items() if some)
    title = "Workflow failed" if failed else "Workflow stopped for approval"
    lines = [
        f"{title}: {head}, in {_seconds(report.seconds)}.",
        *_table(report.steps, int(budget * _TABLE_SHARE)),
        *_failures(failed, int(budget * _FAILURE_SHARE)),
        *_notes(report, int(budget * _NOTE_SHARE)),
    ]
    last = list(_way_on(report, bool(failed), bool(asking)))
    share = int(room(budget, *lines, *last) * _APPROVAL_SHARE) // len(asking) if asking else 0
    for one in asking:
        lines += _asked(one, max(share - _FRAME, _LEAST))
    lines += last
    lines += _values(by_state["done"], room(budget, *lines))
    result = answer.text("\n".join(lines))
    return {**result, "isError": True} if failed else result


def _table(steps: Sequence[Told], tokens: int) -> list[str]:
    packed = pack(map(_line, steps), tokens)
    left = steps[len(packed.texts) :]
    if not left:
        return list(packed.texts)
    rest = (f"{sum(one.state == state for one in left)} {word}" for state, word in _STATES.items())
    return [*packed.texts, f"… {len(left)} more: {', '.join(part for part in rest if part[0] != '0')}"]


def _line(one: Told) -> str:
    parts = [one.id, shown(one.tool), _STATES[one.state] + (" before" if one.earlier else "")]
    if one.state in ("done", "failed"):
        parts.append(_seconds(one.seconds))
    if one.calls != 1 and one.state == "done":
        parts.append(counted(one.calls, "call"))
    if one.reason:
        parts.append(one.reason)
    return "- " + " · ".join(parts)


def _failures(failed: Sequence[Told], tokens: int) -> list[str]:
    if not failed:
        return []
    most = min(max(tokens // len(failed), _FAILURE_TOKENS[0]), _FAILURE_TOKENS[1])
    packed = pack((_failure(one, most) for one in failed), tokens)
    more = [f"{counted(len(failed) - len(packed.texts), 'more step')} failed."] if packed.full else []
    return [*packed.texts, *more]


def _failure(one: Told, tokens: int) -> str:
    failure = one.failure or Failure("internal", "")
    # What went wrong is often said in a server's own words: those may hold anything, but make no lines like ours.
    message = answer.unsecret(failure.message) if failure.kind in _UNREACHED else failure.message
    element = f", element {failure.element}" if failure.element is not None else ""
    retryable = " (may work later)" if failure.retryable else ""
    said = one_paragraph(message, tokens * 2 // 3)
    advice = f"\n  {one_paragraph(failure.advice, tokens // 3)}" if failure.advice else ""
    return f"Step {one.id} failed{element}: {failure.kind}{retryable}: {said}{advice}"


def _asked(one: Told, tokens: int) -> Iterator[str]:
    tool = shown(one.tool)
    if len(one.would) == 1:
        yield f"Stopped for approval: step {one.id} would call {tool} with {_clipped(one.would[0], tokens)}"
        return
    yield f"Stopped for approval: step {one.id} would call {tool} {len(one.would)} times, with"
    each = max(tokens // min(len(one.would), _CALLS), _LEAST)
    packed = pack((f"  {_clipped(arguments, each)}" for arguments in one.would), tokens)
    yield from packed.texts
    if packed.full:
        yield f"  and {counted(len(one.would) - len(packed.texts), 'call')} more"


def _way_on(report: Report, failed: bool, asking: bool) -> Iterator[str]:
    if not report.run:
        yield "This run is too large to be kept: it cannot be continued."
        return
    way = f'resume="{report.run}"'
    minutes = round(report.kept_s / 60)
    if asking:
        yield f"To approve exactly these calls and go on: run_workflow({way}). Anything else would be asked again."
    if failed:
        also = ", and with what is approved by that" if asking else ""
        yield (
            f"To try again from there{also}: run_workflow({way}), with steps=[…] to replace those of the same id or to "
            "add some, or inputs={…}. What is done is not run again."
        )
    yield f"Kept for {minutes} minutes."


def _values(done: Sequence[Told], tokens: int) -> list[str]:
    if not done or tokens < _LEAST * 2:
        return []
    share = min(max(tokens // len(done) - 8, _LEAST), _MOST_VALUE)
    packed = pack((f"{one.id}: {_summary(one.value, share)}" for one in done), tokens - 40)
    more = [f"and {len(done) - len(packed.texts)} more"] if packed.full else []
    return ["What the steps that ran answered:", *packed.texts, *more]


def _summary(value: Any, tokens: int) -> str:
    """A value if it is short, else what it is made of."""
    if isinstance(value, str):
        return one_paragraph(value, tokens)
    text = _written(value, tokens)
    return text if text is not None else f"{described(infer(value), tokens, count)} (not shown whole)"


def _clipped(value: Any, tokens: int) -> str:
    """A value, or its beginning with its length: whoever approves has to know that there is more."""
    text, chars = "", 0
    for piece in compact(parts(value), literal):
        chars += len(piece)
        if len(text) < tokens * _CHARS:
            text += piece
    text = shown(text)
    short = cut(text, tokens)
    return short if short == text else f"{short} ({chars:,} characters in all)"


def _written(value: Any, tokens: int) -> str | None:
    """A value as text; None where it has more tokens than that."""
    if tokens <= 0 or weight(value, tokens * _CHARS) >= tokens * _CHARS:
        return None
    text = value if isinstance(value, str) else literal(value)
    return text if count(text) <= tokens else None


def _notes(report: Report, tokens: int) -> list[str]:
    said = [*map(str, report.warnings)]
    said += (f"step {one.id} was repaired: {'; '.join(one.repaired[:3])}" for one in report.steps if one.repaired)
    packed = pack((f"Note: {one_paragraph(line, min(tokens, _NOTE_TOKENS))}" for line in said), tokens)
    return [*packed.texts, f"{len(said) - len(packed.texts)} more notes."] if packed.full else list(packed.texts)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:,.0f} s"
