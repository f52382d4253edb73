"""Measures the console in a real browser: over the recorded fleet, with 100,000 calls on record.

    python -m benchmarks.console [--smoke] [--shared FOLDER] [--json FILE] [--check]

`painted` is when the browser has first drawn something of a screen that was opened with an empty
cache, `complete` when it has drawn the largest part of it, both since the navigation began.
An interaction is from a key or a click until the browser has drawn what it led to (its Event
Timing, which names nothing below 16 ms: those count as 16). The wire is everything that opening
every screen once has transferred, what the screens ask of REST included, until they ask no more.

The cost of an open console is measured in turns with none open: clients call a tool as fast as they
are answered, while the browser shows the calls as they happen. `CPU` is the gateway's own for each
call; calls a second are of a machine on which the browser draws as well.

Needs Chromium and its driver (Debian: `apt-get install chromium chromium-driver`).
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import psutil
from tests.console.browser import Browser, BrowserMissing, open_browser, wait_until

from benchmarks import fleet, processes, programs
from benchmarks.console_record import CALLS, write_record
from benchmarks.latency_contestants import Contestant
from benchmarks.light_clients import open_light_clients
from benchmarks.load import crowd
from benchmarks.rounds import Samples, turns
from benchmarks.table import Goal, Report, Table, arguments, conclude

ROUNDS, SMOKE_ROUNDS = 7, 1
TURN_S, SMOKE_TURN_S = 3.0, 0.5
THROUGHPUT_ROUNDS = 9
CLIENTS = 8
SMOKE_CALLS = 5_000
LISTED_S = 120.0
MOST_PAINT_MS, MOST_INTERACTION_MS, MOST_BYTES, LEAST_THROUGHPUT = 200.0, 50.0, 250_000, 0.98
LEAST_EVENT_MS = 16.0
STEADY_S = 0.5
SCREENS = {
    "overview": ".figures",
    "servers": "[role=row] a",
    "tools": "[role=row] a",
    "activity": "[role=row] a",
    "tools?q=create%20an%20issue": ".results li",
}
"""Each screen, and what is there when it shows something."""
OBSERVE = """
window.taken = [];
const keep = list => taken.push(...list.getEntries().map(e => e.duration));
const observer = new PerformanceObserver(keep);
observer.observe({type: 'event', durationThreshold: 16});
observer.observe({type: 'first-input'});
"""
PAINTED = """
const done = arguments[0];
const first = performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0;
new PerformanceObserver(list => done([first, list.getEntries().at(-1).startTime]))
  .observe({type: 'largest-contentful-paint', buffered: true});
"""
AFTER_FRAMES = (
    "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame("
    "() => setTimeout(() => done(taken.splice(0)), 30)))"
)


@dataclass(frozen=True)
class Place:
    """A gateway that is served, and its process."""

    root: str
    process: psutil.Process
    tools: int


@contextlib.contextmanager
def serve_fleet(shared: Path | None, calls: int) -> Generator[Place]:
    """Serve the recorded fleet, an echo server, and a record of so many calls."""
    with processes.scratch() as folder:
        servers = fleet.servers(shared, folder / "recordings")
        tools = [
            (recording["slug"], tool["name"])
            for recording in fleet.recordings(shared)
            for tool in recording["tools"]
            if is_for_models(tool)
        ]
        asyncio.run(write_record(folder / "data", tools, calls))
        command = programs.command("upstream")
        servers["echo"] = {"command": command[0], "args": command[1:], "idle_s": 0}
        port = processes.free_port()
        settings = {"port": port}
        record = {"max_calls": 10_000_000}
        config = processes.write_config(
            folder, {"servers": servers, "gateway": settings, "usage": record}
        )
        serve = [*processes.portico(), "serve", "--config", str(config)]
        with processes.listening(port, serve, folder) as process:
            root = f"http://127.0.0.1:{port}"
            wait_until(lambda: count_tools(root) > len(tools), LISTED_S)
            yield Place(root, process, count_tools(root))


def is_for_models(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool is shown to others than apps."""
    app = tool.get("_meta", {}).get("ui", {})
    return "model" in app.get("visibility", ["model"])


def count_tools(root: str) -> int:
    return int(httpx2.get(f"{root}/api/v1/stats", timeout=60).json()["tools"])


# --- paint


