"""Compares two runs of the suite: lost checks, and whether they are known gaps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.checks import CheckId, Outcome, Results, failures

KNOWN_GAPS = Path(__file__).with_name("known_gaps.yaml")
NOT_RUN = Outcome("NOT RUN", "the suite did not get as far as this check")


@dataclass(frozen=True)
class Gap:
    """A check that we know does not survive the gateway, and why."""

    spec: str
    check: CheckId
    reason: str


@dataclass(frozen=True)
class Loss:
    """A check that passes directly, or does not come up there, and does not pass through the
    gateway."""

    check: CheckId
    through: Outcome


@dataclass(frozen=True)
class Comparison:
    direct: Results
    through: Results
    lost: tuple[Loss, ...]
    excused: tuple[tuple[Loss, Gap], ...]
    stale: tuple[Gap, ...]

    @property
    def ok(self) -> bool:
        return not self.lost and not self.stale


def compare(spec: str, direct: Results, through: Results, gaps: Sequence[Gap]) -> Comparison:
    """Return where the direct run passed, anything but a pass is lost: a warning, a skip, a remark,
    a
    missing check too."""
    known = {gap.check: gap for gap in gaps if gap.spec == spec}
    losses = [
        Loss(check, through.get(check, NOT_RUN))
        for check, outcome in direct.items()
        if outcome.passed and not through.get(check, NOT_RUN).passed
    ]
    losses += [
        Loss(check, outcome) for check, outcome in failures(through).items() if check not in direct
    ]
    return Comparison(
        direct=direct,
        through=through,
        lost=tuple(loss for loss in losses if loss.check not in known),
        excused=tuple((loss, known[loss.check]) for loss in losses if loss.check in known),
        stale=tuple(
            gap for check, gap in known.items() if check not in {loss.check for loss in losses}
        ),
    )


def load_gaps(file: Path = KNOWN_GAPS) -> list[Gap]:
    """The known gaps. An entry that lacks a field is an error: a gap without a reason is not known
    but ignored."""
    document: Any = yaml.safe_load(file.read_text("utf-8")) or {}
    gaps: list[Gap] = []
    for number, entry in enumerate(document.get("gaps") or [], start=1):
        missing = [
            key
            for key in ("spec", "scenario", "check", "reason")
            if not str(entry.get(key) or "").strip()
        ]
        if missing:
            raise ValueError(f"{file.name}, entry {number}: give it {', '.join(missing)}")
        gaps.append(
            Gap(str(entry["spec"]), CheckId(entry["scenario"], entry["check"]), entry["reason"])
        )
    return gaps
