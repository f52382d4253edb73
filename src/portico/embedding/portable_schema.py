"""A tool's input schema in the form that every model provider takes. Pure.

Providers refuse a whole request for one schema they cannot read. They want an object at the root,
without alternatives there, JSON Schema 2020-12 throughout, arrays that say what is in them, and
property names of plain characters. What a schema says beyond that is told in its description, and
the gateway checks it when the tool is called.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from portico.upstream.backend import Raw

PROPERTY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Property names that every provider takes."""
_MAX_NAME_CHARS = 64
_POSITION = re.compile(r"[0-9]{1,9}")
_ALTERNATIVES = ("anyOf", "oneOf")
_ROOT_KEYWORDS = frozenset(
    {"properties", "required", "description", "additionalProperties", "$defs", "definitions"}
)
"""What is kept of a root. Everything else either says again that it is an object, or is refused
there."""
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_SYNONYMS = {"float": "number", "double": "number", "int": "integer", "long": "integer", "bool": "boolean"} | {
    "str": "string", "text": "string", "date": "string", "dict": "object", "list": "array"
}  # fmt: skip
_SCHEMA_KEYWORDS = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_SCHEMA_LIST_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_MAP_KEYWORDS = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
_COUNT_KEYWORDS = frozenset(
    {
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
    }
)
_NUMBER_KEYWORDS = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"})
_TEXT_KEYWORDS = frozenset(
    {"$comment", "contentEncoding", "contentMediaType", "description", "format", "title"}
)
_FLAG_KEYWORDS = frozenset({"deprecated", "readOnly", "uniqueItems", "writeOnly"})
_DROPPED_KEYWORDS = frozenset(
    {
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
        "$id",
        "$schema",
        "$vocabulary",
        "dependencies",
        "id",
    }
)
_MAX_DEPTH = 60
_MAX_ALTERNATIVES = 8
_MAX_PARTS = 2_000
"""Of a root. References to references, each of them twice, make thousands of millions of ten lines.
"""


def make_portable(schema: Mapping[str, Any]) -> Raw:
    """The schema as a plain object; property names that no provider takes are others (`real_names`
    has them back)."""
    root = _RootSchema(dict(schema)).merged
    made = _clean_schema(
        {key: value for key, value in root.items() if key in _ROOT_KEYWORDS}, schema, 0
    )
    properties = made.get("properties", {})
    names = {name: told for told, name in map_portable_names(properties).items()}
    made["properties"] = {names[name]: value for name, value in properties.items()}
    required = [names[name] for name in made.pop("required", []) if name in names]
    return {"type": "object", **made, **({"required": required} if required else {})}


def map_real_names(schema: Mapping[str, Any]) -> dict[str, str]:
    """The names that a portable schema had to change, with what they are really called."""
    root = _RootSchema(dict(schema)).merged
    properties: Any = root.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {
        told: name
        for told, name in map_portable_names(cast(Raw, properties)).items()
        if told != name
    }


def map_portable_names(names: Iterable[str]) -> dict[str, str]:
    """Name as providers take it → real name; unique, and those that need no change have their own."""
    real = list(names)
    taken = {name: name for name in real if PROPERTY_NAME.fullmatch(name)}
    for name in real:
        if name not in taken:
            digest = hashlib.blake2b(
                name.encode("utf-8", "surrogatepass"), digest_size=3
            ).hexdigest()
            plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_") or "_"
            if len(plain) <= _MAX_NAME_CHARS:
                told = plain
            else:
                told = f"{plain[: _MAX_NAME_CHARS - 7]}_{digest}"
            while told in taken:
                told = f"{told[: _MAX_NAME_CHARS - 7]}_{digest}"
                digest = hashlib.blake2b(digest.encode(), digest_size=3).hexdigest()
            taken[told] = name
    return taken


# --- the root


class _RootSchema:
    """A root without references and alternatives: what they say of properties is gathered in one
    object."""

    def __init__(self, document: Raw) -> None:
        self._document = document
        self._parts_left = _MAX_PARTS
        self.merged = self._merge_schema(document, frozenset(), 0)

    def _merge_schema(self, schema: Raw, seen: frozenset[str], depth: int) -> Raw:
        root = {
            key: value
            for key, value in schema.items()
            if key not in (*_ALTERNATIVES, "allOf", "$ref")
        }
        parts: list[Raw] = []
        ref = schema.get("$ref")
        if (
            isinstance(ref, str)
            and ref not in seen
            and (found := _resolve_reference(self._document, ref)) is not None
        ):
            parts += self._merge_parts([found], seen | {ref}, depth)
        parts += self._merge_parts(_list_objects(schema.get("allOf")), seen, depth)
        for part in parts:
            root = _merge_all_of(root, part)
        for keyword in _ALTERNATIVES:
            if ways := self._merge_parts(_list_objects(schema.get(keyword)), seen, depth):
                root = _merge_any_of(root, ways)
        return root

    def _merge_parts(self, parts: list[Raw], seen: frozenset[str], depth: int) -> list[Raw]:
        found: list[Raw] = []
        for part in parts:
            if self._parts_left <= 0 or depth >= _MAX_DEPTH:
                break
            self._parts_left -= 1
            found.append(self._merge_schema(part, seen, depth + 1))
        return found


def _merge_all_of(one: Raw, other: Raw) -> Raw:
    """What holds where both do."""
    properties = {**_get_properties(other), **_get_properties(one)}
    required = list(dict.fromkeys([*_get_required(one), *_get_required(other)]))
    return {
        **other,
        **one,
        **({"properties": properties} if properties else {}),
        "required": required,
    }


