"""Repair of arguments that do not fit a schema, where only one reading is possible. Pure.

Repaired are: numbers and booleans as text, a single value for a list, JSON text for the value it
encodes, Lua's empty table for a list, another letter case of an enumerated word, `null` for an
optional parameter, and a parameter name in another spelling. An ambiguous value is left as it is.
The result is a copy, and the caller validates it again against the whole schema.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.calls.schema_rules import (
    Schema,
    ValueRules,
    get_json_type,
    is_among,
    read_own_rules,
)
from portico.catalog.schema_types import resolve_pointer
from portico.catalog.tool import quote_text, to_literal
from portico.json_text import json_codec

MAX_NODES = 1_000
"""Values and schemas that are visited, at 2 µs each; recorded tools take up to 414."""
MAX_DEPTH = 24
MAX_NOTES = 12
_ENTRIES_PER_NODE = 100
"""Members, names and characters that cost as much as one node."""
_COMPARE_COST = 10
"""Cost of normalising and comparing an entry, relative to copying it."""
MAX_JSON_CHARS = 256 * 1024
"""Longest JSON text that is parsed."""
_MAX_UNKNOWN_NAMES = 100
"""With more unknown names than this none is matched: so many are not misspellings."""
MAX_NAME_CHARS = 200
MAX_EXACT_INTEGER = 2**53
"""A larger number may already have lost digits, so its text is not certain."""

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:[eE][+-]?\d{1,3})?")
_WORD_SEPARATOR = re.compile(r"(?<=[^\W\d_])[-_ ]+(?=[^\W_])|(?<=[^\W_])[-_ ]+(?=[^\W\d_])")
"""Separators between words; a sign before a word or between digits belongs to it."""
_LIST_SEPARATOR = re.compile(r"[,;\n|]")
_ABSENT = object()


@dataclass(frozen=True)
class Repair:
    """Repaired arguments, and a note for each repair."""

    arguments: dict[str, Any]
    notes: tuple[str, ...]


def repair_arguments(schema: Schema, arguments: Any) -> Repair | None:
    """Repair arguments that do not fit `schema`, or return None if nothing could be repaired.

    The repaired arguments may still not fit.
    """
    repairer = _ArgumentRepairer(schema)
    if isinstance(arguments, str):
        arguments = repairer.parse_object(arguments, "the arguments")
    elif arguments == [] and isinstance(arguments, list):
        repairer.add_note("the arguments", "an empty list read as an empty object")
        arguments = {}
    if not isinstance(arguments, dict):
        return None
    try:
        repaired = repairer.repair_value(schema, arguments, "", 0)
    except (_RepairTooCostly, RecursionError):
        return None
    if not repairer.notes or not isinstance(repaired, dict):
        return None
    notes = repairer.notes[:MAX_NOTES]
    if (omitted := len(repairer.notes) - MAX_NOTES) > 0:
        notes.append(f"and {omitted} more")
    return Repair(cast("dict[str, Any]", repaired), tuple(notes))


class _RepairTooCostly(Exception):
    pass


class _ArgumentRepairer:
    def __init__(self, root: Schema) -> None:
        self.notes: list[str] = []
        self._root = root
        self._left = MAX_NODES
        # Draft 4 does not accept 5.0 as an integer; later drafts do.
        self._strict = "draft-04" in str(root.get("$schema", ""))

    def _spend(self, nodes: int, depth: int = 0) -> None:
        """Charge for nodes, or entries that cost as much; raise _RepairTooCostly at the limit."""
        self._left -= nodes
        if self._left <= 0 or depth > MAX_DEPTH:
            raise _RepairTooCostly

    def add_note(self, path: str, text: str) -> None:
        self.notes.append(f"{path}: {text}" if path else text)

    def parse_object(self, text: str, path: str) -> Any:
        """Parse JSON text; adds a note if it is an object."""
        read = _parse_container(text)
        if isinstance(read, dict):
            self.add_note(path, "JSON text read as an object")
        return read

    def repair_value(
        self, schema: Any, value: Any, path: str, depth: int, *, in_list: bool = False
    ) -> Any:
        """Return the repaired value; `in_list` marks an item of a list."""
        self._spend(1, depth)
        if not isinstance(schema, dict):
            return value
        rules = self._collect_rules(cast("Schema", schema))
        types, words = rules.get_allowed()
        found = value
        if types is not None and not self._has_type(value, types):
            found = self._convert(rules, types, words, value, in_list=in_list)
        elif words is not None and not is_among(value, words):
            found = _find_enum_value(words, value)
        if found is _ABSENT:
            return value
        if found is not value:
            self.add_note(path, _describe_repair(value, found))
        if isinstance(found, dict | list) and rules.choices:
            rules = rules.choose_branch(get_json_type(found))
        if isinstance(found, dict):
            return self._repair_object(rules, cast("dict[str, Any]", found), path, depth)
        if isinstance(found, list) and isinstance(rules.items, dict):
            return [
                self.repair_value(rules.items, item, f"{path}.{n}", depth + 1, in_list=True)
                for n, item in enumerate(cast("list[Any]", found))
            ]
        return found

    # --- one value

    def _has_type(self, value: Any, types: frozenset[str]) -> bool:
        kind = get_json_type(value)
        if kind in types or (kind == "integer" and "number" in types):
            return True
        is_whole = kind == "number" and not self._strict and float(value).is_integer()
        return is_whole and "integer" in types

    def _convert(
        self,
        rules: ValueRules,
        types: frozenset[str],
        words: tuple[Any, ...] | None,
        value: Any,
        *,
        in_list: bool,
    ) -> Any:
        if words is not None and (found := _find_enum_value(words, value)) is not _ABSENT:
            return found
        readings = [
            *_list_scalar_readings(value, types),
            *self._list_container_readings(rules, types, value, in_list=in_list),
        ]
        return readings[0] if len(readings) == 1 else _ABSENT

    def _list_container_readings(
        self, rules: ValueRules, types: frozenset[str], value: Any, *, in_list: bool
    ) -> list[Any]:
        if isinstance(value, str):
            self._spend(len(value) // _ENTRIES_PER_NODE)
            read = _parse_container(value)
            if read is not None and get_json_type(read) in types:
                return [read]
        if "array" not in types or value is None:
            return []
        if value == {}:
            return [[]]
        # A list of lists may mean one row or many, and text with commas may be several values.
        items = [rule.items for rule in (rules, *rules.choices) if isinstance(rule.items, dict)]
        item_types = None
        if len(items) == 1:
            item_types = self._collect_rules(cast("Schema", items[0])).get_allowed()[0]
        if in_list or (item_types is not None and "array" in item_types):
            return []
        allows_strings = item_types is None or "string" in item_types
        if isinstance(value, str) and _is_ambiguous(value, allows_strings=allows_strings):
            return []
        return [[value]]

    # --- objects

    def _repair_object(
        self, rules: ValueRules, value: dict[str, Any], path: str, depth: int
    ) -> dict[str, Any]:
        repaired: dict[str, Any] = {}
        renamed = self._match_names(rules, value)
        prefix = f"{path}." if path else ""
        for name, member in value.items():
            own = renamed.get(name, name)
            place = f"{prefix}{own}"[:MAX_NAME_CHARS]
            if own != name:
                note = f"taken for {quote_text(own, 60)}"
                self.add_note(f"{prefix}{name}"[:MAX_NAME_CHARS], note)
            schema = rules.properties.get(own, rules.additional)
            may_be_absent = own in rules.properties and own not in rules.required
            if member is None and may_be_absent and self._forbids_null(schema):
                self.add_note(place, "null left out")
                continue
            repaired[own] = self.repair_value(schema, member, place, depth + 1)
        return repaired

    def _forbids_null(self, schema: Any) -> bool:
        if not isinstance(schema, dict):
            return False
        return self._collect_rules(cast("Schema", schema)).forbids_null()

    def _match_names(self, rules: ValueRules, value: Mapping[str, Any]) -> dict[str, str]:
        """Map unknown names to the parameters that they are another spelling of."""
        unknown = [name for name in value if name not in rules.properties]
        known = rules.properties if rules.is_closed else rules.required
        wanted = [name for name in known if name not in value]
        if not unknown or not wanted or len(unknown) > _MAX_UNKNOWN_NAMES:
            return {}
        wanted_by_spelling = _group_by_spelling(wanted)
        return {
            names[0]: wanted_by_spelling[spelling][0]
            for spelling, names in _group_by_spelling(unknown).items()
            if spelling and len(names) == 1 and len(wanted_by_spelling.get(spelling, ())) == 1
        }

    # --- rules of a schema

    def _collect_rules(self, schema: Schema, depth: int = 0) -> ValueRules:
        self._spend(1, depth)
        rules = read_own_rules(schema)
        compared = len(rules.required) + len(rules.allowed_values or ())
        if rules.is_closed:
            compared += len(rules.properties)
        self._spend((len(rules.properties) + _COMPARE_COST * compared) // _ENTRIES_PER_NODE)
        for part in self._list_subschemas(schema):
            self._spend(1)  # merging costs as much as reading
            rules = rules.merge(self._collect_rules(part, depth + 1))
        branches = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(branches, list):
            choices = tuple(
                self._collect_rules(branch, depth + 1)
                for branch in branches
                if isinstance(branch, dict)
            )
            if len(choices) != len(branches):
                choices = (ValueRules(),)
            rules = rules.merge(ValueRules(choices=choices))
        return rules

    def _list_subschemas(self, schema: Schema) -> list[Schema]:
        all_of = schema.get("allOf")
        parts = list(cast("list[Any]", all_of)) if isinstance(all_of, list) else []
        if isinstance(pointer := schema.get("$ref"), str):
            parts.append(resolve_pointer(pointer, self._root))
        return [part for part in parts if isinstance(part, dict)]


# --- possible readings of one value


def _list_scalar_readings(value: Any, types: frozenset[str]) -> list[Any]:
    if isinstance(value, bool):
        return []
    if isinstance(value, str):
        return _list_text_readings(value.strip(), types)
    if not isinstance(value, int | float) or abs(value) > MAX_EXACT_INTEGER:
        return []
    if isinstance(value, int):
        return [str(value)] if "string" in types else []
    return [int(value)] if "integer" in types and value.is_integer() else []


def _list_text_readings(text: str, types: frozenset[str]) -> list[Any]:
    if "boolean" in types and text.lower() in ("true", "false"):
        return [text.lower() == "true"]
    if not types & {"integer", "number"} or not _NUMBER.fullmatch(text):
        return []
    number = float(text)
    if abs(number) > MAX_EXACT_INTEGER:
        return []
    if number.is_integer() and ("integer" in types or text.lstrip("-").isdigit()):
        return [int(number)]
    return [number] if "number" in types else []


def _find_enum_value(allowed_values: tuple[Any, ...], value: Any) -> Any:
    """Return the only allowed value that `value` is another spelling of, else _ABSENT."""
    if isinstance(value, dict | list) or value is None:
        return _ABSENT
    spelling = _normalize_spelling(value)
    matches = [
        candidate
        for candidate in allowed_values
        if spelling and candidate is not None and _normalize_spelling(candidate) == spelling
    ]
    return matches[0] if len(matches) == 1 else _ABSENT


def _group_by_spelling(names: list[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_normalize_spelling(name), []).append(name)
    return groups


def _normalize_spelling(value: Any) -> str:
    """Return a word in lower case without separators; "" if it is too long."""
    text = value if isinstance(value, str) else to_literal(value)
    if len(text) > MAX_NAME_CHARS:
        return ""
    return _WORD_SEPARATOR.sub("", text.strip()).casefold()


def _parse_container(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "[") or len(text) > MAX_JSON_CHARS:
        return None
    try:
        return json_codec.loads(text.encode())
    except ValueError:
        return None


def _is_ambiguous(text: str, *, allows_strings: bool) -> bool:
    """Return whether text for a list may be several values, none, or JSON of another type."""
    if allows_strings and (
        _LIST_SEPARATOR.search(text) or text.strip().lower() in ("", "null", "none")
    ):
        return True
    read = _parse_container(text)
    return read is not None and (allows_strings or not read)


def _describe_repair(before: Any, after: Any) -> str:
    was_json = isinstance(before, str) and before.lstrip()[:1] in ("[", "{")
    if was_json and isinstance(after, list | dict):
        return f"JSON text read as {'a list' if isinstance(after, list) else 'an object'}"
    if isinstance(after, list):
        return "one value made a list" if after else "an empty object read as an empty list"
    return f"{_shorten(before)} read as {_shorten(after)}"


def _shorten(value: Any) -> str:
    text = to_literal(value)
    return text if len(text) <= 60 else f"{text[:40]}…{text[-10:]}"
