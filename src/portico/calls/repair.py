"""Repair of arguments that do not fit a schema, where only one reading is possible. Pure.

Repaired are: numbers and booleans as text, a single value for a list, JSON text for the value it
encodes, Lua's empty table for a list, another letter case of an enumerated word, `null` for an
optional parameter, and a parameter name in another spelling. An ambiguous value is left as it is.
The result is a copy, and the caller validates it again against the whole schema.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.catalog.schema_references import resolve_pointer
from portico.catalog.visible_text import quote_text, to_literal
from portico.json_text import json_codec

MAX_NODES = 2_000
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
_JSON_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_NULL_ONLY = frozenset({"null"})
_ABSENT = object()

Schema = Mapping[str, Any]


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


@dataclass(frozen=True)
class _ValueRules:
    """Rules of a schema for one value, with its references and `allOf` merged."""

    types: frozenset[str] | None = None
    """Allowed types; None for any."""
    allowed_values: tuple[Any, ...] | None = None
    """Allowed values; None for any."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    is_closed: bool = False
    additional: Any = None
    items: Any = None
    choices: tuple["_ValueRules", ...] = ()
    """Branches of `anyOf` or `oneOf`, one of which applies too."""


class _ArgumentRepairer:
    def __init__(self, root: Schema) -> None:
        self.notes: list[str] = []
        self._root = root
        self._left = MAX_NODES
        # Draft 4 does not accept 5.0 as an integer; later drafts do.
        self._strict = "draft-04" in str(root.get("$schema", ""))

    def _spend(self, entries: int) -> None:
        """Charge for entries that are copied or compared; raise _RepairTooCostly at the limit."""
        self._left -= entries // _ENTRIES_PER_NODE
        if self._left <= 0:
            raise _RepairTooCostly

    def add_note(self, path: str, text: str) -> None:
        self.notes.append(f"{path}: {text}" if path else text)

    def repair_value(
        self, schema: Any, value: Any, path: str, depth: int, *, in_list: bool = False
    ) -> Any:
        """Return the repaired value; `in_list` marks an item of a list."""
        self._left -= 1
        if self._left <= 0 or depth > MAX_DEPTH:
            raise _RepairTooCostly
        if not isinstance(schema, dict):
            return value
        return self._repair_by_rules(
            self._collect_rules(cast("Schema", schema)), value, path, depth, in_list=in_list
        )

    def _repair_by_rules(
        self, rules: _ValueRules, value: Any, path: str, depth: int, *, in_list: bool
    ) -> Any:
        kinds, words = _get_allowed(rules)
        if kinds is not None and not self._has_type(value, kinds):
            found = self._convert(rules, kinds, words, value, in_list=in_list)
            if found is _ABSENT:
                return value
            self.add_note(path, _describe_repair(value, found))
            value = found
        elif words is not None and not _is_among(value, words):
            found = _find_enum_value(words, value)
            if found is _ABSENT:
                return value
            self.add_note(path, _describe_repair(value, found))
            return found
        if isinstance(value, dict | list) and rules.choices:
            rules = self._choose_branch(rules, value)
        if isinstance(value, dict):
            return self._repair_object(rules, cast("dict[str, Any]", value), path, depth)
        if isinstance(value, list) and isinstance(rules.items, dict):
            items = cast("list[Any]", value)
            return [
                self.repair_value(rules.items, item, f"{path}.{n}", depth + 1, in_list=True)
                for n, item in enumerate(items)
            ]
        return value

    # --- scalar values

    def _has_type(self, value: Any, types: frozenset[str]) -> bool:
        kind = _get_type(value)
        if kind in types or (kind == "integer" and "number" in types):
            return True
        return (
            kind == "number"
            and "integer" in types
            and not self._strict
            and float(value).is_integer()
        )

    def _convert(
        self,
        rules: _ValueRules,
        types: frozenset[str],
        allowed_values: tuple[Any, ...] | None,
        value: Any,
        *,
        in_list: bool,
    ) -> Any:
        if (
            allowed_values is not None
            and (found := _find_enum_value(allowed_values, value)) is not _ABSENT
        ):
            return found
        found = [
            *_list_scalar_readings(value, types),
            *self._list_container_readings(rules, types, value, in_list=in_list),
        ]
        if len(found) == 1:
            return found[0]
        return _ABSENT

    def _list_container_readings(
        self, rules: _ValueRules, types: frozenset[str], value: Any, *, in_list: bool
    ) -> list[Any]:
        if isinstance(value, str):
            self._spend(len(value))
            read = _parse_container(value)
            if (kind := _get_type(read)) in types and kind in ("array", "object"):
                return [read]
        if "array" not in types or value is None:
            return []
        if value == {}:
            return [[]]
        # A list of lists may mean one row or many, and text with commas may be several values.
        items = [rule.items for rule in (rules, *rules.choices) if isinstance(rule.items, dict)]
        if len(items) == 1:
            item_rules = self._collect_rules(cast("Schema", items[0]))
        else:
            item_rules = None
        if item_rules:
            item_types = _get_allowed(item_rules)[0]
        else:
            item_types = None
        if in_list or (item_types is not None and "array" in item_types):
            return []
        if isinstance(value, str) and _is_ambiguous(
            value, allows_strings=item_types is None or "string" in item_types
        ):
            return []
        return [[value]]

    def parse_object(self, text: str, path: str) -> Any:
        """Parse JSON text; adds a note if it is an object."""
        read = _parse_container(text)
        if isinstance(read, dict):
            self.add_note(path, "JSON text read as an object")
        return read

    # --- objects

    def _repair_object(
        self, rules: _ValueRules, value: dict[str, Any], path: str, depth: int
    ) -> dict[str, Any]:
        repaired: dict[str, Any] = {}
        renamed = self._match_names(rules, value)
        for name, member in value.items():
            if path:
                place = f"{path}.{name}"
            else:
                place = name
            own = renamed.get(name, name)
            if own != name:
                self.add_note(place[:MAX_NAME_CHARS], f"taken for {quote_text(own, 60)}")
                if path:
                    place = f"{path}.{own}"
                else:
                    place = own
            schema = rules.properties.get(own, rules.additional)
            place = place[:MAX_NAME_CHARS]
            if (
                member is None
                and own in rules.properties
                and own not in rules.required
                and self._is_null_forbidden(schema)
            ):
                self.add_note(place, "null left out")
                continue
            repaired[own] = self.repair_value(schema, member, place, depth + 1)
        return repaired

    def _match_names(self, rules: _ValueRules, value: Mapping[str, Any]) -> dict[str, str]:
        """Map unknown names to the parameters that they are another spelling of."""
        unknown = [name for name in value if name not in rules.properties]
        wanted = [
            name
            for name in (rules.properties if rules.is_closed else rules.required)
            if name not in value
        ]
        if not unknown or not wanted or len(unknown) > _MAX_UNKNOWN_NAMES:
            return {}
        by_spelling: dict[str, list[str]] = {}
        for name in wanted:
            by_spelling.setdefault(_normalize_spelling(name), []).append(name)
        unknown_by_spelling: dict[str, list[str]] = {}
        for name in unknown:
            unknown_by_spelling.setdefault(_normalize_spelling(name), []).append(name)
        return {
            names[0]: by_spelling[key][0]
            for key, names in unknown_by_spelling.items()
            if key and len(names) == 1 and len(by_spelling.get(key, ())) == 1
        }

    def _is_null_forbidden(self, schema: Any) -> bool:
        if not isinstance(schema, dict):
            return False
        kinds, words = _get_allowed(self._collect_rules(cast("Schema", schema)))
        return (kinds is not None and "null" not in kinds) or (
            words is not None and not _is_among(None, words)
        )

    # --- rules of a schema

    def _choose_branch(self, rules: _ValueRules, value: Any) -> _ValueRules:
        """Merge the only choice that allows the value's type; drop the choices if several do."""
        kind = _get_type(value)
        possible = [
            choice
            for choice in rules.choices
            if (kinds := _get_allowed(choice)[0]) is None or kind in kinds
        ]
        if len(possible) == 1 and not possible[0].choices:
            return _merge_rules(_drop_choices(rules), possible[0])
        return _drop_choices(rules)

    def _collect_rules(self, schema: Schema, depth: int = 0) -> _ValueRules:
        self._left -= 1
        if depth > MAX_DEPTH or self._left <= 0:
            raise _RepairTooCostly
        own = _read_own_rules(schema)
        compared = (
            len(own.required) + len(own.allowed_values or ()) + len(own.properties) * own.is_closed
        )
        self._spend(len(own.properties) + _COMPARE_COST * compared)
        for part in self._list_subschemas(schema):
            own = _merge_rules(own, self._collect_rules(part, depth + 1))
        branches = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(branches, list):
            choices = tuple(
                self._collect_rules(branch, depth + 1)
                for branch in branches
                if isinstance(branch, dict)
            )
            if len(choices) != len(branches):
                choices = (_ValueRules(),)
            own = _merge_rules(own, _ValueRules(choices=choices))
        return own

    def _list_subschemas(self, schema: Schema) -> list[Schema]:
        all_of = schema.get("allOf")
        if isinstance(all_of, list):
            parts = [part for part in all_of if isinstance(part, dict)]
        else:
            parts = []
        if isinstance(pointer := schema.get("$ref"), str) and isinstance(
            target := resolve_pointer(pointer, self._root), dict
        ):
            parts.append(target)
        return cast("list[Schema]", parts)


