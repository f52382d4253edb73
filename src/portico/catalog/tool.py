"""A tool definition as its server sent it: immutable, hashed, unmodified.

The definition is stored as the bytes it was listed with and parsed on use; a small cache holds the
latest parsed ones, so that a catalog of thousands costs only its text. `name` is the exposed name
(after renames), `upstream_name` the server's own.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from portico.json_text import json_codec

MAX_DEPTH = 100
"""Real definitions nest up to 26 levels; clients reject a whole list at 64 to 200."""

_CACHE_SIZE = 256
"""Parsed definitions; a page of search results reads each of its own several times."""


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
    """One tool of one server."""

    server: str
    name: str
    upstream_name: str
    blob: bytes
    """The raw definition as JSON, keys in the upstream's order."""
    hash: str
    warnings: tuple[str, ...] = ()
    tags: tuple[str, ...] = field(default=())

    @property
    def address(self) -> str:
        """`server.tool`; a server name has no dot, so the first dot splits."""
        return f"{self.server}.{self.name}"

    @property
    def definition(self) -> Mapping[str, Any]:
        """The raw definition with every field the server sent."""
        found = _parse_definition(self.blob)
        if found is not None:
            return found
        return {"name": self.upstream_name}

    @property
    def description(self) -> str:
        value = self.definition.get("description")
        if isinstance(value, str):
            return value
        return ""

    @property
    def title(self) -> str:
        annotations = self.definition.get("annotations")
        for value in (
            self.definition.get("title"),
            annotations.get("title") if isinstance(annotations, dict) else None,
        ):
            if isinstance(value, str):
                return value
        return ""

    @property
    def input_schema(self) -> Mapping[str, Any]:
        value = self.definition.get("inputSchema")
        if isinstance(value, dict):
            return value
        return {}

    @property
    def annotations(self) -> Mapping[str, Any]:
        value = self.definition.get("annotations")
        if isinstance(value, dict):
            return value
        return {}

    @property
    def is_destructive(self) -> bool:
        """Whether the tool is annotated as destructive. Checked without parsing where possible."""
        return b'"destructiveHint"' in self.blob and self.annotations.get("destructiveHint") is True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tool) and (self.server, self.name, self.hash) == (
            other.server,
            other.name,
            other.hash,
        )

    def __hash__(self) -> int:
        return hash((self.server, self.name, self.hash))


@lru_cache(maxsize=_CACHE_SIZE)
def _parse_definition(blob: bytes) -> Mapping[str, Any] | None:
    try:
        found = json_codec.loads(blob)
    except ValueError:  # read from a damaged file; the next listing replaces it
        return None
    if isinstance(found, dict):
        return found
    return None


def make_tool(
    server: str,
    definition: Mapping[str, Any],
    *,
    name: str | None = None,
    warnings: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
) -> Tool:
    """Create a tool from a definition that has a usable name."""
    blob = json_codec.dumps(definition)
    upstream_name = definition["name"]
    return Tool(
        server, name or upstream_name, upstream_name, blob, compute_hash(blob), warnings, tags
    )
