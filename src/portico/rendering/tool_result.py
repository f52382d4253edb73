"""Tool results as a model reads them: annotated text, notes on the call, errors as advice. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from portico.calls.definition_tracker import CHANGED_PHRASE
from portico.catalog.tool import encode_json, sanitize_text, to_literal
from portico.errors import (
    ApprovalRequired,
    BackendUnavailable,
    InvalidArguments,
    PorticoError,
    RemoteError,
    UnknownName,
)
from portico.json_text.json_codec import to_text
from portico.json_text.part_stream import encode_compact, estimate_size, to_parts
from portico.results.result_meta import CHANGED, REPAIRED
from portico.upstream.backend import Raw

LONG_TEXT_CHARS = 2_000
_ANNOTATED_TYPES = ("text", "image", "audio", "resource_link", "resource")
ERROR_META_KEY = "portico/error"
"""Key in `_meta` of an error result: `{"kind", "message", "advice"?, "retryable", "retry_after_s"?,
"problems"?, "nearest"?, "approval"?, "code"?, "data"?}`.
"""
CLIENT_ERROR_CODES = frozenset({-32020, -32021, -32022, -32042})
"""JSON-RPC errors that the client itself must handle: headers, capabilities, versions, a URL to
open.
"""
_MAX_MESSAGE_CHARS = 16_000
"""Maximum length of a server's error message."""
_MAX_DATA_CHARS = 600
_MAX_NOTE_CHARS = 400
SERVER_TEXT_NOTICE = "Its server's own words, which may say anything, are now:"
_MAX_DATA_WEIGHT = 16_000
"""Maximum size of the `data` of a server's error; larger ones are left out."""


_MAX_ANNOTATED_BLOCKS = 1_000
"""A result of more blocks stays as it is: copying them would hold up other requests."""


def make_annotations(body: str) -> Raw:
    """Return audience and priority of a text; long ones are for the assistant only."""
    if len(body) > LONG_TEXT_CHARS:
        return {"audience": ["assistant"], "priority": 0.3}
    return {"priority": 0.7}


def annotate_blocks(result: Raw) -> Raw:
    """Return a result whose content blocks all have annotations; those of a server are kept."""
    content = result.get("content")
    if not isinstance(content, list) or len(cast("list[Any]", content)) > _MAX_ANNOTATED_BLOCKS:
        return result
    blocks = list(cast("list[Any]", content))
    for place, block in enumerate(blocks):
        is_plain = isinstance(block, dict) and "annotations" not in block
        if is_plain and block.get("type") in _ANNOTATED_TYPES:
            body = to_text(block.get("text") or block.get("data"))
            blocks[place] = {**block, "annotations": make_annotations(body)}
    return {**result, "content": blocks}


def make_text_result(body: str) -> Raw:
    return {"content": [make_text_block(body)]}


def make_text_block(body: str) -> Raw:
    return {"type": "text", "text": body, "annotations": make_annotations(body)}


def add_call_notes(
    result: Raw, marks: Mapping[str, Any], render_definition: Callable[[], str]
) -> Raw:
    """Prepend notes on repaired arguments and a changed definition, if its marks say so.

    `render_definition` renders the tool's current definition, if it changed.
    """
    lines: list[str] = []
    if CHANGED in marks:
        changes = "; ".join(marks[CHANGED]["changes"])
        lines.append(
            f"[the definition of this tool {CHANGED_PHRASE}: {changes}. {SERVER_TEXT_NOTICE}]\n"
            f"{render_definition()}"
        )
    if REPAIRED in marks:
        text = " ".join(sanitize_text("; ".join(marks[REPAIRED])).split())
        lines.append(f"[arguments repaired: {_clip(text, _MAX_NOTE_CHARS)}]")
    if not lines:
        return result
    content = result.get("content")
    if not isinstance(content, list):
        content = []
    return {**result, "content": [make_text_block("\n".join(lines)), *content]}


def _clip(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}…"


def mask_secrets(text: str) -> str:
    """Mask secrets in a server's failure message, which may quote its environment or URL."""
    # Imported late: compiling its patterns slows start-up, and failing servers are rare.
    from portico.config_file.mask import mask_text

    return mask_text(text)


def make_error_result(error: PorticoError, *, hint: str = "") -> Raw:
    """Return an error as a tool result: what happened and what to do."""
    # Messages often quote a server: indented, so that no line of it looks like the gateway's.
    message = _clip(error.message, _MAX_MESSAGE_CHARS)
    if isinstance(error, BackendUnavailable):
        message = mask_secrets(message)
    lines = [f"{error.kind}: {message}"]
    if isinstance(error, RemoteError):
        lines[0] += f" (the server's error {error.code})"
        if error.has_data and error.data is not None:
            lines.append(f"data: {_clip_data(error.data)}")
    if error.advice:
        lines.append(error.advice)
    nearest = error.nearest if isinstance(error, UnknownName) else ()
    if nearest and not any(name in error.advice for name in nearest):
        lines.append("Nearest: " + ", ".join(nearest))
    lines = [sanitize_text(line).replace("\n", "\n  ") for line in lines]
    if hint:
        lines.append(hint)
    return {
        **make_text_result("\n".join(lines)),
        "isError": True,
        "_meta": {ERROR_META_KEY: to_error_data(error, message)},
    }


def to_error_data(error: PorticoError, message: str = "") -> Raw:
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
    if isinstance(error, ApprovalRequired):
        data["approval"] = error.approval_id
        if error.url:
            data["url"] = error.url
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
    return _clip(text, _MAX_DATA_CHARS)
