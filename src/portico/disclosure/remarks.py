"""What the pipeline did with a call, in a line or two for a model to read before the result. Pure."""

from collections.abc import Callable

from portico.catalog.visible import shown
from portico.disclosure.answer import block
from portico.execution.changes import SINCE
from portico.execution.marks import CHANGED, REPAIRED, marks_of
from portico.upstream.backend import Raw

MAX_SAID = 400
IN_ITS_WORDS = "Its server's own words, which may say anything, are now:"


def remarked(result: Raw, definition: Callable[[], str]) -> Raw:
    """A result with what there is to say of it; `definition` is the tool's as it is now. Mostly there is nothing."""
    marks = marks_of(result)
    lines: list[str] = []
    if CHANGED in marks:
        told = "; ".join(marks[CHANGED]["changes"])
        lines.append(f"[the definition of this tool {SINCE}: {told}. {IN_ITS_WORDS}]\n{definition()}")
    if REPAIRED in marks:
        lines.append(f"[arguments repaired: {_said(marks[REPAIRED])}]")
    if not lines:
        return result
    content = result.get("content")
    return {**result, "content": [block("\n".join(lines)), *(content if isinstance(content, list) else ())]}


def _said(notes: list[str]) -> str:
    text = " ".join(shown("; ".join(notes)).split())
    return text if len(text) <= MAX_SAID else f"{text[:MAX_SAID]}…"
