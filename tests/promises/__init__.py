"""Every promise of the gateway as data: the requirement it keeps, a sentence, and what proves it.

The YAML files beside this one have a key for each row of `docs/requirements.md`, with the promises
that keep it. A proof is a test (`path::name`), a benchmark that prints the figure
(`benchmarks/name.py`), or `.ci/run`. `test_promises` fails when a row has no promise, or a promise
names a proof that does not exist.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "docs" / "requirements.md"


@dataclass(frozen=True)
class Promise:
    """One thing that users may rely on."""

    id: str
    requirement: str
    sentence: str
    proofs: tuple[str, ...]


def load_promises() -> Iterator[Promise]:
    """Read the promises of every file."""
    for path in sorted(Path(__file__).parent.glob("*.yaml")):
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
        for requirement, promises in rows.items():
            for row in promises:
                yield Promise(row["id"], requirement, row["promise"], tuple(row["proofs"]))


def load_requirements() -> list[str]:
    """Return the names of the rows of `docs/requirements.md`."""
    text = REQUIREMENTS.read_text(encoding="utf-8")
    return [row for row in re.findall(r"^\| ([\w-]+) \|", text, re.MULTILINE) if row != "row"]
