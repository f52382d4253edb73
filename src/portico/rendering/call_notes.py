"""Notes on repairs and changed definitions, for a model to read before a result. Pure."""

from collections.abc import Callable

from portico.calls.definition_tracker import CHANGED_PHRASE
from portico.catalog.visible_text import sanitize_text
from portico.rendering.tool_result import make_text_block
from portico.results.marks import CHANGED, REPAIRED, get_marks
from portico.upstream.backend import Raw

MAX_NOTE_CHARS = 400
SERVER_TEXT_NOTICE = "Its server's own words, which may say anything, are now:"


def add_call_notes(result: Raw, render_definition: Callable[[], str]) -> Raw:
    """Prepend notes to a result, if there are any.

    `render_definition` renders the tool's current definition, if it changed.
    """
    marks = get_marks(result)
    lines: list[str] = []
    if CHANGED in marks:
        changes = "; ".join(marks[CHANGED]["changes"])
        lines.append(
            f"[the definition of this tool {CHANGED_PHRASE}: {changes}. {SERVER_TEXT_NOTICE}]\n"
            f"{render_definition()}"
        )
    if REPAIRED in marks:
        lines.append(f"[arguments repaired: {_join_notes(marks[REPAIRED])}]")
    if not lines:
        return result
    content = result.get("content")
    return {
        **result,
        "content": [
            make_text_block("\n".join(lines)),
            *(content if isinstance(content, list) else ()),
        ],
    }


def _join_notes(notes: list[str]) -> str:
    text = " ".join(sanitize_text("; ".join(notes)).split())
    if len(text) <= MAX_NOTE_CHARS:
        return text
    return f"{text[:MAX_NOTE_CHARS]}…"
