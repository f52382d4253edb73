"""The words of a command with the arguments of a call in them. Pure.

Each value stays inside the word that names it, whatever it holds: words are never split, joined or read by a shell. One
thing a program itself could still mistake is a value that begins with `-`, which it takes for an option. Such a value
is refused where it begins a word, unless `--` stands before it or the configuration allows it.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from portico.config.command_tool import CommandArgument, CommandTool
from portico.config.command_words import OPERANDS, Slot, Word
from portico.upstream.commands.checking import Checked, Value

LONGEST_WORD = 128 * 1024 - 1
"""Bytes: the most that Linux takes in one word."""
LONGEST_COMMAND = 1024**2 if os.name == "posix" else 32_000
"""Bytes of all words: what systems usually take, and room for the environment."""
_BESIDE = 9
"""Bytes of a word beside its text."""


class Refused(Exception):
    """A value that cannot stand where it should."""


@dataclass(frozen=True)
class Filled:
    """A command ready to run."""

    words: tuple[str, ...]
    stdin: str
    callers: tuple[int, ...] = ()
    """Which words hold what the caller wrote."""


@dataclass(frozen=True, slots=True)
class _Made:
    text: str
    begun_by: str = ""
    """The argument of the caller's that this word begins with."""
    callers: bool = False


def filled(tool: CommandTool, call: Checked) -> Filled:
    """The words to run; raises Refused, with advice."""
    made = [_Made(tool.words[0].fixed or "")]
    protected = False
    for one in tool.words[1:]:
        if one.fixed is not None:
            # Behind a fixed word it may be another program that reads on (`kubectl exec pod -- cat {path}`).
            protected = one.fixed == OPERANDS
        made += _admitted(tool, _words(tool, one, call), protected)
    placed = {name for one in (*tool.words, tool.stdin_word) for name in one.names}
    rest = [name for name in tool.arguments if name not in placed and name in call.values]
    flagged = [name for name in rest if tool.arguments[name].flag]
    options = [
        each for name in flagged for each in _admitted(tool, _words(tool, Word((Slot(name),)), call), protected=False)
    ]
    where = next((at for at, one in enumerate(made) if one == _Made(OPERANDS)), len(made))
    made[where:where] = options
    for name in rest:
        if name not in flagged:
            made += _admitted(tool, _words(tool, Word((Slot(name),)), call), protected)
    _bounded(made)
    return Filled(
        tuple(one.text for one in made),
        _stdin(tool, call),
        tuple(at for at, one in enumerate(made) if one.callers),
    )


def flag_words(flag: str, value: str) -> tuple[str, ...]:
    """An option with its value: `--author=value`; `-n value`; or as the flag itself says by `{}`."""
    if "{}" not in flag:
        if not flag.startswith("--"):
            return (flag, value)
        return (f"{flag}{value}" if flag.endswith("=") else f"{flag}={value}",)
    option, gap, form = flag.partition(" ")
    return (option, form.strip().replace("{}", value)) if gap else (option.replace("{}", value),)


def _words(tool: CommandTool, one: Word, call: Checked) -> Iterator[_Made]:
    """What one word of the template becomes: none, itself, or one for each value of an array."""
    if any(name not in call.values for name in one.names):
        return
    several = next((name for name in one.names if isinstance(call.values[name], tuple)), "")
    values: Sequence[Value] = tuple(call.values[several]) if several else ("",)  # pyright: ignore[reportArgumentType]
    for value in values:
        if one.alone and tool.arguments[one.alone].flag:
            yield from _flagged(
                one.alone, tool.arguments[one.alone], value if several else call.values[one.alone], call
            )
            continue
        text, begun_by = "", ""
        for piece in one.pieces:
            name = piece.name if isinstance(piece, Slot) else ""
            added = str(piece) if not name else _said(value if name == several else call.values[name])
            if added and not text:
                begun_by = name if name in call.given else ""
            text += added
        yield _Made(text, begun_by, callers=not call.given.isdisjoint(one.names))


def _flagged(name: str, argument: CommandArgument, value: Value, call: Checked) -> Iterator[_Made]:
    if isinstance(value, bool):
        if value:
            yield _Made(argument.flag)
        return
    callers = name in call.given
    first, *rest = flag_words(argument.flag, _said(value))
    yield _Made(first, callers=callers and not rest)
    for text in rest:
        # Behind an option of its own a value is still an option to many a parser.
        yield _Made(text, name if callers and text.startswith(_said(value)) else "", callers=callers)


def _said(value: Value) -> str:
    return value if isinstance(value, str) else "true" if value is True else "false"


def _admitted(tool: CommandTool, made: Iterator[_Made], protected: bool) -> Iterator[_Made]:
    for one in made:
        if one.text.startswith("-") and one.begun_by and not protected and not tool.arguments[one.begun_by].options:
            raise Refused(
                f"{one.begun_by} begins with `-`, and the program would take it for an option. Write it otherwise (a "
                f"file -x is ./-x). Whoever configures the tool can put `--` before {{{one.begun_by}}}, or say "
                f"`options: true` there."
            )
        yield one


def _bounded(made: Sequence[_Made]) -> None:
    sizes = [len(one.text.encode(errors="surrogatepass")) for one in made]
    if max(sizes) > LONGEST_WORD:
        raise Refused(
            f"a value is too long: a word of a command has at most {LONGEST_WORD:,} bytes. Whoever configures the tool "
            "can hand it over by `stdin`."
        )
    if sum(sizes) + _BESIDE * len(sizes) > LONGEST_COMMAND:
        raise Refused(f"the values are too long together: a command has at most {LONGEST_COMMAND:,} bytes.")


def _stdin(tool: CommandTool, call: Checked) -> str:
    return "".join(
        piece if isinstance(piece, str) else _lines(call.values.get(piece.name, "")) for piece in tool.stdin_word.pieces
    )


def _lines(value: Value) -> str:
    return "\n".join(value) if isinstance(value, tuple) else _said(value)
