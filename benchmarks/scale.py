"""Measures how search grows with the catalog: build, load, memory, query, and the re-index of one
server.

    python -m benchmarks.scale [--shared PATH] [--cache DIR] [--smoke] [--json FILE] [--check]

The catalog is the recorded fleet, then varied copies of its tools (`benchmarks.synthetic`), whose
vectors are their source's with noise. Queries are the fleet's, a page of ten, encoding included, in
a process that has one core and the index mapped into memory. Encoding tools is timed on a sample of
them and stated for 5,000, never added to the times of other sizes.
"""

import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.fleet import folder_of
from benchmarks.processes import REPOSITORY, scratch
from benchmarks.synthetic import enlarge, vectors_for
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from benchmarks.tool_sets import document, read_questions, read_tools
from benchmarks.vector_cache import default_folder, vectors_of
from portico.search import (
    Encoder,
    EncoderUnavailable,
    Index,
    SearchDocument,
    Vector,
    compose_document_text,
)

_TYPICAL, _FULL = 5_000, 100_000
_SIZES = (1_000, _TYPICAL, 10_000, _FULL)
_SMOKE_SIZES = (200, 1_000)
_SMOKE_REAL = 100
_SAMPLE, _SMOKE_SAMPLE = 240, 32
_PASSES = 5
_CORES = 2
_PROBE_S = 600.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measured:
    """One size of catalog. Seconds are CPU time but for `load`, which is the clock's."""

    tools: int
    words_s: float
    vectors_s: float
    file_bytes: int
    load_s: float
    memory_bytes: int
    query_s: Sequence[float]
    encode_s: Sequence[float]
    server_tools: int
    server_s: float
    nothing_new_s: float

    @property
    def p50(self) -> float:
        """The median query."""
        return float(np.percentile(self.query_s, 50))

    def row(self) -> tuple[Cell, ...]:
        """Seconds, megabytes and milliseconds, as `_COLUMNS` has them."""
        p99 = float(np.percentile(self.query_s, 99))
        encode = float(np.percentile(self.encode_s, 50)) if self.encode_s else None
        megabytes = (self.file_bytes / 1e6, self.memory_bytes / 1e6)
        build, load = self.words_s, 1e3 * self.load_s
        query = (1e3 * self.p50, 1e3 * p99, None if encode is None else 1e3 * encode)
        update = (1e3 * self.server_s, self.server_tools, 1e3 * self.nothing_new_s)
        return (self.tools, build, megabytes[0], load, megabytes[1], *query, *update)


