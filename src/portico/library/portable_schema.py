"""A tool's input schema in a form that every model provider accepts. Pure.

Providers refuse a whole request for one schema they cannot read. They want an object at the root,
without alternatives there, JSON Schema 2020-12 throughout, arrays that declare `items`, and
property names of plain characters. Everything else goes into the description, and the gateway
validates it when the tool is called.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from portico.json_text.json_codec import to_list, to_object
from portico.upstream.backend import Raw

PROPERTY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Property names that every provider accepts."""
_MAX_NAME_CHARS = 64
_POSITION = re.compile(r"[0-9]{1,9}")
_ALTERNATIVES = ("anyOf", "oneOf")
_ROOT_KEYWORDS = frozenset(
    {"properties", "required", "description", "additionalProperties", "$defs", "definitions"}
)
"""Root keywords that are kept. All others are redundant or refused by a provider."""
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_SYNONYMS = {
    "bool": "boolean",
    "date": "string",
    "dict": "object",
    "double": "number",
    "float": "number",
    "int": "integer",
    "list": "array",
    "long": "integer",
    "str": "string",
    "text": "string",
}
_SCHEMA_KEYWORDS = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_SCHEMA_LIST_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_MAP_KEYWORDS = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
_COUNT_KEYWORDS = frozenset(
    f"{bound}{counted}"
    for bound in ("max", "min")
    for counted in ("Contains", "Items", "Length", "Properties")
)
_NUMBER_KEYWORDS = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"})
_TEXT_KEYWORDS = frozenset(
    {"$comment", "contentEncoding", "contentMediaType", "description", "format", "title"}
)
_FLAG_KEYWORDS = frozenset({"deprecated", "readOnly", "uniqueItems", "writeOnly"})
_DROPPED_KEYWORDS = {
    *("$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$schema", "$vocabulary"),
    *("dependencies", "dependentRequired", "id"),
}
_MAX_DEPTH = 60
_MAX_ALTERNATIVES = 8
_MAX_PARTS = 2_000
"""Limit for one root: a few lines of nested references can expand to billions of parts."""


def make_portable(schema: Mapping[str, Any]) -> Raw:
    """Return the schema as a plain object.

    Property names that a provider would refuse are replaced; `map_real_names` maps them back.
    """
    root = _RootSchema(dict(schema)).merged
    portable = _clean_schema(
        {key: value for key, value in root.items() if key in _ROOT_KEYWORDS}, schema, 0
    )
    properties = portable.get("properties", {})
    names = {name: new for new, name in map_portable_names(properties).items()}
    portable["properties"] = {names[name]: value for name, value in properties.items()}
    if required := [names[name] for name in portable.pop("required", []) if name in names]:
        portable["required"] = required
    return {"type": "object", **portable}


def map_real_names(schema: Mapping[str, Any]) -> dict[str, str]:
    """Map the property names that a portable schema had to change to the real ones."""
    root = _RootSchema(dict(schema)).merged
    properties: Any = root.get("properties")
    if not isinstance(properties, dict):
        return {}
    names = map_portable_names(cast(Raw, properties))
    return {new: name for new, name in names.items() if new != name}


def map_portable_names(names: Iterable[str]) -> dict[str, str]:
    """Map portable name → real name; unique, and names that need no change stay."""
    real = list(names)
    taken = {name: name for name in real if PROPERTY_NAME.fullmatch(name)}
    for name in real:
        if name not in taken:
            digest = hashlib.blake2b(
                name.encode("utf-8", "surrogatepass"), digest_size=3
            ).hexdigest()
            cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_") or "_"
            new_name = f"{cleaned[: _MAX_NAME_CHARS - 7]}_{digest}"
            if len(cleaned) <= _MAX_NAME_CHARS:
                new_name = cleaned
            while new_name in taken:
                new_name = f"{new_name[: _MAX_NAME_CHARS - 7]}_{digest}"
                digest = hashlib.blake2b(digest.encode(), digest_size=3).hexdigest()
            taken[new_name] = name
    return taken


# --- root schema


class _RootSchema:
    """A root schema without references and alternatives, their properties merged into one
    object.
    """

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
            if alternatives := self._merge_parts(_list_objects(schema.get(keyword)), seen, depth):
                root = _merge_any_of(root, alternatives)
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
    """Merge two schemas that both apply."""
    properties = {**_get_properties(other), **_get_properties(one)}
    required = list(dict.fromkeys([*_get_required(one), *_get_required(other)]))
    merged = {**other, **one, "required": required}
    if properties:
        merged["properties"] = properties
    return merged


