"""Words of a command tool: literal text and the arguments in it. Pure.

`{name}` is an argument, `{{` and `}}` are braces. A word is what a program gets as one argument: no
shell ever splits, joins or reads it.
"""

import os
import re
import shlex
from dataclasses import dataclass

ARGUMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
END_OF_OPTIONS = "--"
"""By convention no word after this one is an option."""
_PIECE = re.compile(rf"\{{\{{|\}}\}}|\{{({ARGUMENT_NAME.pattern})\}}|[{{}}]")
_SHELL_OPERATORS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "<<", "2>", "2>&1", "&>"})


@dataclass(frozen=True, slots=True)
class ArgumentSlot:
    """The place of an argument in a word."""

    name: str


@dataclass(frozen=True, slots=True)
class WordTemplate:
    """One word, in pieces."""

    pieces: tuple[str | ArgumentSlot, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments in it."""
        return tuple(piece.name for piece in self.pieces if isinstance(piece, ArgumentSlot))

    @property
    def sole_argument(self) -> str:
        """The argument, if the word consists of nothing else; otherwise empty."""
        if len(self.pieces) == 1 and self.names:
            return self.names[0]
        return ""

    @property
    def literal_text(self) -> str | None:
        """The text, if the word contains no argument."""
        if self.names:
            return None
        return "".join(str(piece) for piece in self.pieces)


def parse_word(text: str) -> WordTemplate:
    """Parse one word; raises ValueError for a brace that is neither doubled nor around a name."""
    pieces: list[str | ArgumentSlot] = []
    plain = ""
    end = 0
    for found in _PIECE.finditer(text):
        plain = plain + text[end : found.start()]
        end = found.end()
        if found[1]:
            pieces += [plain, ArgumentSlot(found[1])] if plain else [ArgumentSlot(found[1])]
            plain = ""
        elif len(found[0]) == 2:
            plain += found[0][0]
        else:
            raise ValueError(
                "a brace stands neither around an argument's name nor twice: write {name} for an"
                " argument, {{ and }} for braces"
            )
    plain += text[end:]
    return WordTemplate((*pieces, plain) if plain or not pieces else tuple(pieces))


def split_command_line(line: str) -> tuple[str, ...]:
    """Split a command line into words with shell quoting; raises ValueError for shell operators."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    if os.name == "nt":
        lexer.escape = ""  # it separates folders there
    try:
        words = tuple(lexer)
    except ValueError as error:
        raise ValueError(f"it cannot be split into words ({str(error).lower()})") from None
    if operator := next(
        (
            word
            for word in words
            if word in _SHELL_OPERATORS or word[:1] in (">", "<") or word[-1:] == ";"
        ),
        "",
    ):
        raise ValueError(
            f"no shell reads this, and {operator} would be a word like any other: give the one"
            " program to run, or write the words as a list if that is meant"
        )
    return words


def get_program_name(text: str) -> str:
    """Return the program's name: `/usr/bin/bash` → `bash`, `cmd.exe` → `cmd`."""
    return re.sub(
        r"\.(?:exe|cmd|bat|com)$", "", re.split(r"[/\\]", text)[-1], flags=re.IGNORECASE
    ).lower()
