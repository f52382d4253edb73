"""A finding of the doctor: its id, severity, location, message and remedy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from portico.catalog.visible_text import sanitize_text
from portico.config_file.draft import ConfigSource, KeyPath, find_source, join_key_path

Severity = Literal["broken", "warning", "note"]
"""Something does not work · it works but causes trouble · worth knowing."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
MAX_NAMES = 8
MASK = "***"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One problem that was found."""

    id: str
    """Stable, for programs: `command.missing`."""
    severity: Severity
    message: str
    remedy: str = ""
    """A command to run, or what to write where."""
    server: str = ""
    key: str = ""
    file: str = ""
    line: int = 0
    details: tuple[str, ...] = ()

    @property
    def location(self) -> str:
        """`portico.yaml:12`, as far as it is known."""
        if self.line:
            return f"{self.file}:{self.line}"
        return self.file

    def mask_secrets(self, secrets: Iterable[str]) -> "DoctorFinding":
        """Return the finding with these secrets masked and control characters removed."""
        hidden = tuple(secrets)
        return replace(
            self,
            message=_mask_text(self.message, hidden),
            remedy=_mask_text(self.remedy, hidden),
            details=tuple(_mask_text(line, hidden) for line in self.details),
        )

    def to_data(self) -> dict[str, Any]:
        """Convert for `--json`."""
        return {
            "id": self.id,
            "severity": self.severity,
            "message": self.message,
            "remedy": self.remedy,
            "server": self.server or None,
            "key": self.key or None,
            "file": self.file or None,
            "line": self.line or None,
            "details": list(self.details),
        }


@dataclass(frozen=True, slots=True)
class ConfigLocations:
    """The source of each value of the configuration."""

    origins: Mapping[KeyPath, ConfigSource]

    def locate(self, *where: str | int) -> dict[str, Any]:
        """Return `key`, `file` and `line` for a finding about a value."""
        source = find_source(self.origins, where)
        named = source.name or ("" if source.kind == "default" else source.kind)
        return {"key": join_key_path(where), "file": named, "line": source.line}

    def locate_server(self, name: str, *where: str | int) -> dict[str, Any]:
        """Return the location of a value of a server."""
        return {"server": name, **self.locate("servers", name, *where)}

    def is_in_file(self, *where: str | int) -> bool:
        """Return whether exactly this value is written in a file."""
        return (source := self.origins.get(where)) is not None and source.kind == "file"


def sort_findings(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Sort by severity and then by file and line, without duplicates."""
    unique = dict.fromkeys(findings)
    return sorted(unique, key=lambda one: (SEVERITIES.index(one.severity), one.file, one.line))


def join_names(names: Iterable[str], limit: int = MAX_NAMES) -> str:
    """Join names like `a, b, c and 4 more`."""
    listed = list(names)
    if len(listed) > limit:
        more = f" and {len(listed) - limit} more"
    else:
        more = ""
    return ", ".join(listed[:limit]) + more


def _mask_text(text: str, secrets: tuple[str, ...]) -> str:
    text = sanitize_text(text)
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text
