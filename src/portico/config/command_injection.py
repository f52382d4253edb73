"""Programs that read a word as a program: arguments of a caller's in there would be run. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from portico.config.command_words import WordTemplate, get_program_name

_SHELLS = re.compile(r"(?:ba|da|z|k|mk|a|c|tc|fi)?sh")
_FIRST_IS_CODE = re.compile(r"[gmn]?awk|g?sed")
"""Take their first word for a program, where no option names one."""
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
"""Program → the option whose value it runs as code."""
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
"""Options of theirs that are followed by a word which is no script."""
_USER_PROGRAMS = ("su", "runuser")
_JOINING_PROGRAMS = {
    "ssh": "BbcDEeFIiJLlmOopQRSWw",
    "slogin": "BbcDEeFIiJLlmOopQRSWw",
    "rsh": "l",
    "watch": "nq",
}
"""Programs that join their words and have a shell read them, at the other end or here; their
options with a value."""
_WRAPPER_PROGRAMS = frozenset(
    {"sudo", "doas", "env", "nohup", "nice", "timeout", "sshpass", "setsid", "stdbuf"}
)
"""Programs that run another. Elsewhere such a word is more likely one that is looked for."""
_FILE_TYPE_OPTIONS = frozenset({"-t", "--type", "-l", "--lang", "--language"})
"""After these `sh` and `py` are kinds of files."""


@dataclass(frozen=True, slots=True)
class InjectedCode:
    """An argument of the caller's in a text that is run."""

    program: str
    argument: str
    is_whole_word: bool
    """The argument is the whole of it: whoever wrote that meant to run what a caller writes."""
    is_shell_joined: bool = False
    """A shell reads all words together, so that a word of its own is no help."""


def find_injected_code(words: Sequence[WordTemplate]) -> Iterable[InjectedCode]:
    """Arguments that a shell or an interpreter would read as code, wherever in the command it
    stands."""
    for position, one in enumerate(words):
        program = get_program_name(one.literal_text or "")
        rest = words[position + 1 :]
        if position and words[position - 1].literal_text in _FILE_TYPE_OPTIONS:
            continue
        if program in _WINDOWS_SHELLS:
            # Whatever follows is joined and read.
            yield from (
                InjectedCode(program, name, bool(each.sole_argument))
                for each in rest
                for name in each.names
            )
            return
        if program in _JOINING_PROGRAMS and (
            not position or get_program_name(words[0].literal_text or "") in _WRAPPER_PROGRAMS
        ):
            read = _find_shell_words(program, rest)
            yield from (
                InjectedCode(program, name, len(read) == 1 and bool(one.sole_argument), True)
                for one in read
                for name in one.names
            )
        for programs, options in _INTERPRETERS:
            if programs.fullmatch(program):
                yield from _find_after_option(program, options, rest)


def _find_shell_words(program: str, rest: Sequence[WordTemplate]) -> Sequence[WordTemplate]:
    """The words that a shell will read: those behind the options and, of a program that goes
    elsewhere, its host."""
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
    before = ""
    for each in rest:
        first = each.pieces[0]
        if options.fullmatch(before) or (
            each.names and isinstance(first, str) and _ATTACHED_CODE.match(first)
        ):
            yield from (
                InjectedCode(program, name, bool(each.sole_argument)) for name in each.names
            )
            return
        read_on = (
            before in _OPTIONS_WITH_VALUE
            or options.fullmatch(each.literal_text or "")
            or program in _USER_PROGRAMS
        )
        if not read_on and not (isinstance(first, str) and first.startswith("-")):
            if _FIRST_IS_CODE.fullmatch(program):
                yield from (
                    InjectedCode(program, name, bool(each.sole_argument)) for name in each.names
                )
            return  # a script: what follows is its own
        before = each.literal_text or ""
