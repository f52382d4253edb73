"""Answers as a model reads them: text with annotations, and errors as advice. Pure."""

from portico.catalog.visible import shown
from portico.errors import PorticoError, UnknownName
from portico.upstream.backend import Raw

LONG_ANSWER_CHARS = 2_000


def annotations(body: str) -> Raw:
    """Whom a text is for; long ones are material for the assistant."""
    if len(body) > LONG_ANSWER_CHARS:
        return {"audience": ["assistant"], "priority": 0.3}
    return {"priority": 0.7}


def text(body: str) -> Raw:
    """A text result."""
    return {"content": [block(body)]}


def block(body: str) -> Raw:
    """A text as a block of content."""
    return {"type": "text", "text": body, "annotations": annotations(body)}


def refusal(error: PorticoError, *, more: str = "") -> Raw:
    """An error as a tool result: what happened, what to do, and nothing else."""
    lines = [f"{error.kind}: {error.message}"]
    if error.advice:
        lines.append(error.advice)
    if isinstance(error, UnknownName) and error.nearest and not any(name in error.advice for name in error.nearest):
        lines.append("Nearest: " + ", ".join(error.nearest))
    if more:
        lines.append(more)
    # What went wrong is often said in a server's own words, and those may hold anything.
    return {**text(shown("\n".join(lines))), "isError": True}