def _read_own_rules(schema: Schema) -> _ValueRules:
    kind = schema.get("type")
    if isinstance(kind, str):
        named = [kind]
    elif isinstance(kind, list):
        named = kind
    else:
        named = None
    if named:
        kinds = frozenset(name for name in named if isinstance(name, str))
    else:
        kinds = None
    allowed_values = None
    if isinstance(words := schema.get("enum"), list):
        allowed_values = tuple(words)
    elif "const" in schema:
        allowed_values = (schema["const"],)
    properties = schema.get("properties")
    required = schema.get("required")
    required_names = frozenset[str]()
    if isinstance(required, list):
        required_names = frozenset(name for name in required if isinstance(name, str))
    others = schema.get("additionalProperties")
    return _ValueRules(
        kinds if kinds and kinds <= _JSON_TYPES else None,
        allowed_values,
        properties if isinstance(properties, dict) else {},
        required_names,
        others is False and "patternProperties" not in schema,
        others if isinstance(others, dict) else None,
        schema.get("items"),
    )


def _merge_rules(one: _ValueRules, other: _ValueRules) -> _ValueRules:
    if one.types is not None and other.types is not None:
        kinds = one.types & other.types
    else:
        kinds = one.types or other.types
    if one.choices and other.choices:
        choices = (_ValueRules(),)
    else:
        choices = one.choices or other.choices
    return _ValueRules(
        kinds,
        one.allowed_values if one.allowed_values is not None else other.allowed_values,
        {**other.properties, **one.properties},
        one.required | other.required,
        one.is_closed or other.is_closed,
        one.additional if one.additional is not None else other.additional,
        one.items if one.items is not None else other.items,
        choices,
    )


