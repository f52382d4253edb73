"""Draft of a `Config`: plain values with their sources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from portico.config_file.findings import ConfigFinding

KeyPath = tuple[str | int, ...]
"""Keys and positions that lead to a value."""


def join_key_path(key_path: KeyPath) -> str:
    return ".".join(map(str, key_path))


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """Where a value came from."""

    kind: Literal["flag", "env", "file", "default"]
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        if self.line:
            return f"{self.name}:{self.line}"
        return f"{self.kind} {self.name}".rstrip()


@dataclass(slots=True)
class ConfigDraft:
    """The values collected so far."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[KeyPath, ConfigSource] = field(default_factory=dict[KeyPath, ConfigSource])
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Server key → name as written."""
    expanded: set[KeyPath] = field(default_factory=set[KeyPath])
    """Values that contain variables; never shown in messages."""
    errors: list[ConfigFinding] = field(default_factory=list[ConfigFinding])
    warnings: list[ConfigFinding] = field(default_factory=list[ConfigFinding])
    files: list[Path] = field(default_factory=list[Path])
    env_file_variables: set[str] = field(default_factory=set[str])
    """Variables defined by an env_file."""

    def forget(self, key_path: KeyPath) -> None:
        """Drop sources and notes of the values at and below a path that is about to be replaced."""
        for known_path in [
            known_path for known_path in self.origins if known_path[: len(key_path)] == key_path
        ]:
            del self.origins[known_path]
            self.expanded.discard(known_path)
            self.values.get("written", {}).pop(join_key_path(known_path), None)

    def set_value(self, key_path: tuple[str, ...], value: Any, source: ConfigSource) -> None:
        """Set a value, replacing what was there."""
        self.forget(key_path)
        *sections, last = key_path
        level = self.values
        for section in sections:
            inner = level.get(section)
            level[section] = level = dict(inner) if isinstance(inner, dict) else {}
        level[last] = value
        self.origins[key_path] = source


def find_source(origins: Mapping[KeyPath, ConfigSource], key_path: KeyPath) -> ConfigSource:
    """Return the source of the nearest enclosing value."""
    for length in range(len(key_path), 0, -1):
        if key_path[:length] in origins:
            return origins[key_path[:length]]
    return ConfigSource("default")
