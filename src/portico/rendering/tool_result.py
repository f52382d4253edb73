"""Answers as a model reads them: text with annotations, and errors as advice. Pure."""

from typing import Any

from portico.catalog.tool import encode_json
from portico.catalog.visible_text import sanitize_text, to_literal
from portico.errors import (
    BackendUnavailable,
    InvalidArguments,
    PorticoError,
    RemoteError,
    UnknownName,
)
from portico.json_text.part_stream import encode_compact, estimate_size, to_parts
from portico.upstream.backend import Raw

LONG_TEXT_CHARS = 2_000
ERROR_META_KEY = "portico/error"
"""In `_meta` of a refusal: `{"kind", "message", "advice"?, "retryable", "retry_after_s"?,
"problems"?, "nearest"?, "code"?, "data"?}`."""
CLIENT_ERROR_CODES = frozenset({-32020, -32021, -32022, -32042})
"""Errors that the client itself has to act on: headers, capabilities, versions, an address to be
visited."""
_MAX_MESSAGE_CHARS = 16_000
"""Of what a server says went wrong."""
_MAX_DATA_CHARS = 600
_MAX_DATA_WEIGHT = 16_000
"""Data of a server's error that programs are given as it is; larger ones are left out."""


def make_annotations(body: str) -> Raw:
    """Whom a text is for; long ones are material for the assistant."""
    if len(body) > LONG_TEXT_CHARS:
        return {"audience": ["assistant"], "priority": 0.3}
    return {"priority": 0.7}


def make_text_result(body: str) -> Raw:
    """A text result."""
    return {"content": [make_text_block(body)]}


def make_text_block(body: str) -> Raw:
    """A text as a block of content."""
    return {"type": "text", "text": body, "annotations": make_annotations(body)}


def mask_secrets(text: str) -> str:
    """What a server said of itself when it failed: it may quote its environment, or the address it
    was given."""
    from portico.config_file.mask import (
        mask_text,  # its patterns cost start-up, and broken servers are rare
    )

    return mask_text(text)


def make_error_result(error: PorticoError, *, hint: str = "") -> Raw:
    """An error as a tool result: what happened, what to do, and nothing else."""
    # What went wrong is often said in a server's own words: those may hold anything, but make no
    # lines like ours.
    message = error.message[:_MAX_MESSAGE_CHARS] + "…" * (len(error.message) > _MAX_MESSAGE_CHARS)
    if isinstance(error, BackendUnavailable):
        message = mask_secrets(message)
    else:
        message = message
    lines = [_indent(f"{error.kind}: {message}")]
    if isinstance(error, RemoteError):
        lines = [_indent(f"{error.kind}: {message} (the server's error {error.code})")]
        if error.has_data and error.data is not None:
            lines.append(_indent(f"data: {_clip_data(error.data)}"))
    if error.advice:
        lines.append(_indent(error.advice))
    if (
        isinstance(error, UnknownName)
        and error.nearest
        and not any(name in error.advice for name in error.nearest)
    ):
        lines.append(_indent("Nearest: " + ", ".join(error.nearest)))
    if hint:
        lines.append(hint)
    return {
        **make_text_result("\n".join(lines)),
        "isError": True,
        "_meta": {ERROR_META_KEY: to_error_data(error, message)},
    }


def to_error_data(error: PorticoError, message: str = "") -> Raw:
    """An error for programs to read."""
    told: Raw = {
        "kind": error.kind,
        "message": message or error.message,
        "retryable": error.retryable,
    }
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
        if error.has_data and _is_encodable(error.data):
            told["data"] = error.data
    return told


def _is_encodable(data: Any) -> bool:
    """Whether a server's data can go beside an answer without spoiling it: not too large, not too
    deep."""
    try:
        return estimate_size(data, _MAX_DATA_WEIGHT) < _MAX_DATA_WEIGHT and bool(encode_json(data))
    except ValueError:
        return False


def _clip_data(data: Any) -> str:
    said = ""
    for piece in encode_compact(to_parts(data), to_literal):
        if len(said) > _MAX_DATA_CHARS:
            break
        said += piece
    if len(said) <= _MAX_DATA_CHARS:
        return said
    return f"{said[:_MAX_DATA_CHARS]}…"


def _indent(text: str) -> str:
    return sanitize_text(text).replace("\n", "\n  ")