def _drop_choices(rules: _ValueRules) -> _ValueRules:
    return _ValueRules(
        rules.types,
        rules.allowed_values,
        rules.properties,
        rules.required,
        rules.is_closed,
        rules.additional,
        rules.items,
    )


def _get_allowed(rules: _ValueRules) -> tuple[frozenset[str] | None, tuple[Any, ...] | None]:
    """Return the types and values that any of the choices allows; None for any."""
    kinds = rules.types
    words = rules.allowed_values
    if rules.choices:
        by_choice = [_get_allowed(allowed) for allowed in rules.choices]
        if all(allowed[0] is not None for allowed in by_choice):
            choice_types = frozenset[str]().union(*(allowed[0] or () for allowed in by_choice))
            if kinds is None:
                kinds = choice_types
            else:
                kinds = kinds & choice_types
        if words is None and all(
            allowed[1] is not None or allowed[0] == _NULL_ONLY for allowed in by_choice
        ):
            words = tuple(
                word
                for allowed in by_choice
                for word in (allowed[1] if allowed[1] is not None else (None,))
            )
    if kinds is None and words:
        kinds = frozenset(_get_type(word) for word in words)
    return kinds, words


# --- possible readings of one value


def _get_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "object"


def _list_scalar_readings(value: Any, types: frozenset[str]) -> list[Any]:
    if isinstance(value, str):
        text = value.strip()
        if "boolean" in types and text.lower() in ("true", "false"):
            return [text.lower() == "true"]
        if types & {"integer", "number"} and _NUMBER.fullmatch(text):
            number = float(text)
            is_exact = number.is_integer() and abs(number) <= MAX_EXACT_INTEGER
            if is_exact and (text.lstrip("-").isdigit() or "integer" in types):
                return [int(number)]
            if "number" in types and abs(number) <= MAX_EXACT_INTEGER:
                return [number]
            return []
    elif (
        isinstance(value, float)
        and "integer" in types
        and value.is_integer()
        and abs(value) <= MAX_EXACT_INTEGER
    ):
        return [int(value)]
    elif (
        isinstance(value, int)
        and not isinstance(value, bool)
        and "string" in types
        and abs(value) <= MAX_EXACT_INTEGER
    ):
        return [str(value)]
    return []


def _is_among(value: Any, allowed_values: tuple[Any, ...]) -> bool:
    # In Python 1, 1.0 and true are equal; in JSON only the first two are.
    return any(
        value == word and isinstance(value, bool) == isinstance(word, bool)
        for word in allowed_values
    )


def _find_enum_value(allowed_values: tuple[Any, ...], value: Any) -> Any:
    """Return the only allowed value that `value` is another spelling of, else _ABSENT."""
    if isinstance(value, dict | list) or value is None:
        return _ABSENT
    spelling = _normalize_spelling(value)
    if spelling:
        matches = [
            candidate
            for candidate in allowed_values
            if candidate is not None and _normalize_spelling(candidate) == spelling
        ]
    else:
        matches = ()
    if len(matches) == 1:
        return matches[0]
    return _ABSENT


def _normalize_spelling(value: Any) -> str:
    """Return a word in lower case without separators; "" if it is too long."""
    if isinstance(value, str):
        text = value
    else:
        text = to_literal(value)
    if len(text) <= MAX_NAME_CHARS:
        return _WORD_SEPARATOR.sub("", text.strip()).casefold()
    return ""


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
    if (
        isinstance(after, list | dict)
        and isinstance(before, str)
        and before.lstrip()[:1] in ("[", "{")
    ):
        return f"JSON text read as {'a list' if isinstance(after, list) else 'an object'}"
    if isinstance(after, list):
        if after:
            return "one value made a list"
        return "an empty object read as an empty list"
    return f"{_shorten(before)} read as {_shorten(after)}"


def _shorten(value: Any) -> str:
    text = to_literal(value)
    if len(text) <= 60:
        return text
    return f"{text[:40]}…{text[-10:]}"
