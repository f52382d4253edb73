"""Tool results as a model reads them: text with annotations, and errors as advice. Pure."""

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
"""Key in `_meta` of an error result: `{"kind", "message", "advice"?, "retryable", "retry_after_s"?,
"problems"?, "nearest"?, "code"?, "data"?}`.
"""
CLIENT_ERROR_CODES = frozenset({-32020, -32021, -32022, -32042})
"""JSON-RPC errors that the client itself must handle: headers, capabilities, versions, a URL to
open.
"""
_MAX_MESSAGE_CHARS = 16_000
"""Maximum length of a server's error message."""
_MAX_DATA_CHARS = 600
_MAX_DATA_WEIGHT = 16_000
"""Maximum size of the `data` of a server's error; larger ones are left out."""


def make_annotations(body: str) -> Raw:
    """Return audience and priority of a text; long ones are for the assistant only."""
    if len(body) > LONG_TEXT_CHARS:
        return {"audience": ["assistant"], "priority": 0.3}
    return {"priority": 0.7}


def make_text_result(body: str) -> Raw:
    """Return a tool result with one text block."""
    return {"content": [make_text_block(body)]}


def make_text_block(body: str) -> Raw:
    """Return a text as a content block."""
    return {"type": "text", "text": body, "annotations": make_annotations(body)}


def mask_secrets(text: str) -> str:
    """Mask secrets in a server's failure message, which may quote its environment or URL."""
    # Imported late: compiling its patterns slows start-up, and failing servers are rare.
    from portico.config_file.mask import mask_text

    return mask_text(text)


def make_error_result(error: PorticoError, *, hint: str = "") -> Raw:
    """Return an error as a tool result: what happened and what to do."""
    # Messages often quote a server: indented, so that no line of it looks like the gateway's.
    message = error.message[:_MAX_MESSAGE_CHARS] + "…" * (len(error.message) > _MAX_MESSAGE_CHARS)
    if isinstance(error, BackendUnavailable):
        message = mask_secrets(message)
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
    """Return an error as data for programs."""
    data: Raw = {
        "kind": error.kind,
        "message": message or error.message,
        "retryable": error.retryable,
    }
    if error.retry_after_s is not None:
        data["retry_after_s"] = error.retry_after_s
    if error.advice:
        data["advice"] = error.advice
    if isinstance(error, InvalidArguments) and error.problems:
        data["problems"] = list(error.problems)
    if isinstance(error, UnknownName) and error.nearest:
        data["nearest"] = list(error.nearest)
    if isinstance(error, RemoteError):
        data["code"] = error.code
        if error.has_data and _is_encodable(error.data):
            data["data"] = error.data
    return data


def _is_encodable(data: Any) -> bool:
    """Return whether a server's data can be sent with a result: neither too large nor too deep."""
    try:
        return estimate_size(data, _MAX_DATA_WEIGHT) < _MAX_DATA_WEIGHT and bool(encode_json(data))
    except ValueError:
        return False


def _clip_data(data: Any) -> str:
    text = ""
    for piece in encode_compact(to_parts(data), to_literal):
        if len(text) > _MAX_DATA_CHARS:
            break
        text += piece
    if len(text) <= _MAX_DATA_CHARS:
        return text
    return f"{text[:_MAX_DATA_CHARS]}…"


def _indent(text: str) -> str:
    return sanitize_text(text).replace("\n", "\n  ")
