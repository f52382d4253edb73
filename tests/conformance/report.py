"""The comparison as a table for people and as JSON for machines."""

from __future__ import annotations

from typing import Any

from tests.conformance.checks import (
    CheckId,
    Outcome,
    Results,
    failures,
    select_judged,
    select_passed,
)
from tests.conformance.comparison import Comparison


def table(spec: str, direct: Results, through: Results | None) -> str:
    """One row a scenario: how many of its checks pass directly and through the gateway."""
    scenarios = list(
        dict.fromkeys(check.scenario for results in (direct, through or {}) for check in results)
    )
    width = max(len(name) for name in [*scenarios, "scenario"])
    lines = [f"{spec:<{width}}  {'direct':>9}  {'through':>9}"]
    for scenario in scenarios:
        left = _score(_of(scenario, direct))
        right = "" if through is None else _score(_of(scenario, through))
        mark = "" if through is None or left == right else "  ≠"
        lines.append(f"{scenario:<{width}}  {left:>9}  {right:>9}{mark}".rstrip())
    lines.append(
        (
            f"{'all':<{width}}  {_score(direct):>9}  "
            f"{'' if through is None else _score(through):>9}"
        ).rstrip()
    )
    return "\n".join(lines)


def findings(spec: str, direct: Results, comparison: Comparison | None) -> str:
    """Return what must be repaired, then what is excused; empty when there is nothing to say."""
    lines = [_line("fails directly", check, outcome) for check, outcome in failures(direct).items()]
    if comparison is not None:
        lines += [_line("lost", loss.check, loss.through) for loss in comparison.lost]
        lines += [
            (
                f"stale gap  {gap.check.scenario}: {gap.check.check} is listed as lost and "
                "is not; delete its entry"
            )
            for gap in comparison.stale
        ]
        lines += [
            f"known gap  {loss.check.scenario}: {loss.check.check} — {gap.reason}"
            for loss, gap in comparison.excused
        ]
    return "\n".join(f"{spec}  {line}" for line in lines)


def document(direct: Results, comparison: Comparison | None) -> dict[str, Any]:
    """Everything about one spec version, ready for JSON."""
    said: dict[str, Any] = {"direct": _as_json(direct)}
    if comparison is not None:
        said["through"] = _as_json(comparison.through)
        said["lost"] = [_check_json(loss.check, loss.through) for loss in comparison.lost]
        said["excused"] = [
            {**_check_json(loss.check, loss.through), "reason": gap.reason}
            for loss, gap in comparison.excused
        ]
        said["stale"] = [
            {"scenario": gap.check.scenario, "check": gap.check.check} for gap in comparison.stale
        ]
    return said


def _of(scenario: str, results: Results) -> Results:
    return {check: outcome for check, outcome in results.items() if check.scenario == scenario}


def _score(results: Results) -> str:
    return f"{select_passed(results)}/{select_judged(results)}"


def _line(kind: str, check: CheckId, outcome: Outcome) -> str:
    message = outcome.message if len(outcome.message) <= 300 else outcome.message[:300] + "…"
    return f"{kind}  {check.scenario}: {check.check} [{outcome.status}] {message}".rstrip()


def _as_json(results: Results) -> dict[str, Any]:
    checks = [_check_json(check, outcome) for check, outcome in results.items() if outcome.judged]
    return {"passed": select_passed(results), "failed": len(failures(results)), "checks": checks}


def _check_json(check: CheckId, outcome: Outcome) -> dict[str, Any]:
    return {
        "scenario": check.scenario,
        "check": check.check,
        "status": outcome.status,
        "message": outcome.message,
    }
