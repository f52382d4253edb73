"""What is wrong or odd in a configuration: where, what, and what to do. All of it is reported
together."""

from collections.abc import Iterable
from dataclasses import dataclass

from portico.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """One remark about one place: a reason to refuse the configuration, or a warning."""

    file: str
    line: int
    key: str
    message: str
    advice: str = ""

    def __str__(self) -> str:
        return str(self.to_error())

    def to_error(self) -> ConfigError:
        if self.key:
            text = f"{self.key}: {self.message}"
        else:
            text = self.message
        return ConfigError(text, advice=self.advice, file=self.file, line=self.line, key=self.key)


def to_single_error(findings: Iterable[ConfigFinding]) -> ConfigError:
    """All findings as one error that reads like a compiler's output; file, line and key are the
    first one's."""
    first, *others = sorted(findings, key=lambda finding: (finding.file, finding.line))
    error = first.to_error()
    if not others:
        return error
    text = "\n".join(
        [f"{error.message}\n{error.advice}" if error.advice else error.message, *map(str, others)]
    )
    return ConfigError(
        text,
        advice=f"{len(others) + 1} problems to correct.",
        file=first.file,
        line=first.line,
        key=first.key,
    )
