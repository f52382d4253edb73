"""The arguments of a call → texts that may stand in a command, or what is wrong with them. Pure.

The pipeline has checked them against the schema, if the schema could be compiled and nobody came
another way: here nothing is taken on trust.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.config.command_tool import CommandArgument, CommandTool

ArgumentValue = bool | str | tuple[str, ...]

MAX_PATTERN_S = 0.2
"""How long a pattern is tried on one text."""
MAX_PATTERNS_S = 1.0
"""How long it is tried on all items of an array: nobody else is served meanwhile."""
_MAX_NUMBER_BITS = 512
"""Bits: Python refuses to write out very long numbers, and no program reads them."""


@dataclass(frozen=True)
class CommandArgumentValues:
    """What a call gives, and what is wrong with it."""

    values: Mapping[str, ArgumentValue]
    """By name; what was not given and has no default is not there."""
    from_caller: frozenset[str] = frozenset()
    """Those that the caller wrote, not the configuration."""
    problems: tuple[str, ...] = ()


class _InvalidValue(Exception):
    """Why a value cannot be used."""


def check_arguments(tool: CommandTool, arguments: Mapping[str, Any]) -> CommandArgumentValues:
    """Every argument of the command, as text."""
    problems = [
        f"there is no argument {name!r}" for name in arguments if name not in tool.arguments
    ]
    values: dict[str, ArgumentValue] = {}
    given: set[str] = set()
    for name, argument in tool.arguments.items():
        value = arguments.get(name)
        if value is not None:
            given.add(name)
        elif argument.default is not None:
            value = argument.default
        else:
            if argument.required:
                problems.append(f"{name} is missing")
            continue
        try:
            values[name] = _convert_value(argument, value)
        except _InvalidValue as wrong:
            problems.append(f"{name} {wrong}")
    if problems:
        known = ", ".join(tool.arguments) or "none"
        problems.append(f"its arguments: {known}")
    return CommandArgumentValues(values, frozenset(given), tuple(problems))


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
    until = time.monotonic() + MAX_PATTERNS_S
    return tuple(_convert_item(argument, item, until) for item in items)


def _check_bounds(argument: CommandArgument, size: Any, what: str) -> None:
    if isinstance(size, bool) or not isinstance(size, int | float):
        return  # not of its type, which is told by what follows
    if argument.type in ("integer", "number"):
        of = ""
    else:
        of = f" {what}"
    if argument.minimum is not None and size < argument.minimum:
        raise _InvalidValue(f"must be at least {argument.minimum:g}{of}")
    if argument.maximum is not None and size > argument.maximum:
        raise _InvalidValue(f"must be at most {argument.maximum:g}{of}")


def _convert_item(argument: CommandArgument, value: Any, deadline: float) -> str:
    if argument.item_type == "string":
        text = _require_text(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise _InvalidValue(
            f"must be {'a whole number' if argument.item_type == 'integer' else 'a number'}"
        )
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
        type(one) is not bool and _is_same_value(one, value) for one in argument.choices
    ):
        raise _InvalidValue(f"must be one of {', '.join(str(one) for one in argument.choices)}")
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
    import regex  # it costs start-up time, and few commands have a pattern

    left = min(MAX_PATTERN_S, deadline - time.monotonic())
    try:
        if left <= 0:
            raise TimeoutError
        return regex.fullmatch(pattern, text, timeout=left, concurrent=True) is not None
    except TimeoutError:
        raise _InvalidValue("takes too long to be held against its pattern") from None
