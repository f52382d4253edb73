"""How search grows with the catalog: build, dump, load, query and the re-index of one server.

    python -m benchmarks.search_scale [--shared PATH] [--smoke] [--json FILE]

The catalog is the recorded fleet, then copies of it under other servers in which every third word of a description
and one word of a name are exchanged for words of other tools, so that the vocabulary and its skew stay real.
"""

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from benchmarks.fleet import shared_folder
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from benchmarks.tool_sets import FLEET, document, read_set
from portico.search import Document, Index, fingerprint

_FULL = 100_000
T = TypeVar("T")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shared", type=Path, metavar="PATH", help="folder with retrieval/ and fleet/")
    options = parser.parse_args()
    fleet = read_set(shared_folder(options.shared, "retrieval"), FLEET)
    real = [document(tool) for tool in fleet.tools]
    queries = [question.text for question in fleet.questions]
    sizes = (1_000, len(real)) if options.smoke else (1_000, len(real), 10_000, _FULL)
    rows: list[tuple[Cell, ...]] = []
    goals: list[Goal] = []
    for size in sizes:
        row = measure(enlarged(real, size), queries)
        rows.append((size, *row))
        goals += promises(size, len(real), row)
    columns = (
        "tools",
        "build s",
        "dump MB",
        "load ms",
        "query p50 ms",
        "query p99 ms",
        "one server ms",
        "nothing new ms",
    )
    return conclude(
        Report("search_scale", (Table("Search by size of the catalog", columns, tuple(rows)),), tuple(goals)), options
    )


def measure(documents: Sequence[Document], queries: Sequence[str]) -> tuple[float, ...]:
    """One row: every figure is the median of its repetitions, the build is done once."""
    build, index = timed(lambda: Index.build(documents))
    blob = index.dump()
    load = statistics.median(timed(lambda: Index.load(blob))[0] for _ in range(5))
    times = sorted(timed(lambda query=query: index.search(query, 10))[0] for query in queries for _ in range(3))
    servers = Counter(it.group for it in documents)
    server = sorted(servers, key=lambda name: (servers[name], name))[len(servers) // 2]
    changed = [
        replace(it, hash=it.hash + "'", description=it.description + " Now in colour.")
        for it in documents
        if it.group == server
    ]
    one = statistics.median(timed(lambda: index.replace({server: changed}))[0] for _ in range(5))
    same = statistics.median(timed(lambda: Index.build(documents, index))[0] for _ in range(3))
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    return build, len(blob) / 1e6, 1e3 * load, 1e3 * p50, 1e3 * p99, 1e3 * one, 1e3 * same


def promises(size: int, fleet: int, row: tuple[float, ...]) -> Iterator[Goal]:
    """What the search room promises, on one core of a modest machine."""
    build, _, load, query, _, one, _ = row
    if size == fleet:
        yield Goal(f"{size:,} tools: build, s", build, 1.5)
        yield Goal(f"{size:,} tools: load, ms", load, 20)
        yield Goal(f"{size:,} tools: query p50, ms", query, 1)
    if size == _FULL:
        yield Goal(f"{size:,} tools: load, ms", load, 300)
        yield Goal(f"{size:,} tools: query p50, ms", query, 5)
        yield Goal(f"{size:,} tools: one server, ms", one, 100)


def enlarged(real: Sequence[Document], size: int) -> list[Document]:
    """The first `size` of the real documents and, beyond them, of their varied copies."""
    found = list(real[:size])
    chance = random.Random(7)
    pool = [word for it in real for word in it.description.split()[:40]]
    while len(found) < size:
        source = real[len(found) % len(real)]
        copy = len(found) // len(real)
        found.append(varied(source, f"{source.group}-{copy}", chance, pool))
    return found


def varied(source: Document, server: str, chance: random.Random, pool: Sequence[str]) -> Document:
    """A tool like `source` on another server, saying it in other words."""
    words = [chance.choice(pool) if place % 3 == 2 else word for place, word in enumerate(source.description.split())]
    name = f"{source.name}_{chance.choice(pool).strip('.,:()`').lower()}"
    description = " ".join(words)
    return replace(
        source,
        id=f"{server}/{name}",
        hash=fingerprint(server, name, description),
        group=server,
        server=server,
        name=name,
        description=description,
    )


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """How long the work took, and what it gave. CPU time: the work has one thread and waits for nothing."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


if __name__ == "__main__":
    raise SystemExit(main())