def _merge_any_of(root: Raw, alternatives: list[Raw]) -> Raw:
    """Merge alternatives into `root`: all their properties, required only if every one requires
    it.
    """
    alternatives = [one for one in alternatives if _get_properties(one) or _get_required(one)]
    if not alternatives:
        return root
    gathered: dict[str, list[Any]] = {}
    for alternative in alternatives:
        for name, shape in _get_properties(alternative).items():
            shapes = gathered.setdefault(name, [])
            if shape not in shapes:
                shapes.append(shape)
    properties = {
        name: shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
        for name, shapes in gathered.items()
    }
    always_required = [
        name
        for name in _get_required(alternatives[0])
        if all(name in _get_required(one) for one in alternatives)
    ]
    merged = {
        **root,
        "properties": {**properties, **_get_properties(root)},
        "required": list(dict.fromkeys([*_get_required(root), *always_required])),
    }
    required_texts = [", ".join(_get_required(one)) for one in alternatives]
    required_sets = list(dict.fromkeys(filter(None, required_texts)))
    description: list[str] = []
    if isinstance(root.get("description"), str):
        description.append(root["description"])
    if len(required_sets) > 1:
        description.append(f"Give one of: {' | '.join(required_sets[:_MAX_ALTERNATIVES])}.")
    if description:
        merged["description"] = " ".join(description)
    if "additionalProperties" in root:
        # A property of one alternative must not be forbidden by another.
        merged["additionalProperties"] = True
    return merged


def _resolve_reference(document: Raw, ref: str) -> Raw | None:
    if not ref.startswith("#"):
        return None
    found: Any = document
    for step in filter(None, ref[1:].split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        items = _to_list(found)
        if items and _POSITION.fullmatch(key) and int(key) < len(items):
            found = items[int(key)]
        elif isinstance(found, dict):
            found = cast(Raw, found).get(key)
        else:
            return None
    if isinstance(found, dict):
        return cast(Raw, found)
    return None


def _to_list(value: Any) -> list[Any]:
    return to_list(value)


def _list_objects(value: Any) -> list[Raw]:
    return [cast(Raw, item) for item in _to_list(value) if isinstance(item, dict)]


def _get_properties(schema: Raw) -> Raw:
    found: Any = schema.get("properties")
    return to_object(found)


def _get_required(schema: Raw) -> list[str]:
    return [name for name in _to_list(schema.get("required")) if isinstance(name, str)]


# --- everything below the root


def _clean_schema(schema: Any, document: Mapping[str, Any], depth: int) -> Raw:
    """Return a valid 2020-12 schema; keywords with invalid values are left out."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}
    modern = _modernize(cast(Raw, schema))
    cleaned: Raw = {}
    for key, value in modern.items():
        if key in _DROPPED_KEYWORDS:
            continue
        if key in _SCHEMA_KEYWORDS:
            if isinstance(value, bool):
                cleaned[key] = value
            elif isinstance(value, dict):
                cleaned[key] = _clean_schema(value, document, depth + 1)
        elif key in _SCHEMA_LIST_KEYWORDS:
            if parts := [
                part if isinstance(part, bool) else _clean_schema(part, document, depth + 1)
                for part in _to_list(value)
            ]:
                cleaned[key] = parts
        elif key in _SCHEMA_MAP_KEYWORDS:
            if isinstance(value, dict):
                named = cast("dict[Any, Any]", value).items()
                cleaned[key] = {
                    str(name): _clean_schema(part, document, depth + 1)
                    for name, part in named
                    if (key != "patternProperties" or _is_pattern(name))
                }
        elif key == "$ref":
            if isinstance(value, str) and _resolve_reference(dict(document), value) is not None:
                cleaned[key] = value
        elif _is_allowed(key, value):
            cleaned[key] = value
    kind = cleaned.get("type")
    if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and "items" not in cleaned:
        cleaned["items"] = {}
    return cleaned


def _modernize(schema: Raw) -> Raw:
    """Translate older drafts, and type names of other languages, to 2020-12."""
    modern = dict(schema)
    kind = modern.get("type")
    if isinstance(kind, str):
        modern["type"] = _SYNONYMS.get(kind.lower(), kind.lower())
    elif isinstance(kind, list):
        words = [one.lower() for one in cast("list[Any]", kind) if isinstance(one, str)]
        names = [_SYNONYMS.get(word, word) for word in words]
        modern["type"] = [*dict.fromkeys(name for name in names if name in _TYPES)]
    if isinstance(modern.get("items"), list):
        modern["prefixItems"] = modern.pop("items")
        if "additionalItems" in modern:
            modern["items"] = modern.pop("additionalItems")
    for bound in ("Minimum", "Maximum"):
        if isinstance(flag := modern.get(f"exclusive{bound}"), bool):
            del modern[f"exclusive{bound}"]
            if flag and bound.lower() in modern:
                modern[f"exclusive{bound}"] = modern.pop(bound.lower())
    return modern


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
            isinstance(item, str) for item in cast("list[Any]", value)
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
    return True
