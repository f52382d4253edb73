"""Measures whether anything is lost when everything fails: many clients, many servers, and one
fault after
another.

    python -m benchmarks.soak [--minutes 10] [--clients 50] [--backends 20] [--seed 1] [--json FILE] [--keep FOLDER]

A gateway (`portico serve`) over servers on pipes, over HTTP and inside of it, of both eras, some
with a process for each client. Most clients speak bare HTTP, half of them in each era; a few use
the SDK's client; every eighth has a gateway of its own (`portico stdio`). They call tools, read
large results, search, run scripts in four languages and workflows, answer questions of servers,
hang up, read slowly, and open and close sessions. Meanwhile servers, scripts' processes, clients
and stdio gateways are killed, servers are frozen, die of calls or never answer, and the
configuration is changed, broken and repaired.

Every call has a nonce, and every answer must have the nonces of its call and no others. A request
is crossed, lost, or hung (no answer in 30 s, six times the longest limit), an error that no fault
explains, or it is fine. Exits 1 if any of those is there, or a process is left. Memory and
descriptors: a line through the samples of every second after warming up, with the half of its 95 %
interval.
"""  # noqa: E501

import argparse
import asyncio
import contextlib
import importlib
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path

import psutil

from benchmarks import processes
from benchmarks.rounds import percentile
from benchmarks.soak_account import Asked, Books, Trend, Verdict, judge, trend
from benchmarks.soak_chaos import Chaos
from benchmarks.soak_clients import Client
from benchmarks.soak_transports import HttpTransport, SdkTransport, StdioTransport
from benchmarks.soak_world import Fleet, Sample, World, sample
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude

SLOPE_MB, SLOPE_FDS = 1.0, 0.5
"""A minute; what is seen must be above the doubt of it as well."""
LONG_MINUTES = 5.0
"""Shorter runs say nothing of slopes: caches fill, pools grow."""
GONE_S = 10.0
SHOWN = 25


async def soak(options: argparse.Namespace, folder: Path) -> Report:
    """The whole run."""
    rng = random.Random(options.seed)
    fleet, books = Fleet.of(options.backends), Books()
    world = World(folder, fleet)
    seen: dict[int, float] = {}
    samples: list[Sample] = []
    with _helpers(world), processes.listening(world.port, world.command(), folder) as gateway:
        clients, mix = _clients(options, world, books, rng)
        await _ready(world)
        for one in clients:
            await one.open()
        begun = time.monotonic()
        until = begun + options.minutes * 60
        chaos = Chaos(world, gateway, clients, books, rng, options.faults)
        looking = asyncio.create_task(_look(gateway, clients, samples, seen))
        await asyncio.gather(*(one.live(until) for one in clients), chaos.run(until))
        looking.cancel()
        await asyncio.wait({looking})
        alive = gateway.is_running() and gateway.status() != psutil.STATUS_ZOMBIE
    left = await _find_leftovers(world, seen)
    return _report(
        options, mix, books, judge(books), samples, left, chaos.trouble, begun, alive=alive
    )


async def _ready(world: World) -> None:
    """Every server has answered, and every language has run: what is slow once is over."""
    importlib.import_module("mcp")  # takes seconds, in which no client would get on
    transport, deadline = (
        HttpTransport(world.url, "modern", "first"),
        time.monotonic() + processes.START_S,
    )
    calls = [
        ("call_tool", {"name": f"{one.name}.echo", "arguments": {"nonce": ""}})
        for one in world.fleet.targets()
    ]
    calls += [
        ("run_code", {"code": "1 + 1", "language": language})
        for language in ("python", "javascript")
    ]
    calls += [("run_code", {"code": "return 2", "language": "lua"})]
    for name, given in calls:
        while (await transport.ask("tools/call", {"name": name, "arguments": given}))["result"].get(
            "isError"
        ):
            if time.monotonic() > deadline:
                raise processes.DidNotStart(
                    f"{name} {given} does not work; {processes.tail(world.log)}"
                )
            await asyncio.sleep(0.1)
    await transport.close()


@contextlib.contextmanager
def _helpers(world: World) -> Generator[None]:
    try:
        for helper in world.helpers:
            helper.start()
        yield
    finally:
        for helper in world.helpers:
            helper.kill()


