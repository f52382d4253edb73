"""A new user's servers work after adoption as they did before, in every client and over every way.

One run plays all steps; each test looks at a part of it.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.acceptance import fleet
from tests.acceptance.report import play
from tests.acceptance.steps import STEPS, Acceptance
from tests.real_servers.installation import NotInstalled

RAN_BEFORE = "PORTICO_ACCEPTANCE_RAN"
"""Set by `.ci/run`, which plays it on its own, where nothing runs beside it."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.node,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        RAN_BEFORE in os.environ, reason="`python -m tests.acceptance run` has run just before"
    ),
    pytest.mark.skipif(sys.platform != "linux", reason="the clients are installed for Linux"),
]


@pytest.fixture(scope="module")
def played() -> Acceptance:
    chosen = fleet.load()
    try:
        fleet.require_installed(chosen)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    return play(chosen)


def test_there_are_at_least_thirty_servers_that_work_before(played: Acceptance) -> None:
    assert sum(answer.works for answer in played.answers["directly"].values()) >= 30


@pytest.mark.parametrize("way", ["stdio", "http", "call"])
def test_the_same_servers_work_after_adoption(played: Acceptance, way: str) -> None:
    before = {name for name, answer in played.answers["directly"].items() if answer.works}
    after = {name for name, answer in played.answers[way].items() if answer.works}
    assert after >= before, {name: played.answers[way][name].text for name in before - after}


@pytest.mark.parametrize("step", STEPS)
def test_everything_that_a_step_shows_holds(played: Acceptance, step: str) -> None:
    checks = [check for check in played.checks if check.step == step]
    assert checks
    assert [check for check in checks if not check.holds] == []
