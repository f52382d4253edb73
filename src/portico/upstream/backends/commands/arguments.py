"""Checks the arguments of a call and converts them to texts for a command. Pure.

The call pipeline checks them against the schema only if that could be compiled, and not every
caller goes through it, so nothing is taken on trust here.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.config.command_tool import CommandArgument, CommandTool

ArgumentValue = bool | str | tuple[str, ...]

MAX_PATTERN_S = 0.2
"""Seconds for matching a pattern against one text."""
MAX_PATTERNS_S = 1.0
"""Seconds for matching it against all items of an array: it blocks the event loop."""
_MAX_NUMBER_BITS = 512
"""Bits: Python refuses to format very long integers, and no program reads them."""


@dataclass(frozen=True)
class CommandArgumentValues:
    """Checked arguments of a call, and their problems."""

    values: Mapping[str, ArgumentValue]
    """Values by name; without arguments that have neither a value nor a default."""
    from_caller: frozenset[str] = frozenset()
    """Names whose value came from the caller, not from the configuration."""
    problems: tuple[str, ...] = ()


class _InvalidValue(Exception):
    """A value cannot be used; the message says why."""


def check_arguments(tool: CommandTool, arguments: Mapping[str, Any]) -> CommandArgumentValues:
    """Check and convert every argument of the command."""
    problems = [
        f"there is no argument {name!r}" for name in arguments if name not in tool.arguments
    ]
    values: dict[str, ArgumentValue] = {}
    from_caller: set[str] = set()
    for name, argument in tool.arguments.items():
        value = arguments.get(name)
        if value is not None:
            from_caller.add(name)
        elif argument.default is not None:
            value = argument.default
        else:
            if argument.required:
                problems.append(f"{name} is missing")
            continue
        try:
            values[name] = _convert_value(argument, value)
        except _InvalidValue as problem:
            problems.append(f"{name} {problem}")
    if problems:
        known = ", ".join(tool.arguments) or "none"
        problems.append(f"its arguments: {known}")
    return CommandArgumentValues(values, frozenset(from_caller), tuple(problems))


def _convert_value(argument: CommandArgument, value: Any) -> ArgumentValue:
    if argument.type == "boolean":
        if not isinstance(value, bool):
            raise _InvalidValue("must be true or false")
        return value
    if argument.type != "array":
        _check_bounds(argument, len(value) if isinstance(value, str) else value, "characters")
        return _convert_item(argument, value, time.monotonic() + MAX_PATTERN_S)
    if not isinstance(value, list | tuple):
        raise _InvalidValue("must be an array")
    items = cast("list[Any]", value)
    _check_bounds(argument, len(items), "items")
    deadline = time.monotonic() + MAX_PATTERNS_S
    return tuple(_convert_item(argument, item, deadline) for item in items)


def _check_bounds(argument: CommandArgument, size: Any, what: str) -> None:
    if isinstance(size, bool) or not isinstance(size, int | float):
        return  # of the wrong type, which the next check reports
    unit = "" if argument.type in ("integer", "number") else f" {what}"
    if argument.minimum is not None and size < argument.minimum:
        raise _InvalidValue(f"must be at least {argument.minimum:g}{unit}")
    if argument.maximum is not None and size > argument.maximum:
        raise _InvalidValue(f"must be at most {argument.maximum:g}{unit}")


def _convert_item(argument: CommandArgument, value: Any, deadline: float) -> str:
    if argument.item_type == "string":
        text = _require_text(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        kind = "a whole number" if argument.item_type == "integer" else "a number"
        raise _InvalidValue(f"must be {kind}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise _InvalidValue("must be a finite number")
    elif isinstance(value, int) and value.bit_length() > _MAX_NUMBER_BITS:
        raise _InvalidValue("is too long a number")
    elif argument.item_type == "integer":
        if not float(value).is_integer():
            raise _InvalidValue("must be a whole number")
        text = str(int(value))
    else:
        text = repr(value)
    if argument.choices and not any(
        type(choice) is not bool and _is_same_value(choice, value) for choice in argument.choices
    ):
        raise _InvalidValue(f"must be one of {', '.join(map(str, argument.choices))}")
    if argument.pattern and not _matches(argument.pattern, text, deadline):
        raise _InvalidValue(f"must match {argument.pattern} from end to end")
    return text


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        raise _InvalidValue("must be text")
    if "\0" in value:
        raise _InvalidValue("holds a NUL character, which no program can be given")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _InvalidValue(
            "holds half of a character (a lone surrogate), which is no text"
        ) from None
    return value


def _is_same_value(choice: Any, value: Any) -> bool:
    return choice == value and isinstance(choice, str) == isinstance(value, str)


def _matches(pattern: str, text: str, deadline: float) -> bool:
    import regex  # imported late: slow, and few commands have a pattern

    timeout = min(MAX_PATTERN_S, deadline - time.monotonic())
    try:
        if timeout <= 0:
            raise TimeoutError
        return regex.fullmatch(pattern, text, timeout=timeout, concurrent=True) is not None
    except TimeoutError:
        raise _InvalidValue("takes too long to be held against its pattern") from None