_COLUMNS = (
    "tools",
    "words s",
    "file MB",
    "load ms",
    "memory MB",
    "query p50 ms",
    "query p99 ms",
    "of it encoding",
    "one server ms",
    "its tools",
    "nothing new ms",
)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shared", type=Path, metavar="PATH", help="folder with fleet/")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=default_folder(),
        help="keeps vectors between runs",
    )
    options = parser.parse_args()
    fleet = folder_of(options.shared)
    real = [document(tool) for tool in read_tools(fleet / "servers.jsonl.gz")]
    queries = [question.text for question in read_questions(fleet / "queries_dev.jsonl.gz")]
    if options.smoke:
        real = real[:: len(real) // _SMOKE_REAL]
    encoder = Encoder()
    per_document, vectors = 0.0, dict[str, Vector]()
    try:
        per_document = encoding_s(real, encoder, _SMOKE_SAMPLE if options.smoke else _SAMPLE)
        vectors = vectors_of(real, encoder, options.cache)
    except EncoderUnavailable as error:
        print(
            f"search by meaning is off, these are figures of words alone: {error}", file=sys.stderr
        )
    sizes, passes = (_SMOKE_SIZES, 1) if options.smoke else (_SIZES, _PASSES)
    found: list[Measured] = []
    for size in sizes:
        print(f"{size:,} tools …", file=sys.stderr, flush=True)
        found.append(measure(enlarge(real, size), vectors, queries, passes))
    return conclude(
        Report("scale", tuple(tables(found, per_document)), tuple(goals(found, per_document))),
        options,
    )


def measure(
    documents: Sequence[SearchDocument],
    real: Mapping[str, Vector],
    queries: Sequence[str],
    passes: int,
) -> Measured:
    """One size."""
    vectors = vectors_for(documents, real) if real else {}
    words, plain = measure_time(lambda: Index.build(documents))
    with_vectors, index = measure_time(lambda: plain.with_vectors(vectors))
    blob = index.dump()
    with scratch() as folder:
        (folder / "index").write_bytes(blob)
        (folder / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
        asked = [probe(folder, passes if first else 1) for first in (True, False, False)]
    server, changed = one_server_changed(documents)
    renewed = {it.id: vectors[it.id] for it in changed if it.id in vectors}
    updates = [
        measure_time(lambda: index.replace({server: changed}).with_vectors(renewed))[0]
        for _ in range(5)
    ]
    same = [measure_time(lambda: Index.build(documents, index))[0] for _ in range(3)]
    return Measured(
        len(documents),
        words,
        with_vectors,
        len(blob),
        statistics.median(one["load_s"] for one in asked),
        asked[0]["asked_bytes"],
        asked[0]["query_s"],
        asked[0]["encode_s"],
        len(changed),
        statistics.median(updates),
        statistics.median(same),
    )


def probe(folder: Path, passes: int) -> Mapping[str, Any]:
    """Return what `benchmarks.scale_probe` found, on one core."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.scale_probe",
        str(folder / "index"),
        str(folder / "queries.json"),
    ]
    ended = subprocess.run(
        [*command, str(passes)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        timeout=_PROBE_S,
        check=True,
        # Libraries start a thread for each core they may use; where cores cannot be forbidden, the
        # variables help.
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=_one_core() if sys.platform == "linux" else None,
    )
    return json.loads(ended.stdout)


def encoding_s(documents: Sequence[SearchDocument], encoder: Encoder, sample: int) -> float:
    """Seconds by the clock that one document takes to encode, on two cores."""
    texts = [
        compose_document_text(it) for it in documents[:: max(1, len(documents) // sample)][:sample]
    ]
    encoder.load()
    encoder.encode_document(texts[0])
    started = time.perf_counter()
    count = sum(1 for _ in encoder.encode_documents(texts, threads=_CORES))
    return (time.perf_counter() - started) / count


def one_server_changed(documents: Sequence[SearchDocument]) -> tuple[str, list[SearchDocument]]:
    """A server of middling size, and its tools with new descriptions."""
    servers = Counter(it.group for it in documents)
    server = sorted(servers, key=lambda name: (servers[name], name))[len(servers) // 2]
    return server, [
        replace(it, hash=it.hash + "'", description=it.description + " Now in colour.")
        for it in documents
        if it.group == server
    ]


def tables(found: Sequence[Measured], per_document: float) -> Iterator[Table]:
    """By size, and what encoding tools takes."""
    note = (
        "words: building without vectors · memory: growth of the process, the mapped "
        "file included, its encoder not · "
        "one server: its words read again, its vectors given"
    )
    yield Table("Search by size of the catalog", _COLUMNS, tuple(it.row() for it in found), note)
    if per_document:
        row = (1e3 * per_document, _TYPICAL * per_document, _FULL * per_document)
        columns = ("ms a tool", f"s for {_TYPICAL:,}", f"s for {_FULL:,}")
        yield Table(f"Encoding tools, {_CORES} threads, in the background", columns, (row,))


def goals(found: Sequence[Measured], per_document: float) -> Iterator[Goal]:
    """Return what was promised of search at these sizes."""
    for it in found:
        if it.tools == _TYPICAL:
            yield Goal(f"{it.tools:,} tools: query p50, ms", 1e3 * it.p50, 5)
            yield Goal(f"{it.tools:,} tools: load, ms", 1e3 * it.load_s, 300)
            yield Goal(
                f"{it.tools:,} tools: build with vectors, s",
                it.words_s + it.tools * per_document,
                60,
            )
        if it.tools == _FULL:
            yield Goal(f"{it.tools:,} tools: query p50, ms", 1e3 * it.p50, 30)
            yield Goal(
                f"{it.tools:,} tools: build with known vectors, s", it.words_s + it.vectors_s, 60
            )
            yield Goal(f"{it.tools:,} tools: one changed server, ms", 1e3 * it.server_s, 100)


def measure_time(work: Callable[[], T]) -> tuple[float, T]:
    """Return how long the work took, and what it gave. CPU time: the work has one thread and waits
    for
    nothing."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def _one_core() -> Callable[[], None]:
    core = max(os.sched_getaffinity(0))
    return functools.partial(os.sched_setaffinity, 0, {core})


if __name__ == "__main__":
    raise SystemExit(main())
