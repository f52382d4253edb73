"""A tool as its server described it: immutable, hashed, untouched.

The definition is kept as the bytes it was listed with and parsed when it is used, the latest few of
all tools being remembered: a catalog of thousands costs its text and no more, however much of it is
looked at. `name` is the name people use (after renames), `upstream_name` the one its server answers
to.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from portico.json_text import json_codec

MAX_DEPTH = 100
"""Real definitions nest 26 levels. Clients give up on a whole list at 64 to 200, so one definition
may not go there."""

_CACHE_SIZE = 256
"""Parsed definitions: a page of search results looks at each of its own several times, and at no
others."""


def encode_json(value: Any) -> bytes:
    """JSON that can be kept, read back and shown; raises ValueError, with the reason, for what
    cannot."""
    try:
        blob = json_codec.dumps(value)
        # As many brackets as levels, at least: nearly every definition has too few to be looked at
        # more closely.
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
    """The identity of a definition: 16 hex characters of its BLAKE2 digest."""
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
        """`server.tool`: the server has no dot, so the first dot splits."""
        return f"{self.server}.{self.name}"

    @property
    def definition(self) -> Mapping[str, Any]:
        """The raw definition, every field the upstream sent."""
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
        """Whether it says of itself that it destroys. Most say nothing, and are not parsed to know
        that."""
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
    except ValueError:  # it was read from a damaged file; the next listing mends it
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
    """A tool from a definition that has a usable name."""
    blob = json_codec.dumps(definition)
    upstream_name = definition["name"]
    return Tool(
        server, name or upstream_name, upstream_name, blob, compute_hash(blob), warnings, tags
    )
