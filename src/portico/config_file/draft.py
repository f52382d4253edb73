"""Draft of a `Config`: plain values with their sources."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from portico.config_file.placeholders import PlaceholderFolders
from portico.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    file: str
    line: int
    key: str
    message: str
    advice: str = ""
    unusable_server: str = ""
    """Server that cannot be used because of it; answers about servers say so themselves."""

    def __str__(self) -> str:
        return str(self.to_error())

    def to_error(self) -> ConfigError:
        text = f"{self.key}: {self.message}" if self.key else self.message
        return ConfigError(text, advice=self.advice, file=self.file, line=self.line, key=self.key)


def to_single_error(findings: Iterable[ConfigFinding]) -> ConfigError:
    """Combine all findings into one error; file, line and key are the first one's."""
    first, *rest = sorted(findings, key=lambda finding: (finding.file, finding.line))
    error = first.to_error()
    if not rest:
        return error
    parts = [error.message, error.advice, *map(str, rest)]
    error = replace(first, key="", message="\n".join(filter(None, parts))).to_error()
    error.advice = f"{len(rest) + 1} problems to correct."
    error.key = first.key
    return error


KeyPath = tuple[str | int, ...]
"""Keys and positions that lead to a value."""


def join_key_path(key_path: KeyPath) -> str:
    return ".".join(map(str, key_path))


@dataclass(frozen=True, slots=True)
class ConfigSource:
    kind: Literal["flag", "env", "file", "default"]
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        if self.line:
            return f"{self.name}:{self.line}"
        return f"{self.kind} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class SourceContext:
    display_path: str
    environ: Mapping[str, str]
    folders: PlaceholderFolders
    base: Path
    """The folder of relative paths."""


@dataclass(slots=True)
class ConfigDraft:
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

    def fail(self, file: str, line: int, key: str, message: str, advice: str = "") -> None:
        self.errors.append(ConfigFinding(file, line, key, message, advice))

    def warn(self, file: str, line: int, key: str, message: str, advice: str = "") -> None:
        self.warnings.append(ConfigFinding(file, line, key, message, advice))

    def warn_of_unusable_server(self, file: str, line: int, name: str, problem: str) -> None:
        message = f"cannot be used: {problem}"
        key = join_key_path(("servers", name))
        self.warnings.append(ConfigFinding(file, line, key, message, unusable_server=name))

    def forget(self, key_path: KeyPath) -> None:
        """Drop sources and notes of the values at and below a path that is about to be replaced."""
        for known_path in [
            known_path for known_path in self.origins if known_path[: len(key_path)] == key_path
        ]:
            del self.origins[known_path]
            self.expanded.discard(known_path)
            self.values.get("written", {}).pop(join_key_path(known_path), None)

    def set_value(self, key_path: tuple[str, ...], value: Any, source: ConfigSource) -> None:
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
