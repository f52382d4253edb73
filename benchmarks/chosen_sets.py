"""Which sets a run is about: those in the given folders, or the shared ones and our own
questions to the fleet."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import REPOSITORY
from benchmarks.tool_sets import Source, discover, tools_in

PUBLIC = ("livemcp_agent", "livemcp_step", "livemcp_task", "metatool", "bfcl_live", "sealtools")
"""The sets whose mean is a goal."""
OWN = "own"
"""The family of sets that this repository asks itself: they count in rows of their own, and in no
mean."""
OWN_FLEET = "fleet_own"
_QUESTIONS = Path(__file__).with_name("questions") / "fleet.jsonl"


def sources(folders: Sequence[Path] | None) -> list[Source]:
    """The sets in these folders; by default `retrieval` and `fleet` of the shared folder, and our
    own."""
    shared = Path(os.environ.get("PORTICO_SHARED") or REPOSITORY.parent / "shared")
    looked_in = folders or [shared / "retrieval", shared / "fleet"]
    if absent := [str(folder) for folder in looked_in if not folder.is_dir()]:
        raise SystemExit(f"There is no folder {', '.join(absent)}. Say where sets are with --data.")
    found, orphans = discover(looked_in)
    for orphan in orphans:
        print(
            f"{orphan}: left out, there is no tools.jsonl or servers.jsonl with it", file=sys.stderr
        )
    if not folders and (servers := tools_in(shared / "fleet")) is not None:
        found.append(Source(OWN_FLEET, servers, _QUESTIONS, OWN))
    if not found:
        raise SystemExit(
            f"There are no sets in {', '.join(map(str, looked_in))}: no queries.jsonl "
            "with tools.jsonl."
        )
    return found
