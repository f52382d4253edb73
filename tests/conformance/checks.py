"""The suite's per-scenario `checks.json` files, read into one flat mapping."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PASSED = "SUCCESS"
FAILED = "FAILURE"
# The suite notes requests, events and checks that did not apply under this status; it judges
# nothing.
REMARK = "INFO"

_FOLDER = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@dataclass(frozen=True)
class CheckId:
    """One check of one scenario. Ids repeat within a scenario, so the check's name and its turn
    belong to the key."""

    scenario: str
    check: str


@dataclass(frozen=True)
class Outcome:
    status: str
    message: str = ""

    @property
    def passed(self) -> bool:
        return self.status == PASSED

    @property
    def judged(self) -> bool:
        return self.status != REMARK


Results = Mapping[CheckId, Outcome]


def read_results(folder: Path) -> Results:
    """Every check and remark under `folder`. A scenario that left nothing readable counts as one
    failed check."""
    results: dict[CheckId, Outcome] = {}
    for entry in sorted(folder.iterdir()):
        match = _FOLDER.fullmatch(entry.name)
        if match is None or not entry.is_dir():
            continue
        results.update(_read_scenario(match["scenario"], entry / "checks.json"))
    return results


def _read_scenario(scenario: str, file: Path) -> Results:
    try:
        checks: Any = json.loads(file.read_text("utf-8"))
        if not isinstance(checks, list):
            raise TypeError("not a list of checks")
        return _key_checks(scenario, checks)
    except FileNotFoundError:
        reason = "the scenario wrote no checks: it crashed"
    except (ValueError, TypeError, KeyError) as unreadable:
        reason = f"checks.json is not what the suite usually writes: {unreadable!r}"
    return {CheckId(scenario, "scenario-completes"): Outcome(FAILED, reason)}


def _key_checks(scenario: str, checks: list[dict[str, Any]]) -> Results:
    turns: Counter[str] = Counter()
    results: dict[CheckId, Outcome] = {}
    for check in checks:
        name = f"{check['id']}/{check['name']}"
        turns[name] += 1
        key = name if turns[name] == 1 else f"{name}#{turns[name]}"
        results[CheckId(scenario, key)] = Outcome(
            check["status"], check.get("errorMessage") or _remark(check)
        )
    return results


def _remark(check: dict[str, Any]) -> str:
    details = check.get("details")
    return str(details.get("message") or "") if isinstance(details, dict) else ""


def select_passed(results: Results) -> int:
    return sum(outcome.passed for outcome in results.values())


def select_judged(results: Results) -> int:
    return sum(outcome.judged for outcome in results.values())


def failures(results: Results) -> dict[CheckId, Outcome]:
    return {check: outcome for check, outcome in results.items() if outcome.status == FAILED}
