"""A tool definition as its server sent it: immutable, hashed, unmodified but for what the
configuration overrides (`catalog/tool_overrides.py`).

The definition is stored as the bytes it was listed with and parsed on use; a small cache holds the
latest parsed ones, so that a catalog of thousands costs only its text. `name` is the exposed name
(after renames), `upstream_name` the server's own.

Texts of servers are sanitized for display here, too: invisible characters are removed or escaped.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import orjson

from portico.catalog.argument_translation import ArgumentTranslation
from portico.json_text import json_codec
from portico.json_text.json_codec import to_object, to_text

MAX_DEPTH = 100
"""Real definitions nest up to 26 levels; clients reject a whole list at 64 to 200."""

_CACHE_SIZE = 256
"""Parsed definitions; a page of search results reads each of its own several times."""
_MAX_HINTS = 16_384
"""Definitions whose hints are remembered."""
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


def encode_json(value: Any) -> bytes:
    """Encode JSON that can be decoded again; raises ValueError with the reason if impossible."""
    try:
        blob = json_codec.dumps(value)
        # There are at least as many brackets as levels; nearly every definition has too few.
        if blob.count(b"{") + blob.count(b"[") > MAX_DEPTH and _is_nested_beyond(MAX_DEPTH, value):
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        if b"\\ud" in blob:
            json_codec.loads(blob)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from None
    except TypeError as error:
        raise ValueError(str(error)) from None
    return blob


def _is_nested_beyond(depth: int, value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(depth + 1):
        level = [inner for outer in level for inner in _list_children(outer)]
    return bool(level)


def _list_children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list):
        return value
    return ()


def compute_hash(blob: bytes) -> str:
    """Return the identity of a definition: 16 hex characters of its BLAKE2 digest."""
    return hashlib.blake2b(blob, digest_size=8).hexdigest()


@dataclass(frozen=True, eq=False, slots=True)
class Tool:
    server: str
    name: str
    upstream_name: str
    blob: bytes
    """The raw definition as JSON, keys in the upstream's order."""
    hash: str
    warnings: tuple[str, ...] = ()
    tags: tuple[str, ...] = field(default=())
    held: str = ""
    """Why it must not be called until somebody has looked at its definition; empty if it may."""
    own_blob: bytes = b""
    """The server's own definition where the configuration overrides it; else empty."""
    translation: ArgumentTranslation | None = None
    """How arguments become those of the server, where its parameters are overridden."""
    address: str = field(init=False)
    """`server.tool`; a server name has no dot, so the first dot splits."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", f"{self.server}.{self.name}")

    @property
    def definition(self) -> Mapping[str, Any]:
        """The raw definition with every field the server sent."""
        return _parse_definition(self.blob) or {"name": self.upstream_name}

    @property
    def original(self) -> "Tool":
        """The tool as its server has it."""
        blob = self.own_blob or self.blob
        return replace(
            self,
            name=self.upstream_name,
            blob=blob,
            hash=compute_hash(blob),
            own_blob=b"",
            translation=None,
        )

    @property
    def description(self) -> str:
        value = self.definition.get("description")
        return to_text(value)

    @property
    def title(self) -> str:
        titles = (self.definition.get("title"), self.annotations.get("title"))
        return next((value for value in titles if isinstance(value, str)), "")

    @property
    def input_schema(self) -> Mapping[str, Any]:
        return self._get_mapping("inputSchema")

    @property
    def annotations(self) -> Mapping[str, Any]:
        return self._get_mapping("annotations")

    def _get_mapping(self, key: str) -> Mapping[str, Any]:
        value = self.definition.get(key)
        return to_object(value)

    @property
    def is_destructive(self) -> bool:
        """Whether the tool is annotated as destructive."""
        return _read_hints(self.blob)[1]

    @property
    def is_read_only(self) -> bool:
        """Whether the tool is annotated as read-only."""
        return _read_hints(self.blob)[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tool) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, str, str]:
        return self.server, self.name, self.hash


@lru_cache(maxsize=_MAX_HINTS)
def _read_hints(blob: bytes) -> tuple[bool, bool]:
    """Return whether a definition is annotated as read-only, and as destructive."""
    # Most definitions are not parsed for it.
    if b'"readOnlyHint":true' not in blob and b'"destructiveHint":true' not in blob:
        return False, False
    hints = to_object((_parse_definition(blob) or {}).get("annotations"))
    return hints.get("readOnlyHint") is True, hints.get("destructiveHint") is True


@lru_cache(maxsize=_CACHE_SIZE)
def _parse_definition(blob: bytes) -> Mapping[str, Any] | None:
    try:
        found = json_codec.loads(blob)
    except ValueError:  # read from a damaged file; the next listing replaces it
        return None
    return found if isinstance(found, dict) else None


def make_tool(
    server: str,
    definition: Mapping[str, Any],
    *,
    name: str | None = None,
    warnings: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
) -> Tool:
    blob = json_codec.dumps(definition)
    upstream_name = definition["name"]
    return Tool(
        server, name or upstream_name, upstream_name, blob, compute_hash(blob), warnings, tags
    )


def sanitize_text(text: Any) -> str:
    """Return text without control characters, escape sequences and invisible characters."""
    if not isinstance(text, str):
        text = "" if text is None else to_literal(text)
    if text.isascii():
        return _HIDDEN_ASCII.sub("", text if "\r" not in text else _LINE_ENDS.sub("\n", text))
    return _HIDDEN.sub("", _LINE_ENDS.sub("\n", text))


def to_literal(value: Any) -> str:
    """Return a value as exact JSON; invisible characters are escaped, as callers must send them."""
    try:
        text = orjson.dumps(value).decode()
        if (text.isascii() and "\x7f" not in text) or not _TO_ESCAPE.search(text):
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
    if len(text) <= limit and len(inner) <= 2 * limit:
        return inner
    return f"{inner[: 2 * limit].rstrip(inner[-1])}…{inner[-1]}"
