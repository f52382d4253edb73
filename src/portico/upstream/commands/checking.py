"""The arguments of a call → texts that may stand in a command, or what is wrong with them. Pure.

The pipeline has checked them against the schema, if the schema could be compiled and nobody came another way: here
nothing is taken on trust.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.config.command_tool import CommandArgument, CommandTool

Value = bool | str | tuple[str, ...]

PATTERN_S = 0.2
"""How long a pattern is tried on one text."""
PATTERNS_S = 1.0
"""How long it is tried on all items of an array: nobody else is served meanwhile."""
_LONGEST_NUMBER = 512
"""Bits: Python refuses to write out very long numbers, and no program reads them."""


@dataclass(frozen=True)
class Checked:
    """What a call gives, and what is wrong with it."""

    values: Mapping[str, Value]
    """By name; what was not given and has no default is not there."""
    given: frozenset[str] = frozenset()
    """Those that the caller wrote, not the configuration."""
    problems: tuple[str, ...] = ()


class _Wrong(Exception):
    """Why a value cannot be used."""


def checked(tool: CommandTool, arguments: Mapping[str, Any]) -> Checked:
    """Every argument of the command, as text."""
    problems = [f"there is no argument {name!r}" for name in arguments if name not in tool.arguments]
    values: dict[str, Value] = {}
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
            values[name] = _value(argument, value)
        except _Wrong as wrong:
            problems.append(f"{name} {wrong}")
    if problems:
        known = ", ".join(tool.arguments) or "none"
        problems.append(f"its arguments: {known}")
    return Checked(values, frozenset(given), tuple(problems))


def _value(argument: CommandArgument, value: Any) -> Value:
    if argument.type == "boolean":
        if not isinstance(value, bool):
            raise _Wrong("must be true or false")
        return value
    if argument.type != "array":
        _within(argument, len(value) if isinstance(value, str) else value, "characters")
        return _text(argument, value, time.monotonic() + PATTERN_S)
    if not isinstance(value, list | tuple):
        raise _Wrong("must be an array")
    items = cast("list[Any]", value)
    _within(argument, len(items), "items")
    until = time.monotonic() + PATTERNS_S
    return tuple(_text(argument, item, until) for item in items)


def _within(argument: CommandArgument, size: Any, what: str) -> None:
    if isinstance(size, bool) or not isinstance(size, int | float):
        return  # not of its type, which is told by what follows
    of = "" if argument.type in ("integer", "number") else f" {what}"
    if argument.minimum is not None and size < argument.minimum:
        raise _Wrong(f"must be at least {argument.minimum:g}{of}")
    if argument.maximum is not None and size > argument.maximum:
        raise _Wrong(f"must be at most {argument.maximum:g}{of}")


def _text(argument: CommandArgument, value: Any, until: float) -> str:
    if argument.each == "string":
        text = _plain(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong(f"must be {'a whole number' if argument.each == 'integer' else 'a number'}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise _Wrong("must be a finite number")
    elif isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER:
        raise _Wrong("is too long a number")
    elif argument.each == "integer":
        if not float(value).is_integer():
            raise _Wrong("must be a whole number")
        text = str(int(value))
    else:
        text = repr(value)
    if argument.choices and not any(type(one) is not bool and _same(one, value) for one in argument.choices):
        raise _Wrong(f"must be one of {', '.join(str(one) for one in argument.choices)}")
    if argument.pattern and not _matches(argument.pattern, text, until):
        raise _Wrong(f"must match {argument.pattern} from end to end")
    return text


def _plain(value: Any) -> str:
    if not isinstance(value, str):
        raise _Wrong("must be text")
    if "\0" in value:
        raise _Wrong("holds a NUL character, which no program can be given")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Wrong("holds half of a character (a lone surrogate), which is no text") from None
    return value


def _same(choice: Any, value: Any) -> bool:
    return choice == value and isinstance(choice, str) == isinstance(value, str)


def _matches(pattern: str, text: str, until: float) -> bool:
    import regex  # it costs start-up time, and few commands have a pattern

    left = min(PATTERN_S, until - time.monotonic())
    try:
        if left <= 0:
            raise TimeoutError
        return regex.fullmatch(pattern, text, timeout=left, concurrent=True) is not None
    except TimeoutError:
        raise _Wrong("takes too long to be held against its pattern") from None
