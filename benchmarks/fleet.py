"""The recorded fleet as a configuration: every server that was once listed, none of which can be
started."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks.processes import REPOSITORY


def shared_folder(given: Path | None, needed: str) -> Path:
    """Return where the data is: in the folder given, in $PORTICO_SHARED, or in `shared` beside the
    repository."""
    folder = given or Path(os.environ.get("PORTICO_SHARED") or REPOSITORY.parent / "shared")
    if not (folder / needed).exists():
        raise SystemExit(
            f"There is no {needed} in {folder}. Say where it is with --shared or PORTICO_SHARED."
        )
    return folder


def folder_of(shared: Path | None) -> Path:
    """The folder of the recorded fleet."""
    return shared_folder(shared, "fleet/servers.jsonl.gz") / "fleet"


def recordings(shared: Path | None) -> Iterator[dict[str, Any]]:
    """Return what each server answered when it was recorded."""
    with gzip.open(folder_of(shared) / "servers.jsonl.gz", "rb") as lines:
        yield from (orjson.loads(line) for line in lines)


def servers(shared: Path | None, folder: Path) -> dict[str, dict[str, Any]]:
    """The `servers` of a configuration, each with its recording in a file of its own.

    Read out of the one archive, every server would unpack it again from the start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    for recording in recordings(shared):
        path = folder / f"{recording['slug']}.json"
        path.write_bytes(orjson.dumps(recording))
        found[recording["slug"]] = {"recorded": str(path)}
    return found
