"""The table of repositories that translated software text is taken from: `sources.toml`, read and
checked."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from training.readers import READERS, Reader

_TABLE = Path(__file__).with_name("sources.toml")


@dataclass(frozen=True, slots=True)
class Source:
    """One set of translated files in one repository; `sources.toml` says what each field means."""

    repository: str
    licence: str
    commit: str
    files: str
    format: str
    english: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.format not in READERS:
            raise ValueError(
                f"{self.repository}: no reader of {self.format!r}; known are {', '.join(READERS)}"
            )
        if "lang" not in re.compile(self.files).groupindex:
            raise ValueError(
                f"{self.repository}: the pattern of its files needs a group `lang`: {self.files}"
            )
        if not re.fullmatch("[0-9a-f]{40}", self.commit):
            raise ValueError(f"{self.repository}: name the whole commit, not {self.commit!r}")

    @property
    def reader(self) -> Reader:
        """Return what turns its files into pairs."""
        return READERS[self.format]


def read_sources(path: Path = _TABLE) -> list[Source]:
    """Every source, in the order in which they are gathered: of equal pairs the first source's is
    kept."""
    with path.open("rb") as table:
        return [Source(**row) for row in tomllib.load(table)["source"]]
