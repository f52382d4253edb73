"""What differs between two states of something that a model reads, and whether that is harmless.

Harmless is what cannot tell a model anything new: other white space, a corrected letter or another
date in up to three words, a comma-separated list of single words in another order, more values of
an enum that look like identifiers, fewer required parameters, wider bounds. Everything else is not:
a new optional parameter brings a description with it, and a mark such as `readOnlyHint` decides
what is asked for approval. Pure.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson

from portico.json_text import json_codec
from portico.policy.definition_scan import Finding

Item = tuple[str, str]
"""Kind (`tool`, `prompt`, `template`, `server`) and the server's own name. `server` is the server's
instructions, title and description."""
MAX_FIELDS = 200
"""Differing fields that are looked at; with more, the change is not harmless."""
MAX_DEPTH = 120
MAX_TYPOS = 3
MIN_TYPO_CHARS = 5
MAX_TEXT_CHARS = 32 * 1024
_UNREAD_KEYS = frozenset({"_meta", "icons"})
"""What no model reads."""
_TEXT_KEYS = frozenset({"description", "title", "instructions"})
_DATA_KEYS = frozenset({"default", "const", "examples", "example"})
"""Keys of a schema below which everything is a value."""
_UPPER_BOUNDS = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
_LOWER_BOUNDS = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:+-]{0,39}")
_WORD = re.compile(r"[A-Za-z]+")
_DATE = re.compile(r"(19|20)\d\d(-\d\d-\d\d)?")
_EDGES = ".,;:!?'\"()[]{}"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs."""

    path: str
    before: Any = None
    after: Any = None
    is_harmless: bool = False


@dataclass(frozen=True)
class DefinitionChange:
    """One tool, prompt, template or server that says something else than what was trusted."""

    kind: str
    """As of an `Item`."""
    name: str
    """The server's own name of it; empty for the server itself."""
    digest: str
    """Identifies what is said now."""
    before: bytes | None
    """The trusted definition as JSON; None if there is none."""
    after: bytes
    notes: tuple[str, ...] = ()
    is_held: bool = False
    renamed_from: str = ""
    findings: tuple[Finding, ...] = ()
    """What the scan has found in it."""

    @property
    def label(self) -> str:
        """What it is, in words."""
        if self.kind == "server":
            return "instructions"
        return f"{self.kind} {self.name}"


def compute_digest(definition: bytes) -> str:
    """Return the identity of a definition, which nobody can find a second one for."""
    return hashlib.blake2b(definition, digest_size=32).hexdigest()


def compare_fields(before: bytes, after: bytes) -> tuple[FieldChange, ...]:
    """Return the fields that differ; empty if a model reads the same."""
    try:
        old = _drop_unread(json_codec.loads(before))
        new = _drop_unread(json_codec.loads(after))
        found: list[FieldChange] = []
        for change in _walk(old, new, "", 0, is_data=False):
            found.append(change)
            if len(found) >= MAX_FIELDS:
                found.append(FieldChange("more fields"))
                break
        return tuple(found)
    except (ValueError, RecursionError):
        return (FieldChange("what is not readable"),)


def make_body(definition: bytes) -> bytes:
    """Return a definition without its name, in one spelling: equal for a renamed one."""
    try:
        value = _drop_unread(json_codec.loads(definition))
        if isinstance(value, dict):
            cast("dict[str, Any]", value).pop("name", None)
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (ValueError, TypeError, RecursionError):
        return definition


