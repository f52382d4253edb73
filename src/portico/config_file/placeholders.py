"""Expands `${VAR}` in strings: our syntax and that of VS Code, Cursor, Claude Code and Gemini CLI.

`${VAR}` · `${VAR:-default}` (also when VAR is empty; the default may contain placeholders) ·
`${env:VAR}` · `${workspaceFolder}`, `${workspaceFolderBasename}`, `${userHome}`, `${cwd}`,
`${pathSeparator}`, `${/}` · `$${` is a plain `${`. `${keyring:…}`, `${file:…}` and `${cmd:…}` are
left to `secret_references`. Pure: the environment and the folders are arguments.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from portico.config_file.secret_references import KINDS, EncodeReference

PLACEHOLDER = re.compile(r"\$\$\{|\$\{((?:[^{}]|\{[^{}]*\})*)\}")
VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
BARE_VARIABLE = re.compile(r"((?:Bearer|Basic|Token) )?\$([A-Z_][A-Z0-9_]*)")
"""Gemini CLI's `$VAR`, only as the whole value; elsewhere `$` may be part of a password."""


def find_variables(texts: Iterable[str]) -> set[str]:
    bodies = [match.group(1) or "" for text in texts for match in PLACEHOLDER.finditer(text)]
    return {found.group(1) for body in bodies if (found := VARIABLE.fullmatch(body))}


@dataclass(frozen=True, slots=True)
class PlaceholderFolders:
    workspace: Path
    cwd: Path
    home: Path

    def resolve(self, name: str) -> str | None:
        return {
            "workspaceFolder": str(self.workspace),
            "workspaceFolderBasename": self.workspace.name,
            "workspaceRoot": str(self.workspace),
            "userHome": str(self.home),
            "cwd": str(self.cwd),
            "pathSeparator": os.sep,
            "/": os.sep,
        }.get(name)


@dataclass(slots=True)
class Expansion:
    """A text with its placeholders filled in, and what could not be."""

    text: str
    has_variables: bool = False
    """Whether it contains environment variables or references, whose values may be secret."""
    problems: list[str] = field(default_factory=list[str])
    """Why it cannot be used, each with advice."""
    unknown_placeholders: list[str] = field(default_factory=list[str])
    """`${…}` that name nothing and were left unchanged."""


def expand(
    text: str,
    environ: Mapping[str, str],
    folders: PlaceholderFolders,
    *,
    bare: bool = False,
    encode_reference: EncodeReference | None = None,
) -> Expansion:
    """Fill in every placeholder; what cannot be filled in is left unchanged and reported.

    References to secrets are passed to `encode_reference`; without it they name nothing.
    """
    # Between NUL characters stand references: no text may look like one.
    expansion = Expansion(text.replace("\0", ""))
    if "$" not in text:
        return expansion

    def fill(match: re.Match[str]) -> str:
        body = match.group(1)
        if body is None:
            return "${"
        folder = folders.resolve(body)
        if folder is not None:
            return folder
        scheme, colon, rest = body.partition(":")
        if colon and scheme == "input":
            expansion.problems.append(
                f"${{input:{rest}}} asks for the input {rest!r}, and nobody can be asked here: "
                "put the value into an environment variable and write"
                f" ${{{to_variable_name(rest)}}}"
            )
            return match.group()
        if colon and scheme in KINDS and encode_reference is not None:
            expansion.has_variables = True
            try:
                return encode_reference(scheme, rest)
            except ValueError as error:
                expansion.problems.append(str(error))
                return match.group()
        variable = VARIABLE.fullmatch(body)
        if variable is None:
            if colon and scheme in ("command", "config", "extension"):
                expansion.problems.append(
                    f"only an editor can fill in ${{{body}}}: write the value, or ${{VAR}}"
                )
            else:
                expansion.unknown_placeholders.append(match.group())
            return match.group()
        name, default = variable.groups()
        expansion.has_variables = True
        value = environ.get(name)
        if value or (value is not None and default is None):
            return value.replace("\0", "")
        if default is not None:
            return PLACEHOLDER.sub(fill, default)
        expansion.problems.append(
            f"the environment variable {name} is not set: set it, or write ${{{name}:-default}}"
        )
        return match.group()

    bare_match = BARE_VARIABLE.fullmatch(text) if bare else None
    if bare_match is not None and bare_match.group(2) in environ:
        expansion.text = (bare_match.group(1) or "") + environ[bare_match.group(2)]
        expansion.has_variables = True
    else:
        expansion.text = PLACEHOLDER.sub(fill, expansion.text)
    return expansion


def to_variable_name(input_id: str) -> str:
    """Return a variable name for an editor's input: github-token → GITHUB_TOKEN."""
    return re.sub(r"\W+", "_", input_id).strip("_").upper() or "VAR"


ENV_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)", re.DOTALL)
QUOTED_LINE = re.compile(
    r"""[^\S\r\n]*(?:export[^\S\r\n]+)?([A-Za-z_][A-Za-z0-9_.-]*)[^\S\r\n]*=[^\S\r\n]*"""
    r"""("(?:[^"\\]++|\\.)*+"|'[^']*')[^\S\r\n]*(?:\#[^\r\n]*)?(?=[\r\n]|\Z)""",
    re.DOTALL,
)
"""A value in quotes, which may span several lines, as in a shell."""
LINE_END = re.compile("\r\n|\n|\r")
"""Only these end a line: splitlines would also cut a value at U+2028 and the like."""
COMMENT = re.compile(r"(?<=\s)#")
ESCAPE_SEQUENCE = re.compile(r"\\(.)", re.DOTALL)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\n": ""}


def parse_env_file(text: str) -> tuple[dict[str, str], list[int]]:
    """Parse KEY=VALUE lines (comments, quotes, `export`); also return invalid lines."""
    values: dict[str, str] = {}
    invalid_lines: list[int] = []
    text = text.replace("\0", "")
    start = 0
    number = 1
    while start < len(text):
        quoted = QUOTED_LINE.match(text, start)
        end = LINE_END.search(text, start if quoted is None else quoted.end())
        stop, after = end.span() if end is not None else (len(text), len(text))
        line = text[start:stop]
        if quoted is not None:
            name, raw = quoted.groups()
            values[name] = raw[1:-1] if raw[0] == "'" else ESCAPE_SEQUENCE.sub(_unescape, raw[1:-1])
            number += len(LINE_END.findall(raw))
        elif line.strip() and not line.lstrip().startswith("#"):
            match = ENV_LINE.fullmatch(line)
            if match is None:
                invalid_lines.append(number)
            else:
                values[match[1]] = _strip_comment(match[2])
        start = after
        number += 1
    return values, invalid_lines


def _unescape(escaped: re.Match[str]) -> str:
    return ESCAPES.get(escaped[1], escaped[1])


def _strip_comment(raw: str) -> str:
    comment = COMMENT.search(raw)
    return (raw if comment is None else raw[: comment.start()]).rstrip()
