"""Finds out whether a new tool is one that a server listed before, under another name. Pure.

A server may list ten thousand tools where it had three hundred others: what is known of the former
ones is made once, and the words that are compared are counted first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson

from portico.json_text import json_codec
from portico.policy.definition_change import DefinitionChange, make_body
from portico.upstream.backend import Raw

SIMILAR_NAMES = 80.0
"""Likeness of names, on rapidfuzz's scale of 0 … 100, from which a new tool counts as a changed
former one."""
SIMILAR_TEXTS = 0.6
"""Share of common words from which it does, too."""
MAX_COMPARED_WORDS = 100_000_000
"""Words of all new tools times former tools: two or three seconds."""
_MAX_NAME_CHARS = 100
_MAX_TEXT_CHARS = 4_000


class TooManyTools(Exception):
    """There are too many tools to compare them."""


@dataclass(frozen=True)
class _Former:
    name: str
    words: frozenset[str]


class FormerTools:
    """Tools that a server does not list any more."""

    def __init__(self, definitions: Mapping[str, bytes]) -> None:
        """`definitions` are by the server's own name."""
        self._definitions = definitions
        self._names_by_body: dict[bytes, str] = {}
        self._names_by_schema: dict[bytes, str] = {}
        self._former: list[_Former] = []
        self._folded = [name[:_MAX_NAME_CHARS].casefold() for name in definitions]
        self._words_left = MAX_COMPARED_WORDS
        for name, definition in definitions.items():
            value = parse_definition(definition)
            self._names_by_body.setdefault(make_body(definition), name)
            if schema := _make_schema_key(value):
                self._names_by_schema.setdefault(schema, name)
            self._former.append(_Former(name, _split_words(value)))

    def __bool__(self) -> bool:
        return bool(self._definitions)

    def __getitem__(self, name: str) -> bytes:
        return self._definitions[name]

    def find_renamed(self, change: DefinitionChange) -> str | None:
        """Return the name of the tool that a new one is, apart from its name; None: of none."""
        return self._names_by_body.get(make_body(change.after)) if self else None

    def find_similar(self, change: DefinitionChange) -> str | None:
        """Return the name of the tool that a new one is with another name and other words; None: of
        none. Raises TooManyTools."""
        if not self:
            return None
        from rapidfuzz import fuzz, process  # late, because few listings need it

        folded = change.name[:_MAX_NAME_CHARS].casefold()
        cutoff = SIMILAR_NAMES
        if found := process.extractOne(
            folded, self._folded, scorer=fuzz.ratio, score_cutoff=cutoff
        ):
            return self._former[found[2]].name
        value = parse_definition(change.after)
        if name := self._names_by_schema.get(_make_schema_key(value)):
            return name
        words = _split_words(value)
        self._words_left -= len(words) * len(self._former)
        if self._words_left < 0:
            raise TooManyTools
        for former in self._former:
            smaller = min(len(words), len(former.words))
            if smaller > 0 and len(words & former.words) / smaller >= SIMILAR_TEXTS:
                return former.name
        return None


def parse_definition(definition: bytes) -> Raw:
    """Return a definition, or an empty one where it cannot be read."""
    try:
        value = json_codec.loads(definition)
    except (ValueError, RecursionError):
        return {}
    return cast(Raw, value) if isinstance(value, dict) else {}


def _make_schema_key(definition: Raw) -> bytes:
    """Return what is equal for equal schemas; empty for one without parameters."""
    schema: Any = definition.get("inputSchema")
    if not isinstance(schema, dict) or not cast("Raw", schema).get("properties"):
        return b""
    try:
        return orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json_codec.dumps(cast("Raw", schema))


def _split_words(definition: Raw) -> frozenset[str]:
    text = definition.get("description")
    if not isinstance(text, str):
        return frozenset()
    return frozenset(text[:_MAX_TEXT_CHARS].casefold().split())
