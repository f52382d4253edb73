"""What is said about one fault: which, how bad, where, what it is and how it is mended."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from portico.catalog.visible import shown
from portico.config_file.draft import Source, Where, dotted, source_of

Severity = Literal["broken", "warning", "note"]
"""Something does not work · it works but will hurt · worth knowing."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
MOST_NAMED = 8
MASK = "***"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault."""

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
    def place(self) -> str:
        """`portico.yaml:12`, as far as it is known."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def safe(self, secrets: Iterable[str]) -> "Finding":
        """The same with none of these in any of its texts, nor anything that would steer a terminal."""
        hidden = tuple(secrets)
        return replace(
            self,
            message=_hiding(self.message, hidden),
            remedy=_hiding(self.remedy, hidden),
            details=tuple(_hiding(line, hidden) for line in self.details),
        )

    def data(self) -> dict[str, Any]:
        """As `--json` shows it."""
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
class Places:
    """Where each value of the configuration was written."""

    origins: Mapping[Where, Source]

    def at(self, *where: str | int) -> dict[str, Any]:
        """`key`, `file` and `line` of a finding about a value."""
        source = source_of(self.origins, where)
        named = source.name or ("" if source.kind == "default" else source.kind)
        return {"key": dotted(where), "file": named, "line": source.line}

    def server(self, name: str, *where: str | int) -> dict[str, Any]:
        """The same about a value of a server's."""
        return {"server": name, **self.at("servers", name, *where)}

    def written(self, *where: str | int) -> bool:
        """Whether exactly this value stands in a file."""
        return (source := self.origins.get(where)) is not None and source.kind == "file"


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, each once; else in the order of the files."""
    unique = dict.fromkeys(findings)
    return sorted(unique, key=lambda one: (SEVERITIES.index(one.severity), one.file, one.line))


def several(names: Iterable[str], most: int = MOST_NAMED) -> str:
    """`a, b, c and 4 more`."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def _hiding(text: str, secrets: tuple[str, ...]) -> str:
    text = shown(text)
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text
