"""Workflow reports: the outcome of a run, what it stopped for, and suggested plans. Pure.

A finished run reports the values of its last steps. A stopped one reports first what failed or
needs approval, then how to continue, then the values of the finished steps as far as they fit;
their complete values stay with the run.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from portico.catalog.tool import sanitize_text, to_literal
from portico.json_text.part_stream import encode_compact, estimate_size, to_parts
from portico.rendering import tool_result
from portico.rendering.token_budget import (
    compute_remaining_tokens,
    count_tokens,
    format_count,
    pack,
    to_short_line,
    truncate,
)
from portico.results.shape import infer_shape, render_shape
from portico.upstream.backend import Raw
from portico.workflows.planning.planner import PlanSuggestion
from portico.workflows.planning.step_builder import PlanInput
from portico.workflows.runs import StepFailure, StepReport, WorkflowReport

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
    if not plan.steps:
        lines = [
            "No plan: no tool here serves this.",
            *pack(notes, compute_remaining_tokens(budget)).texts,
            *_render_choices(plan),
            "Say it in other words, or look with search_tools.",
        ]
        result = tool_result.make_text_result("\n".join(lines))
        if plan.others:
            result["structuredContent"] = {"steps": [], "other_tools": _name_others(plan)}
        return result
    if plan.unused:
        words = ", ".join(truncate(item, _MIN_VALUE_TOKENS) for item in plan.unused[:_MAX_CALLS])
        notes.append(
            f"No step takes {sanitize_text(words)}: see whether these are the right tools."
        )
    notes += dict.fromkeys(plan.notes)
    reason = f": {_explain_not_run(plan)}" if run_requested else ""
    if plan.has_worked:
        reason += "; one like it has worked"
    head = f"A plan of {format_count(len(plan.steps), 'step')}, not run{reason}."
    steps = f"steps={to_literal(_drop_ids(plan.steps))}"
    rest: list[str] = []
    last = "To run it: the same again with run: true."
    if plan.inputs:
        rest.append("Missing:")
        rest += (_render_missing_input(name, item) for name, item in plan.inputs.items())
        last = "Pass these as inputs with the others, run: true runs it."
    rest += (to_short_line(note, _MAX_NOTE_TOKENS) for note in notes)
    rest += _render_choices(plan)
    left = compute_remaining_tokens(budget, head, steps, last)
    text = "\n".join([head, steps, *pack(rest, left).texts, last])
    structured: Raw = {"steps": [dict(step) for step in plan.steps], "missing": list(plan.inputs)}
    if plan.unsure:
        structured["unsure"] = list(plan.unsure)
    if plan.others:
        structured["other_tools"] = _name_others(plan)
    return {**tool_result.make_text_result(text), "structuredContent": structured}


def _drop_ids(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leave out the ids of steps that no other step refers to."""
    text = to_literal([step["arguments"] for step in steps])
    return [
        step if f"${{{step['id']}" in text else {k: v for k, v in step.items() if k != "id"}
        for step in steps
    ]


def _explain_not_run(plan: PlanSuggestion) -> str:
    """Explain why a plan is not run at once."""
    if plan.inputs:
        verb = "is" if len(plan.inputs) == 1 else "are"
        shown = ", ".join(map(sanitize_text, list(plan.inputs)[:_MAX_CALLS]))
        return f"{shown} {verb} missing"
    return "not all that you said is in it"


def _render_missing_input(name: str, missing: PlanInput) -> str:
    line = f"- {sanitize_text(name)}: {sanitize_text(missing.type)}"
    if missing.description:
        line += f" — {to_short_line(missing.description, _MIN_VALUE_TOKENS)}"
    return line


def _render_choices(plan: PlanSuggestion) -> Iterator[str]:
    """Say in one line each what is unsure, and how to correct it."""
    if plan.unsure:
        yield f"Unsure: {_group_by_step(plan.unsure)} (an input of that name sets it, null: none)."
    if plan.others:
        named = ", ".join(
            sanitize_text(f"{tool}({', '.join(needs)})") for tool, needs in plan.others.items()
        )
        yield f"Near: {named}. Other tools: name all, in order, in inputs.tools."


def _group_by_step(addresses: Sequence[str]) -> str:
    """Write `a.x`, `a.y`, `b.z` as `a.x|y, b.z`."""
    parameters: dict[str, list[str]] = {}
    for address in addresses:
        step, _, parameter = address.partition(".")
        parameters.setdefault(step, []).append(parameter)
    return sanitize_text(", ".join(f"{step}.{'|'.join(it)}" for step, it in parameters.items()))


def _name_others(plan: PlanSuggestion) -> dict[str, list[str]]:
    return {tool: list(needs) for tool, needs in plan.others.items()}