def _clients(
    options: argparse.Namespace, world: World, books: Books, rng: random.Random
) -> tuple[list[Client], Counter[str]]:
    """The mix: every eighth over pipes, two of the SDK's, the rest bare HTTP; eras in turns."""
    targets, made, mix = world.fleet.targets(), list[Client](), Counter[str]()
    rate = options.rate / options.clients
    piped = options.clients // 8
    for number in range(options.clients):
        name, era = f"client {number}", ("legacy", "modern")[number % 2]
        seeded = random.Random(rng.getrandbits(64))
        if number < piped:
            gateway = f"stdio{number}"
            names = [*_some(seeded, world.fleet.piped, 2), *_some(seeded, world.fleet.remote, 1)]
            config = world.configured(gateway, names)
            log = world.folder / f"{gateway}.log"

            def transport(
                config: Path = config.path, log: Path = log, era: str = era, name: str = name
            ) -> StdioTransport:
                return StdioTransport(config, log, era, name, books.strays.append)

            reached = [world.fleet.target(one, alone=True) for one in names]
            made.append(Client(name, gateway, transport, reached, books, seeded, rate=rate))
            mix[f"stdio, {era}"] += 1
        elif number < piped + 2:

            def typed(era: str = era, name: str = name) -> SdkTransport:
                return SdkTransport(world.url, era, name)

            made.append(Client(name, "main", typed, targets, books, seeded, rate=rate, plain=True))
            mix[f"SDK over HTTP, {era}"] += 1
        else:

            def bare(era: str = era, name: str = name) -> HttpTransport:
                return HttpTransport(world.url, era, name)

            made.append(
                Client(name, "main", bare, targets, books, seeded, rate=rate, claims=number % 5 < 2)
            )
            mix[f"HTTP, {era}"] += 1
    return made, mix


def _some(rng: random.Random, names: Iterable[str], many: int) -> list[str]:
    there = list(names)
    return rng.sample(there, min(many, len(there)))


async def _look(
    gateway: psutil.Process, clients: list[Client], samples: list[Sample], seen: dict[int, float]
) -> None:
    """Every second; what is below the clients' own gateways is only remembered."""
    while True:
        await asyncio.sleep(1)
        with contextlib.suppress(psutil.Error):
            samples.append(await asyncio.to_thread(sample, gateway, seen))
        for client in clients:
            if (
                isinstance(client.transport, StdioTransport)
                and (pid := client.transport.pid) is not None
            ):
                with contextlib.suppress(psutil.Error):
                    await asyncio.to_thread(sample, psutil.Process(pid), seen)


async def _find_leftovers(world: World, seen: dict[int, float]) -> list[str]:
    """Return what is left when everything was stopped and had a moment to go."""
    deadline = time.monotonic() + GONE_S
    while True:
        left = await asyncio.to_thread(world.left_behind, seen)
        if not left or time.monotonic() >= deadline:
            return left
        await asyncio.sleep(0.5)


