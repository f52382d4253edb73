"""Sanitizes text and values for display: removes or escapes invisible characters. Pure."""

import json
import re
from typing import Any

import orjson

_HIDDEN_ASCII = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_HIDDEN_BEYOND = (
    r"[\x80-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_HIDDEN = re.compile(f"{_HIDDEN_ASCII.pattern}|{_HIDDEN_BEYOND}")
_LINE_ENDS = re.compile("\r\n?|[\x85\u2028\u2029]")
_TO_ESCAPE = re.compile(f"{_HIDDEN_BEYOND}|[\x7f\x85\u2028\u2029]")


def sanitize_text(text: Any) -> str:
    """Return text without control characters, escape sequences and invisible characters."""
    if not isinstance(text, str):
        if text is None:
            text = ""
        else:
            text = to_literal(text)
    if text.isascii():
        return _HIDDEN_ASCII.sub("", text if "\r" not in text else _LINE_ENDS.sub("\n", text))
    return _HIDDEN.sub("", _LINE_ENDS.sub("\n", text))


def to_literal(value: Any) -> str:
    """Return a value as exact JSON; invisible characters are escaped, as callers must send them."""
    try:
        text = orjson.dumps(value).decode()
        exact = (text.isascii() and "\x7f" not in text) or not _TO_ESCAPE.search(text)
        if exact:
            return text
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError):
        try:
            return json.dumps(value, default=str, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError):
            return "…"


def quote_text(text: str, limit: int = 80) -> str:
    """Quote a caller's own text: escaped, and shortened to about `limit` characters."""
    inner = repr(text[:limit])
    is_complete = len(text) <= limit and len(inner) <= 2 * limit
    if is_complete:
        return inner
    return f"{inner[: 2 * limit].rstrip(inner[-1])}…{inner[-1]}"
