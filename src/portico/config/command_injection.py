"""Finds command arguments that a shell or interpreter would run as code. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from portico.config.command_words import WordTemplate, get_program_name

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
_OPTIONS_WITH_VALUE = frozenset(
    {
        "-o",
        "-O",
        "-W",
        "-X",
        "-r",
        "-I",
        "-F",
        "-v",
        "--require",
        "--import",
        "--rcfile",
        "--init-file",
    }
)
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
