"""Script results as text: the value first, then printed output and the tools called. Pure."""

from collections import Counter

from portico.catalog.visible_text import sanitize_text
from portico.json_text import json_codec
from portico.rendering.budget import truncate
from portico.rendering.tool_result import make_text_block
from portico.scripts.runner import ScriptResult, ToolCallRecord
from portico.scripts.sandbox.script import Fault
from portico.upstream.backend import Raw

MAX_PRINTED_TOKENS = 2_000
"""Maximum tokens of printed output; a script that needs more returns it as its value."""
_MAX_TOOLS = 12
_MAX_REPAIRS = 3


def make_script_result(script_result: ScriptResult, code: str) -> Raw:
    """Return a script's outcome as a tool result; an object is also its structured content."""
    outcome = script_result.outcome
    if outcome.fault:
        head = _render_fault(outcome.fault, code)
    else:
        head = _render_value(outcome.value)
    notes = (
        *_render_repairs(script_result.repairs),
        _render_printed(outcome.printed, outcome.dropped_chars),
        _render_calls(script_result.calls, script_result.seconds),
    )
    second = "\n".join(filter(None, (script_result.hint, *notes)))
    result: Raw = {"content": [make_text_block(text) for text in (head, second) if text]}
    if outcome.fault:
        result["isError"] = True
    elif isinstance(outcome.value, dict):
        result["structuredContent"] = outcome.value
    return result


def _render_repairs(notes: tuple[str, ...]) -> list[str]:
    shown = [truncate(sanitize_text(note).replace("\n", " "), 40) for note in notes[:_MAX_REPAIRS]]
    if shown:
        return [f"repaired: {'; '.join(shown)}" + (" …" if len(notes) > _MAX_REPAIRS else "")]
    return []


def _render_value(value: object) -> str:
    if value is None:
        return "The script returned nothing: end it with a value, or call result(value)."
    if isinstance(value, str):
        return value
    return json_codec.dumps(value).decode()


def _render_fault(fault: Fault, code: str) -> str:
    """Render what went wrong and where, with the source line."""
    message = f"script {fault.kind}: {sanitize_text(fault.message)}".replace("\n", "\n  ")
    lines = code.splitlines()
    if fault.line is None or not 1 <= fault.line <= len(lines):
        return message
    line = truncate(sanitize_text(lines[fault.line - 1].strip()), 60)
    return f"{message}\n  at line {fault.line}: {line}"


def _render_printed(text: str, dropped: int) -> str:
    if not text:
        return ""
    shown = truncate(text, MAX_PRINTED_TOKENS)
    if shown != text:
        left = dropped + len(text) - len(shown)
    else:
        left = dropped
    return f"printed:\n{shown.rstrip()}" + (
        f"\n[{left:,} more characters were printed]" if left > 0 else ""
    )


def _render_calls(calls: tuple[ToolCallRecord, ...], seconds: float) -> str:
    if not calls:
        return ""
    times = Counter(call.tool for call in calls)
    ended = {
        "failed": Counter(call.tool for call in calls if not call.ok and not call.cancelled),
        "cancelled": Counter(call.tool for call in calls if call.cancelled),
    }

    def render_tool(tool: str, call_count: int) -> str:
        problems = ", ".join(
            f"{number[tool]} {outcome}" for outcome, number in ended.items() if number[tool]
        )
        return (
            sanitize_text(tool)
            + (f" ×{call_count}" if call_count > 1 else "")
            + (f" ({problems})" if problems else "")
        )

    named = [render_tool(tool, count) for tool, count in times.most_common(_MAX_TOOLS)]
    named += [f"{len(times) - _MAX_TOOLS} more"] if len(times) > _MAX_TOOLS else []
    cached = sum(call.cached for call in calls)
    return f"called: {', '.join(named)} in {seconds:.2f} s" + (
        f", {cached} [cached]" if cached else ""
    )
