"""A tool's input schema in the form that every model provider takes. Pure.

Providers refuse a whole request for one schema they cannot read. They want an object at the root, without alternatives
there, JSON Schema 2020-12 throughout, arrays that say what is in them, and property names of plain characters. What a
schema says beyond that is told in its description, and the gateway checks it when the tool is called.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from portico.upstream.backend import Raw

KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Property names that every provider takes."""
_KEY_CHARS = 64
_POSITION = re.compile(r"[0-9]{1,9}")
_ALTERNATIVES = ("anyOf", "oneOf")
_AT_ROOT = frozenset({"properties", "required", "description", "additionalProperties", "$defs", "definitions"})
"""What is kept of a root. Everything else either says again that it is an object, or is refused there."""
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_SYNONYMS = {"float": "number", "double": "number", "int": "integer", "long": "integer", "bool": "boolean"} | {
    "str": "string", "text": "string", "date": "string", "dict": "object", "list": "array"
}  # fmt: skip
_SCHEMAS = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_COUNTS = frozenset(
    {"maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength", "minProperties"}
)
_NUMBERS = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"})
_TEXTS = frozenset({"$comment", "contentEncoding", "contentMediaType", "description", "format", "title"})
_FLAGS = frozenset({"deprecated", "readOnly", "uniqueItems", "writeOnly"})
_LEFT_OUT = frozenset(
    {"$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$schema", "$vocabulary", "dependencies", "id"}
)
_DEEPEST = 60
_ALTERNATIVES_TOLD = 8
_MOST_PARTS = 2_000
"""Of a root. References to references, each of them twice, make thousands of millions of ten lines."""


def portable(schema: Mapping[str, Any]) -> Raw:
    """The schema as a plain object; property names that no provider takes are others (`real_names` has them back)."""
    root = _Root(dict(schema)).gathered
    made = _clean({key: value for key, value in root.items() if key in _AT_ROOT}, schema, 0)
    properties = made.get("properties", {})
    names = {name: told for told, name in told_names(properties).items()}
    made["properties"] = {names[name]: value for name, value in properties.items()}
    required = [names[name] for name in made.pop("required", []) if name in names]
    return {"type": "object", **made, **({"required": required} if required else {})}


def real_names(schema: Mapping[str, Any]) -> dict[str, str]:
    """The names that a portable schema had to change, with what they are really called."""
    root = _Root(dict(schema)).gathered
    properties: Any = root.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {told: name for told, name in told_names(cast(Raw, properties)).items() if told != name}


def told_names(names: Iterable[str]) -> dict[str, str]:
    """Name as providers take it → real name; unique, and those that need no change have their own."""
    real = list(names)
    taken = {name: name for name in real if KEY.fullmatch(name)}
    for name in real:
        if name not in taken:
            digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()
            plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_") or "_"
            told = plain if len(plain) <= _KEY_CHARS else f"{plain[: _KEY_CHARS - 7]}_{digest}"
            while told in taken:
                told = f"{told[: _KEY_CHARS - 7]}_{digest}"
                digest = hashlib.blake2b(digest.encode(), digest_size=3).hexdigest()
            taken[told] = name
    return taken


# --- the root


class _Root:
    """A root without references and alternatives: what they say of properties is gathered in one object."""

    def __init__(self, whole: Raw) -> None:
        self._whole = whole
        self._left = _MOST_PARTS
        self.gathered = self._of(whole, frozenset(), 0)

    def _of(self, schema: Raw, seen: frozenset[str], depth: int) -> Raw:
        root = {key: value for key, value in schema.items() if key not in (*_ALTERNATIVES, "allOf", "$ref")}
        parts: list[Raw] = []
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref not in seen and (found := _at(self._whole, ref)) is not None:
            parts += self._each([found], seen | {ref}, depth)
        parts += self._each(_objects(schema.get("allOf")), seen, depth)
        for part in parts:
            root = _both(root, part)
        for keyword in _ALTERNATIVES:
            if ways := self._each(_objects(schema.get(keyword)), seen, depth):
                root = _either(root, ways)
        return root

    def _each(self, parts: list[Raw], seen: frozenset[str], depth: int) -> list[Raw]:
        found: list[Raw] = []
        for part in parts:
            if self._left <= 0 or depth >= _DEEPEST:
                break
            self._left -= 1
            found.append(self._of(part, seen, depth + 1))
        return found


def _both(one: Raw, other: Raw) -> Raw:
    """What holds where both do."""
    properties = {**_properties(other), **_properties(one)}
    required = list(dict.fromkeys([*_required(one), *_required(other)]))
    return {**other, **one, **({"properties": properties} if properties else {}), "required": required}


