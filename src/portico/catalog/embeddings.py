"""Brings every tool its vector: from the file where one is kept, else from the encoder, in the
background.

Search works all the while: a tool without a vector is found by its words.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

from portico.catalog.search_documents import compose_tool_text
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.search import Encoder, EncoderUnavailable, Index, Vector, compute_text_key
from portico.storage.vector_file import VectorFile

_BATCH = 64
"""Documents encoded between two looks at what changed meanwhile: half a second."""


class Embeddings:
    """The encoder, and the vectors that need not be encoded again."""

    def __init__(self, encoder: Encoder, vector_file: VectorFile) -> None:
        self.encoder = encoder
        self._vector_file = vector_file
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Bring no more: whoever is at it ends within a document or two, and keeps what is done."""
        self._stopped.set()

    def count_missing(self, snapshot: Snapshot) -> int:
        """How many tools have no vector yet; 0 where none will be made."""
        if self.encoder.problem or self._stopped.is_set():
            return 0
        return snapshot.index.unencoded_count

    def generate_vectors(self, snapshot: Snapshot) -> Iterator[Mapping[str, Vector]]:
        """Vectors of tools that have none, by address, a batch at a time: first all that are kept.
        Blocks."""
        texts = {
            name: {
                address: compose_tool_text(tool)
                for address, tool in _select_tools(snapshot.servers[name], ids)
            }
            for name, ids in snapshot.index.list_unencoded_by_group().items()
        }
        keys = {
            address: compute_text_key(text)
            for mine in texts.values()
            for address, text in mine.items()
        }
        kept = self._vector_file.find(set(keys.values()))
        if kept:
            yield {address: kept[key] for address, key in keys.items() if key in kept}
        missing = _interleave_servers(
            {it: text for it, text in mine.items() if keys[it] not in kept}
            for mine in texts.values()
        )
        with suppress(EncoderUnavailable):
            for start in range(0, len(missing), _BATCH):
                if self._stopped.is_set():
                    return
                yield self._encode_batch(dict(missing[start : start + _BATCH]), keys)

    def _encode_batch(
        self, texts: Mapping[str, str], keys: Mapping[str, str]
    ) -> Mapping[str, Vector]:
        """A batch, or what there was time for; all that was done is kept, also if the encoder fails
        at the next."""
        threads = max(1, (os.cpu_count() or 2) // 2)
        vectors: dict[str, Vector] = {}
        try:
            with closing(self.encoder.encode_documents(texts.values(), threads)) as coming:
                for address in texts:
                    if self._stopped.is_set():
                        break
                    vectors[address] = next(coming)
        finally:
            self._vector_file.add({keys[address]: vector for address, vector in vectors.items()})
        return vectors


def gather_batches(batches: Iterator[Mapping[str, Vector]], seconds: float) -> Mapping[str, Vector]:
    """What is brought from now until `wait` seconds have passed, at least one batch; nothing at the
    end. Blocks."""
    vectors: dict[str, Vector] = {}
    until = time.monotonic() + seconds
    for batch in batches:
        vectors.update(batch)
        if time.monotonic() >= until:
            break
    return vectors


def add_vectors(current: Snapshot, earlier: Snapshot, vectors: Mapping[str, Vector]) -> Index:
    """The index of a snapshot, with vectors that were made for an earlier one."""
    # A server that was listed anew meanwhile may say something else under the same name.
    return current.index.with_vectors(
        {it: row for it, row in vectors.items() if _has_unchanged_tool(current, earlier.tools[it])}
    )


def _has_unchanged_tool(snapshot: Snapshot, tool: Tool) -> bool:
    """Whether the tool is there and says what it said."""
    entry = snapshot.servers.get(tool.server)
    return (
        entry is not None and tool.name in entry.tools and entry.tools[tool.name].hash == tool.hash
    )


def _interleave_servers(servers: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Everybody's first, then everybody's second: a server of thousands does not make the others
    wait."""
    turns = [
        (turn, item)
        for texts in sorted(servers, key=len)
        for turn, item in enumerate(texts.items())
    ]
    return [item for _, item in sorted(turns, key=lambda it: it[0])]


def _select_tools(entry: ServerEntry, ids: Sequence[str]) -> Iterator[tuple[str, Tool]]:
    wanted = set(ids)
    return ((tool.address, tool) for tool in entry.tools.values() if tool.address in wanted)
