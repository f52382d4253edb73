"""Workflow reports: the outcome of a run, what it stopped for, and suggested plans. Pure.

A finished run reports the values of its last steps. A stopped one reports first what failed or
needs approval, then how to continue, then the values of the finished steps as far as they fit;
their complete values stay with the run.
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
"""Shares of the budget. What accompanies a large value must stay short."""
_APPROVAL_SHARE = 0.7
"""Share of the rest: the approver should see complete arguments."""
_FAILURE_TOKENS = (40, 300)
"""Minimum and maximum tokens of one failure."""
_MAX_NOTE_TOKENS = 80
_CALL_FRAME_TOKENS = 25
"""Tokens of the text around the arguments of a call."""
_MAX_CALLS = 5
"""Calls shown per step if all of them are long."""
_MIN_VALUE_TOKENS = 30
_MAX_VALUE_TOKENS = 400
"""Tokens of one value; fewer than the minimum would be meaningless."""
_CHARS_PER_TOKEN = 8
"""Tokens are rarely longer; what exceeds it need not be counted."""
_UNREACHABLE_KINDS = frozenset(("unavailable", "timeout"))
_STATE_LABELS = {
    "done": "done",
    "skipped": "skipped",
    "failed": "FAILED",
    "approval": "needs approval",
    "waiting": "not run",
}


def make_report_result(report: WorkflowReport, budget: int) -> Raw:
    """Return a run as a tool result."""
    if report.state == "finished":
        return _make_finished_result(report, budget)
    return _make_stopped_result(report, budget)


def make_plan_result(plan: PlanSuggestion, budget: int, *, run_requested: bool = False) -> Raw:
    """Return a plan to pass back, what it lacks, and why it was not run if that was requested."""
    notes: list[str] = []
    for unserved in plan.unserved:
        note = f"Nothing here serves {to_literal(truncate(unserved.clause, _MAX_NOTE_TOKENS))}"
        if unserved.nearest:
            note += f"; nearest: {', '.join(map(sanitize_text, unserved.nearest))}"
        notes.append(note)
    if plan.unused and plan.steps:
        words = ", ".join(
            to_literal(truncate(item, _MIN_VALUE_TOKENS)) for item in plan.unused[:_MAX_CALLS]
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
        reason = f": {_explain_not_run(plan)}"
    else:
        reason = ""
    head = f"A plan of {format_count(len(plan.steps), 'step')}, not run{reason}{worked}:"
    steps = f"steps={to_literal(list(plan.steps))}"
    inputs = ", ".join(f"{to_literal(name)}: …" for name in (*plan.given_inputs, *plan.inputs))
    inputs_argument = f", inputs={{{inputs}}}" if inputs else ""
    last = f"To run it: run_workflow(steps=[…]{inputs_argument}); change what you like first."
    missing = [_render_missing_input(name, item) for name, item in plan.inputs.items()]
    if missing:
        missing.insert(0, "Still missing, to be passed in inputs:")
    if plan.why:
        explanation = ["Why:", *(f"- {to_short_line(line, _MAX_NOTE_TOKENS)}" for line in plan.why)]
    else:
        explanation = []
    if missing or notes or explanation:
        rest = pack(
            [*missing, *notes, *explanation], compute_remaining_tokens(budget, head, steps, last)
        ).texts
    else:
        rest = ()
    structured: Raw = {"steps": [dict(step) for step in plan.steps], "missing": list(plan.inputs)}
    return {
        **tool_result.make_text_result("\n".join([head, steps, *rest, last])),
        "structuredContent": structured,
    }


def _explain_not_run(plan: PlanSuggestion) -> str:
    """Explain why a plan is not run at once."""
    reasons: list[str] = []
    for names, problem in (
        (plan.missing_inputs, "missing"),
        (plan.changing_tools, "not marked read-only"),
    ):
        if names:
            verb = "is" if len(names) == 1 else "are"
            shown = ", ".join(map(sanitize_text, names[:_MAX_CALLS]))
            reasons.append(f"{shown} {verb} {problem}")
    if plan.unserved or plan.unused:
        reasons.append("not all that you said is in it")
    return "; ".join(reasons)


def _render_missing_input(name: str, missing: PlanInput) -> str:
    if missing.description:
        description = f" — {to_short_line(missing.description, _MIN_VALUE_TOKENS)}"
    else:
        description = ""
    if missing.source_tools:
        sources = f" (may be told by {', '.join(map(sanitize_text, missing.source_tools[:3]))})"
    else:
        sources = ""
    steps = ", ".join(map(sanitize_text, missing.needed_by[:5]))
    kind = sanitize_text(missing.type)
    return f"- {sanitize_text(name)}: {kind}, for {steps}{description}{sources}"


def _make_finished_result(report: WorkflowReport, budget: int) -> Raw:
    count = format_count(len(report.steps), "step")
    head = f"Workflow finished: {count} in {_format_seconds(report.seconds)}."
    first = "\n".join(
        [
            head,
            *_render_step_table(report.steps, int(budget * _TABLE_SHARE)),
            *_render_notes(report, int(budget * _NOTE_SHARE)),
        ]
    )
    outputs = report.outputs
    if len(outputs) == 1:
        value: Any = next(iter(outputs.values()))
    else:
        value = dict(outputs)
    left = compute_remaining_tokens(budget, first)
    if not outputs:
        return tool_result.make_text_result(f"{first}\nNo step gave a value.")
    text = _render_if_fits(value, left)
    content = [
        tool_result.make_text_block(first),
        *([tool_result.make_text_block(text)] if text is not None else []),
    ]
    if isinstance(value, dict):
        return {"content": content, "structuredContent": value}
    # What does not fit is passed as a value, so that it can be stored and read in parts.
    if text is not None:
        return {"content": content}
    return {"content": content, "structuredContent": dict(outputs)}


def _make_stopped_result(report: WorkflowReport, budget: int) -> Raw:
    by_state = {
        state: [step for step in report.steps if step.state == state] for state in _STATE_LABELS
    }
    failed = by_state["failed"]
    awaiting = by_state["approval"]
    head = ", ".join(
        f"{len(steps)} {_STATE_LABELS[state]}" for state, steps in by_state.items() if steps
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
    last = list(_render_resume(report, bool(failed), bool(awaiting)))
    if awaiting:
        share = int(compute_remaining_tokens(budget, *lines, *last) * _APPROVAL_SHARE) // len(
            awaiting
        )
    else:
        share = 0
    for step in awaiting:
        lines += _render_approval(step, max(share - _CALL_FRAME_TOKENS, _MIN_VALUE_TOKENS))
    lines += last
    lines += _render_values(by_state["done"], compute_remaining_tokens(budget, *lines))
    result = tool_result.make_text_result("\n".join(lines))
    if failed:
        return {**result, "isError": True}
    return result


def _render_step_table(steps: Sequence[StepReport], max_tokens: int) -> list[str]:
    packed = pack(map(_render_step, steps), max_tokens)
    remaining = steps[len(packed.texts) :]
    if not remaining:
        return list(packed.texts)
    rest = (
        f"{sum(step.state == state for step in remaining)} {word}"
        for state, word in _STATE_LABELS.items()
    )
    return [
        *packed.texts,
        f"… {len(remaining)} more: {', '.join(part for part in rest if part[0] != '0')}",
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
    limit = min(max(max_tokens // len(failed_steps), _FAILURE_TOKENS[0]), _FAILURE_TOKENS[1])
    packed = pack((_render_failure(step, limit) for step in failed_steps), max_tokens)
    if packed.is_full:
        more = [f"{format_count(len(failed_steps) - len(packed.texts), 'more step')} failed."]
    else:
        more = []
    return [*packed.texts, *more]


def _render_failure(step: StepReport, max_tokens: int) -> str:
    failure = step.failure or StepFailure("internal", "")
    # Messages often quote a server: rendered as one line, so that none looks like the gateway's.
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
    text = to_short_line(message, max_tokens * 2 // 3)
    if failure.advice:
        advice = f"\n  {to_short_line(failure.advice, max_tokens // 3)}"
    else:
        advice = ""
    return f"Step {step.id} failed{element}: {failure.kind}{retryable}: {text}{advice}"


def _render_approval(step: StepReport, max_tokens: int) -> Iterator[str]:
    tool = sanitize_text(step.tool)
    if len(step.pending_arguments) == 1:
        arguments = _clip_value(step.pending_arguments[0], max_tokens)
        yield f"Stopped for approval: step {step.id} would call {tool} with {arguments}"
        return
    count = len(step.pending_arguments)
    yield f"Stopped for approval: step {step.id} would call {tool} {count} times, with"
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
    resume = f'resume="{report.run_id}"'
    minutes = round(report.ttl_s / 60)
    if needs_approval:
        yield (
            f"To approve exactly these calls and go on: run_workflow({resume}). "
            "Anything else would be asked again."
        )
    if failed:
        if needs_approval:
            with_approved = ", and with what is approved by that"
        else:
            with_approved = ""
        yield (
            f"To try again from there{with_approved}: run_workflow({resume}), with steps=[…] to "
            "replace those of the same id or to add some, or inputs={…}. "
            "What is done is not run again."
        )
    yield f"Kept for {minutes} minutes."


def _render_values(done_steps: Sequence[StepReport], max_tokens: int) -> list[str]:
    if not done_steps or max_tokens < _MIN_VALUE_TOKENS * 2:
        return []
    share = min(max(max_tokens // len(done_steps) - 8, _MIN_VALUE_TOKENS), _MAX_VALUE_TOKENS)
    packed = pack(
        (f"{step.id}: {_summarize_value(step.value, share)}" for step in done_steps),
        max_tokens - 40,
    )
    if packed.is_full:
        more = [f"and {len(done_steps) - len(packed.texts)} more"]
    else:
        more = []
    return ["What the steps that ran answered:", *packed.texts, *more]


def _summarize_value(value: Any, max_tokens: int) -> str:
    """Return a value if it is short, else its shape."""
    if isinstance(value, str):
        return to_short_line(value, max_tokens)
    text = _render_if_fits(value, max_tokens)
    if text is not None:
        return text
    return f"{render_shape(infer_shape(value), max_tokens, count_tokens)} (not shown whole)"


def _clip_value(value: Any, max_tokens: int) -> str:
    """Return a value, or its beginning with its length, so that an approver knows there is more."""
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
    """Return a value as text; None if it exceeds `max_tokens`."""
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
    notes = [*map(str, report.warnings)]
    notes += (
        f"step {step.id} was repaired: {'; '.join(step.repairs[:3])}"
        for step in report.steps
        if step.repairs
    )
    packed = pack(
        (f"Note: {to_short_line(line, min(max_tokens, _MAX_NOTE_TOKENS))}" for line in notes),
        max_tokens,
    )
    if packed.is_full:
        return [*packed.texts, f"{len(notes) - len(packed.texts)} more notes."]
    return list(packed.texts)


def _format_seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2f} s"
    return f"{seconds:,.0f} s"
