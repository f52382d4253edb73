"""Two runs of the suite are read and compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.checks import (
    CheckId,
    Outcome,
    failures,
    read_results,
    select_judged,
    select_passed,
)
from tests.conformance.comparison import Gap, compare, load_gaps
from tests.conformance.report import document, findings, table
from tests.conformance.suite import SuiteMissing, find_suite

PASS, FAIL = Outcome("SUCCESS"), Outcome("FAILURE", "it broke")
FIRST, SECOND = CheckId("tools-list", "a/A"), CheckId("tools-list", "b/B")
SPEC = "2025-11-25"


def write_scenario(folder: Path, scenario: str, checks: object) -> None:
    target = folder / f"server-{scenario}-2026-01-01T00-00-00-000Z"
    target.mkdir()
    if checks is not None:
        (target / "checks.json").write_text(
            checks if isinstance(checks, str) else json.dumps(checks)
        )


def check(id: str, status: str = "SUCCESS", **fields: str) -> dict[str, str]:
    return {"id": id, "name": id.upper(), "status": status, **fields}


def test_checks_that_share_an_id_are_distinguished_by_their_turn(tmp_path: Path) -> None:
    write_scenario(tmp_path, "ping", [check("a"), check("a", "FAILURE", errorMessage="no")])
    assert read_results(tmp_path) == {
        CheckId("ping", "a/A"): PASS,
        CheckId("ping", "a/A#2"): Outcome("FAILURE", "no"),
    }


def test_remarks_of_the_suite_are_kept_but_not_counted(tmp_path: Path) -> None:
    remark = {**check("b", "INFO"), "details": {"message": "does not apply here"}}
    write_scenario(tmp_path, "ping", [check("a"), remark])
    results = read_results(tmp_path)
    assert results[CheckId("ping", "b/B")] == Outcome("INFO", "does not apply here")
    assert (select_judged(results), select_passed(results), failures(results)) == (1, 1, {})


@pytest.mark.parametrize("written", [None, "not json", '{"id": 1}', '[{"id": "a"}]', "[1]"])
def test_a_scenario_that_left_nothing_readable_counts_as_failed(
    tmp_path: Path, written: str | None
) -> None:
    write_scenario(tmp_path, "server-sse-polling", written)
    (found,) = read_results(tmp_path).items()
    assert found[0] == CheckId("server-sse-polling", "scenario-completes")
    assert found[1].status == "FAILURE"


def test_folders_that_are_not_scenarios_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "suite.log").write_text("")
    assert read_results(tmp_path) == {}


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED", "INFO"])
def test_anything_but_a_pass_is_a_loss_where_the_direct_run_passed(status: str) -> None:
    comparison = compare(SPEC, {FIRST: PASS}, {FIRST: Outcome(status)}, [])
    assert [loss.check for loss in comparison.lost] == [FIRST]
    assert not comparison.ok


def test_a_check_that_never_came_up_through_the_gateway_is_a_loss() -> None:
    assert not compare(SPEC, {FIRST: PASS, SECOND: PASS}, {FIRST: PASS}, []).ok


def test_a_failure_that_exists_only_through_the_gateway_is_a_loss() -> None:
    assert not compare(SPEC, {FIRST: PASS}, {FIRST: PASS, SECOND: FAIL}, []).ok


def test_what_fails_on_both_sides_is_not_the_gateways_doing() -> None:
    assert compare(SPEC, {FIRST: FAIL}, {FIRST: FAIL}, []).ok


def test_a_known_gap_excuses_its_check_and_only_in_its_spec_version() -> None:
    gap = Gap(SPEC, FIRST, "because")
    assert compare(SPEC, {FIRST: PASS}, {FIRST: FAIL}, [gap]).ok
    assert not compare("2026-07-28", {FIRST: PASS}, {FIRST: FAIL}, [gap]).ok


@pytest.mark.parametrize("listed", [FIRST, CheckId("no-such-scenario", "x/X")])
def test_a_known_gap_that_is_none_any_more_fails_the_run(listed: CheckId) -> None:
    comparison = compare(SPEC, {FIRST: PASS}, {FIRST: PASS}, [Gap(SPEC, listed, "because")])
    assert not comparison.ok
    assert "delete its entry" in findings(SPEC, {FIRST: PASS}, comparison)


def test_the_report_names_what_was_lost_and_why() -> None:
    comparison = compare(SPEC, {FIRST: PASS, SECOND: PASS}, {FIRST: PASS, SECOND: FAIL}, [])
    assert "tools-list: b/B [FAILURE] it broke" in findings(SPEC, comparison.direct, comparison)
    assert "2/2" in table(SPEC, comparison.direct, comparison.through)
    assert "1/2  ≠" in table(SPEC, comparison.direct, comparison.through)
    assert document(comparison.direct, comparison)["lost"][0]["check"] == "b/B"


def test_the_shipped_list_of_known_gaps_is_well_formed() -> None:
    assert all(gap.reason for gap in load_gaps())


def test_a_gap_without_a_reason_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gaps.yaml"
    file.write_text("gaps: [{spec: 2025-11-25, scenario: ping, check: a/A}]")
    with pytest.raises(ValueError, match="entry 1: give it reason"):
        load_gaps(file)


def test_a_missing_suite_is_reported_with_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(SuiteMissing, match="--install"):
        find_suite(tmp_path)


def test_another_version_of_the_suite_is_not_the_suite(tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "@modelcontextprotocol" / "conformance"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"version": "0.1.16", "bin": "dist/index.js"}')
    with pytest.raises(SuiteMissing, match=r"0\.1\.16, the pinned one is 0\.2\.0"):
        find_suite(tmp_path)
