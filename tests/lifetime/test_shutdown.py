"""However a gateway ends, every server it started ends with it, and so does every child of theirs.

All endings are run at the same time, each by a gateway of its own over six servers of which five
resist.
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.lifetime import gateway_process
from tests.lifetime.gateway_process import (
    Outcome,
    by,
    by_hanging_up,
    end_gateway,
    over_http,
    over_stdio,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="signals and process groups are POSIX"),
]

STDIO = {
    "the client hangs up": by_hanging_up,
    "SIGTERM": by(signal.SIGTERM),
    "SIGTERM in the middle of a call": gateway_process.in_the_middle_of_a_call,
    "SIGINT": by(signal.SIGINT),
    "SIGTERM twice": by(signal.SIGTERM, signal.SIGTERM),
    "SIGINT twice": by(signal.SIGINT, signal.SIGINT),
    "SIGHUP": by(signal.SIGHUP),
    "SIGKILL": by(signal.SIGKILL),
    "SIGTERM, then SIGKILL": by(signal.SIGTERM, signal.SIGKILL),
}
HTTP = {
    "SIGTERM": by(signal.SIGTERM),
    "SIGINT": by(signal.SIGINT),
    "SIGKILL": by(signal.SIGKILL),
}
GRACEFUL = ("the client hangs up", "SIGTERM", "SIGTERM in the middle of a call", "SIGINT")
AT_ONCE = 4

Outcomes = dict[tuple[str, str], Outcome | BaseException]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    # Under nohup, SIGHUP is ignored, also by programs that are started. One that is handled here
    # has its default effect there.
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        return asyncio.run(_every_ending(tmp_path_factory.mktemp("endings")))
    finally:
        signal.signal(signal.SIGHUP, before)


async def _every_ending(folder: Path) -> Outcomes:
    gate = asyncio.Semaphore(AT_ONCE)

    async def run(transport: str, ending: str) -> Outcome:
        async with (
            gate,
            over_stdio(folder) if transport == "stdio" else over_http(folder) as lived_in,
        ):
            gate.release()  # from here on it mostly waits
            try:
                return await end_gateway(
                    lived_in, (STDIO if transport == "stdio" else HTTP)[ending]
                )
            finally:
                await gate.acquire()

    keys = [("stdio", ending) for ending in STDIO] + [("http", ending) for ending in HTTP]
    return dict(
        zip(
            keys,
            await asyncio.gather(*(run(*key) for key in keys), return_exceptions=True),
            strict=True,
        )
    )


def outcome(outcomes: Outcomes, transport: str, ending: str) -> Outcome:
    found = outcomes[transport, ending]
    if isinstance(found, BaseException):
        raise found
    return found


@pytest.mark.parametrize("ending", STDIO)
def test_no_process_outlives_a_gateway_on_stdio(ending: str, outcomes: Outcomes):
    found = outcome(outcomes, "stdio", ending)
    assert found.before == gateway_process.PROCESSES
    assert found.left == ()
    if ending in GRACEFUL:
        assert found.code == 0


@pytest.mark.parametrize("ending", HTTP)
def test_no_process_outlives_a_gateway_over_http(ending: str, outcomes: Outcomes):
    found = outcome(outcomes, "http", ending)
    assert found.before == gateway_process.PROCESSES
    assert found.left == ()
    if ending in GRACEFUL:
        assert found.code == 0
