"""What a model passes to a meta-tool, checked and forgiven. Pure."""

import contextlib
from typing import Any

import orjson

from portico.catalog.visible import quoted
from portico.disclosure.metatools import parameters
from portico.errors import InvalidArguments
from portico.upstream.backend import Raw
from portico.upstream.json_values import has_more_values

MAX_UNKNOWN = 5
MAX_READ = 25_000
"""JSON values of a text that is read as what it says: it was one value when the request's were counted."""


def checked_arguments(name: str, arguments: Any) -> Raw:
    """A meta-tool's arguments, forgiving what models get wrong: JSON text for an object, one name for a list."""
    if not isinstance(arguments, dict):
        raise InvalidArguments(f"the arguments of {name} must be an object")
    known = parameters(name)
    properties: Raw = known["properties"]
    given: Raw = {key: value for key, value in arguments.items() if value is not None}
    unknown = [key for key in given if key not in properties]
    problems = [f"{quoted(key, 40)} is not a parameter" for key in unknown[:MAX_UNKNOWN]]
    problems += [f"nor are {len(unknown) - MAX_UNKNOWN} more"] if len(unknown) > MAX_UNKNOWN else []
    problems += [f"{key} is missing" for key in known["required"] if key not in given]
    for key in properties.keys() & given.keys():
        value, problem = _repaired(properties[key], given[key])
        given[key] = value
        if problem:
            problems.append(f"{key} {problem}")
    if problems:
        accepted = ", ".join(key if key in known["required"] else f"{key}?" for key in properties)
        raise InvalidArguments(f"{name}: {'; '.join(problems)}", advice=f"It takes: {accepted}.")
    return given


def _repaired(shape: Raw, value: Any) -> tuple[Any, str]:
    kind: str = shape["type"]
    if isinstance(value, str) and kind in ("object", "array", "integer", "number", "boolean"):
        if len(value) > MAX_READ and has_more_values(value.encode(errors="replace"), MAX_READ):
            return value, f"has more than {MAX_READ:,} JSON values"
        with contextlib.suppress(orjson.JSONDecodeError):
            read = orjson.loads(value)
            # One name is a name, whatever it looks like: there are tools called `123` and `true`.
            value = read if kind != "array" or isinstance(read, list) else value
    if kind == "array" and not isinstance(value, list):
        value = [value]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, _PYTHON[kind]) or (kind in ("integer", "number") and isinstance(value, bool)):
        return value, f"must be {_ARTICLE[kind]}"
    if kind == "number":
        return value, _out_of_bounds(shape, value)
    if kind == "integer":
        value = max(shape.get("minimum", value), min(shape.get("maximum", value), value))
    if "enum" in shape and value not in shape["enum"]:
        return value, f"must be one of {', '.join(shape['enum'])}"
    if isinstance(value, list):
        inner = shape["items"]["type"]
        if not all(isinstance(item, _PYTHON[inner]) for item in value):
            return value, f"must hold only {_SEVERAL[inner]}"
        if not shape["minItems"] <= len(value) <= shape["maxItems"]:
            return value, f"must have {shape['minItems']} to {shape['maxItems']} entries"
    return value, ""


def _out_of_bounds(shape: Raw, value: Any) -> str:
    """Said, and not corrected: 95 for a share of 0.95 is not meant as 1."""
    low, high = shape["minimum"], shape["maximum"]
    return "" if low <= value <= high else f"must be between {low:,} and {high:,}"


_PYTHON: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "integer": int,
    "number": (int, float),
    "string": str,
    "boolean": bool,
}
_SEVERAL = {"string": "text", "object": "objects"}
_ARTICLE = {
    "object": "an object",
    "array": "a list",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
}
