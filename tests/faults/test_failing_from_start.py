"""Servers that were never well, so that nothing is known of them: once they are, they are found."""

import asyncio
import os
import secrets
from pathlib import Path

import pytest

from portico.config import Config
from portico.testing import serve_http
from tests.faults.matrix import NEIGHBOUR, FaultRunner, Outcome, serve_faults
from tests.faults.table import FAULTS, Wire
from tests.gateways import run_gateway
from tests.interaction.raw_clients import raw_http
from tests.lifetime.process_marks import left_over, new_mark

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="process groups and held ports are POSIX"
)
NAMES = (
    "dies_before_greeting",
    "greeting_refused",
    "listing_dies",
    "listing_refused",
    "listing_garbage",
)
FOUND_S = 40.0


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_a_server_that_was_never_well_says_why_and_is_found_when_it_is(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.gateway.maintenance.MAINTENANCE_INTERVAL_S", 1.0)
    faults = {fault.id: fault for fault in FAULTS if fault.id in NAMES}
    for name in (*faults, NEIGHBOUR):
        (tmp_path / name).write_text("" if name == NEIGHBOUR else name)
    mark = new_mark()
    async with serve_faults(wire, faults, tmp_path, mark) as servers:
        async with (
            run_gateway(config=Config(servers=servers)) as gateway,
            serve_http(gateway) as url,
            raw_http(url, "legacy") as client,
        ):
            runner = FaultRunner(gateway, client, tmp_path)
            said = {name: await runner.call(name, "too soon") for name in faults}
            assert {name: outcome.kind for name, outcome in said.items()} == dict.fromkeys(
                faults, "unavailable"
            )
            for name in faults:
                runner.switch(name, "")
            found = await asyncio.gather(*(_call_until_found(runner, name) for name in faults))
            assert dict(zip(faults, found, strict=True)) == dict.fromkeys(
                faults, Outcome("result", "found")
            )
        assert await left_over(mark) == []


async def _call_until_found(runner: FaultRunner, name: str) -> Outcome:
    """Return what it answers in the end."""
    outcome = Outcome("nothing", "")
    try:
        async with asyncio.timeout(FOUND_S):
            while outcome.kind != "result":
                nonce = secrets.token_hex(8)
                outcome = await runner.call(name, nonce)
                outcome = Outcome(outcome.kind, outcome.text.replace(nonce, "found"))
                await asyncio.sleep(0.1)
    except TimeoutError:
        pass
    return outcome