def _merge_any_of(root: Raw, alternatives: list[Raw]) -> Raw:
    """What holds in each of several ways: their properties, of which only those are required that
    all require."""
    alternatives = [way for way in alternatives if _get_properties(way) or _get_required(way)]
    if not alternatives:
        return root
    gathered: dict[str, list[Any]] = {}
    for way in alternatives:
        for name, shape in _get_properties(way).items():
            shapes = gathered.setdefault(name, [])
            if shape not in shapes:
                shapes.append(shape)
    merged = {
        name: shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
        for name, shapes in gathered.items()
    }
    always = [
        name
        for name in _get_required(alternatives[0])
        if all(name in _get_required(way) for way in alternatives)
    ]
    needs = list(
        dict.fromkeys(", ".join(_get_required(way)) for way in alternatives if _get_required(way))
    )
    if isinstance(root.get("description"), str):
        told = [root["description"]]
    else:
        told = []
    if len(needs) > 1:
        told.append(f"Give one of: {' | '.join(needs[:_MAX_ALTERNATIVES])}.")
    return {
        **root,
        "properties": {**merged, **_get_properties(root)},
        "required": list(dict.fromkeys([*_get_required(root), *always])),
        **({"description": " ".join(told)} if told else {}),
        # What one way allows, another must not forbid.
        **({"additionalProperties": True} if "additionalProperties" in root else {}),
    }


def _resolve_reference(document: Raw, ref: str) -> Raw | None:
    """What a reference within the schema points to."""
    if not ref.startswith("#"):
        return None
    found: Any = document
    for step in filter(None, ref[1:].split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        if (
            isinstance(found, list)
            and _POSITION.fullmatch(key)
            and int(key) < len(cast("list[Any]", found))
        ):
            found = cast("list[Any]", found)[int(key)]
        elif isinstance(found, dict):
            found = cast(Raw, found).get(key)
        else:
            return None
    if isinstance(found, dict):
        return cast(Raw, found)
    return None


def _list_objects(value: Any) -> list[Raw]:
    if isinstance(value, list):
        return [cast(Raw, one) for one in cast("list[Any]", value) if isinstance(one, dict)]
    return []


def _get_properties(schema: Raw) -> Raw:
    found: Any = schema.get("properties")
    if isinstance(found, dict):
        return cast(Raw, found)
    return {}


def _get_required(schema: Raw) -> list[str]:
    found: Any = schema.get("required")
    if isinstance(found, list):
        return [one for one in cast("list[Any]", found) if isinstance(one, str)]
    return []


# --- everything below it


def _clean_schema(schema: Any, document: Mapping[str, Any], depth: int) -> Raw:
    """A schema that 2020-12 allows; a keyword whose value it does not allow is left out."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}
    given = _modernize(cast(Raw, schema))
    made: Raw = {}
    for key, value in given.items():
        if key in _DROPPED_KEYWORDS:
            continue
        if key in _SCHEMA_KEYWORDS:
            if isinstance(value, bool):
                made[key] = value
            elif isinstance(value, dict):
                made[key] = _clean_schema(value, document, depth + 1)
        elif key in _SCHEMA_LIST_KEYWORDS:
            if parts := [
                one if isinstance(one, bool) else _clean_schema(one, document, depth + 1)
                for one in _to_list(value)
            ]:
                made[key] = parts
        elif key in _SCHEMA_MAP_KEYWORDS:
            if isinstance(value, dict):
                named = cast("dict[Any, Any]", value).items()
                made[key] = {
                    str(name): _clean_schema(one, document, depth + 1)
                    for name, one in named
                    if _is_kept_name(key, name)
                }
        elif key == "$ref":
            if isinstance(value, str) and _resolve_reference(dict(document), value) is not None:
                made[key] = value
        elif _is_allowed(key, value):
            made[key] = value
    kind = made.get("type")
    if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and "items" not in made:
        made["items"] = {}
    return made


def _modernize(schema: Raw) -> Raw:
    """What older drafts, and habits of other languages, say in the words of 2020-12."""
    given = dict(schema)
    kind = given.get("type")
    if isinstance(kind, str):
        given["type"] = _SYNONYMS.get(kind.lower(), kind.lower())
    elif isinstance(kind, list):
        names = [
            _SYNONYMS.get(one.lower(), one.lower())
            for one in cast("list[Any]", kind)
            if isinstance(one, str)
        ]
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


def _is_kept_name(key: str, name: Any) -> bool:
    return key != "patternProperties" or _is_pattern(name)


def _is_pattern(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _is_allowed(key: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key == "type":
        if isinstance(value, str):
            return value in _TYPES
        return bool(value) and isinstance(value, list)
    if key == "enum":
        return isinstance(value, list) and bool(cast("list[Any]", value))
    if key == "examples":
        return isinstance(value, list)
    if key == "required":
        return isinstance(value, list) and all(
            isinstance(one, str) for one in cast("list[Any]", value)
        )
    if key == "pattern":
        return _is_pattern(value)
    if key in _COUNT_KEYWORDS:
        return number and value >= 0 and value == int(value)
    if key == "multipleOf":
        return number and value > 0
    if key in _NUMBER_KEYWORDS:
        return number
    if key in _TEXT_KEYWORDS:
        return isinstance(value, str)
    if key in _FLAG_KEYWORDS:
        return isinstance(value, bool)
    return key != "dependentRequired"


def _to_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return []
