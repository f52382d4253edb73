"""The words of a command with the arguments of a call in them. Pure.

Each value stays inside the word that names it, whatever it holds: words are never split, joined or
read by a shell. One thing a program itself could still mistake is a value that begins with `-`,
which it takes for an option. Such a value is refused where it begins a word, unless `--` stands
before it or the configuration allows it.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from portico.config.command_tool import CommandArgument, CommandTool
from portico.config.command_words import END_OF_OPTIONS, ArgumentSlot, WordTemplate
from portico.upstream.backends.commands.arguments import ArgumentValue, CommandArgumentValues

MAX_WORD_BYTES = 128 * 1024 - 1
"""Bytes: the most that Linux takes in one word."""
if os.name == "posix":
    MAX_COMMAND_BYTES = 1024**2
else:
    MAX_COMMAND_BYTES = 32_000
"""Bytes of all words: what systems usually take, and room for the environment."""
_WORD_OVERHEAD_BYTES = 9
"""Bytes of a word beside its text."""


class InvalidCommandLine(Exception):
    """A value that cannot stand where it should."""


@dataclass(frozen=True)
class CommandLine:
    """A command ready to run."""

    words: tuple[str, ...]
    stdin: str
    caller_word_indexes: tuple[int, ...] = ()
    """Which words hold what the caller wrote."""


@dataclass(frozen=True, slots=True)
class _CommandWord:
    text: str
    first_argument: str = ""
    """The argument of the caller's that this word begins with."""
    has_caller_value: bool = False


def build_command_line(tool: CommandTool, arguments: CommandArgumentValues) -> CommandLine:
    """The words to run; raises Refused, with advice."""
    made = [_CommandWord(tool.words[0].literal_text or "")]
    protected = False
    for one in tool.words[1:]:
        if one.literal_text is not None:
            # Behind a fixed word it may be another program that reads on (`kubectl exec pod -- cat
            # {path}`).
            protected = one.literal_text == END_OF_OPTIONS
        made += _check_option_words(tool, _expand_word(tool, one, arguments), protected)
    placed = {name for one in (*tool.words, tool.stdin_word) for name in one.names}
    rest = [name for name in tool.arguments if name not in placed and name in arguments.values]
    flagged = [name for name in rest if tool.arguments[name].flag]
    options = [
        each
        for name in flagged
        for each in _check_option_words(
            tool,
            _expand_word(tool, WordTemplate((ArgumentSlot(name),)), arguments),
            protected=False,
        )
    ]
    where = next(
        (at for at, one in enumerate(made) if one == _CommandWord(END_OF_OPTIONS)), len(made)
    )
    made[where:where] = options
    for name in rest:
        if name not in flagged:
            made += _check_option_words(
                tool, _expand_word(tool, WordTemplate((ArgumentSlot(name),)), arguments), protected
            )
    _check_lengths(made)
    return CommandLine(
        tuple(one.text for one in made),
        _build_stdin(tool, arguments),
        tuple(at for at, one in enumerate(made) if one.has_caller_value),
    )


def format_flag(flag: str, value: str) -> tuple[str, ...]:
    """An option with its value: `--author=value`; `-n value`; or as the flag itself says by `{}`."""
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
    """What one word of the template becomes: none, itself, or one for each value of an array."""
    if any(name not in arguments.values for name in template.names):
        return
    several = next(
        (name for name in template.names if isinstance(arguments.values[name], tuple)), ""
    )
    values: Sequence[ArgumentValue] = tuple(arguments.values[several]) if several else ("",)  # pyright: ignore[reportArgumentType]
    for value in values:
        if template.sole_argument and tool.arguments[template.sole_argument].flag:
            yield from _expand_flag(
                template.sole_argument,
                tool.arguments[template.sole_argument],
                value if several else arguments.values[template.sole_argument],
                arguments,
            )
            continue
        text = ""
        begun_by = ""
        for piece in template.pieces:
            if isinstance(piece, ArgumentSlot):
                name = piece.name
            else:
                name = ""
            if not name:
                added = str(piece)
            else:
                added = _to_text(value if name == several else arguments.values[name])
            if added and not text:
                if name in arguments.from_caller:
                    begun_by = name
                else:
                    begun_by = ""
            text += added
        yield _CommandWord(
            text, begun_by, has_caller_value=not arguments.from_caller.isdisjoint(template.names)
        )


def _expand_flag(
    name: str, argument: CommandArgument, value: ArgumentValue, arguments: CommandArgumentValues
) -> Iterator[_CommandWord]:
    if isinstance(value, bool):
        if value:
            yield _CommandWord(argument.flag)
        return
    callers = name in arguments.from_caller
    first, *rest = format_flag(argument.flag, _to_text(value))
    yield _CommandWord(first, has_caller_value=callers and not rest)
    for text in rest:
        # Behind an option of its own a value is still an option to many a parser.
        yield _CommandWord(
            text,
            name if callers and text.startswith(_to_text(value)) else "",
            has_caller_value=callers,
        )


def _to_text(value: ArgumentValue) -> str:
    if isinstance(value, str):
        return value
    if value is True:
        return "true"
    return "false"


def _check_option_words(
    tool: CommandTool, words: Iterator[_CommandWord], protected: bool
) -> Iterator[_CommandWord]:
    for one in words:
        if (
            one.text.startswith("-")
            and one.first_argument
            and not protected
            and not tool.arguments[one.first_argument].options
        ):
            raise InvalidCommandLine(
                f"{one.first_argument} begins with `-`, and the program would take it for an option. Write it otherwise (a "
                f"file -x is ./-x). Whoever configures the tool can put `--` before {{{one.first_argument}}}, or say "
                f"`options: true` there."
            )
        yield one


def _check_lengths(words: Sequence[_CommandWord]) -> None:
    sizes = [len(one.text.encode(errors="surrogatepass")) for one in words]
    if max(sizes) > MAX_WORD_BYTES:
        raise InvalidCommandLine(
            f"a value is too long: a word of a command has at most {MAX_WORD_BYTES:,} bytes. Whoever configures the tool "
            "can hand it over by `stdin`."
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