def _drop_unread(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    return {key: member for key, member in members.items() if key not in _UNREAD_KEYS}


def _walk(
    old: Any, new: Any, path: str, depth: int, *, is_data: bool, key: str = ""
) -> Iterator[FieldChange]:
    if type(old) is type(new) and old == new:
        return
    if depth > MAX_DEPTH:
        yield FieldChange(path, old, new)
    elif isinstance(old, dict) and isinstance(new, dict):
        yield from _walk_members(old, new, path, depth, is_data=is_data)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _walk_items(old, new, path, depth, is_data=is_data, key=key)
    else:
        is_harmless = not is_data and _is_harmless_value(key, old, new)
        yield FieldChange(path, old, new, is_harmless)


def _walk_members(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str, depth: int, *, is_data: bool
) -> Iterator[FieldChange]:
    # The members of `properties` are names, not keywords.
    are_names = path.rpartition(".")[2] in ("properties", "patternProperties", "$defs")
    for key in dict.fromkeys((*old, *new)):
        inner = f"{path}.{key}" if path else key
        below_data = is_data or (key in _DATA_KEYS and not are_names)
        keyword = "" if are_names else key
        if key not in new:
            widens = keyword in _UPPER_BOUNDS | _LOWER_BOUNDS or keyword == "required"
            yield FieldChange(inner, old[key], None, widens and not below_data)
        elif key not in old:
            yield FieldChange(inner, None, new[key])
        else:
            yield from _walk(old[key], new[key], inner, depth + 1, is_data=below_data, key=keyword)


def _walk_items(
    old: list[Any], new: list[Any], path: str, depth: int, *, is_data: bool, key: str
) -> Iterator[FieldChange]:
    if not is_data and key == "enum":
        known = set(map(_make_key, old))
        added = [value for value in new if _make_key(value) not in known]
        kept_all = known <= set(map(_make_key, new))
        yield FieldChange(path, old, new, kept_all and all(map(_is_plain_value, added)))
    elif not is_data and key == "required":
        is_narrower = set(map(_make_key, new)) <= set(map(_make_key, old))
        yield FieldChange(path, old, new, is_narrower)
    elif len(old) == len(new):
        for position, (before, after) in enumerate(zip(old, new, strict=True)):
            inner = f"{path}[{position}]"
            yield from _walk(before, after, inner, depth + 1, is_data=is_data)
    else:
        yield FieldChange(path, old, new)


def _make_key(value: Any) -> bytes:
    """Return what is equal for equal values. Sets of these: lists of ten thousand values would be
    compared for seconds."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json_codec.dumps(value)


def _is_plain_value(value: Any) -> bool:
    if isinstance(value, str):
        return _IDENTIFIER.fullmatch(value) is not None
    return value is None or isinstance(value, int | float)


def _is_harmless_value(key: str, old: Any, new: Any) -> bool:
    if key in _TEXT_KEYS and isinstance(old, str) and isinstance(new, str):
        return _is_same_text(old, new)
    if _is_number(old) and _is_number(new):
        return (key in _UPPER_BOUNDS and new > old) or (key in _LOWER_BOUNDS and new < old)
    return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same_text(old: str, new: str) -> bool:
    """Return whether two texts differ only in white space, punctuation, a few letters and the order
    of lists."""
    if max(len(old), len(new)) > MAX_TEXT_CHARS:
        return False
    old_words = old.split()
    new_words = new.split()
    if len(old_words) != len(new_words):
        return False
    # What a program keeps as a set is written in another order at each start.
    if _sort_lists(old_words) == _sort_lists(new_words):
        return True
    pairs = [pair for pair in zip(old_words, new_words, strict=True) if pair[0] != pair[1]]
    return len(pairs) <= MAX_TYPOS and all(_is_typo(*pair) for pair in pairs)


def _sort_lists(words: list[str]) -> list[str]:
    """Return the words without punctuation around them, and each list in order: words that end with
    a comma, and the one after them."""
    ordered: list[str] = []
    items: list[str] = []
    for word in words:
        items.append(word.strip(_EDGES))
        if not word.endswith(","):
            ordered += sorted(items)
            items = []
    return ordered + sorted(items)


def _is_typo(old: str, new: str) -> bool:
    old = old.strip(_EDGES).casefold()
    new = new.strip(_EDGES).casefold()
    if old == new:
        return True
    if _DATE.fullmatch(old) and _DATE.fullmatch(new):
        return True
    # An address, a number or a letter of another script is never a typo.
    if not (_WORD.fullmatch(old) and _WORD.fullmatch(new)):
        return False
    return min(len(old), len(new)) >= MIN_TYPO_CHARS and _is_one_edit(old, new)


def _is_one_edit(old: str, new: str) -> bool:
    """Return whether one letter was replaced, added or left out, or two were exchanged."""
    if len(old) > len(new):
        return _is_one_edit(new, old)
    start = 0
    while start < len(old) and old[start] == new[start]:
        start += 1
    if len(new) == len(old) + 1:
        return old[start:] == new[start + 1 :]
    if len(new) != len(old):
        return False
    exchanged = old[start : start + 2] == new[start : start + 2][::-1]
    return old[start + 1 :] == new[start + 1 :] or (
        exchanged and old[start + 2 :] == new[start + 2 :]
    )
