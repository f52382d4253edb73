"""Arguments that do not fit, made to fit where only one thing can have been meant. Pure.

A number or a yes in quotation marks, one value where a list is wanted, JSON text for what it says,
the empty table of Lua for a list, another case of an enumerated word, `null` for what may be left
out, a parameter in another spelling of its own name. Where two readings are possible nothing is
done. What comes of it is held against the whole schema again, and the caller is told the problems
that are left. Nothing of the caller's own is changed: a repair is a copy.
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
"""Members, names and characters that take as long as one node."""
_COMPARE_COST = 10
"""Times as long as it takes to copy an entry: to spell it and compare it with others."""
MAX_JSON_CHARS = 256 * 1024
"""Of JSON text that is read."""
_MAX_UNKNOWN_NAMES = 100
"""Unknown names beyond which none is taken for another: so many are no slip."""
MAX_NAME_CHARS = 200
MAX_EXACT_INTEGER = 2**53
"""Beyond it a number may already have lost digits on its way, and no text of it is certain."""

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:[eE][+-]?\d{1,3})?")
_WORD_SEPARATOR = re.compile(r"(?<=[^\W\d_])[-_ ]+(?=[^\W_])|(?<=[^\W_])[-_ ]+(?=[^\W\d_])")
"""What stands between words; a sign before a word, or between digits, is part of it."""
_LIST_SEPARATOR = re.compile(r"[,;\n|]")
_JSON_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_NULL_ONLY = frozenset({"null"})
_ABSENT = object()

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Repair:
    """Arguments as they must have been meant, and what was done to them."""

    arguments: dict[str, Any]
    notes: tuple[str, ...]


def repair_arguments(schema: Schema, arguments: Any) -> Repair | None:
    """What must have been meant by arguments that do not fit, as far as that is certain; None where
    nothing is.

    What comes of it need not fit either.
    """
    work = _ArgumentRepairer(schema)
    if isinstance(arguments, str):
        arguments = work.parse_object(arguments, "the arguments")
    elif arguments == [] and isinstance(arguments, list):
        work.add_note("the arguments", "an empty list read as an empty object")
        arguments = {}
    if not isinstance(arguments, dict):
        return None
    try:
        meant = work.repair_value(schema, arguments, "", 0)
    except (_RepairTooCostly, RecursionError):
        return None
    if not work.notes or not isinstance(meant, dict):
        return None
    left = len(work.notes) - MAX_NOTES
    notes = [*work.notes[:MAX_NOTES], *([f"and {left} more"] if left > 0 else [])]
    return Repair(cast("dict[str, Any]", meant), tuple(notes))


class _RepairTooCostly(Exception):
    pass


@dataclass(frozen=True)
class _ValueRules:
    """What a schema says of one value, its references and `allOf` taken together."""

    types: frozenset[str] | None = None
    """The types it may have; None: any."""
    allowed_values: tuple[Any, ...] | None = None
    """The values it may have; None: any."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    is_closed: bool = False
    additional: Any = None
    items: Any = None
    choices: tuple["_ValueRules", ...] = ()
    """Of `anyOf` or `oneOf`: one of them applies too."""


