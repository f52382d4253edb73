"""Builds the words of a command from its template and the arguments of a call. Pure.

Each value stays inside the word that names it: words are never split, joined or read by a shell.
What a program could still misread is a value that begins with `-`, which looks like an option. Such
a value is refused at the beginning of a word, unless `--` stands before it or the configuration
allows it.

The call pipeline checks arguments against the schema only if that could be compiled, and not every
caller goes through it, so nothing is taken on trust here.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from portico.config.command_tool import CommandArgument, CommandTool
from portico.config.command_words import (
    END_OF_OPTIONS,
    ArgumentSlot,
    WordTemplate,
    get_program_name,
)
from portico.upstream.backend import Raw

_BOUNDS = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
}


def build_definition(name: str, tool: CommandTool) -> Raw:
    schema: Raw = {
        "type": "object",
        "properties": {key: _build_schema(argument) for key, argument in tool.arguments.items()},
        "additionalProperties": False,
    }
    # An argument with a default may be omitted, even if it is marked as required.
    required = [
        key
        for key, argument in tool.arguments.items()
        if argument.required and argument.default is None
    ]
    if required:
        schema["required"] = required
    return {
        "name": name,
        # Only the program is named: the other words may hold values of variables.
        "description": tool.description or f"Runs the program {get_program_name(tool.command[0])}.",
        "inputSchema": schema,
        "annotations": _build_annotations(tool),
    }


def _build_annotations(tool: CommandTool) -> Raw:
    hints: Raw = {"readOnlyHint": tool.read_only}
    if tool.destructive is not None:
        hints["destructiveHint"] = tool.destructive
    if tool.idempotent:
        hints["idempotentHint"] = True
    if tool.open_world is not None:
        hints["openWorldHint"] = tool.open_world
    return hints


def _build_schema(argument: CommandArgument) -> Raw:
    item: Raw = {"type": argument.item_type}
    if argument.choices:
        item["enum"] = list(argument.choices)
    if argument.pattern:
        item["pattern"] = f"^(?:{argument.pattern})$"
    schema: Raw = {"type": "array", "items": item} if argument.type == "array" else item
    for key, bound in zip(
        _BOUNDS.get(argument.type, ()), (argument.minimum, argument.maximum), strict=False
    ):
        if bound is not None:
            schema[key] = int(bound) if bound.is_integer() else bound
    if argument.default is not None:
        schema["default"] = argument.default
    if argument.description:
        schema["description"] = argument.description
    return schema


ArgumentValue = bool | str | tuple[str, ...]

MAX_PATTERN_S = 0.2
"""Seconds for matching a pattern against one text."""
MAX_PATTERNS_S = 1.0
"""Seconds for matching it against all items of an array: it blocks the event loop."""
_MAX_NUMBER_BITS = 512
"""Bits: Python refuses to format very long integers, and no program reads them."""


@dataclass(frozen=True)
class CommandArgumentValues:
    values: Mapping[str, ArgumentValue]
    """Values by name; without arguments that have neither a value nor a default."""
    from_caller: frozenset[str] = frozenset()
    """Names whose value came from the caller, not from the configuration."""
    problems: tuple[str, ...] = ()


class _InvalidValue(Exception):
    """A value cannot be used; the message says why."""


def check_arguments(tool: CommandTool, arguments: Mapping[str, Any]) -> CommandArgumentValues:
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


MAX_WORD_BYTES = 128 * 1024 - 1
"""Longest word that Linux accepts."""
if os.name == "posix":
    MAX_COMMAND_BYTES = 1024**2

else:
    MAX_COMMAND_BYTES = 32_000
"""Bytes of all words: the usual limit of systems, less space for the environment."""
_WORD_OVERHEAD_BYTES = 9
"""Bytes of a word beside its text: a pointer and the terminating NUL."""


class InvalidCommandLine(Exception):
    """A value cannot be used in its place; the message is advice."""


@dataclass(frozen=True)
class CommandLine:
    words: tuple[str, ...]
    stdin: str
    caller_word_indexes: tuple[int, ...] = ()
    """Indexes of the words that contain values of the caller."""


@dataclass(frozen=True, slots=True)
class _CommandWord:
    text: str
    first_argument: str = ""
    """The caller's argument that this word begins with."""
    has_caller_value: bool = False