def measure_paints(
    browser: Browser, place: Place, rounds: int
) -> tuple[dict[str, Samples], dict[str, Samples]]:
    """Return the milliseconds until each screen is painted, and complete, by screen."""
    painted = {screen: Samples() for screen in SCREENS}
    complete = {screen: Samples() for screen in SCREENS}
    for _, screen in turns(list(SCREENS), rounds):
        browser.open("about:blank")
        browser.cdp("Network.clearBrowserCache")
        browser.open(f"{place.root}/console/{screen}")
        browser.wait_for(SCREENS[screen])
        first, last = browser.run_async(PAINTED)
        painted[screen].rounds.append([first])
        complete[screen].rounds.append([last])
    return painted, complete


def measure_wire(browser: Browser, place: Place) -> tuple[int, int]:
    """Return the bytes of the console's own files, and of what its screens have asked for."""
    sizes = (
        "return performance.getEntriesByType('resource').concat("
        "performance.getEntriesByType('navigation')).map(e => [e.name, e.transferSize])"
    )
    browser.open("about:blank")
    browser.cdp("Network.clearBrowserCache")
    own = 0
    asked = 0
    for screen, selector in SCREENS.items():
        browser.open(f"{place.root}/console/{screen}")
        browser.wait_for(selector)
        for name, size in _wait_until_steady(browser, sizes):
            if "/api/" in name:
                asked += size
            else:
                own += size
    return own, asked


def _wait_until_steady(browser: Browser, script: str) -> list[tuple[str, int]]:
    """Return what a script finds, once it finds the same for half a second."""
    found: list[tuple[str, int]] = []
    since = time.monotonic()
    while time.monotonic() - since < STEADY_S:
        time.sleep(STEADY_S / 5)
        latest = browser.run(script)
        if latest != found:
            found = latest
            since = time.monotonic()
    return found


# --- interaction


def list_interactions(
    browser: Browser, root: str
) -> Mapping[str, tuple[str, Callable[[], object], str]]:
    """Return by name: the address to begin at, what is done, and what is there then."""
    return {
        "a letter goes to another screen": (
            f"{root}/console/servers",
            lambda: browser.press("g", "t"),
            ".table[aria-label=Tools] [role=row] a",
        ),
        "Enter searches": (
            f"{root}/console/tools?q=calendar",
            lambda: (browser.press("/"), browser.press(*"event", "Enter")),
            ".results li",
        ),
        "a letter filters the servers": (
            f"{root}/console/servers",
            lambda: browser.fill("input[aria-label='Filter servers']", "gi"),
            "[role=row] a",
        ),
        "a key scrolls the tools": (
            f"{root}/console/tools",
            lambda: browser.press("Down", "Down", "Down", "Down"),
            "[role=row] a",
        ),
        "a click opens a tool": (
            f"{root}/console/tools",
            lambda: browser.click("a.row-link"),
            ".try",
        ),
        "a click opens a server": (
            f"{root}/console/servers",
            lambda: browser.click("a.row-link"),
            ".facts",
        ),
        "a click changes the colours": (
            f"{root}/console/tools",
            lambda: browser.click("button[title=Colours]"),
            "[role=row] a",
        ),
        "a click filters 100,000 calls": (
            f"{root}/console/activity",
            lambda: (browser.run("document.querySelector('select').focus()"), browser.press("f")),
            "[role=row] .state[data-tone=bad]",
        ),
    }


def measure_interactions(browser: Browser, place: Place, rounds: int) -> dict[str, Samples]:
    """Return the milliseconds from input to paint, the slowest of each interaction, by name."""
    found = list_interactions(browser, place.root)
    measured = {name: Samples() for name in found}
    for _, name in turns(list(found), rounds):
        address, act, result = found[name]
        browser.open(address)
        browser.wait_for(".connection", "live")
        browser.wait_for("[role=row] a, .results li")
        browser.run(OBSERVE)
        browser.run("document.querySelector('.table')?.focus()")
        act()
        browser.wait_for(result)
        taken = browser.run_async(AFTER_FRAMES)
        measured[name].rounds.append([max([LEAST_EVENT_MS, *taken])])
    return measured


# --- throughput


@dataclass(frozen=True)
class Throughput:
    """What clients got of the gateway, with and without a console, by round."""

    rates: Mapping[str, Samples]
    cpu_us: Mapping[str, Samples]


CLOSED, OPEN = "no console open", "Activity open"


