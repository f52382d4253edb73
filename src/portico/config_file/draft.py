"""What has been gathered on the way to a `Config`: plain values, and for each the source it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from portico.config_file.finding import Finding

Where = tuple[str | int, ...]
"""The way to a value: keys and positions."""


def dotted(where: Where) -> str:
    return ".".join(map(str, where))


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value came from."""

    kind: Literal["flag", "env", "file", "default"]
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else f"{self.kind} {self.name}".rstrip()


@dataclass(slots=True)
class Draft:
    """The values so far."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[Where, Source] = field(default_factory=dict[Where, Source])
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Server key → name as written."""
    expanded: set[Where] = field(default_factory=set[Where])
    """What came from variables: never shown in a message."""
    errors: list[Finding] = field(default_factory=list[Finding])
    warnings: list[Finding] = field(default_factory=list[Finding])
    files: list[Path] = field(default_factory=list[Path])
    filed: set[str] = field(default_factory=set[str])
    """Variables that an env_file gives."""

    def forget(self, where: Where) -> None:
        """Forget what is known about the values at and below a place that is about to be set anew."""
        for old in [old for old in self.origins if old[: len(where)] == where]:
            del self.origins[old]
            self.expanded.discard(old)
            self.values.get("written", {}).pop(dotted(old), None)

    def set(self, where: tuple[str, ...], value: Any, source: Source) -> None:
        """Set a value over whatever was there."""
        self.forget(where)
        *sections, last = where
        level = self.values
        for section in sections:
            inner = level.get(section)
            level[section] = level = dict(inner) if isinstance(inner, dict) else {}
        level[last] = value
        self.origins[where] = source


def source_of(origins: Mapping[Where, Source], where: Where) -> Source:
    """The source of the nearest thing around a place."""
    for length in range(len(where), 0, -1):
        if where[:length] in origins:
            return origins[where[:length]]
    return Source("default")