def _make_finished_result(report: WorkflowReport, budget: int) -> Raw:
    count = format_count(len(report.steps), "step")
    lines = [
        f"Workflow finished: {count} in {_format_seconds(report.seconds)}.",
        *_render_step_table(_drop_only_plain(report.steps), int(budget * _TABLE_SHARE)),
        *_render_notes(report, int(budget * _NOTE_SHARE)),
    ]
    outputs = dict(report.outputs)
    if not outputs:
        return tool_result.make_text_result("\n".join([*lines, "No step gave a value."]))
    value: Any = outputs
    if len(outputs) == 1:
        value = next(iter(outputs.values()))
    text = _render_if_fits(value, compute_remaining_tokens(budget, *lines))
    result: Raw = {"content": [tool_result.make_text_block("\n".join(lines))]}
    if text is not None:
        result["content"].append(tool_result.make_text_block(text))
    if isinstance(value, dict):
        result["structuredContent"] = value
    elif text is None:
        # What does not fit is passed as a value, so that it can be stored and read in parts.
        result["structuredContent"] = outputs
    return result


def _make_stopped_result(report: WorkflowReport, budget: int) -> Raw:
    by_state = {
        state: [step for step in report.steps if step.state == state] for state in _STATE_LABELS
    }
    failed = by_state["failed"]
    awaiting = by_state["approval"]
    head = ", ".join(
        f"{len(steps)} {_STATE_LABELS[state]}" for state, steps in by_state.items() if steps
    )
    # Those that await approval are shown with their arguments.
    others = [step for step in report.steps if step.state != "approval"]
    title = "Workflow failed" if failed else "Workflow stopped for approval"
    lines = [
        f"{title}: {head}.",
        *_render_step_table(others, int(budget * _TABLE_SHARE)),
        *_render_failures(failed, int(budget * _FAILURE_SHARE)),
        *_render_notes(report, int(budget * _NOTE_SHARE)),
    ]
    last = list(_render_resume(report, bool(failed), awaiting))
    share = int(compute_remaining_tokens(budget, *lines, *last) * _APPROVAL_SHARE)
    for step in awaiting:
        each = share // len(awaiting) - _CALL_FRAME_TOKENS
        lines += _render_approval(step, max(each, _MIN_VALUE_TOKENS))
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


def _drop_only_plain(steps: Sequence[StepReport]) -> Sequence[StepReport]:
    """Leave out the only step where it was one call that answered: the value says all of it."""
    if len(steps) == 1 and steps[0].state == "done" and steps[0].calls == 1:
        return ()
    return steps


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
    lines = list(packed.texts)
    if packed.is_full:
        lines.append(f"{format_count(len(failed_steps) - len(lines), 'more step')} failed.")
    return lines


def _render_failure(step: StepReport, max_tokens: int) -> str:
    failure = step.failure or StepFailure("internal", "")
    message = failure.message
    if failure.kind in _UNREACHABLE_KINDS:
        message = tool_result.mask_secrets(message)
    element = f", element {failure.element}" if failure.element is not None else ""
    retryable = " (may work later)" if failure.retryable else ""
    # Messages often quote a server: rendered as one line, so that none looks like the gateway's.
    text = to_short_line(message, max_tokens * 2 // 3)
    line = f"Step {step.id} failed{element}: {failure.kind}{retryable}: {text}"
    if failure.advice:
        line += f"\n  {to_short_line(failure.advice, max_tokens // 3)}"
    return line


def _render_approval(step: StepReport, max_tokens: int) -> Iterator[str]:
    tool = sanitize_text(step.tool)
    if not step.pending_arguments:
        yield f"Step {step.id}: {sanitize_text(step.reason)}"
        return
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


def _render_resume(
    report: WorkflowReport, failed: bool, awaiting: Sequence[StepReport]
) -> Iterator[str]:
    if not report.run_id:
        yield "This run is too large to be kept: it cannot be continued."
        return
    resume = f'resume="{report.run_id}"'
    minutes = round(report.ttl_s / 60)
    needs_approval = any(step.pending_arguments for step in awaiting)
    if needs_approval:
        yield (f"To approve exactly these calls and go on: run_workflow({resume}).")
    if not all(step.pending_arguments for step in awaiting):
        yield f"Once a person has approved it: run_workflow({resume})."
    if failed:
        with_approved = ", and with what is approved by that" if needs_approval else ""
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
    lines = ["What the steps that ran answered:", *packed.texts]
    if packed.is_full:
        lines.append(f"and {len(done_steps) - len(packed.texts)} more")
    return lines


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
    most = max_tokens * _CHARS_PER_TOKEN
    if most <= 0 or estimate_size(value, most) >= most:
        return None
    text = value if isinstance(value, str) else to_literal(value)
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
