"""A finding of the doctor: its id, severity, location, message and remedy."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

from portico.catalog.tool import sanitize_text
from portico.cli.setup_commands import Severity
from portico.config_file.draft import ConfigSource, KeyPath, find_source, join_key_path

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
MAX_NAMES = 8


@dataclass(frozen=True, slots=True)
class ConfigLocation:
    """Where a value of the configuration is written."""

    key: str = ""
    file: str = ""
    line: int = 0
    server: str = ""


NOWHERE = ConfigLocation()


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One problem that was found. The id is stable, for programs: `command.missing`."""

    id: str
    severity: Severity
    message: str
    remedy: str = ""
    """A command to run, or what to write where."""
    at: ConfigLocation = NOWHERE
    details: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        return self.at.server

    @property
    def location(self) -> str:
        """`portico.yaml:12`, as far as it is known."""
        if self.at.line:
            return f"{self.at.file}:{self.at.line}"
        return self.at.file

    def clean(self, mask: Callable[[str], str]) -> "DoctorFinding":
        """Return the finding without secrets and control characters."""
        return replace(
            self,
            message=mask(sanitize_text(self.message)),
            remedy=mask(sanitize_text(self.remedy)),
            details=tuple(mask(sanitize_text(line)) for line in self.details),
        )

    def to_data(self) -> dict[str, Any]:
        """Convert for `--json`."""
        return {
            "id": self.id,
            "severity": self.severity,
            "message": self.message,
            "remedy": self.remedy,
            "server": self.at.server or None,
            "key": self.at.key or None,
            "file": self.at.file or None,
            "line": self.at.line or None,
            "details": list(self.details),
        }


def _find(
    severity: Severity,
    id: str,
    message: str,
    remedy: str = "",
    at: ConfigLocation = NOWHERE,
    details: Iterable[str] = (),
) -> DoctorFinding:
    return DoctorFinding(id, severity, message, remedy, at, tuple(details))


broken = partial(_find, "broken")
warning = partial(_find, "warning")
note = partial(_find, "note")


@dataclass(frozen=True, slots=True)
class ConfigLocations:
    """The source of each value of the configuration."""

    origins: Mapping[KeyPath, ConfigSource]

    def locate(self, *where: str | int) -> ConfigLocation:
        """Return the location of a value."""
        source = find_source(self.origins, where)
        named = source.name or ("" if source.kind == "default" else source.kind)
        return ConfigLocation(join_key_path(where), named, source.line)

    def locate_server(self, name: str, *where: str | int) -> ConfigLocation:
        """Return the location of a value of a server."""
        return replace(self.locate("servers", name, *where), server=name)

    def is_in_file(self, *where: str | int) -> bool:
        """Return whether exactly this value is written in a file."""
        return (source := self.origins.get(where)) is not None and source.kind == "file"


def sort_findings(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Sort by severity and then by file and line, without duplicates."""
    unique = dict.fromkeys(findings)
    return sorted(
        unique, key=lambda one: (SEVERITIES.index(one.severity), one.at.file, one.at.line)
    )


def group_findings(findings: Iterable[DoctorFinding]) -> list[list[DoctorFinding]]:
    """Group findings that differ only in their server and place, in the order of the first."""
    groups: dict[tuple[str, ...], list[DoctorFinding]] = {}
    for one in findings:
        key = (one.severity, one.id, one.message, one.remedy, *one.details)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def join_names(names: Iterable[str], limit: int = MAX_NAMES) -> str:
    """Join names like `a, b, c and 4 more`."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more
