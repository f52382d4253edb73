"""Arguments that a model passes to a meta-tool: checked, and repaired where models err."""

import contextlib
from typing import Any

import orjson

from portico.catalog.tool import quote_text
from portico.errors import InvalidArguments
from portico.json_text.json_codec import has_more_values
from portico.meta_tools.tool_definitions import PARAMETERS
from portico.upstream.backend import Raw

MAX_UNKNOWN_NAMED = 5
MAX_JSON_VALUES = 25_000
"""Maximum JSON values in a string that is parsed: the request's own limit counted it as one value.
"""


def check_meta_tool_arguments(name: str, arguments: Any) -> Raw:
    """Return a meta-tool's arguments, repaired where models err; raises InvalidArguments.

    Accepted are JSON text for an object and a single name for a list.
    """
    if not isinstance(arguments, dict):
        raise InvalidArguments(f"the arguments of {name} must be an object")
    parameters = PARAMETERS[name]
    properties: Raw = parameters["properties"]
    checked: Raw = {key: value for key, value in arguments.items() if value is not None}
    unknown = [key for key in checked if key not in properties]
    problems = [f"{quote_text(key, 40)} is not a parameter" for key in unknown[:MAX_UNKNOWN_NAMED]]
    if len(unknown) > MAX_UNKNOWN_NAMED:
        problems.append(f"nor are {len(unknown) - MAX_UNKNOWN_NAMED} more")
    problems += [f"{key} is missing" for key in parameters["required"] if key not in checked]
    for key in properties.keys() & checked.keys():
        value, problem = _repair_value(properties[key], checked[key])
        checked[key] = value
        if problem:
            problems.append(f"{key} {problem}")
    if problems:
        accepted = ", ".join(
            key if key in parameters["required"] else f"{key}?" for key in properties
        )
        raise InvalidArguments(f"{name}: {'; '.join(problems)}", advice=f"It takes: {accepted}.")
    return checked


def _repair_value(schema: Raw, value: Any) -> tuple[Any, str]:
    kind: str = schema["type"]
    if isinstance(value, str) and kind in ("object", "array", "integer", "number", "boolean"):
        if len(value) > MAX_JSON_VALUES and has_more_values(
            value.encode(errors="replace"), MAX_JSON_VALUES
        ):
            return value, f"has more than {MAX_JSON_VALUES:,} JSON values"
        with contextlib.suppress(orjson.JSONDecodeError):
            parsed = orjson.loads(value)
            # A single name stays text even if it parses as JSON: tools may be called `123` or
            # `true`.
            if kind != "array" or isinstance(parsed, list):
                value = parsed
    if kind == "array" and not isinstance(value, list):
        value = [value]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, _PYTHON_TYPES[kind]) or (
        kind in ("integer", "number") and isinstance(value, bool)
    ):
        return value, f"must be {_TYPE_PHRASES[kind]}"
    if kind == "number":
        return value, _check_bounds(schema, value)
    if kind == "integer":
        value = max(schema.get("minimum", value), min(schema.get("maximum", value), value))
    if "enum" in schema and value not in schema["enum"]:
        return value, f"must be one of {', '.join(schema['enum'])}"
    if isinstance(value, list):
        inner = schema["items"]["type"]
        if not all(isinstance(item, _PYTHON_TYPES[inner]) for item in value):
            return value, f"must hold only {_PLURALS[inner]}"
        if not schema["minItems"] <= len(value) <= schema["maxItems"]:
            return value, f"must have {schema['minItems']} to {schema['maxItems']} entries"
    return value, ""


def _check_bounds(schema: Raw, value: Any) -> str:
    """Return the problem instead of clamping: 95 for a share of 0.95 does not mean 1."""
    low = schema["minimum"]
    high = schema["maximum"]
    if low <= value <= high:
        return ""
    return f"must be between {low:,} and {high:,}"


_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "integer": int,
    "number": (int, float),
    "string": str,
    "boolean": bool,
}
_PLURALS = {"string": "text", "object": "objects"}
_TYPE_PHRASES = {
    "object": "an object",
    "array": "a list",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
}
