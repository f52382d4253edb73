"""Provides a vector for every tool: from the vector file, else from the encoder, in the background.

Search works meanwhile: a tool without a vector is found by its words.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import zip_longest

from portico.catalog.entries import compose_tool_text
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.search import Encoder, EncoderUnavailable, Index, Vector, compute_text_key
from portico.storage.search_files import VectorFile

_BATCH = 64
"""Documents encoded between two checks for changes: about half a second."""


class Embeddings:
    def __init__(self, encoder: Encoder, vector_file: VectorFile) -> None:
        self.encoder = encoder
        self._vector_file = vector_file
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Stop encoding; a running batch ends within a document or two and is saved."""
        self._stopped.set()

    def count_missing(self, snapshot: Snapshot) -> int:
        """Return how many tools have no vector yet; 0 where none will be made."""
        if self.encoder.problem or self._stopped.is_set():
            return 0
        return snapshot.index.unencoded_count

    def generate_vectors(self, snapshot: Snapshot) -> Iterator[Mapping[str, Vector]]:
        """Yield missing vectors by address in batches, stored ones first. Blocks."""
        texts: list[dict[str, str]] = []
        keys: dict[str, str] = {}
        for name, ids in snapshot.index.list_unencoded_by_group().items():
            tools = _select_tools(snapshot.servers[name], ids)
            texts.append({tool.address: compose_tool_text(tool) for tool in tools})
            keys |= {address: compute_text_key(text) for address, text in texts[-1].items()}
        stored = self._vector_file.find(set(keys.values()))
        if stored:
            yield {address: stored[key] for address, key in keys.items() if key in stored}
        missing = _interleave_servers(
            {it: text for it, text in server_texts.items() if keys[it] not in stored}
            for server_texts in texts
        )
        with suppress(EncoderUnavailable):
            for start in range(0, len(missing), _BATCH):
                if self._stopped.is_set():
                    return
                yield self._encode_batch(dict(missing[start : start + _BATCH]), keys)

    def _encode_batch(
        self, texts: Mapping[str, str], keys: Mapping[str, str]
    ) -> Mapping[str, Vector]:
        """Encode a batch, or part of it when stopped; saves finished vectors even on error."""
        threads = max(1, (os.cpu_count() or 2) // 2)
        vectors: dict[str, Vector] = {}
        try:
            with closing(self.encoder.encode_documents(texts.values(), threads)) as encoded:
                for address in texts:
                    if self._stopped.is_set():
                        break
                    vectors[address] = next(encoded)
        finally:
            self._vector_file.add({keys[address]: vector for address, vector in vectors.items()})
        return vectors


def gather_batches(batches: Iterator[Mapping[str, Vector]], seconds: float) -> Mapping[str, Vector]:
    """Collect batches for `seconds`, at least one; empty when there are no more. Blocks."""
    vectors: dict[str, Vector] = {}
    deadline = time.monotonic() + seconds
    for batch in batches:
        vectors.update(batch)
        if time.monotonic() >= deadline:
            break
    return vectors


def add_vectors(current: Snapshot, earlier: Snapshot, vectors: Mapping[str, Vector]) -> Index:
    # A tool may have changed under the same name in the meantime.
    return current.index.with_vectors(
        {
            address: vector
            for address, vector in vectors.items()
            if _has_unchanged_tool(current, earlier.tools[address])
        }
    )


def _has_unchanged_tool(snapshot: Snapshot, tool: Tool) -> bool:
    entry = snapshot.servers.get(tool.server)
    return entry is not None and entry.tools.get(tool.name) == tool


def _interleave_servers(servers: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Take one text per server in turn, so that a server of thousands does not delay the others."""
    columns = [texts.items() for texts in sorted(servers, key=len)]
    rounds = zip_longest(*columns)
    return [item for items in rounds for item in items if item is not None]


def _select_tools(entry: ServerEntry, ids: Sequence[str]) -> list[Tool]:
    wanted = set(ids)
    return [tool for tool in entry.tools.values() if tool.address in wanted]
