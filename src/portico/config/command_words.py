"""The words of a command that is a tool: what is fixed in them, and which arguments they name. Pure.

`{name}` is an argument, `{{` and `}}` are braces. A word is what a program gets as one argument: no shell ever splits,
joins or reads it.
"""

import os
import re
import shlex
from dataclasses import dataclass

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
OPERANDS = "--"
"""By custom no word after this one is an option."""
_PIECE = re.compile(rf"\{{\{{|\}}\}}|\{{({NAME.pattern})\}}|[{{}}]")
_SHELL_SIGNS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "<<", "2>", "2>&1", "&>"})


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of an argument in a word."""

    name: str


@dataclass(frozen=True, slots=True)
class Word:
    """One word, in pieces."""

    pieces: tuple[str | Slot, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments in it."""
        return tuple(piece.name for piece in self.pieces if isinstance(piece, Slot))

    @property
    def alone(self) -> str:
        """The argument that is all of it; empty where there is more, or less."""
        return self.names[0] if len(self.pieces) == 1 and self.names else ""

    @property
    def fixed(self) -> str | None:
        """Its text, where no argument is in it."""
        return None if self.names else "".join(str(piece) for piece in self.pieces)


def word(text: str) -> Word:
    """Read one word; ValueError where a brace is neither doubled nor around a name."""
    pieces: list[str | Slot] = []
    plain, end = "", 0
    for found in _PIECE.finditer(text):
        plain, end = plain + text[end : found.start()], found.end()
        if found[1]:
            pieces += [plain, Slot(found[1])] if plain else [Slot(found[1])]
            plain = ""
        elif len(found[0]) == 2:
            plain += found[0][0]
        else:
            raise ValueError(
                "a brace stands neither around an argument's name nor twice: write {name} for an argument, {{ and }} "
                "for braces"
            )
    plain += text[end:]
    return Word((*pieces, plain) if plain or not pieces else tuple(pieces))


def split(line: str) -> tuple[str, ...]:
    """A command in one line → its words, as a shell would quote them; ValueError for what only a shell could do."""
    reading = shlex.shlex(line, posix=True)
    reading.whitespace_split, reading.commenters = True, ""
    if os.name == "nt":
        reading.escape = ""  # it separates folders there
    try:
        words = tuple(reading)
    except ValueError as error:
        raise ValueError(f"it cannot be split into words ({str(error).lower()})") from None
    if sign := next((one for one in words if one in _SHELL_SIGNS or one[:1] in (">", "<") or one[-1:] == ";"), ""):
        raise ValueError(
            f"no shell reads this, and {sign} would be a word like any other: give the one program to run, or write "
            "the words as a list if that is meant"
        )
    return words


def program_of(text: str) -> str:
    """`/usr/bin/bash`, `C:\\…\\cmd.exe` → `bash`, `cmd`."""
    return re.sub(r"\.(?:exe|cmd|bat|com)$", "", re.split(r"[/\\]", text)[-1], flags=re.IGNORECASE).lower()
