"""Answers as a model reads them: text with annotations, and errors as advice. Pure."""

from portico.catalog.visible import shown
from portico.errors import BackendUnavailable, PorticoError, UnknownName
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


def unsecret(words: str) -> str:
    """What a server said of itself when it failed: it may quote its environment, or the address it was given."""
    from portico.config_file.masking import masked_text  # its patterns cost start-up, and broken servers are rare

    return masked_text(words)


def refusal(error: PorticoError, *, more: str = "") -> Raw:
    """An error as a tool result: what happened, what to do, and nothing else."""
    # What went wrong is often said in a server's own words: those may hold anything, but make no lines like ours.
    message = unsecret(error.message) if isinstance(error, BackendUnavailable) else error.message
    lines = [_indented(f"{error.kind}: {message}")]
    if error.advice:
        lines.append(_indented(error.advice))
    if isinstance(error, UnknownName) and error.nearest and not any(name in error.advice for name in error.nearest):
        lines.append(_indented("Nearest: " + ", ".join(error.nearest)))
    if more:
        lines.append(more)
    return {**text("\n".join(lines)), "isError": True}


def _indented(said: str) -> str:
    return shown(said).replace("\n", "\n  ")