def _either(root: Raw, ways: list[Raw]) -> Raw:
    """What holds in each of several ways: their properties, of which only those are required that all require."""
    ways = [way for way in ways if _properties(way) or _required(way)]
    if not ways:
        return root
    gathered: dict[str, list[Any]] = {}
    for way in ways:
        for name, shape in _properties(way).items():
            shapes = gathered.setdefault(name, [])
            if shape not in shapes:
                shapes.append(shape)
    merged = {name: shapes[0] if len(shapes) == 1 else {"anyOf": shapes} for name, shapes in gathered.items()}
    always = [name for name in _required(ways[0]) if all(name in _required(way) for way in ways)]
    needs = list(dict.fromkeys(", ".join(_required(way)) for way in ways if _required(way)))
    told = [root["description"]] if isinstance(root.get("description"), str) else []
    if len(needs) > 1:
        told.append(f"Give one of: {' | '.join(needs[:_ALTERNATIVES_TOLD])}.")
    return {
        **root,
        "properties": {**merged, **_properties(root)},
        "required": list(dict.fromkeys([*_required(root), *always])),
        **({"description": " ".join(told)} if told else {}),
        # What one way allows, another must not forbid.
        **({"additionalProperties": True} if "additionalProperties" in root else {}),
    }


def _at(whole: Raw, ref: str) -> Raw | None:
    """What a reference within the schema points to."""
    if not ref.startswith("#"):
        return None
    found: Any = whole
    for step in filter(None, ref[1:].split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and _POSITION.fullmatch(key) and int(key) < len(cast("list[Any]", found)):
            found = cast("list[Any]", found)[int(key)]
        elif isinstance(found, dict):
            found = cast(Raw, found).get(key)
        else:
            return None
    return cast(Raw, found) if isinstance(found, dict) else None


def _objects(value: Any) -> list[Raw]:
    return (
        [cast(Raw, one) for one in cast("list[Any]", value) if isinstance(one, dict)] if isinstance(value, list) else []
    )


def _properties(schema: Raw) -> Raw:
    found: Any = schema.get("properties")
    return cast(Raw, found) if isinstance(found, dict) else {}


def _required(schema: Raw) -> list[str]:
    found: Any = schema.get("required")
    return [one for one in cast("list[Any]", found) if isinstance(one, str)] if isinstance(found, list) else []


# --- everything below it


def _clean(schema: Any, whole: Mapping[str, Any], depth: int) -> Raw:
    """A schema that 2020-12 allows; a keyword whose value it does not allow is left out."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {}
    given = _modern(cast(Raw, schema))
    made: Raw = {}
    for key, value in given.items():
        if key in _LEFT_OUT:
            continue
        if key in _SCHEMAS:
            if isinstance(value, bool):
                made[key] = value
            elif isinstance(value, dict):
                made[key] = _clean(value, whole, depth + 1)
        elif key in _LISTS:
            if parts := [one if isinstance(one, bool) else _clean(one, whole, depth + 1) for one in _any_list(value)]:
                made[key] = parts
        elif key in _MAPS:
            if isinstance(value, dict):
                named = cast("dict[Any, Any]", value).items()
                made[key] = {str(name): _clean(one, whole, depth + 1) for name, one in named if _names(key, name)}
        elif key == "$ref":
            if isinstance(value, str) and _at(dict(whole), value) is not None:
                made[key] = value
        elif _allowed(key, value):
            made[key] = value
    kind = made.get("type")
    if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and "items" not in made:
        made["items"] = {}
    return made


def _modern(schema: Raw) -> Raw:
    """What older drafts, and habits of other languages, say in the words of 2020-12."""
    given = dict(schema)
    kind = given.get("type")
    if isinstance(kind, str):
        given["type"] = _SYNONYMS.get(kind.lower(), kind.lower())
    elif isinstance(kind, list):
        names = [_SYNONYMS.get(one.lower(), one.lower()) for one in cast("list[Any]", kind) if isinstance(one, str)]
        given["type"] = [*dict.fromkeys(name for name in names if name in _TYPES)]
    if isinstance(given.get("items"), list):
        given["prefixItems"] = given.pop("items")
        if "additionalItems" in given:
            given["items"] = given.pop("additionalItems")
    for bound in ("Minimum", "Maximum"):
        if isinstance(flag := given.get(f"exclusive{bound}"), bool):
            del given[f"exclusive{bound}"]
            if flag and bound.lower() in given:
                given[f"exclusive{bound}"] = given.pop(bound.lower())
    return given


def _names(key: str, name: Any) -> bool:
    return key != "patternProperties" or _is_pattern(name)


def _is_pattern(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _allowed(key: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key == "type":
        return value in _TYPES if isinstance(value, str) else bool(value) and isinstance(value, list)
    if key == "enum":
        return isinstance(value, list) and bool(cast("list[Any]", value))
    if key == "examples":
        return isinstance(value, list)
    if key == "required":
        return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[Any]", value))
    if key == "pattern":
        return _is_pattern(value)
    if key in _COUNTS:
        return number and value >= 0 and value == int(value)
    if key == "multipleOf":
        return number and value > 0
    if key in _NUMBERS:
        return number
    if key in _TEXTS:
        return isinstance(value, str)
    return isinstance(value, bool) if key in _FLAGS else key != "dependentRequired"


def _any_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
