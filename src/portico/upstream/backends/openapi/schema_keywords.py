"""Converts bounds, types and enums of OpenAPI schemas to JSON Schema 2020-12. Pure.

Invalid keywords are dropped: a rule that cannot be checked is worse than none.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, cast

from portico.json_text import json_codec
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.documents import to_json_value

JSON_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum")
_EXCLUSIVE: Mapping[str, str] = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}


def convert_bounds(schema: Mapping[str, Any]) -> Raw:
    converted: Raw = {}
    for key in _BOUNDS:
        value = schema.get(key)
        exclusive = schema.get(_EXCLUSIVE[key])
        if _is_number(exclusive):
            converted[_EXCLUSIVE[key]] = exclusive
        if _is_number(value):
            converted[_EXCLUSIVE[key] if exclusive is True else key] = value
    for key in _COUNTS:
        value = schema.get(key)
        if _is_number(value) and value >= 0 and value == int(value):
            converted[key] = int(value)
    step = schema.get("multipleOf")
    if _is_number(step) and step > 0:
        converted["multipleOf"] = step
    if schema.get("uniqueItems") is True:
        converted["uniqueItems"] = True
    return converted


def list_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types that a schema allows; empty if it names no valid one."""
    declared = schema.get("type")
    listed = cast("list[Any]", declared) if isinstance(declared, list) else [declared]
    types = [kind for kind in listed if isinstance(kind, str) and kind in JSON_TYPES]
    if "file" in listed:
        types.append("string")
    if types and is_nullable(schema):
        types.append("null")
    return tuple(dict.fromkeys(types))


def is_nullable(schema: Mapping[str, Any]) -> bool:
    return schema.get("nullable") is True or schema.get("x-nullable") is True


def convert_enum(schema: Mapping[str, Any], types: tuple[str, ...]) -> list[Any] | None:
    enum = schema.get("enum")
    if not isinstance(enum, list) or not enum:
        return None
    try:
        values = cast("list[Any]", to_json_value(enum))
    except ValueError:
        return None
    if types and "string" in types and not {"number", "integer", "boolean"} & set(types):
        # Unquoted YAML: `[1.0, 2.0]` in a string's enum means texts.
        values = [
            _to_enum_text(value) if isinstance(value, int | float) else value for value in values
        ]
    if "null" in types and None not in values:
        values.append(None)
    return list({json_codec.dumps(value): value for value in values}.values())


def convert_string_keywords(schema: Mapping[str, Any], is_supported: Callable[[str], bool]) -> Raw:
    converted: Raw = {}
    for key in ("format", "contentEncoding", "contentMediaType"):
        if isinstance(schema.get(key), str):
            converted[key] = schema[key]
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and is_supported(pattern):
        converted["pattern"] = pattern
    return converted


def _to_enum_text(value: float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _is_number(value: Any) -> TypeGuard[float]:
    # Generators write bounds beyond 64 bits for "no limit".
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
