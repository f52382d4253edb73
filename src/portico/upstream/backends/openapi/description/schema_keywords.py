"""Bounds and kinds in OpenAPI's schemas → what JSON Schema 2020-12 allows. Pure.

What is written wrongly is left out: a rule that nobody can check is worse than none.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, cast

from portico.json_text import json_codec
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description.parser import to_json_value

JSON_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum")
_EXCLUSIVE: Mapping[str, str] = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}


def convert_bounds(schema: Mapping[str, Any]) -> Raw:
    """The numeric rules of a schema."""
    found: Raw = {}
    for key in _BOUNDS:
        value = schema.get(key)
        exclusive = schema.get(_EXCLUSIVE[key])
        if _is_number(exclusive):
            found[_EXCLUSIVE[key]] = exclusive
        if _is_number(value):
            found[_EXCLUSIVE[key] if exclusive is True else key] = value
    for key in _COUNTS:
        value = schema.get(key)
        if _is_number(value) and value >= 0 and value == int(value):
            found[key] = int(value)
    step = schema.get("multipleOf")
    if _is_number(step) and step > 0:
        found["multipleOf"] = step
    if schema.get("uniqueItems") is True:
        found["uniqueItems"] = True
    return found


def list_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The types a schema allows; empty where it says none that there is."""
    given = schema.get("type")
    if isinstance(given, list):
        listed = cast("list[Any]", given)
    else:
        listed = [given]
    found = [kind for kind in listed if isinstance(kind, str) and kind in JSON_TYPES]
    if "file" in listed:
        found.append("string")
    if (
        found
        and (schema.get("nullable") is True or schema.get("x-nullable") is True)
        and "null" not in found
    ):
        found.append("null")
    return tuple(dict.fromkeys(found))


def convert_enum(schema: Mapping[str, Any], types: tuple[str, ...]) -> list[Any] | None:
    """The values of an `enum`; None where there is none."""
    given = schema.get("enum")
    if not isinstance(given, list) or not given:
        return None
    try:
        values = cast("list[Any]", to_json_value(given))
    except ValueError:
        return None
    if types and "string" in types and not {"number", "integer", "boolean"} & set(types):
        # YAML without quotes: `[1.0, 2.0]` in a string's enum means texts.
        values = [
            _to_enum_text(value) if isinstance(value, int | float) else value for value in values
        ]
    if "null" in types and None not in values:
        values.append(None)
    return list({json_codec.dumps(value): value for value in values}.values())


def convert_string_keywords(schema: Mapping[str, Any], is_supported: Callable[[str], bool]) -> Raw:
    """`format`, `pattern` and what is in a string."""
    found: Raw = {}
    for key in ("format", "contentEncoding", "contentMediaType"):
        if isinstance(schema.get(key), str):
            found[key] = schema[key]
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and is_supported(pattern):
        found["pattern"] = pattern
    return found


def _to_enum_text(value: float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _is_number(value: Any) -> TypeGuard[float]:
    # A bound beyond 64 bits is what a generator wrote for "none".
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
