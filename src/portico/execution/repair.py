"""Arguments that do not fit, made to fit where only one thing can have been meant. Pure.

A number or a yes in quotation marks, one value where a list is wanted, JSON text for what it says, the empty table of
Lua for a list, another case of an enumerated word, `null` for what may be left out, a parameter in another spelling of
its own name. Where two readings are possible nothing is done. What comes of it is held against the whole schema
again, and the caller is told the problems that are left. Nothing of the caller's own is changed: a repair is a copy.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.catalog.references import resolve
from portico.catalog.visible import literal, quoted
from portico.upstream import jsontext

MAX_NODES = 2_000
MAX_DEPTH = 24
MAX_NOTES = 12
_ENTRIES = 100
"""Members, names and characters that take as long as one node."""
_COMPARED = 10
"""Times as long as it takes to copy an entry: to spell it and compare it with others."""
MAX_TEXT = 256 * 1024
"""Of JSON text that is read."""
_MANY = 100
"""Unknown names beyond which none is taken for another: so many are no slip."""
MAX_NAME = 200
EXACT = 2**53
"""Beyond it a number may already have lost digits on its way, and no text of it is certain."""

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:[eE][+-]?\d{1,3})?")
_BETWEEN = re.compile(r"(?<=[^\W\d_])[-_ ]+(?=[^\W_])|(?<=[^\W_])[-_ ]+(?=[^\W\d_])")
"""What stands between words; a sign before a word, or between digits, is part of it."""
_SEVERAL = re.compile(r"[,;\n|]")
_KINDS = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_NULL = frozenset({"null"})
_ABSENT = object()

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Repair:
    """Arguments as they must have been meant, and what was done to them."""

    arguments: dict[str, Any]
    notes: tuple[str, ...]


def repaired(schema: Schema, arguments: Any) -> Repair | None:
    """What must have been meant by arguments that do not fit, as far as that is certain; None where nothing is.

    What comes of it need not fit either.
    """
    work = _Work(schema)
    if isinstance(arguments, str):
        arguments = work.read(arguments, "the arguments")
    elif arguments == [] and isinstance(arguments, list):
        work.say("the arguments", "an empty list read as an empty object")
        arguments = {}
    if not isinstance(arguments, dict):
        return None
    try:
        meant = work.at(schema, arguments, "", 0)
    except (_TooMuch, RecursionError):
        return None
    if not work.notes or not isinstance(meant, dict):
        return None
    left = len(work.notes) - MAX_NOTES
    notes = [*work.notes[:MAX_NOTES], *([f"and {left} more"] if left > 0 else [])]
    return Repair(cast("dict[str, Any]", meant), tuple(notes))


class _TooMuch(Exception):
    pass


@dataclass(frozen=True)
class _Rules:
    """What a schema says of one value, its references and `allOf` taken together."""

    kinds: frozenset[str] | None = None
    """The types it may have; None: any."""
    words: tuple[Any, ...] | None = None
    """The values it may have; None: any."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    closed: bool = False
    others: Any = None
    items: Any = None
    choices: tuple["_Rules", ...] = ()
    """Of `anyOf` or `oneOf`: one of them applies too."""


