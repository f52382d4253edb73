"""Answers as a model reads them: text with annotations, and errors as advice. Pure."""

from typing import Any

from portico.catalog.tool import encoded
from portico.catalog.visible import literal, shown
from portico.errors import BackendUnavailable, InvalidArguments, PorticoError, RemoteError, UnknownName
from portico.execution.json_stream import compact, parts, weight
from portico.upstream.backend import Raw

LONG_ANSWER_CHARS = 2_000
ERROR = "portico/error"
"""In `_meta` of a refusal: `{"kind", "message", "advice"?, "retryable", "retry_after_s"?, "problems"?, "nearest"?,
"code"?, "data"?}`."""
PROTOCOL = frozenset({-32020, -32021, -32022, -32042})
"""Errors that the client itself has to act on: headers, capabilities, versions, an address to be visited."""
_MESSAGE_CHARS = 16_000
"""Of what a server says went wrong."""
_DATA_CHARS = 600
_DATA_WEIGHT = 16_000
"""Data of a server's error that programs are given as it is; larger ones are left out."""


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
    message = error.message[:_MESSAGE_CHARS] + "…" * (len(error.message) > _MESSAGE_CHARS)
    message = unsecret(message) if isinstance(error, BackendUnavailable) else message
    lines = [_indented(f"{error.kind}: {message}")]
    if isinstance(error, RemoteError):
        lines = [_indented(f"{error.kind}: {message} (the server's error {error.code})")]
        if error.has_data and error.data is not None:
            lines.append(_indented(f"data: {_clipped(error.data)}"))
    if error.advice:
        lines.append(_indented(error.advice))
    if isinstance(error, UnknownName) and error.nearest and not any(name in error.advice for name in error.nearest):
        lines.append(_indented("Nearest: " + ", ".join(error.nearest)))
    if more:
        lines.append(more)
    return {**text("\n".join(lines)), "isError": True, "_meta": {ERROR: facts(error, message)}}


def facts(error: PorticoError, message: str = "") -> Raw:
    """An error for programs to read."""
    told: Raw = {"kind": error.kind, "message": message or error.message, "retryable": error.retryable}
    if error.retry_after_s is not None:
        told["retry_after_s"] = error.retry_after_s
    if error.advice:
        told["advice"] = error.advice
    if isinstance(error, InvalidArguments) and error.problems:
        told["problems"] = list(error.problems)
    if isinstance(error, UnknownName) and error.nearest:
        told["nearest"] = list(error.nearest)
    if isinstance(error, RemoteError):
        told["code"] = error.code
        if error.has_data and _tellable(error.data):
            told["data"] = error.data
    return told


def _tellable(data: Any) -> bool:
    """Whether a server's data can go beside an answer without spoiling it: not too large, not too deep."""
    try:
        return weight(data, _DATA_WEIGHT) < _DATA_WEIGHT and bool(encoded(data))
    except ValueError:
        return False


def _clipped(data: Any) -> str:
    said = ""
    for piece in compact(parts(data), literal):
        if len(said) > _DATA_CHARS:
            break
        said += piece
    return said if len(said) <= _DATA_CHARS else f"{said[:_DATA_CHARS]}…"


def _indented(said: str) -> str:
    return shown(said).replace("\n", "\n  ")
