"""`portico audit`: what was called, by whom, and how it ended."""

import json

import pytest

from portico.callers import Caller
from portico.config import AuditConfig as Settings
from portico.events import TokensRefused
from portico.observability.audit import AuditEntry, AuditLog
from tests.cli.conftest import Home

ME, OTHER = Caller("session", "claude", "work"), Caller("", "cursor\x1b[31m", "")


@pytest.fixture
def kept(home: Home) -> Home:
    # As small as can be: what is shown comes from several files.
    audit = AuditLog.from_settings(
        Settings.model_validate({"max_bytes": 1_024}), home.folder / "data"
    )
    assert audit is not None
    for number in range(6):
        audit.write(AuditEntry("git.push", "hash", {"n": number}, "ok", ME, "call_tool", 0.0125))
    audit.write(AuditEntry("git.push", "hash", {}, "tool_error", ME, "script", 1.5, 3))
    audit.write(AuditEntry("mail.send", "hash", {}, "timeout", OTHER, "flat"))
    audit.close()
    assert (home.folder / "data" / "audit.jsonl.1").exists()
    return home


def test_before_any_call_there_is_nothing_to_tell(home: Home) -> None:
    home.write({"servers": {}})
    ran = home.run("audit")
    assert (ran.code, ran.out) == (0, "No call is in the audit log.\n")
    assert home.run("audit", "--json").data["calls"] == []
    verified = home.run("audit", "--verify")
    assert (verified.code, verified.out) == (0, "No call is in the audit log.\n")


def test_wrong_tokens_are_told_with_where_they_came_from(home: Home) -> None:
    audit = AuditLog.from_settings(Settings(), home.folder / "data")
    assert audit is not None
    audit.write_refused_tokens(TokensRefused(60, (("203.0.113.7", 59), ("elsewhere", 1))))
    audit.close()
    assert "60 wrong tokens were refused, from 203.0.113.7, elsewhere" in home.run("audit").out
    assert home.run("audit", "--tool", "*", "--json").data["calls"] == []


def test_the_latest_calls_stand_last(kept: Home) -> None:
    header, *rows = kept.run("audit").out.splitlines()
    assert header.split() == [
        "when",
        "tool",
        "outcome",
        "ms",
        "way",
        "person",
        "client",
        "profile",
        "who",
        "arguments",
    ]
    assert len(rows) == 8
    assert all(" git.push " in row for row in rows[:7])
    assert "tool_error (3 attempts)" in rows[6]
    assert "1,500.0" in rows[6]
    assert "timeout" in rows[7]
    assert "\x1b" not in rows[7]
    assert len(kept.run("audit", "--tail", "2").out.splitlines()) == 3


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["--tool", "mail.*"], ["timeout"]),
        (["--tool", "push", "-n", "2"], ["ok", "tool_error"]),
        (["--client", "claude", "--failed"], ["tool_error"]),
        (["--failed"], ["tool_error", "timeout"]),
        (["--tool", "nothing"], []),
    ],
)
def test_calls_can_be_picked(kept: Home, wanted: list[str], found: list[str]) -> None:
    assert [one["outcome"] for one in kept.run("audit", *wanted, "--json").data["calls"]] == found


def test_a_line_as_json_is_the_line_that_was_written(kept: Home) -> None:
    data = kept.run("audit", "--json").data
    lines = [
        json.loads(line)
        for name in (*(f"audit.jsonl.{number}" for number in (4, 3, 2, 1)), "audit.jsonl")
        if (path := kept.folder / "data" / name).exists()
        for line in path.read_bytes().splitlines()
    ]
    assert data == {"file": str(kept.folder / "data" / "audit.jsonl"), "calls": lines}


def test_what_is_no_line_is_passed_over(kept: Home) -> None:
    with (kept.folder / "data" / "audit.jsonl").open("ab") as file:
        file.write(b'{"cut\n[]\n')
    assert len(kept.run("audit", "--json").data["calls"]) == 8


def test_a_log_that_is_off_can_still_be_read(kept: Home) -> None:
    kept.write({"servers": {}, "audit": "off"})
    ran = kept.run("audit", "--failed")
    assert len(ran.out.splitlines()) == 3
    assert "The audit log is off" in ran.err
