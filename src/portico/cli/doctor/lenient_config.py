"""Reads a configuration as far as it can be understood, and collects everything wrong with it.

`config_file.load` rejects a file with one error in it. Here an unknown key or an invalid server is
left out, and the rest is examined.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from portico.cli.doctor.finding import (
    ConfigLocation,
    ConfigLocations,
    DoctorFinding,
    Severity,
    broken,
)
from portico.config import Config
from portico.config_file.draft import ConfigDraft, find_source
from portico.config_file.draft import ConfigFinding as Remark
from portico.config_file.draft_builder import add_file
from portico.config_file.loader import (
    add_environment,
    describe_validation_error,
    find_files,
    warn_of_dangling_references,
)
from portico.errors import ConfigError

_MAX_ROUNDS = 5
"""Leaving something out may reveal another error; at most this often."""
_ID_PATTERNS: Sequence[tuple[str, str]] = (
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
_UNSET_VARIABLE = re.compile(r"environment variable (\w+) is not set")


@dataclass(frozen=True)
class LenientConfig:
    """The part of a configuration that could be understood."""

    config: Config
    locations: ConfigLocations
    findings: tuple[DoctorFinding, ...]
    files: tuple[Path, ...]
    refused: bool
    """Whether Portico would not start with these files."""


def read_leniently(files: Sequence[str], environ: Mapping[str, str], cwd: Path) -> LenientConfig:
    """Read these sources and collect what is wrong with them."""
    draft = ConfigDraft()
    findings = list[DoctorFinding]()
    for path in files or find_files(environ, cwd):
        try:
            add_file(draft, cwd / Path(path).expanduser(), environ, cwd)
        except ConfigError as error:
            name = _find_id(error.message)
            if name != "config.writable":
                name = "config.unreadable"
            at = ConfigLocation(file=error.file, line=error.line)
            findings.append(broken(name, error.message, error.advice, at))
    add_environment(draft, environ)
    config = _validate_leniently(draft)
    locations = ConfigLocations(draft.origins)
    findings += [_to_finding(remark, "broken") for remark in draft.errors]
    refused = bool(findings)
    warn_of_dangling_references(draft, config)
    findings += [
        _to_finding(remark, "note" if remark.message.startswith("left out") else "warning")
        for remark in draft.warnings
        if "cannot be used: " not in remark.message
    ]
    for name, server in config.servers.items():
        if server.problem is not None and not server.disabled:
            findings += [
                _make_unusable_finding(name, reason, locations)
                for reason in server.problem.split("; ")
            ]
    return LenientConfig(config, locations, tuple(findings), tuple(draft.files), refused)


def _validate_leniently(draft: ConfigDraft) -> Config:
    for _ in range(_MAX_ROUNDS):
        try:
            return Config.model_validate(draft.values)
        except ValidationError as error:
            for problem in error.errors(include_url=False):
                origin = find_source(draft.origins, problem["loc"])
                message = describe_validation_error(
                    problem, secret=problem["loc"] in draft.expanded
                )
                draft.errors.append(Remark(origin.name or origin.kind, origin.line, *message))
                _remove_invalid(draft.values, problem)
    draft.values.clear()
    return Config()


def _remove_invalid(values: dict[str, Any], problem: ErrorDetails) -> None:
    """Remove an invalid value: an unknown key alone, else the whole server or setting."""
    where = [part for part in problem["loc"] if part != "[key]"]
    if problem["type"] != "extra_forbidden":
        where = where[: 2 if where[0] in ("servers", "profiles") else 1]
    level: Any = values
    for step in where[:-1]:
        if not isinstance(level, dict) or step not in level:
            return
        level = cast("dict[Any, Any]", level)[step]
    if isinstance(level, dict) and where:
        cast("dict[Any, Any]", level).pop(where[-1], None)


def _to_finding(remark: Remark, severity: Severity) -> DoctorFinding:
    text = f"{remark.key}: {remark.message}" if remark.key else remark.message
    section, _, rest = remark.key.partition(".")
    id = _find_id(remark.message)
    server = ""
    if section == "servers":
        # A name may have a dot only where just that is the trouble.
        server = rest if id == "config.server_name" else rest.partition(".")[0]
    return DoctorFinding(
        id,
        severity,
        text,
        remark.advice or _find_remedy(remark.message),
        ConfigLocation(remark.key, remark.file, remark.line, server),
    )


def _make_unusable_finding(name: str, reason: str, locations: ConfigLocations) -> DoctorFinding:
    key, colon, rest = reason.partition(": ")
    where = tuple(int(part) if part.isdigit() else part for part in key.split("."))
    at = locations.locate_server(name, *(where if colon else ()))
    text = rest if colon and at.line else reason
    return broken(_find_id(reason), f"{name} cannot be used: {text}", _find_remedy(reason), at)


def _find_id(message: str) -> str:
    return next(
        (name for pattern, name in _ID_PATTERNS if re.search(pattern, message)), "config.invalid"
    )


def _find_remedy(message: str) -> str:
    if unset := _UNSET_VARIABLE.search(message):
        return f"export {unset[1]}=…  or write ${{{unset[1]}:-default}}"
    if "cannot be read (" in message:
        return "Create the file, or correct `env_file`; it is relative to the configuration file."
    if "say how to reach it" in message:
        return "Write command: … and args: [ … ], or url: https://…"
    if _find_id(message) != "config.invalid":
        return ""
    return "`portico config` shows the keys; docs/reference/configuration.md lists them."
