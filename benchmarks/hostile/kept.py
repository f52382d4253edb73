"""What was measured of a run so far, in a file: a line of JSON for each kind, so that a run can be
made in portions."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.hostile.running import Waits
from benchmarks.hostile.trial import Felt


@dataclass(frozen=True)
class Kept:
    """One kind's figures, and what the polite calls waited for a processor meanwhile."""

    felt: Felt
    waits: Waits


def read_kept(path: Path | None) -> dict[str, Kept]:
    """Return what the file has, by the kind's name; nothing where there is no file."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    found = [Kept(Felt(**line["felt"]), Waits(**line["waits"])) for line in lines]
    return {kept.felt.name: kept for kept in found}


def append(path: Path | None, kept: Kept) -> None:
    """Add a kind to the file."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(kept), ensure_ascii=False) + "\n")
