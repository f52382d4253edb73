"""The official suite passes against our fixture, and nothing it checks is lost on the way through
Portico."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.conformance import report
from tests.conformance.checks import Results, failures, select_passed
from tests.conformance.comparison import compare, load_gaps
from tests.conformance.run import run_direct, run_through
from tests.conformance.suite import SPECS, Suite, SuiteMissing, find_suite

RAN_BEFORE = "PORTICO_CONFORMANCE_RAN"
"""Set by `.ci/run`, which has run the same suite by its command, and ended if anything was lost."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.node,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        RAN_BEFORE in os.environ, reason="`python -m tests.conformance` has run just before"
    ),
]

# What the SDK's own server passes; a fixture that passes fewer would prove less about the gateway.
ANCHORS = {"2026-07-28": 152, "2025-11-25": 84}


@pytest.fixture(scope="module")
def suite() -> Suite:
    try:
        return find_suite()
    except SuiteMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=SPECS)
def spec(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def direct(suite: Suite, spec: str, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run_direct(suite, spec, tmp_path_factory.mktemp("direct"))


def test_the_fixture_passes_every_check_the_sdks_own_server_passes(
    direct: Results, spec: str
) -> None:
    assert not failures(direct), report.findings(spec, direct, None)
    assert select_passed(direct) >= ANCHORS[spec]


def test_no_check_that_passes_directly_is_lost_through_the_gateway(
    suite: Suite, direct: Results, spec: str, tmp_path: Path
) -> None:
    if importlib.util.find_spec("portico.cli.main") is None:
        pytest.skip("this tree has no `portico serve` yet (portico.cli.main is missing)")
    through = run_through(suite, spec, tmp_path)
    comparison = compare(spec, direct, through, load_gaps())
    assert comparison.ok, (
        report.findings(spec, direct, comparison) + "\n" + report.table(spec, direct, through)
    )