class _ArgumentRepairer:
    def __init__(self, root: Schema) -> None:
        self.notes: list[str] = []
        self._root = root
        self._left = MAX_NODES
        # In that draft 5.0 is no integer; in all later ones it is.
        self._strict = "draft-04" in str(root.get("$schema", ""))

    def _spend(self, entries: int) -> None:
        """Count what is copied or compared, entry by entry."""
        self._left -= entries // _ENTRIES_PER_NODE
        if self._left <= 0:
            raise _RepairTooCostly

    def add_note(self, path: str, text: str) -> None:
        self.notes.append(f"{path}: {text}" if path else text)

    def repair_value(
        self, schema: Any, value: Any, path: str, depth: int, *, in_list: bool = False
    ) -> Any:
        """A value as it must have been meant; `listed`: it stands in a list."""
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
            inside = cast("list[Any]", value)
            return [
                self.repair_value(rules.items, item, f"{path}.{n}", depth + 1, in_list=True)
                for n, item in enumerate(inside)
            ]
        return value

    # --- one value

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
        # A list of lists may want one row or many, and a text with commas may be several values.
        items = [rule.items for rule in (rules, *rules.choices) if isinstance(rule.items, dict)]
        if len(items) == 1:
            inner = self._collect_rules(cast("Schema", items[0]))
        else:
            inner = None
        if inner:
            of = _get_allowed(inner)[0]
        else:
            of = None
        if in_list or (of is not None and "array" in of):
            return []
        if isinstance(value, str) and _is_ambiguous(
            value, allows_strings=of is None or "string" in of
        ):
            return []
        return [[value]]

    def parse_object(self, text: str, path: str) -> Any:
        """JSON text as the object that it is."""
        read = _parse_container(text)
        if isinstance(read, dict):
            self.add_note(path, "JSON text read as an object")
        return read

    # --- an object

    def _repair_object(
        self, rules: _ValueRules, value: dict[str, Any], path: str, depth: int
    ) -> dict[str, Any]:
        meant: dict[str, Any] = {}
        renamed = self._match_names(rules, value)
        for name, one in value.items():
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
                one is None
                and own in rules.properties
                and own not in rules.required
                and self._is_null_forbidden(schema)
            ):
                self.add_note(place, "null left out")
                continue
            meant[own] = self.repair_value(schema, one, place, depth + 1)
        return meant

    def _match_names(self, rules: _ValueRules, value: Mapping[str, Any]) -> dict[str, str]:
        """Given names that are a parameter's own in another spelling."""
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
        given: dict[str, list[str]] = {}
        for name in unknown:
            given.setdefault(_normalize_spelling(name), []).append(name)
        return {
            names[0]: by_spelling[key][0]
            for key, names in given.items()
            if key and len(names) == 1 and len(by_spelling.get(key, ())) == 1
        }

    def _is_null_forbidden(self, schema: Any) -> bool:
        if not isinstance(schema, dict):
            return False
        kinds, words = _get_allowed(self._collect_rules(cast("Schema", schema)))
        return (kinds is not None and "null" not in kinds) or (
            words is not None and not _is_among(None, words)
        )

    # --- what a schema says

    def _choose_branch(self, rules: _ValueRules, value: Any) -> _ValueRules:
        """With the one choice that a container of this type can be; without any where several can."""
        kind = _get_type(value)
        able = [
            one for one in rules.choices if (kinds := _get_allowed(one)[0]) is None or kind in kinds
        ]
        if len(able) == 1 and not able[0].choices:
            return _merge_rules(_drop_choices(rules), able[0])
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
                self._collect_rules(one, depth + 1) for one in branches if isinstance(one, dict)
            )
            own = _merge_rules(
                own,
                _ValueRules(choices=choices if len(choices) == len(branches) else (_ValueRules(),)),
            )
        return own

    def _list_subschemas(self, schema: Schema) -> list[Schema]:
        every = schema.get("allOf")
        if isinstance(every, list):
            parts = [one for one in every if isinstance(one, dict)]
        else:
            parts = []
        if isinstance(pointer := schema.get("$ref"), str) and isinstance(
            to := resolve_pointer(pointer, self._root), dict
        ):
            parts.append(to)
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
        kinds = frozenset(one for one in named if isinstance(one, str))
    else:
        kinds = None
    words = schema.get("enum")
    properties = schema.get("properties")
    required = schema.get("required")
    others = schema.get("additionalProperties")
    return _ValueRules(
        kinds if kinds and kinds <= _JSON_TYPES else None,
        tuple(words)
        if isinstance(words, list)
        else (schema["const"],)
        if "const" in schema
        else None,
        properties if isinstance(properties, dict) else {},
        frozenset(one for one in required if isinstance(one, str))
        if isinstance(required, list)
        else frozenset(),
        others is False and "patternProperties" not in schema,
        others if isinstance(others, dict) else None,
        schema.get("items"),
    )


def _merge_rules(one: _ValueRules, other: _ValueRules) -> _ValueRules:
    if one.types is not None and other.types is not None:
        kinds = one.types & other.types
    else:
        kinds = one.types or other.types
    return _ValueRules(
        kinds,
        one.allowed_values if one.allowed_values is not None else other.allowed_values,
        {**other.properties, **one.properties},
        one.required | other.required,
        one.is_closed or other.is_closed,
        one.additional if one.additional is not None else other.additional,
        one.items if one.items is not None else other.items,
        one.choices
        if not other.choices
        else other.choices
        if not one.choices
        else (_ValueRules(),),
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
    """The types and the values that a value may have, whichever choice it is."""
    kinds = rules.types
    words = rules.allowed_values
    if rules.choices:
        each = [_get_allowed(one) for one in rules.choices]
        if all(one[0] is not None for one in each):
            of_choices = frozenset[str]().union(*(one[0] or () for one in each))
            if kinds is None:
                kinds = of_choices
            else:
                kinds = kinds & of_choices
        if words is None and all(one[1] is not None or one[0] == _NULL_ONLY for one in each):
            words = tuple(
                word for one in each for word in (one[1] if one[1] is not None else (None,))
            )
    if kinds is None and words:
        kinds = frozenset(_get_type(word) for word in words)
    return kinds, words


# --- readings of one value


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
        said = value.strip()
        if "boolean" in types and said.lower() in ("true", "false"):
            return [said.lower() == "true"]
        if types & {"integer", "number"} and _NUMBER.fullmatch(said):
            number = float(said)
            whole = number.is_integer() and abs(number) <= MAX_EXACT_INTEGER
            if whole and (said.lstrip("-").isdigit() or "integer" in types):
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
    # 1, 1.0 and true are equal in Python, and only the first two in JSON.
    return any(
        value == word and isinstance(value, bool) == isinstance(word, bool)
        for word in allowed_values
    )


def _find_enum_value(allowed_values: tuple[Any, ...], value: Any) -> Any:
    """The one enumerated value that this is in another spelling."""
    if isinstance(value, dict | list) or value is None:
        return _ABSENT
    said = _normalize_spelling(value)
    if said:
        alike = [
            one for one in allowed_values if one is not None and _normalize_spelling(one) == said
        ]
    else:
        alike = ()
    if len(alike) == 1:
        return alike[0]
    return _ABSENT


def _normalize_spelling(value: Any) -> str:
    """A word without case and without what stands between its parts."""
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
    """Whether a text need not be the one value of a list: it may be several, none, or JSON of
    something else."""
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
