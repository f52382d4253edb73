"""Files, environment → a configuration as far as it can be understood, and everything that is wrong with them.

`config_file.load` refuses a file with one mistake in it. A doctor goes on: a key that does not exist is left out, a
server that cannot be understood is left out, and the rest is examined all the same.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from portico.cli.doctor.finding import Finding, Places, Severity
from portico.config import Config
from portico.config_file.draft import Draft, source_of
from portico.config_file.finding import Finding as Remark
from portico.config_file.gathering import add_file
from portico.config_file.loading import add_environment, find_files
from portico.config_file.reach import leading_nowhere
from portico.config_file.wording import worded
from portico.errors import ConfigError

_ROUNDS = 5
"""What is left out may bring another mistake to light; so often."""
_IDS: Sequence[tuple[str, str]] = (
    (r"there is no such key|no such setting", "config.unknown_key"),
    (r"^not (YAML|JSON)", "config.syntax"),
    (r"written twice", "config.duplicate_key"),
    (r"environment variable \w+ is not set", "variable.unset"),
    (r"\$\{input:|only an editor can fill in", "variable.unset"),
    (r"cannot be read \(", "env_file.unreadable"),
    (r"is no variable and stays", "variable.unset"),
    (r"matches no server", "config.names_no_server"),
    (r"left out, not KEY=VALUE", "env_file.odd_line"),
    (r"could change what is run|so change what is run", "config.writable"),
    (r"the file is empty", "config.empty"),
    (r"replaces the .* of an earlier file", "config.replaced"),
    (r"would both be named|this name is Portico's own", "config.server_name"),
    (r"left out", "config.left_out"),
)
_UNSET = re.compile(r"environment variable (\w+) is not set")


@dataclass(frozen=True)
class Read:
    """What could be understood."""

    config: Config
    places: Places
    findings: tuple[Finding, ...]
    files: tuple[Path, ...]
    refused: bool
    """Whether Portico would not start with these files."""


def read(files: Sequence[str], environ: Mapping[str, str], cwd: Path) -> Read:
    """Everything these sources say, and what is wrong with them."""
    draft, findings = Draft(), list[Finding]()
    for path in files or find_files(environ, cwd):
        try:
            add_file(draft, cwd / Path(path).expanduser(), environ, cwd)
        except ConfigError as error:
            name = "config.writable" if _id(error.message) == "config.writable" else "config.unreadable"
            findings.append(Finding(name, "broken", error.message, error.advice, file=error.file, line=error.line))
    add_environment(draft, environ)
    config = _understood(draft)
    places = Places(draft.origins)
    findings += [_finding(one, "broken") for one in draft.errors]
    refused = bool(findings)
    draft.warnings += leading_nowhere(config, draft.origins)
    findings += [
        _finding(one, "note" if one.message.startswith("left out") else "warning")
        for one in draft.warnings
        if "cannot be used: " not in one.message
    ]
    for name, server in config.servers.items():
        if server.problem is not None and not server.disabled:
            findings += [_unusable(name, reason, places) for reason in server.problem.split("; ")]
    return Read(config, places, tuple(findings), tuple(draft.files), refused)


def _understood(draft: Draft) -> Config:
    for _ in range(_ROUNDS):
        try:
            return Config.model_validate(draft.values)
        except ValidationError as error:
            for problem in error.errors(include_url=False):
                origin = source_of(draft.origins, problem["loc"])
                words = worded(problem, secret=problem["loc"] in draft.expanded)
                draft.errors.append(Remark(origin.name or origin.kind, origin.line, *words))
                _leave_out(draft.values, problem)
    draft.values.clear()
    return Config()


def _leave_out(values: dict[str, Any], problem: ErrorDetails) -> None:
    """Take what is wrong out of the values: an unknown key alone, else the server or the setting it is in."""
    where = [part for part in problem["loc"] if part != "[key]"]
    if problem["type"] != "extra_forbidden":
        where = where[:2] if where[:1] in (["servers"], ["profiles"]) else where[:1]
    level: Any = values
    for step in where[:-1]:
        if not isinstance(level, dict) or step not in level:
            return
        level = cast("dict[Any, Any]", level)[step]
    if isinstance(level, dict) and where:
        cast("dict[Any, Any]", level).pop(where[-1], None)


def _finding(remark: Remark, severity: Severity) -> Finding:
    text = f"{remark.key}: {remark.message}" if remark.key else remark.message
    return Finding(
        _id(remark.message),
        severity,
        text,
        remark.advice or _remedy(remark.message),
        server=_server(remark.key),
        key=remark.key,
        file=remark.file,
        line=remark.line,
    )


def _unusable(name: str, reason: str, places: Places) -> Finding:
    key, colon, rest = reason.partition(": ")
    where = tuple(int(part) if part.isdigit() else part for part in key.split(".")) if colon else ()
    at = places.server(name, *where)
    text = rest if colon and at["line"] else reason
    return Finding(_id(reason), "broken", f"{name} cannot be used: {text}", _remedy(reason), **at)


def _id(message: str) -> str:
    return next((name for pattern, name in _IDS if re.search(pattern, message)), "config.invalid")


def _remedy(message: str) -> str:
    if unset := _UNSET.search(message):
        return f"export {unset[1]}=…  or write ${{{unset[1]}:-default}}"
    if "cannot be read (" in message:
        return "Create the file, or correct `env_file`; it is relative to the configuration file."
    if "say how to reach it" in message:
        return "Write command: … and args: [ … ], or url: https://…"
    if _id(message) != "config.invalid":
        return ""
    return "`portico config` shows the keys; docs/reference/configuration.md lists them."


def _server(key: str) -> str:
    head, _, rest = key.partition(".")
    return rest.partition(".")[0] if head == "servers" else ""
