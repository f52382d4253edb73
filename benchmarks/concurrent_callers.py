"""Measures calls per second of sixteen concurrent callers on one session.

The client is Portico's own wire to its servers and the server a few lines of echo,
the same for every contestant. With the SDK at both ends, most of the time would pass
there.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from benchmarks import processes
from benchmarks.credentials import contest_with_credentials
from benchmarks.latency_contestants import (
    READY_S,
    Contestant,
    WrongAnswer,
    contest,
    list_programs,
    until_ready,
)
from benchmarks.rounds import turns
from portico.upstream.backend import Connection, Era, RequestOptions
from portico.upstream.backends.http import HttpBackend
from portico.upstream.transports.stdio import StdioBackend

WORKERS = 16
_TEXT = "The quick brown fox jumps over the lazy dog. " * 4


@dataclass
class Seat:
    """A contestant with its open conversation."""

    contestant: Contestant
    connection: Connection
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def call(self) -> None:
        text = f"{next(self._numbers)} {_TEXT}"
        params = {"name": self.contestant.tool, "arguments": self.contestant.arguments(text)}
        result = await self.connection.request(
            "tools/call", params, RequestOptions(timeout=READY_S)
        )
        if result.get("isError") or result["content"][0]["text"] != text:
            raise WrongAnswer(f"{self.contestant.name} answered {str(result)[:300]!r}")

    async def rate(self, calls: int, turn_s: float) -> float:
        """Calls in a second, while sixteen share so many, or for so long."""
        done = 0
        begun = time.perf_counter()

        async def work(share: int) -> None:
            nonlocal done
            for _ in range(share):
                await self.call()
                done += 1
                if time.perf_counter() > begun + turn_s:
                    return

        await asyncio.gather(*(work(calls // WORKERS) for _ in range(WORKERS)))
        return done / (time.perf_counter() - begun)


async def measure(
    route: str, era: str, rounds: int, calls: int, turn_s: float, only: Iterable[str]
) -> dict[str, list[float]]:
    """The rates of every contestant of a route, one of each round."""
    chosen = set(only)
    with processes.scratch() as folder:
        async with contextlib.AsyncExitStack() as stack:
            everybody = contest(route, era, folder, "plain")
            if route == "http":
                upstream = str(everybody[0].reach)
                everybody += await contest_with_credentials(upstream, era, folder)
            contestants = [one for one in everybody if not chosen or one.name in chosen]
            for port, program in list_programs(contestants).items():
                stack.enter_context(processes.listening(port, program, folder))
            seats = {
                one.name: Seat(one, await stack.enter_async_context(_conversation(one, era)))
                for one in contestants
            }
            rates: dict[str, list[float]] = {name: [] for name in seats}
            for seat in seats.values():
                await until_ready(seat.call)
                await seat.rate(calls, turn_s)
            for _, name in turns(list(seats), rounds):
                rates[name].append(await seats[name].rate(calls, turn_s))
    return rates


def _make_headers(contestant: Contestant) -> dict[str, str]:
    credential = contestant.credential
    return {"Authorization": f"Bearer {credential}"} if credential else {}


class _Deaf:
    """Hears nothing that belongs to no call."""

    def on_notification(self, method: str, params: dict[str, Any]) -> None: ...

    def on_lost(self, reason: str) -> None: ...


@contextlib.asynccontextmanager
async def _conversation(contestant: Contestant, era: str) -> AsyncGenerator[Connection]:
    reach, name, protocol = contestant.reach, contestant.name, cast("Era", era)
    backend = (
        HttpBackend(name, reach, _make_headers(contestant), protocol=protocol)
        if isinstance(reach, str)
        else StdioBackend(
            name, reach[0], tuple(reach[1:]), cwd=str(processes.REPOSITORY), protocol=protocol
        )
    )
    connection = await backend.connect(_Deaf(), protocol)
    try:
        yield connection
    finally:
        await connection.close()
