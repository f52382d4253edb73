"""Findings in a configuration: position, message and advice. All are reported together."""

from collections.abc import Iterable
from dataclasses import dataclass

from portico.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """One error or warning about one place."""

    file: str
    line: int
    key: str
    message: str
    advice: str = ""

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
    text = "\n".join(
        [f"{error.message}\n{error.advice}" if error.advice else error.message, *map(str, rest)]
    )
    return ConfigError(
        text,
        advice=f"{len(rest) + 1} problems to correct.",
        file=first.file,
        line=first.line,
        key=first.key,
    )
