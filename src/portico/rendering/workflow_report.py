"""Workflows as they are told: what became of a run, what it stopped for, and plans to be passed
back. Pure.

A run that finished answers with the values of its last steps. One that did not says first what
failed or asks for approval, then how to go on, then what the steps that ran answered, as far as
there is room: their whole values stay with the run.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from portico.catalog.visible_text import sanitize_text, to_literal
from portico.json_text.part_stream import encode_compact, estimate_size, to_parts
from portico.rendering import tool_result
from portico.rendering.budget import pack, truncate
from portico.rendering.lines import compute_remaining_tokens, format_count, to_short_line
from portico.rendering.token_count import count_tokens
from portico.results.shape import infer_shape, render_shape
from portico.upstream.backend import Raw
from portico.workflows.planning.planner import PlanSuggestion
from portico.workflows.planning.step_builder import PlanInput
from portico.workflows.report import StepFailure, StepReport, WorkflowReport

_TABLE_SHARE = 0.125
_FAILURE_SHARE = 0.2
_NOTE_SHARE = 0.1
"""Of a budget. What stands beside a large value has to stay short."""
_APPROVAL_SHARE = 0.7
"""Of what is left: whoever approves should see all of it."""
_FAILURE_TOKENS = (40, 300)
"""Of one failure: at least, at most."""
_MAX_NOTE_TOKENS = 80
_CALL_FRAME_TOKENS = 25
"""Tokens of our own words around the arguments of a call."""
_MAX_CALLS = 5
"""Calls of one step that are shown, if all of them are long."""
_MIN_VALUE_TOKENS = 30
_MAX_VALUE_TOKENS = 400
"""Tokens of one value; with fewer it would say nothing."""
_CHARS_PER_TOKEN = 8
"""A token has seldom more: nobody counts what is plainly too long."""
_UNREACHABLE_KINDS = frozenset(("unavailable", "timeout"))
_STATE_LABELS = {
    "done": "done",
    "skipped": "skipped",
    "failed": "FAILED",
    "approval": "needs approval",
    "waiting": "not run",
}


def make_report_result(report: WorkflowReport, budget: int) -> Raw:
    """A run as a tool result."""
    if report.state == "finished":
        return _make_finished_result(report, budget)
    return _make_stopped_result(report, budget)


def make_plan_result(plan: PlanSuggestion, budget: int, *, run_requested: bool = False) -> Raw:
    """A plan, ready to be passed back, what it lacks, and why it was not run where that was asked."""
    notes = [
        f"Nothing here serves {to_literal(truncate(one.clause, _MAX_NOTE_TOKENS))}"
        + (f"; nearest: {', '.join(map(sanitize_text, one.nearest))}" if one.nearest else "")
        for one in plan.unserved
    ]
    if plan.unused and plan.steps:
        words = ", ".join(
            to_literal(truncate(one, _MIN_VALUE_TOKENS)) for one in plan.unused[:_MAX_CALLS]
        )
        notes.append(
            f"You said {words}, and no step takes it: see whether these are the right tools."
        )
    if not plan.steps:
        lines = [
            "No plan: no tool here serves this.",
            *pack(notes, compute_remaining_tokens(budget)).texts,
        ]
        return tool_result.make_text_result(
            "\n".join([*lines, "Say it in other words, or look with search_tools."])
        )
    if plan.success_count:
        worked = f"; one like it has worked {format_count(plan.success_count, 'time')}"
    else:
        worked = ""
    if run_requested:
        why_not = f": {_explain_not_run(plan)}"
    else:
        why_not = ""
    head = f"A plan of {format_count(len(plan.steps), 'step')}, not run{why_not}{worked}:"
    steps = f"steps={to_literal(list(plan.steps))}"
    given = ", ".join(f"{to_literal(name)}: …" for name in (*plan.given_inputs, *plan.inputs))
    last = f"To run it: run_workflow(steps=[…]{f', inputs={{{given}}}' if given else ''}); change what you like first."
    lacking = [_render_missing_input(name, one) for name, one in plan.inputs.items()]
    if lacking:
        lacking.insert(0, "Still missing, to be passed in inputs:")
    if plan.why:
        why = ["Why:", *(f"- {to_short_line(line, _MAX_NOTE_TOKENS)}" for line in plan.why)]
    else:
        why = []
    if lacking or notes or why:
        rest = pack(
            [*lacking, *notes, *why], compute_remaining_tokens(budget, head, steps, last)
        ).texts
    else:
        rest = ()
    structured: Raw = {"steps": [dict(step) for step in plan.steps], "missing": list(plan.inputs)}
    return {
        **tool_result.make_text_result("\n".join([head, steps, *rest, last])),
        "structuredContent": structured,
    }


def _explain_not_run(plan: PlanSuggestion) -> str:
    """Why a plan does not run at once."""
    some = ((plan.missing_inputs, "missing"), (plan.changing_tools, "not marked read-only"))
    reasons = [
        f"{', '.join(map(sanitize_text, names[:_MAX_CALLS]))} {'is' if len(names) == 1 else 'are'} {what}"
        for names, what in some
        if names
    ]
    return "; ".join(
        [*reasons, *(["not all that you said is in it"] if plan.unserved or plan.unused else [])]
    )


def _render_missing_input(name: str, missing: PlanInput) -> str:
    if missing.description:
        words = f" — {to_short_line(missing.description, _MIN_VALUE_TOKENS)}"
    else:
        words = ""
    if missing.source_tools:
        told_by = f" (may be told by {', '.join(map(sanitize_text, missing.source_tools[:3]))})"
    else:
        told_by = ""
    return f"- {sanitize_text(name)}: {sanitize_text(missing.type)}, for {', '.join(map(sanitize_text, missing.needed_by[:5]))}{words}{told_by}"


def _make_finished_result(report: WorkflowReport, budget: int) -> Raw:
    head = f"Workflow finished: {format_count(len(report.steps), 'step')} in {_format_seconds(report.seconds)}."
    first = "\n".join(
        [
            head,
            *_render_step_table(report.steps, int(budget * _TABLE_SHARE)),
            *_render_notes(report, int(budget * _NOTE_SHARE)),
        ]
    )
    outputs = report.outputs
    if len(outputs) == 1:
        whole: Any = next(iter(outputs.values()))
    else:
        whole = dict(outputs)
    left = compute_remaining_tokens(budget, first)
    if not outputs:
        return tool_result.make_text_result(f"{first}\nNo step gave a value.")
    text = _render_if_fits(whole, left)
    content = [
        tool_result.make_text_block(first),
        *([tool_result.make_text_block(text)] if text is not None else []),
    ]
    if isinstance(whole, dict):
        return {"content": content, "structuredContent": whole}
    # What does not fit goes on as a value, so that it can be kept and read in parts.
    if text is not None:
        return {"content": content}
    return {"content": content, "structuredContent": dict(outputs)}


def _make_stopped_result(report: WorkflowReport, budget: int) -> Raw:
    by_state = {
        state: [one for one in report.steps if one.state == state] for state in _STATE_LABELS
    }
    failed = by_state["failed"]
    asking = by_state["approval"]
    head = ", ".join(
        f"{len(some)} {_STATE_LABELS[state]}" for state, some in by_state.items() if some
    )
    if failed:
        title = "Workflow failed"
    else:
        title = "Workflow stopped for approval"
    lines = [
        f"{title}: {head}, in {_format_seconds(report.seconds)}.",
        *_render_step_table(report.steps, int(budget * _TABLE_SHARE)),
        *_render_failures(failed, int(budget * _FAILURE_SHARE)),
        *_render_notes(report, int(budget * _NOTE_SHARE)),
    ]
    last = list(_render_resume(report, bool(failed), bool(asking)))
    if asking:
        share = int(compute_remaining_tokens(budget, *lines, *last) * _APPROVAL_SHARE) // len(
            asking
        )
    else:
        share = 0
    for one in asking:
        lines += _render_approval(one, max(share - _CALL_FRAME_TOKENS, _MIN_VALUE_TOKENS))
    lines += last
    lines += _render_values(by_state["done"], compute_remaining_tokens(budget, *lines))
    result = tool_result.make_text_result("\n".join(lines))
    if failed:
        return {**result, "isError": True}
    return result


def _render_step_table(steps: Sequence[StepReport], max_tokens: int) -> list[str]:
    packed = pack(map(_render_step, steps), max_tokens)
    left = steps[len(packed.texts) :]
    if not left:
        return list(packed.texts)
    rest = (
        f"{sum(one.state == state for one in left)} {word}" for state, word in _STATE_LABELS.items()
    )
    return [
        *packed.texts,
        f"… {len(left)} more: {', '.join(part for part in rest if part[0] != '0')}",
    ]


def _render_step(step: StepReport) -> str:
    parts = [
        step.id,
        sanitize_text(step.tool),
        _STATE_LABELS[step.state] + (" before" if step.is_from_earlier else ""),
    ]
    if step.state in ("done", "failed"):
        parts.append(_format_seconds(step.seconds))
    if step.calls != 1 and step.state == "done":
        parts.append(format_count(step.calls, "call"))
    if step.reason:
        parts.append(step.reason)
    return "- " + " · ".join(parts)


def _render_failures(failed_steps: Sequence[StepReport], max_tokens: int) -> list[str]:
    if not failed_steps:
        return []
    most = min(max(max_tokens // len(failed_steps), _FAILURE_TOKENS[0]), _FAILURE_TOKENS[1])
    packed = pack((_render_failure(one, most) for one in failed_steps), max_tokens)
    if packed.is_full:
        more = [f"{format_count(len(failed_steps) - len(packed.texts), 'more step')} failed."]
    else:
        more = []
    return [*packed.texts, *more]


def _render_failure(step: StepReport, max_tokens: int) -> str:
    failure = step.failure or StepFailure("internal", "")
    # What went wrong is often said in a server's own words: those may hold anything, but make no
    # lines like ours.
    if failure.kind in _UNREACHABLE_KINDS:
        message = tool_result.mask_secrets(failure.message)
    else:
        message = failure.message
    if failure.element is not None:
        element = f", element {failure.element}"
    else:
        element = ""
    if failure.retryable:
        retryable = " (may work later)"
    else:
        retryable = ""
    said = to_short_line(message, max_tokens * 2 // 3)
    if failure.advice:
        advice = f"\n  {to_short_line(failure.advice, max_tokens // 3)}"
    else:
        advice = ""
    return f"Step {step.id} failed{element}: {failure.kind}{retryable}: {said}{advice}"


def _render_approval(step: StepReport, max_tokens: int) -> Iterator[str]:
    tool = sanitize_text(step.tool)
    if len(step.pending_arguments) == 1:
        yield f"Stopped for approval: step {step.id} would call {tool} with {_clip_value(step.pending_arguments[0], max_tokens)}"
        return
    yield f"Stopped for approval: step {step.id} would call {tool} {len(step.pending_arguments)} times, with"
    each = max(max_tokens // min(len(step.pending_arguments), _MAX_CALLS), _MIN_VALUE_TOKENS)
    packed = pack(
        (f"  {_clip_value(arguments, each)}" for arguments in step.pending_arguments), max_tokens
    )
    yield from packed.texts
    if packed.is_full:
        yield f"  and {format_count(len(step.pending_arguments) - len(packed.texts), 'call')} more"


def _render_resume(report: WorkflowReport, failed: bool, needs_approval: bool) -> Iterator[str]:
    if not report.run_id:
        yield "This run is too large to be kept: it cannot be continued."
        return
    way = f'resume="{report.run_id}"'
    minutes = round(report.ttl_s / 60)
    if needs_approval:
        yield f"To approve exactly these calls and go on: run_workflow({way}). Anything else would be asked again."
    if failed:
        if needs_approval:
            also = ", and with what is approved by that"
        else:
            also = ""
        yield (
            f"To try again from there{also}: run_workflow({way}), with steps=[…] to replace those of the same id or to "
            "add some, or inputs={…}. What is done is not run again."
        )
    yield f"Kept for {minutes} minutes."


def _render_values(done_steps: Sequence[StepReport], max_tokens: int) -> list[str]:
    if not done_steps or max_tokens < _MIN_VALUE_TOKENS * 2:
        return []
    share = min(max(max_tokens // len(done_steps) - 8, _MIN_VALUE_TOKENS), _MAX_VALUE_TOKENS)
    packed = pack(
        (f"{one.id}: {_summarize_value(one.value, share)}" for one in done_steps), max_tokens - 40
    )
    if packed.is_full:
        more = [f"and {len(done_steps) - len(packed.texts)} more"]
    else:
        more = []
    return ["What the steps that ran answered:", *packed.texts, *more]


def _summarize_value(value: Any, max_tokens: int) -> str:
    """A value if it is short, else what it is made of."""
    if isinstance(value, str):
        return to_short_line(value, max_tokens)
    text = _render_if_fits(value, max_tokens)
    if text is not None:
        return text
    return f"{render_shape(infer_shape(value), max_tokens, count_tokens)} (not shown whole)"


def _clip_value(value: Any, max_tokens: int) -> str:
    """A value, or its beginning with its length: whoever approves has to know that there is more."""
    text = ""
    chars = 0
    for piece in encode_compact(to_parts(value), to_literal):
        chars += len(piece)
        if len(text) < max_tokens * _CHARS_PER_TOKEN:
            text += piece
    text = sanitize_text(text)
    short = truncate(text, max_tokens)
    if short == text:
        return short
    return f"{short} ({chars:,} characters in all)"


def _render_if_fits(value: Any, max_tokens: int) -> str | None:
    """A value as text; None where it has more tokens than that."""
    if (
        max_tokens <= 0
        or estimate_size(value, max_tokens * _CHARS_PER_TOKEN) >= max_tokens * _CHARS_PER_TOKEN
    ):
        return None
    if isinstance(value, str):
        text = value
    else:
        text = to_literal(value)
    if count_tokens(text) <= max_tokens:
        return text
    return None


def _render_notes(report: WorkflowReport, max_tokens: int) -> list[str]:
    said = [*map(str, report.warnings)]
    said += (
        f"step {one.id} was repaired: {'; '.join(one.repairs[:3])}"
        for one in report.steps
        if one.repairs
    )
    packed = pack(
        (f"Note: {to_short_line(line, min(max_tokens, _MAX_NOTE_TOKENS))}" for line in said),
        max_tokens,
    )
    if packed.is_full:
        return [*packed.texts, f"{len(said) - len(packed.texts)} more notes."]
    return list(packed.texts)


def _format_seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2f} s"
    return f"{seconds:,.0f} s"