async def measure_throughput(
    browser: Browser, place: Place, rounds: int, turn_s: float
) -> Throughput:
    """Let clients call, in turns with and without a console that shows their calls."""
    result = Throughput({CLOSED: Samples(), OPEN: Samples()}, {CLOSED: Samples(), OPEN: Samples()})
    contestant = Contestant("portico", f"{place.root}/mcp", "call_tool")
    numbers = count()
    async with open_light_clients(CLIENTS, f"{place.root}/mcp", "modern") as clients:
        await crowd(clients, contestant, turn_s, numbers)
        for _, name in turns((CLOSED, OPEN), rounds):
            address = "about:blank" if name == CLOSED else f"{place.root}/console/activity"
            await asyncio.to_thread(browser.open, address)
            if name == OPEN:
                await asyncio.to_thread(browser.wait_for, ".connection", "live")
                await asyncio.to_thread(browser.wait_for, "[role=row] a")
            await asyncio.sleep(turn_s / 5)
            before = _cpu_s(place.process)
            level = await crowd(clients, contestant, turn_s, numbers)
            spent = _cpu_s(place.process) - before
            result.rates[name].rounds.append(level.rates)
            result.cpu_us[name].rounds.append([spent / len(level.seconds) * 1e6])
    return result


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


# --- report


def measure(options: argparse.Namespace) -> Report:
    is_smoke = options.smoke
    rounds = SMOKE_ROUNDS if is_smoke else ROUNDS
    calls = SMOKE_CALLS if is_smoke else CALLS
    with serve_fleet(options.shared, calls) as place, open_browser() as browser:
        print(f"  {place.tools:,} tools, {calls:,} calls", file=sys.stderr, flush=True)
        browser.open(f"{place.root}/console")  # the browser's own start is not the console's
        browser.wait_for(".figures")
        own_bytes, asked_bytes = measure_wire(browser, place)
        painted, complete = measure_paints(browser, place, rounds)
        interactions = measure_interactions(browser, place, rounds)
        throughput_rounds = SMOKE_ROUNDS if is_smoke else THROUGHPUT_ROUNDS
        turn_s = SMOKE_TURN_S if is_smoke else TURN_S
        throughput = asyncio.run(measure_throughput(browser, place, throughput_rounds, turn_s))
    return make_report(
        place.tools, calls, (own_bytes, asked_bytes), painted, complete, interactions, throughput
    )


def make_report(
    tools: int,
    calls: int,
    wire: tuple[int, int],
    painted: Mapping[str, Samples],
    complete: Mapping[str, Samples],
    interactions: Mapping[str, Samples],
    throughput: Throughput,
) -> Report:
    rate_ratio = throughput.rates[OPEN].ratio_to(throughput.rates[CLOSED])
    cpu_ratio = throughput.cpu_us[OPEN].ratio_to(throughput.cpu_us[CLOSED])
    slowest_paint = max(one.percentile(0.5) for one in painted.values())
    slowest_interaction = max(one.percentile(0.5) for one in interactions.values())
    return Report(
        "console",
        (
            Table(
                f"A screen with an empty cache, ms ({tools:,} tools, {calls:,} calls on record)",
                ("screen", "painted, median", "slowest", "complete, median"),
                tuple(
                    (name, median(at.all), max(at.all), median(complete[name].all))
                    for name, at in painted.items()
                ),
            ),
            Table(
                "From input to paint, ms",
                ("interaction", "median", "slowest"),
                tuple((name, median(at.all), max(at.all)) for name, at in interactions.items()),
            ),
            Table(
                "Over the wire, every screen once, bytes",
                ("", "bytes"),
                (("the console's files", wire[0]), ("answers of REST", wire[1])),
            ),
            Table(
                f"{CLIENTS} clients that call without a pause",
                ("", "calls/s", "beside none", "CPU µs a call", "beside none"),
                tuple(
                    (
                        name,
                        median(throughput.rates[name].all),
                        1.0 if name == CLOSED else rate_ratio,
                        median(throughput.cpu_us[name].all),
                        1.0 if name == CLOSED else cpu_ratio,
                    )
                    for name in (CLOSED, OPEN)
                ),
            ),
        ),
        (
            Goal("first paint of the slowest screen, ms", slowest_paint, MOST_PAINT_MS),
            Goal("the slowest interaction, ms", slowest_interaction, MOST_INTERACTION_MS),
            Goal("bytes over the wire, in all", sum(wire), MOST_BYTES, tolerance=0),
            Goal(
                "calls/s with the console open, of those with none",
                rate_ratio,
                LEAST_THROUGHPUT,
                tolerance=0.02,
                at_least=True,
            ),
        ),
    )


def run(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shared", type=Path, help="the folder with the recorded fleet")
    options = parser.parse_args(argv)
    try:
        report = measure(options)
    except BrowserMissing as missing:
        print(f"SKIPPED: {missing}")
        return 0
    return conclude(report, options)


if __name__ == "__main__":
    sys.exit(run())
