"""Every fault on every wire: a bounded, typed outcome, full recovery, neighbours unaffected,
nothing left behind."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import matrix
from tests.faults.matrix import Run, says
from tests.faults.misbehaving.scripts import SCRIPTS
from tests.faults.table import FAULTS, Fault, Wire, on

pytestmark = [
    pytest.mark.skipif(
        os.name != "posix", reason="signals, process groups and held ports are POSIX"
    ),
    pytest.mark.timeout(1_800),
]
WIRES: tuple[Wire, ...] = ("stdio", "http", "modern", "sse")
MARKS = {wire: () if wire == "stdio" else (pytest.mark.slow,) for wire in WIRES}
CELLS = [
    pytest.param(wire, fault, id=f"{wire}-{fault.id}", marks=MARKS[wire])
    for wire in WIRES
    for fault in on(wire)
]
LONGEST_TEXT = 60_000
"""Characters; a caller is not flooded with what a server says of its failure."""

Runs = Callable[[Wire], Run]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Each wire's run, made once, of those faults that this session asks for."""
    chosen: dict[Wire, dict[str, Fault]] = {wire: {} for wire in WIRES}
    for item in request.session.items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if item.path == request.path and "fault" in params:
            chosen[params["wire"]][params["fault"].id] = params["fault"]
    made: dict[Wire, Run] = {}

    def run(wire: Wire) -> Run:
        if wire not in made:
            faults = chosen[wire].values() or on(wire)
            folder: Path = tmp_path_factory.mktemp(wire)
            made[wire] = asyncio.run(matrix.run(wire, faults, folder))
        return made[wire]

    return run


@pytest.mark.parametrize(("wire", "fault"), CELLS)
def test_a_fault_is_reported_passes_and_stays_where_it_is(
    wire: Wire, fault: Fault, runs: Runs
) -> None:
    cell = runs(wire).cells[fault.id]
    assert cell.wrong == (), f"a server that {fault.sentence}"
    assert cell.outcome.kind in fault.allowed, f"a server that {fault.sentence}: {cell.outcome}"
    assert says(cell.outcome, fault.says), f"a server that {fault.sentence}: {cell.outcome}"
    assert "Traceback" not in cell.outcome.text
    assert len(cell.outcome.text) < LONGEST_TEXT


@pytest.mark.parametrize("wire", [pytest.param(wire, marks=MARKS[wire]) for wire in WIRES])
def test_nothing_is_left_behind(wire: Wire, runs: Runs) -> None:
    done = runs(wire)
    assert done.processes == []
    assert {what: counts for what, counts in done.held.items() if counts[1] > counts[0]} == {}


def test_every_fault_has_its_script_and_every_script_its_fault() -> None:
    named = {fault.id for fault in FAULTS}
    assert len(named) == len(FAULTS)
    assert named ^ set(SCRIPTS) == {"dies_between_calls"}, (
        "which needs no script: it is told to go by a tool"
    )
