"""Calls lost when a sibling is slow or dead: a healthy server is called while three beside it
misbehave.

One takes three seconds to list its tools, one never answers anything, one is gone. `at start`: they
are so before the gateway starts, which has met all of them well. `while running`: they become so
under a gateway that serves. All the while another client of the gateway waits for the silent one.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks import processes
from benchmarks.peering import replay, running_gateway
from benchmarks.peering.gateways import Gateway
from benchmarks.peering.upstreams import ECHO, Recording, echo, serving, write_servers
from benchmarks.rounds import percentile
from benchmarks.table import Cell, Table

SLOW, SILENT, DEAD = "slow", "silent", "dead"
AT_START, WHILE_RUNNING = "at start", "while running"
LATE_S = 1.0
GIVE_UP_S = 5.0
"""Nobody waits longer for an echo."""
FIRST_CALL_S = 30.0


@dataclass(frozen=True)
class Window:
    """Describes how long it is watched: so many calls, or so many seconds."""

    calls: int
    seconds: float
    first_call_s: float = FIRST_CALL_S
    """How long a gateway may take until its first call succeeds."""


@dataclass
class Watched:
    """Calls to the healthy server."""

    seconds: list[float] = field(default_factory=list[float])
    ready_s: float | None = None
    """Spawn until the first call that succeeded; None where none did."""
    why: str = "no call succeeded in time"
    """What to say where there was no call."""

    @property
    def lost(self) -> float:
        """The share that failed or came late."""
        return (
            sum(one > LATE_S for one in self.seconds) / len(self.seconds) if self.seconds else 1.0
        )


async def measure(gateways: Sequence[Gateway], window: Window) -> dict[str, dict[str, Watched]]:
    """Each gateway by itself: what is counted is lost calls, not time beside another."""
    found: dict[str, dict[str, Watched]] = {}
    for one in gateways:
        for when in (AT_START, WHILE_RUNNING):
            with processes.scratch() as folder:
                try:
                    watched = await _watch(one, folder, window, bad_first=when == AT_START)
                except Exception as error:  # whatever becomes of one, the others are watched
                    watched = Watched(why=running_gateway.reason(one.name, error))
                found.setdefault(one.name, {})[when] = watched
    return found


async def _watch(gateway: Gateway, folder: Path, window: Window, *, bad_first: bool) -> Watched:
    watched = Watched()
    fleet = folder / "fleet"
    with serving({name: _find_fault(name) for name in (SLOW, SILENT, ECHO)}, fleet) as others:
        port = processes.free_port()
        dead = write_servers({DEAD: _find_fault(DEAD)}, folder / "dead", port)
        upstreams = [*dead, *others]
        with contextlib.ExitStack() as until_bad:
            until_bad.enter_context(
                processes.listening(
                    port, replay.command("--port", str(port), str(folder / "dead")), folder
                )
            )
            home = await running_gateway.prepare_folder(gateway, folder, upstreams)
            if bad_first:
                _turn_bad(fleet, until_bad, folder)
            with running_gateway.running(
                gateway, home, processes.free_port(), timeout_s=window.first_call_s
            ) as process:
                try:
                    # Behind endpoints of their own, bad servers are nobody's business who does not
                    # knock.
                    async with running_gateway.connect_client(process, [ECHO]) as taken:
                        await taken.until_called(GIVE_UP_S)
                        watched.ready_s = time.perf_counter() - process.begun
                        if not bad_first:
                            _turn_bad(fleet, until_bad, folder)
                            _kill_child(process.process)
                        async with _waiting(process):
                            await _calls(taken, window, watched)
                except processes.DidNotStart:
                    pass  # no call succeeded: that is the finding
    return watched


@contextlib.asynccontextmanager
async def _waiting(process: running_gateway.Running) -> AsyncGenerator[None]:
    """Another client of the gateway, which waits for the silent server's answer."""

    async def wait() -> None:
        with contextlib.suppress(Exception):  # however the gateway refuses
            async with running_gateway.connect_client(process, [SILENT]) as taken:
                await taken.call(SILENT)

    waiting = asyncio.create_task(wait())
    try:
        yield
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting


def _find_fault(name: str) -> Recording:
    recording = echo()
    return {
        **recording,
        "initialize": {**recording["initialize"], "serverInfo": {"name": name, "version": "1"}},
    }


def _turn_bad(fleet: Path, until_bad: contextlib.ExitStack, folder: Path) -> None:
    for name in (SLOW, SILENT):
        (fleet / f"{name}.mode").write_text(name, "utf-8")
    until_bad.close()
    # What starts it finds nothing to serve.
    (folder / "dead" / f"{DEAD}.json").unlink()


def _kill_child(process: psutil.Process) -> None:
    """The dead server of a gateway that started it."""
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(part.endswith(f"{DEAD}.json") for part in child.cmdline()):
                child.kill()


async def _calls(taken: running_gateway.Seat, window: Window, watched: Watched) -> None:
    ends = time.perf_counter() + window.seconds
    while len(watched.seconds) < window.calls and time.perf_counter() < ends:
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await taken.call()
            watched.seconds.append(time.perf_counter() - begun)
        except Exception:  # whatever a gateway says instead of the echo: the call is lost
            watched.seconds.append(max(GIVE_UP_S, time.perf_counter() - begun))


def table(names: Sequence[str], found: Mapping[str, Mapping[str, Watched]]) -> Table:
    """Lost calls and the slowest, both ways."""
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        for when, one in found.get(name, {}).items():
            share = f"{one.lost:.0%}"
            if not one.seconds:
                rows.append((name, when, "100%", None, None, None, 0, one.why))
                continue
            times = (percentile(one.seconds, 0.5) * 1000, percentile(one.seconds, 0.99) * 1000)
            rows.append((name, when, share, *times, one.ready_s, len(one.seconds), ""))
    return Table(
        "Calls to a healthy server beside a slow, a silent and a dead one (lost: "
        f"failed, or over {LATE_S:.0f} s)",
        ("", "they turn bad", "lost", "p50 ms", "p99 ms", "spawn → first call s", "calls", ""),
        tuple(rows),
        note=f"Nobody waits longer than {GIVE_UP_S:.0f} s for a call. Met well before: the "
        "gateways knew all servers.",
    )