class _Work:
    def __init__(self, root: Schema) -> None:
        self.notes: list[str] = []
        self._root = root
        self._left = MAX_NODES
        # In that draft 5.0 is no integer; in all later ones it is.
        self._strict = "draft-04" in str(root.get("$schema", ""))

    def _spend(self, entries: int) -> None:
        """Count what is copied or compared, entry by entry."""
        self._left -= entries // _ENTRIES
        if self._left <= 0:
            raise _TooMuch

    def say(self, path: str, what: str) -> None:
        self.notes.append(f"{path}: {what}" if path else what)

    def at(self, schema: Any, value: Any, path: str, depth: int, *, listed: bool = False) -> Any:
        """A value as it must have been meant; `listed`: it stands in a list."""
        self._left -= 1
        if self._left <= 0 or depth > MAX_DEPTH:
            raise _TooMuch
        if not isinstance(schema, dict):
            return value
        return self._by(self._rules(cast("Schema", schema)), value, path, depth, listed=listed)

    def _by(self, rules: _Rules, value: Any, path: str, depth: int, *, listed: bool) -> Any:
        kinds, words = _allowed(rules)
        if kinds is not None and not self._is(value, kinds):
            found = self._converted(rules, kinds, words, value, listed=listed)
            if found is _ABSENT:
                return value
            self.say(path, _told(value, found))
            value = found
        elif words is not None and not _among(value, words):
            found = _word(words, value)
            if found is _ABSENT:
                return value
            self.say(path, _told(value, found))
            return found
        if isinstance(value, dict | list) and rules.choices:
            rules = self._chosen(rules, value)
        if isinstance(value, dict):
            return self._object(rules, cast("dict[str, Any]", value), path, depth)
        if isinstance(value, list) and isinstance(rules.items, dict):
            inside = cast("list[Any]", value)
            return [self.at(rules.items, item, f"{path}.{n}", depth + 1, listed=True) for n, item in enumerate(inside)]
        return value

    # --- one value

    def _is(self, value: Any, kinds: frozenset[str]) -> bool:
        kind = _kind(value)
        if kind in kinds or (kind == "integer" and "number" in kinds):
            return True
        return kind == "number" and "integer" in kinds and not self._strict and float(value).is_integer()

    def _converted(
        self, rules: _Rules, kinds: frozenset[str], words: tuple[Any, ...] | None, value: Any, *, listed: bool
    ) -> Any:
        if words is not None and (found := _word(words, value)) is not _ABSENT:
            return found
        found = [*_scalars(value, kinds), *self._containers(rules, kinds, value, listed=listed)]
        return found[0] if len(found) == 1 else _ABSENT

    def _containers(self, rules: _Rules, kinds: frozenset[str], value: Any, *, listed: bool) -> list[Any]:
        if isinstance(value, str):
            self._spend(len(value))
            read = _parsed(value)
            if (kind := _kind(read)) in kinds and kind in ("array", "object"):
                return [read]
        if "array" not in kinds or value is None:
            return []
        if value == {}:
            return [[]]
        # A list of lists may want one row or many, and a text with commas may be several values.
        items = [rule.items for rule in (rules, *rules.choices) if isinstance(rule.items, dict)]
        inner = self._rules(cast("Schema", items[0])) if len(items) == 1 else None
        of = _allowed(inner)[0] if inner else None
        if listed or (of is not None and "array" in of):
            return []
        if isinstance(value, str) and _is_doubtful(value, texts=of is None or "string" in of):
            return []
        return [[value]]

    def read(self, text: str, path: str) -> Any:
        """JSON text as the object that it is."""
        read = _parsed(text)
        if isinstance(read, dict):
            self.say(path, "JSON text read as an object")
        return read

    # --- an object

    def _object(self, rules: _Rules, value: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        meant: dict[str, Any] = {}
        renamed = self._renamed(rules, value)
        for name, one in value.items():
            place = f"{path}.{name}" if path else name
            own = renamed.get(name, name)
            if own != name:
                self.say(place[:MAX_NAME], f"taken for {quoted(own, 60)}")
                place = f"{path}.{own}" if path else own
            schema = rules.properties.get(own, rules.others)
            place = place[:MAX_NAME]
            if one is None and own in rules.properties and own not in rules.required and self._forbids_null(schema):
                self.say(place, "null left out")
                continue
            meant[own] = self.at(schema, one, place, depth + 1)
        return meant

    def _renamed(self, rules: _Rules, value: Mapping[str, Any]) -> dict[str, str]:
        """Given names that are a parameter's own in another spelling."""
        unknown = [name for name in value if name not in rules.properties]
        wanted = [name for name in (rules.properties if rules.closed else rules.required) if name not in value]
        if not unknown or not wanted or len(unknown) > _MANY:
            return {}
        by_spelling: dict[str, list[str]] = {}
        for name in wanted:
            by_spelling.setdefault(_spelt(name), []).append(name)
        given: dict[str, list[str]] = {}
        for name in unknown:
            given.setdefault(_spelt(name), []).append(name)
        return {
            names[0]: by_spelling[key][0]
            for key, names in given.items()
            if key and len(names) == 1 and len(by_spelling.get(key, ())) == 1
        }

    def _forbids_null(self, schema: Any) -> bool:
        if not isinstance(schema, dict):
            return False
        kinds, words = _allowed(self._rules(cast("Schema", schema)))
        return (kinds is not None and "null" not in kinds) or (words is not None and not _among(None, words))

    # --- what a schema says

    def _chosen(self, rules: _Rules, value: Any) -> _Rules:
        """With the one choice that a container of this type can be; without any where several can."""
        kind = _kind(value)
        able = [one for one in rules.choices if (kinds := _allowed(one)[0]) is None or kind in kinds]
        return _both(_bare(rules), able[0]) if len(able) == 1 and not able[0].choices else _bare(rules)

    def _rules(self, schema: Schema, depth: int = 0) -> _Rules:
        self._left -= 1
        if depth > MAX_DEPTH or self._left <= 0:
            raise _TooMuch
        own = _own_rules(schema)
        compared = len(own.required) + len(own.words or ()) + len(own.properties) * own.closed
        self._spend(len(own.properties) + _COMPARED * compared)
        for part in self._parts(schema):
            own = _both(own, self._rules(part, depth + 1))
        branches = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(branches, list):
            choices = tuple(self._rules(one, depth + 1) for one in branches if isinstance(one, dict))
            own = _both(own, _Rules(choices=choices if len(choices) == len(branches) else (_Rules(),)))
        return own

    def _parts(self, schema: Schema) -> list[Schema]:
        every = schema.get("allOf")
        parts = [one for one in every if isinstance(one, dict)] if isinstance(every, list) else []
        if isinstance(pointer := schema.get("$ref"), str) and isinstance(to := resolve(pointer, self._root), dict):
            parts.append(to)
        return cast("list[Schema]", parts)


def _own_rules(schema: Schema) -> _Rules:
    kind = schema.get("type")
    named = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else None
    kinds = frozenset(one for one in named if isinstance(one, str)) if named else None
    words = schema.get("enum")
    properties, required, others = schema.get("properties"), schema.get("required"), schema.get("additionalProperties")
    return _Rules(
        kinds if kinds and kinds <= _KINDS else None,
        tuple(words) if isinstance(words, list) else (schema["const"],) if "const" in schema else None,
        properties if isinstance(properties, dict) else {},
        frozenset(one for one in required if isinstance(one, str)) if isinstance(required, list) else frozenset(),
        others is False and "patternProperties" not in schema,
        others if isinstance(others, dict) else None,
        schema.get("items"),
    )


def _both(one: _Rules, other: _Rules) -> _Rules:
    kinds = one.kinds & other.kinds if one.kinds is not None and other.kinds is not None else one.kinds or other.kinds
    return _Rules(
        kinds,
        one.words if one.words is not None else other.words,
        {**other.properties, **one.properties},
        one.required | other.required,
        one.closed or other.closed,
        one.others if one.others is not None else other.others,
        one.items if one.items is not None else other.items,
        one.choices if not other.choices else other.choices if not one.choices else (_Rules(),),
    )


def _bare(rules: _Rules) -> _Rules:
    return _Rules(rules.kinds, rules.words, rules.properties, rules.required, rules.closed, rules.others, rules.items)


def _allowed(rules: _Rules) -> tuple[frozenset[str] | None, tuple[Any, ...] | None]:
    """The types and the values that a value may have, whichever choice it is."""
    kinds, words = rules.kinds, rules.words
    if rules.choices:
        each = [_allowed(one) for one in rules.choices]
        if all(one[0] is not None for one in each):
            of_choices = frozenset[str]().union(*(one[0] or () for one in each))
            kinds = of_choices if kinds is None else kinds & of_choices
        if words is None and all(one[1] is not None or one[0] == _NULL for one in each):
            words = tuple(word for one in each for word in (one[1] if one[1] is not None else (None,)))
    if kinds is None and words:
        kinds = frozenset(_kind(word) for word in words)
    return kinds, words


# --- readings of one value


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _scalars(value: Any, kinds: frozenset[str]) -> list[Any]:
    if isinstance(value, str):
        said = value.strip()
        if "boolean" in kinds and said.lower() in ("true", "false"):
            return [said.lower() == "true"]
        if kinds & {"integer", "number"} and _NUMBER.fullmatch(said):
            number = float(said)
            whole = number.is_integer() and abs(number) <= EXACT
            if whole and (said.lstrip("-").isdigit() or "integer" in kinds):
                return [int(number)]
            return [number] if "number" in kinds and abs(number) <= EXACT else []
    elif isinstance(value, float) and "integer" in kinds and value.is_integer() and abs(value) <= EXACT:
        return [int(value)]
    elif isinstance(value, int) and not isinstance(value, bool) and "string" in kinds and abs(value) <= EXACT:
        return [str(value)]
    return []


def _among(value: Any, words: tuple[Any, ...]) -> bool:
    # 1, 1.0 and true are equal in Python, and only the first two in JSON.
    return any(value == word and isinstance(value, bool) == isinstance(word, bool) for word in words)


def _word(words: tuple[Any, ...], value: Any) -> Any:
    """The one enumerated value that this is in another spelling."""
    if isinstance(value, dict | list) or value is None:
        return _ABSENT
    said = _spelt(value)
    alike = [one for one in words if one is not None and _spelt(one) == said] if said else ()
    return alike[0] if len(alike) == 1 else _ABSENT


def _spelt(value: Any) -> str:
    """A word without case and without what stands between its parts."""
    text = value if isinstance(value, str) else literal(value)
    return _BETWEEN.sub("", text.strip()).casefold() if len(text) <= MAX_NAME else ""


def _parsed(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "[") or len(text) > MAX_TEXT:
        return None
    try:
        return jsontext.loads(text.encode())
    except ValueError:
        return None


def _is_doubtful(text: str, *, texts: bool) -> bool:
    """Whether a text need not be the one value of a list: it may be several, none, or JSON of something else."""
    if texts and (_SEVERAL.search(text) or text.strip().lower() in ("", "null", "none")):
        return True
    read = _parsed(text)
    return read is not None and (texts or not read)


def _told(before: Any, after: Any) -> str:
    if isinstance(after, list | dict) and isinstance(before, str) and before.lstrip()[:1] in ("[", "{"):
        return f"JSON text read as {'a list' if isinstance(after, list) else 'an object'}"
    if isinstance(after, list):
        return "one value made a list" if after else "an empty object read as an empty list"
    return f"{_short(before)} read as {_short(after)}"


def _short(value: Any) -> str:
    text = literal(value)
    return text if len(text) <= 60 else f"{text[:40]}…{text[-10:]}"
