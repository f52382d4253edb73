"""Words of a command tool: literal text and the arguments in it, and arguments that would run as
code. Pure.

`{name}` is an argument, `{{` and `}}` are braces. A word is what a program gets as one argument: no
shell ever splits, joins or reads it.
"""

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ARGUMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
END_OF_OPTIONS = "--"
"""By convention no word after this one is an option."""
_PIECE = re.compile(rf"\{{\{{|\}}\}}|\{{({ARGUMENT_NAME.pattern})\}}|[{{}}]")
_SHELL_OPERATORS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "<<", "2>", "2>&1", "&>"})
_SHELLS = re.compile(r"(?:ba|da|z|k|mk|a|c|tc|fi)?sh")
_FIRST_IS_CODE = re.compile(r"[gmn]?awk|g?sed")
"""Programs that take their first word as code, unless an option names it."""
_WINDOWS_SHELLS = ("cmd", "powershell", "pwsh")
_INTERPRETERS: Sequence[tuple[re.Pattern[str], re.Pattern[str]]] = (
    (_SHELLS, re.compile(r"-[A-Za-z]*c|--command")),
    (re.compile(r"(?:python|pypy)[\d.]*|py"), re.compile(r"-[A-Za-z]*c")),
    (
        re.compile(r"(?:perl|ruby|lua)[\d.]*|osascript|rscript|julia|elixir"),
        re.compile(r"-[A-Za-z]*[eE]"),
    ),
    (re.compile(r"node|nodejs|bun|deno"), re.compile(r"-[ep]|-pe|--eval|--print|eval")),
    (re.compile(r"php"), re.compile(r"-[rBRE]")),
    (_FIRST_IS_CODE, re.compile(r"-n?e|--expression|--source")),
    (re.compile(r"su|runuser"), re.compile(r"-c|--command")),
)
"""Programs and the option whose value they run as code."""
_ATTACHED_CODE = re.compile(r"-[ceE]|--(?:eval|print|command|expression|source)=")
_OPTIONS_WITH_VALUE = {
    *("-o", "-O", "-W", "-X", "-r", "-I", "-F", "-v", "--require", "--import", "--rcfile"),
    "--init-file",
}
"""Options that are followed by a word which is not a script."""
_USER_PROGRAMS = ("su", "runuser")
_JOINING_PROGRAMS = {
    "ssh": "BbcDEeFIiJLlmOopQRSWw",
    "slogin": "BbcDEeFIiJLlmOopQRSWw",
    "rsh": "l",
    "watch": "nq",
}
"""Programs that join their words for a shell, remote or local, with their options that take a
value."""
_WRAPPER_PROGRAMS = frozenset(
    {"sudo", "doas", "env", "nohup", "nice", "timeout", "sshpass", "setsid", "stdbuf"}
)
"""Programs that run another program. Elsewhere such a word is more likely a search term."""
_FILE_TYPE_OPTIONS = frozenset({"-t", "--type", "-l", "--lang", "--language"})
"""Options after which `sh` and `py` are file types."""


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


@dataclass(frozen=True, slots=True)
class InjectedCode:
    """A caller's argument within text that is run as code."""

    program: str
    argument: str
    is_whole_word: bool
    """The argument is the whole code, so running it is what the configuration intends."""
    is_shell_joined: bool = False
    """A shell reads all words joined, so that a separate word does not help."""


def find_injected_code(words: Sequence[WordTemplate]) -> Iterable[InjectedCode]:
    """Yield arguments that a shell or interpreter would read as code."""
    for position, word in enumerate(words):
        program = get_program_name(word.literal_text or "")
        rest = words[position + 1 :]
        if position and words[position - 1].literal_text in _FILE_TYPE_OPTIONS:
            continue
        if program in _WINDOWS_SHELLS:
            # All following words are joined and interpreted.
            yield from (
                InjectedCode(program, name, bool(following.sole_argument))
                for following in rest
                for name in following.names
            )
            return
        if program in _JOINING_PROGRAMS and (
            not position or get_program_name(words[0].literal_text or "") in _WRAPPER_PROGRAMS
        ):
            shell_words = _find_shell_words(program, rest)
            yield from (
                InjectedCode(
                    program, name, len(shell_words) == 1 and bool(word.sole_argument), True
                )
                for word in shell_words
                for name in word.names
            )
        for programs, options in _INTERPRETERS:
            if programs.fullmatch(program):
                yield from _find_after_option(program, options, rest)


def _find_shell_words(program: str, rest: Sequence[WordTemplate]) -> Sequence[WordTemplate]:
    """Return the words a shell will read: those after the options and, if remote, the host."""
    at = 0
    while (
        at < len(rest) and str(rest[at].pieces[0]).startswith("-") and rest[at].literal_text != "--"
    ):
        text = rest[at].literal_text or ""
        at += 2 if len(text) == 2 and text[1] in _JOINING_PROGRAMS[program] else 1
    at += at < len(rest) and rest[at].literal_text == "--"
    return rest[at + (program != "watch") :]


def _find_after_option(
    program: str, options: re.Pattern[str], rest: Sequence[WordTemplate]
) -> Iterable[InjectedCode]:
    previous = ""
    for word in rest:
        first = word.pieces[0]
        if options.fullmatch(previous) or (
            word.names and isinstance(first, str) and _ATTACHED_CODE.match(first)
        ):
            yield from (
                InjectedCode(program, name, bool(word.sole_argument)) for name in word.names
            )
            return
        can_follow = (
            previous in _OPTIONS_WITH_VALUE
            or options.fullmatch(word.literal_text or "")
            or program in _USER_PROGRAMS
        )
        if not can_follow and not (isinstance(first, str) and first.startswith("-")):
            if _FIRST_IS_CODE.fullmatch(program):
                yield from (
                    InjectedCode(program, name, bool(word.sole_argument)) for name in word.names
                )
            return  # a script; the words after it are its own arguments
        previous = word.literal_text or ""
