"""Rankings as files, for anyone who marks them elsewhere: a line per question, `{"id": …, "ranked":
[ids]}`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson


def place_for(out: Path, name: str, *, several: bool) -> Path:
    """The file for a set's ranks: `out` itself, or one in the folder `out` where there are several
    sets."""
    return out / f"{name}.jsonl" if several or out.is_dir() else out


def write_ranks(path: Path, ranks: Iterable[tuple[str | int, Sequence[str]]]) -> None:
    """Write the ranked ids of each question."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(orjson.dumps({"id": id_, "ranked": ranked}) + b"\n" for id_, ranked in ranks)
    )