def _report(
    options: argparse.Namespace,
    mix: Counter[str],
    books: Books,
    verdict: Verdict,
    samples: list[Sample],
    left: list[str],
    trouble: list[str],
    begun: float,
    *,
    alive: bool,
) -> Report:
    asked = len(books.asked)
    trends = _trends(samples)
    errors = sum(before + after for _, before, after in verdict.explained.values())
    faults = sum(bool(one.hits) for one in books.faults)
    tables = (
        Table(
            "What was asked",
            ("", "requests", "ok", "errors", "p50 ms", "p99 ms", "longest s"),
            _by_kind(books),
        ),
        Table(
            "What was done to it",
            ("", "times", "requests under way", "errors of those", "errors of later ones"),
            tuple(
                (what, many, verdict.in_flight.get(what, 0), before, after)
                for what, (many, before, after) in sorted(verdict.explained.items())
            ),
            f"{faults} faults explain {errors} errors of {asked} requests; "
            f"{verdict.wanted} more were calls made to "
            "fail. What is in brackets nobody may feel.",
        ),
        Table(
            "What the gateway takes",
            ("", "first", "last", "a minute", "±"),
            tuple((one.name, one.first, one.last, one.per_minute, one.doubt) for one in trends),
            f"{books.abandoned} sessions were left without a word; the gateway keeps "
            "what is idle for half an hour.",
        ),
        *_list_requests("UNEXPLAINED", verdict.unexplained, begun),
        *_list_requests("CROSSED, LOST OR HUNG", verdict.bad, begun),
        *(
            Table(title, ("",), tuple((line,) for line in lines[:SHOWN]))
            for title, lines in (
                ("LEFT BEHIND", left),
                ("STRAY ANSWERS", books.strays),
                ("Faults that could not be done", trouble),
            )
            if lines
        ),
    )
    bad = Counter(one.outcome or "hung" for one in verdict.bad)
    goals = [
        Goal("answers that were crossed", bad["crossed"] + len(books.strays), 0, 0),
        Goal("answers that were lost", bad["lost"], 0, 0),
        Goal("calls that hung", bad["hung"], 0, 0),
        Goal("errors that no fault explains", len(verdict.unexplained), 0, 0),
        Goal("processes left behind", len(left), 0, 0),
        Goal("the gateway still runs at the end", float(alive), 1, 0, at_least=True),
    ]
    if options.minutes >= LONG_MINUTES:
        memory, descriptors = trends[0], trends[1]
        goals += [
            Goal(
                "memory of the gateway, MB a minute beyond doubt",
                memory.per_minute - memory.doubt,
                SLOPE_MB,
                0,
            ),
            Goal(
                "descriptors a minute beyond doubt",
                descriptors.per_minute - descriptors.doubt,
                SLOPE_FDS,
                0,
            ),
        ]
    print(
        f"{options.backends} servers, {options.clients} clients "
        f"({', '.join(f'{n} {k}' for k, n in mix.items())}), "
        f"{options.minutes:g} min, seed {options.seed}: "
        f"{asked / options.minutes / 60:.0f} requests/s"
    )
    return Report(
        "soak",
        tables,
        tuple(goals),
        {"mix": dict(mix), "outcomes": dict(verdict.outcomes), "seed": options.seed},
    )


def _by_kind(books: Books) -> tuple[tuple[Cell, ...], ...]:
    kinds: dict[str, list[Asked]] = {}
    for one in books.asked:
        kinds.setdefault(one.what, []).append(one)
    return tuple(
        (
            what,
            len(some),
            sum(one.outcome == "ok" for one in some),
            sum(one.outcome == "error" for one in some),
            *(
                (percentile(taken, 0.5) * 1000, percentile(taken, 0.99) * 1000, max(taken))
                if taken
                else (None,) * 3
            ),
        )
        for what, some in sorted(kinds.items())
        for taken in [[one.ended - one.sent for one in some if one.outcome in ("ok", "error")]]
    )


def _trends(samples: list[Sample]) -> list[Trend]:
    at = [one.at for one in samples]
    columns = {
        "memory, MB": [one.rss_mb for one in samples],
        "descriptors": [float(one.fds) for one in samples],
        "threads": [float(one.threads) for one in samples],
        "server processes": [float(one.servers) for one in samples],
        "script processes": [float(one.sandboxes) for one in samples],
        "their memory, MB": [one.sandbox_mb for one in samples],
    }
    return [trend(name, at, figures) for name, figures in columns.items()]


def _list_requests(title: str, some: list[Asked], begun: float) -> list[Table]:
    if not some:
        return []
    rows = tuple(
        (
            f"{one.sent - begun:.2f}",
            f"{one.ended - begun:.2f}",
            one.client,
            one.what,
            one.outcome,
            one.kind,
            ", ".join(sorted(one.needs - {one.client})),
            one.said[:300],
        )
        for one in some[:SHOWN]
    )
    columns = ("sent", "ended", "who", "what", "outcome", "kind", "needs", "said")
    return [Table(f"{title}: {len(some)}", columns, rows)]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--backends", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--rate", type=float, default=100.0, help="actions of all clients in a second, about"
    )
    parser.add_argument("--faults", type=float, default=50.0, help="faults in a minute, about")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="copy the logs of the gateways there"
    )
    options = parser.parse_args()
    if options.smoke:
        options.minutes = min(options.minutes, 1.0)
    options.check = True
    with processes.scratch() as folder:
        report = asyncio.run(soak(options, folder))
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            for log in folder.glob("*.log"):
                shutil.copy(log, options.keep)
    return conclude(report, options)


if __name__ == "__main__":
    sys.exit(main())
