"""What has been gathered on the way to a `Config`: plain values, and for each the source it came
from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from portico.config_file.findings import ConfigFinding

KeyPath = tuple[str | int, ...]
"""The way to a value: keys and positions."""


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
    """The values so far."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[KeyPath, ConfigSource] = field(default_factory=dict[KeyPath, ConfigSource])
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Server key → name as written."""
    expanded: set[KeyPath] = field(default_factory=set[KeyPath])
    """What came from variables: never shown in a message."""
    errors: list[ConfigFinding] = field(default_factory=list[ConfigFinding])
    warnings: list[ConfigFinding] = field(default_factory=list[ConfigFinding])
    files: list[Path] = field(default_factory=list[Path])
    env_file_variables: set[str] = field(default_factory=set[str])
    """Variables that an env_file gives."""

    def forget(self, key_path: KeyPath) -> None:
        """Forget what is known about the values at and below a place that is about to be set anew."""
        for old in [old for old in self.origins if old[: len(key_path)] == key_path]:
            del self.origins[old]
            self.expanded.discard(old)
            self.values.get("written", {}).pop(join_key_path(old), None)

    def set_value(self, key_path: tuple[str, ...], value: Any, source: ConfigSource) -> None:
        """Set a value over whatever was there."""
        self.forget(key_path)
        *sections, last = key_path
        level = self.values
        for section in sections:
            inner = level.get(section)
            level[section] = level = dict(inner) if isinstance(inner, dict) else {}
        level[last] = value
        self.origins[key_path] = source


def find_source(origins: Mapping[KeyPath, ConfigSource], key_path: KeyPath) -> ConfigSource:
    """The source of the nearest thing around a place."""
    for length in range(len(key_path), 0, -1):
        if key_path[:length] in origins:
            return origins[key_path[:length]]
    return ConfigSource("default")
