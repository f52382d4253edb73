"""Builds the words of a command from its template and the arguments of a call. Pure.

Each value stays inside the word that names it: words are never split, joined or read by a shell.
What a program could still misread is a value that begins with `-`, which looks like an option. Such
a value is refused at the beginning of a word, unless `--` stands before it or the configuration
allows it.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from portico.config.command_tool import CommandArgument, CommandTool
from portico.config.command_words import END_OF_OPTIONS, ArgumentSlot, WordTemplate
from portico.upstream.backends.commands.arguments import ArgumentValue, CommandArgumentValues

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
    """A command ready to run."""

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
                f"Write it otherwise (a file -x is ./-x). Whoever configures the tool can put `--` "
                f"before {{{name}}}, or say `options: true` there."
            )
        yield word


def _check_lengths(words: Sequence[_CommandWord]) -> None:
    sizes = [len(word.text.encode(errors="surrogatepass")) for word in words]
    if max(sizes) > MAX_WORD_BYTES:
        raise InvalidCommandLine(
            f"a value is too long: a word of a command has at most {MAX_WORD_BYTES:,} bytes. "
            "Whoever configures the tool can hand it over by `stdin`."
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