def build_command_line(tool: CommandTool, arguments: CommandArgumentValues) -> CommandLine:
    """Return the words to run; raise InvalidCommandLine with advice."""
    words = [_CommandWord(tool.words[0].literal_text or "")]
    protected = False
    for template in tool.words[1:]:
        if template.literal_text is not None:
            # After a fixed word another program may parse the rest (`kubectl exec pod -- cat {x}`).
            protected = template.literal_text == END_OF_OPTIONS
        words += _check_option_words(tool, _expand_word(tool, template, arguments), protected)
    placed = {name for template in (*tool.words, tool.stdin_word) for name in template.names}
    rest = [name for name in tool.arguments if name not in placed and name in arguments.values]
    options: list[_CommandWord] = []
    for name in rest:
        if tool.arguments[name].flag:
            expanded = _expand_word(tool, WordTemplate((ArgumentSlot(name),)), arguments)
            options += _check_option_words(tool, expanded, protected=False)
    separator = _CommandWord(END_OF_OPTIONS)
    insert_at = words.index(separator) if separator in words else len(words)
    words[insert_at:insert_at] = options
    for name in rest:
        if not tool.arguments[name].flag:
            expanded = _expand_word(tool, WordTemplate((ArgumentSlot(name),)), arguments)
            words += _check_option_words(tool, expanded, protected)
    _check_lengths(words)
    return CommandLine(
        tuple(word.text for word in words),
        _build_stdin(tool, arguments),
        tuple(index for index, word in enumerate(words) if word.has_caller_value),
    )


def format_flag(flag: str, value: str) -> tuple[str, ...]:
    """Render an option with its value: `--author=value`, `-n value`, or by `{}` in the flag."""
    if "{}" not in flag:
        if not flag.startswith("--"):
            return (flag, value)
        return (f"{flag}{value}" if flag.endswith("=") else f"{flag}={value}",)
    option, gap, form = flag.partition(" ")
    if gap:
        return (option, form.strip().replace("{}", value))
    return (option.replace("{}", value),)


def _expand_word(
    tool: CommandTool, template: WordTemplate, arguments: CommandArgumentValues
) -> Iterator[_CommandWord]:
    """Yield the words of one template: none, one, or one for each item of an array."""
    if any(name not in arguments.values for name in template.names):
        return
    array_name = next(
        (name for name in template.names if isinstance(arguments.values[name], tuple)), ""
    )
    values: Sequence[ArgumentValue] = ("",)
    if array_name:
        values = tuple(arguments.values[array_name])  # pyright: ignore[reportArgumentType]
    sole = template.sole_argument
    for value in values:
        if sole and tool.arguments[sole].flag:
            flag_value = value if array_name else arguments.values[sole]
            yield from _expand_flag(sole, tool.arguments[sole], flag_value, arguments)
            continue
        text = ""
        first_argument = ""
        for piece in template.pieces:
            name = piece.name if isinstance(piece, ArgumentSlot) else ""
            if not name:
                added = str(piece)
            else:
                added = _to_text(value if name == array_name else arguments.values[name])
            if added and not text:
                first_argument = name if name in arguments.from_caller else ""
            text += added
        has_caller_value = not arguments.from_caller.isdisjoint(template.names)
        yield _CommandWord(text, first_argument, has_caller_value)


def _expand_flag(
    name: str, argument: CommandArgument, value: ArgumentValue, arguments: CommandArgumentValues
) -> Iterator[_CommandWord]:
    if isinstance(value, bool):
        if value:
            yield _CommandWord(argument.flag)
        return
    from_caller = name in arguments.from_caller
    value_text = _to_text(value)
    first, *rest = format_flag(argument.flag, value_text)
    yield _CommandWord(first, has_caller_value=from_caller and not rest)
    for text in rest:
        # Many parsers take a value after its option for another option.
        first_argument = name if from_caller and text.startswith(value_text) else ""
        yield _CommandWord(text, first_argument, has_caller_value=from_caller)


def _to_text(value: ArgumentValue) -> str:
    if isinstance(value, str):
        return value
    if value is True:
        return "true"
    return "false"


def _check_option_words(
    tool: CommandTool, words: Iterator[_CommandWord], protected: bool
) -> Iterator[_CommandWord]:
    for word in words:
        name = word.first_argument
        if (
            word.text.startswith("-")
            and name
            and not protected
            and not tool.arguments[name].options
        ):
            raise InvalidCommandLine(
                f"{name} begins with `-`, and the program would take it for an option. "
                f"Write it otherwise (a file -x is ./-x). Its configuration can put `--` "
                f"before {{{name}}}, or say `options: true` there."
            )
        yield word


def _check_lengths(words: Sequence[_CommandWord]) -> None:
    sizes = [len(word.text.encode(errors="surrogatepass")) for word in words]
    if max(sizes) > MAX_WORD_BYTES:
        raise InvalidCommandLine(
            f"a value is too long: a word of a command has at most {MAX_WORD_BYTES:,} bytes. "
            "Its configuration can pass it by `stdin`."
        )
    if sum(sizes) + _WORD_OVERHEAD_BYTES * len(sizes) > MAX_COMMAND_BYTES:
        raise InvalidCommandLine(
            f"the values are too long together: a command has at most {MAX_COMMAND_BYTES:,} bytes."
        )


def _build_stdin(tool: CommandTool, arguments: CommandArgumentValues) -> str:
    return "".join(
        piece if isinstance(piece, str) else _join_lines(arguments.values.get(piece.name, ""))
        for piece in tool.stdin_word.pieces
    )


def _join_lines(value: ArgumentValue) -> str:
    if isinstance(value, tuple):
        return "\n".join(value)
    return _to_text(value)
