"""Brings every tool its vector: from the file where one is kept, else from the encoder, in the background.

Search works all the while: a tool without a vector is found by its words.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from portico.catalog.documents import documents
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.search import Document, Encoder, EncoderUnavailable, Vector, key_of, text_of
from portico.storage.vector_file import VectorFile

_BATCH = 64
"""Documents encoded between two looks at what changed meanwhile: half a second."""


class Meanings:
    """The encoder, and the vectors that need not be encoded again."""

    def __init__(self, encoder: Encoder, kept: VectorFile) -> None:
        self.encoder = encoder
        self._kept = kept
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Bring no more: whoever is at it ends within a document or two, and keeps what is done."""
        self._stopped.set()

    def missing(self, snapshot: Snapshot) -> int:
        """How many tools have no vector yet; 0 where none will be made."""
        if self.encoder.problem or self._stopped.is_set():
            return 0
        return sum(len(ids) for ids in _unencoded(snapshot).values())

    def bring(self, snapshot: Snapshot) -> Iterator[Mapping[str, Vector]]:
        """Vectors of tools that have none, by address, a batch at a time: first all that are kept. Blocks."""
        texts = {
            document.id: text_of(document)
            for name, ids in _unencoded(snapshot).items()
            for document in _only(snapshot.servers[name], ids)
        }
        keys = {address: key_of(text) for address, text in texts.items()}
        kept = self._kept.find(set(keys.values()))
        if kept:
            yield {address: kept[key] for address, key in keys.items() if key in kept}
        missing = [address for address, key in keys.items() if key not in kept]
        threads = max(1, (os.cpu_count() or 2) // 2)
        try:
            for start in range(0, len(missing), _BATCH):
                batch = missing[start : start + _BATCH]
                vectors: dict[str, Vector] = {}
                with closing(self.encoder.documents([texts[it] for it in batch], threads)) as coming:
                    for address in batch:
                        if self._stopped.is_set():
                            break
                        vectors[address] = next(coming)
                self._kept.add({keys[address]: vector for address, vector in vectors.items()})
                yield vectors
                if self._stopped.is_set():
                    return
        except EncoderUnavailable:
            return


def _unencoded(snapshot: Snapshot) -> dict[str, Sequence[str]]:
    found = {name: snapshot.index.unencoded(name) for name in snapshot.servers}
    return {name: ids for name, ids in found.items() if ids}


def _only(entry: ServerEntry, ids: Sequence[str]) -> Iterator[Document]:
    wanted = set(ids)
    return (document for document in documents(entry) if document.id in wanted)
