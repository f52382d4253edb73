"""Programs that read a word as a program: arguments of a caller's in there would be run. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from portico.config.command_words import Word, program_of

_SHELLS = re.compile(r"(?:ba|da|z|k|mk|a|c|tc|fi)?sh")
_FIRST_IS_CODE = re.compile(r"[gmn]?awk|g?sed")
"""Take their first word for a program, where no option names one."""
_WINDOWS_SHELLS = ("cmd", "powershell", "pwsh")
_INTERPRETERS: Sequence[tuple[re.Pattern[str], re.Pattern[str]]] = (
    (_SHELLS, re.compile(r"-[A-Za-z]*c|--command")),
    (re.compile(r"(?:python|pypy)[\d.]*|py"), re.compile(r"-[A-Za-z]*c")),
    (re.compile(r"(?:perl|ruby|lua)[\d.]*|osascript|rscript|julia|elixir"), re.compile(r"-[A-Za-z]*[eE]")),
    (re.compile(r"node|nodejs|bun|deno"), re.compile(r"-[ep]|-pe|--eval|--print|eval")),
    (re.compile(r"php"), re.compile(r"-[rBRE]")),
    (_FIRST_IS_CODE, re.compile(r"-n?e|--expression|--source")),
    (re.compile(r"su|runuser"), re.compile(r"-c|--command")),
)
"""Program → the option whose value it runs as code."""
_GLUED = re.compile(r"-[ceE]|--(?:eval|print|command|expression|source)=")
_TAKES_VALUE = frozenset(
    {"-o", "-O", "-W", "-X", "-r", "-I", "-F", "-v", "--require", "--import", "--rcfile", "--init-file"}
)
"""Options of theirs that are followed by a word which is no script."""
_NAME_A_USER = ("su", "runuser")
_NAME_A_KIND = frozenset({"-t", "--type", "-l", "--lang", "--language"})
"""After these `sh` and `py` are kinds of files."""


@dataclass(frozen=True, slots=True)
class Code:
    """An argument of the caller's in a text that is run."""

    program: str
    argument: str
    alone: bool
    """The argument is the whole of it: whoever wrote that meant to run what a caller writes."""


def code_in(words: Sequence[Word]) -> Iterable[Code]:
    """Arguments that a shell or an interpreter would read as code, wherever in the command it stands."""
    for position, one in enumerate(words):
        program, rest = program_of(one.fixed or ""), words[position + 1 :]
        if position and words[position - 1].fixed in _NAME_A_KIND:
            continue
        if program in _WINDOWS_SHELLS:
            # Whatever follows is joined and read.
            yield from (Code(program, name, bool(each.alone)) for each in rest for name in each.names)
            return
        for programs, options in _INTERPRETERS:
            if programs.fullmatch(program):
                yield from _after(program, options, rest)


def _after(program: str, options: re.Pattern[str], rest: Sequence[Word]) -> Iterable[Code]:
    before = ""
    for each in rest:
        first = each.pieces[0]
        if options.fullmatch(before) or (each.names and isinstance(first, str) and _GLUED.match(first)):
            yield from (Code(program, name, bool(each.alone)) for name in each.names)
            return
        read_on = before in _TAKES_VALUE or options.fullmatch(each.fixed or "") or program in _NAME_A_USER
        if not read_on and not (isinstance(first, str) and first.startswith("-")):
            if _FIRST_IS_CODE.fullmatch(program):
                yield from (Code(program, name, bool(each.alone)) for name in each.names)
            return  # a script: what follows is its own
        before = each.fixed or ""
