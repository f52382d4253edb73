"""A fresh process that opens an index from disk and asks it, for `benchmarks.scale`; what that
costs leaves as JSON.

    python -m benchmarks.scale_probe INDEX QUERIES PASSES

Fresh, because memory can only be measured where nothing else was built; every pass has an encoder
of its own, because an encoder remembers what it was asked.
"""

import json
import sys
import time
from pathlib import Path

import psutil

from portico.search import Encoder, EncoderUnavailable, Index
from portico.storage.search_files import IndexFile

_LIMIT = 10


def main() -> int:
    path, queries, passes = (
        Path(sys.argv[1]),
        json.loads(Path(sys.argv[2]).read_text("utf-8")),
        int(sys.argv[3]),
    )
    process = psutil.Process()
    encoder = fresh_encoder()
    before = process.memory_info().rss
    started = time.perf_counter()
    index = open_index(path, encoder)
    load = time.perf_counter() - started
    loaded = process.memory_info().rss
    times = time_queries(index, queries)
    after = process.memory_info().rss
    for _ in range(passes - 1):
        times += time_queries(open_index(path, fresh_encoder()), queries)
    encoding = fresh_encoder()
    result = {
        "load_s": load,
        "loaded_bytes": loaded - before,
        "asked_bytes": after - before,
        "query_s": times,
        "encode_s": [time_encoding(encoding, query) for query in queries] if encoding else [],
    }
    print(json.dumps(result))
    return 0


def fresh_encoder() -> Encoder | None:
    """An encoder that has been asked nothing but the first question; None where there is none."""
    encoder = Encoder()
    try:
        encoder.encode_query("the first question pays for what is made once")
    except EncoderUnavailable:
        return None
    return encoder


def open_index(path: Path, encoder: Encoder | None) -> Index:
    """The index, mapped into memory."""
    blob = IndexFile(path).load()
    if blob is None:
        raise SystemExit(f"There is no index in {path}.")
    return Index.load(blob, encoder=encoder)


def time_queries(index: Index, queries: list[str]) -> list[float]:
    """CPU seconds of each query, after one that is not counted."""
    index.search("the first question pays for what is made once", _LIMIT)
    times: list[float] = []
    for query in queries:
        started = time.process_time()
        index.search(query, _LIMIT)
        times.append(time.process_time() - started)
    return times


def time_encoding(encoder: Encoder, query: str) -> float:
    """CPU seconds of encoding one query."""
    started = time.process_time()
    encoder.encode_query(query)
    return time.process_time() - started


if __name__ == "__main__":
    raise SystemExit(main())
