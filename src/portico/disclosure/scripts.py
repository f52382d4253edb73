"""What a script's caller is told: its answer first, then what it printed and which tools it called. Pure."""

from collections import Counter

from portico.catalog.visible import shown
from portico.disclosure.answer import block
from portico.disclosure.budget import cut
from portico.execution.sandbox.script import Fault
from portico.execution.scripting.scripts import Made, Ran
from portico.upstream import jsontext
from portico.upstream.backend import Raw

PRINTED_TOKENS = 2_000
"""Of an answer; who prints more has the rest by returning it."""
_TOOLS, _REPAIRS = 12, 3


def answered(ran: Ran, code: str) -> Raw:
    """A script's end as a tool result. An object is also its structured content."""
    outcome = ran.outcome
    head = _fault(outcome.fault, code) if outcome.fault else _value(outcome.value)
    told = (*_repaired(ran.repaired), _printed(outcome.printed, outcome.dropped), _called(ran.calls, ran.seconds))
    beside = "\n".join(filter(None, (ran.hint, *told)))
    result: Raw = {"content": [block(text) for text in (head, beside) if text]}
    if outcome.fault:
        result["isError"] = True
    elif isinstance(outcome.value, dict):
        result["structuredContent"] = outcome.value
    return result


def _repaired(notes: tuple[str, ...]) -> list[str]:
    told = [cut(shown(note).replace("\n", " "), 40) for note in notes[:_REPAIRS]]
    return [f"repaired: {'; '.join(told)}" + (" …" if len(notes) > _REPAIRS else "")] if told else []


def _value(value: object) -> str:
    if value is None:
        return "The script returned nothing: end it with a value, or call result(value)."
    return value if isinstance(value, str) else jsontext.dumps(value).decode()


def _fault(fault: Fault, code: str) -> str:
    """What went wrong and where, with the line itself."""
    said = f"script {fault.kind}: {shown(fault.message)}".replace("\n", "\n  ")
    lines = code.splitlines()
    if fault.line is None or not 1 <= fault.line <= len(lines):
        return said
    return f"{said}\n  at line {fault.line}: {cut(shown(lines[fault.line - 1].strip()), 60)}"


def _printed(text: str, dropped: int) -> str:
    if not text:
        return ""
    kept = cut(text, PRINTED_TOKENS)
    left = dropped + len(text) - len(kept) if kept != text else dropped
    return f"printed:\n{kept.rstrip()}" + (f"\n[{left:,} more characters were printed]" if left > 0 else "")


def _called(calls: tuple[Made, ...], seconds: float) -> str:
    if not calls:
        return ""
    times = Counter(call.tool for call in calls)
    ended = {
        "failed": Counter(call.tool for call in calls if not call.ok and not call.cancelled),
        "cancelled": Counter(call.tool for call in calls if call.cancelled),
    }

    def name(tool: str, many: int) -> str:
        badly = ", ".join(f"{number[tool]} {how}" for how, number in ended.items() if number[tool])
        return shown(tool) + (f" ×{many}" if many > 1 else "") + (f" ({badly})" if badly else "")

    named = [name(tool, many) for tool, many in times.most_common(_TOOLS)]
    named += [f"{len(times) - _TOOLS} more"] if len(times) > _TOOLS else []
    cached = sum(call.cached for call in calls)
    return f"called: {', '.join(named)} in {seconds:.2f} s" + (f", {cached} [cached]" if cached else "")
