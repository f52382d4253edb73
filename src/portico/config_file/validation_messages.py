"""Converts pydantic errors to key, message and advice. Never shows a value that may be secret."""

from typing import Any

from pydantic_core import ErrorDetails

from portico.config_file.keys import suggest_key
from portico.config_file.names import find_nearest

SECRET_KEYS = frozenset({"env", "headers", "token", "args", "url"})
MAX_SHOWN_LENGTH = 40
BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
"""Our words for a kind of error, and the key of its limit."""


def describe_validation_error(problem: ErrorDetails, *, secret: bool) -> tuple[str, str, str]:
    """Return key, message and advice of one error."""
    where = tuple(part for part in problem["loc"] if part != "[key]")
    key = ".".join(map(str, where))
    context: dict[str, Any] = problem.get("ctx") or {}
    kind = problem["type"]
    if kind == "extra_forbidden":
        return key, "there is no such key", suggest_key(where)
    if kind == "value_error":
        return key, str(context["error"]), ""
    given = problem["input"]
    if kind == "literal_error":
        allowed = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        near = find_nearest(given, allowed) if isinstance(given, str) else ()
        message = f"expected one of {', '.join(allowed)}{describe_value(given, where, secret)}"
        return key, message, f"Did you mean {near[0]}?" if near else ""
    message = problem["msg"].replace("Input should be", "expected").removeprefix("Value error, ")
    advice = ""
    if kind in ("tuple_type", "list_type"):
        message = "expected a list"
        advice = "Write one item per line, each after a dash, or [a, b]."
    elif kind in ("model_type", "dict_type", "model_attributes_type"):
        message = "expected keys and values"
    elif kind == "string_type":
        message = "expected text"
    elif kind.startswith("bool"):
        message = "expected true or false"
    elif kind.startswith("int_"):
        message = "expected a whole number"
    elif kind.startswith("float_"):
        message = "expected a number"
    elif kind in BOUNDS:
        word, limit = BOUNDS[kind]
        message = f"expected {word} {context[limit]}"
    return key, message + describe_value(given, where, secret), advice


def describe_value(value: Any, where: tuple[Any, ...], secret: bool) -> str:
    """Return `, found 'x'` if the value is short and harmless, else its type."""
    if value is None:
        return ", found nothing"
    if isinstance(value, dict):
        return ", found keys and values"
    if isinstance(value, (list, tuple)):
        return ", found a list"
    if secret or SECRET_KEYS & {str(part) for part in where} or len(str(value)) > MAX_SHOWN_LENGTH:
        return f", found a {type(value).__name__}"
    return f", found {value!r}"
