"""The last snapshot of a registry on disk, and search in it: works offline.

In the folder `registry` of the data folder: `servers.jsonl`, one server a line as the registry said
it, `snapshot.json`, when and from where, and `search.index`, made from the servers by the search
that also finds tools. The index can be made again from the servers.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from portico.errors import PorticoError
from portico.json_text import json_codec
from portico.registry.server_json import MAX_SERVER_JSON_BYTES
from portico.search import (
    ENCODER_NAME,
    VECTOR_WIDTH,
    Encoder,
    EncoderUnavailable,
    Index,
    Ranking,
    SearchDocument,
    UnreadableIndex,
    Vector,
    compose_document_text,
    compute_fingerprint,
    compute_text_key,
    get_shipped_encoder,
)
from portico.storage.data_files import replace_file
from portico.storage.search_files import IndexFile, VectorFile

REGISTRY_FOLDER = "registry"
MAX_SNAPSHOT_BYTES = 512 * 2**20
_BATCH = 64
_EMPTY_WORDS = frozenset({"mcp", "server", "servers"})
"""Words that the name of nearly every server has."""

OnEncoded = Callable[[int, int], None]
"""Is told how many servers are encoded, and how many there are."""


class NoSnapshot(PorticoError):
    """There is no snapshot of a registry yet."""

    kind = "no_snapshot"


@dataclass(frozen=True)
class SnapshotInfo:
    """Where a snapshot came from, and when."""

    url: str
    updated_at: datetime
    count: int


@dataclass(frozen=True)
class FoundServers:
    """Servers that were found, best first, as the registry said them."""

    info: SnapshotInfo
    ranking: Ranking
    servers: tuple[Mapping[str, Any], ...]


class ServerCatalogue:
    """The snapshot of a data folder. Calls block."""

    def __init__(self, data_folder: Path) -> None:
        folder = data_folder / REGISTRY_FOLDER
        self._servers_path = folder / "servers.jsonl"
        self._info_path = folder / "snapshot.json"
        self._index_file = IndexFile(folder / f"search-{ENCODER_NAME}.index")
        self._vector_file = VectorFile(folder / f"vectors-{ENCODER_NAME}.bin", VECTOR_WIDTH)

    def replace(self, url: str, servers: Iterable[Mapping[str, Any]], now: datetime) -> int:
        """Replace the snapshot; return the number of servers. Raises PorticoError if too large."""
        lines: dict[str, bytes] = {}
        size = 0
        for server in servers:
            line = json_codec.dumps(server)
            if len(line) > MAX_SERVER_JSON_BYTES:
                continue  # no usable entry is so large
            size += len(line)
            if size > MAX_SNAPSHOT_BYTES:
                raise PorticoError(f"{url} has more than {MAX_SNAPSHOT_BYTES // 2**20} MiB")
            lines[str(server["name"])] = line
        body = b"".join(lines[name] + b"\n" for name in sorted(lines))
        info = {"url": url, "updated_at": now.isoformat(), "count": len(lines)}
        replace_file(self._servers_path, body)
        replace_file(self._info_path, json_codec.dumps(info))
        return len(lines)

    def load_info(self) -> SnapshotInfo:
        """Return where the snapshot came from; raises NoSnapshot."""
        try:
            found = json_codec.loads(self._info_path.read_bytes())
            return SnapshotInfo(
                str(found["url"]), datetime.fromisoformat(found["updated_at"]), int(found["count"])
            )
        except (OSError, ValueError, TypeError, KeyError):
            raise NoSnapshot(
                "there is no snapshot of a registry yet",
                advice="`portico find --update` fetches one.",
            ) from None

    def read_version(self) -> object:
        """Return a value that changes with the snapshot; None without one."""
        try:
            found = self._servers_path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def iter_servers(self) -> Iterator[dict[str, Any]]:
        """Yield the servers of the snapshot by name; none without one."""
        with suppress(FileNotFoundError), self._servers_path.open("rb") as file:
            for line in file:
                yield json_codec.loads(line)

    def find_server(self, name: str) -> dict[str, Any] | None:
        """Return a server of the snapshot by its exact name."""
        return next((one for one in self.iter_servers() if one["name"] == name), None)

    def build_index(
        self, encoder: Encoder, on_encoded: OnEncoded = lambda done, total: None
    ) -> Index:
        """Index the snapshot, encode what has no vector yet, and keep both."""
        index = make_index(self.iter_servers(), encoder, self._vector_file, on_encoded)
        self._index_file.save(index.dump())
        return index

    def search(self, query: str, limit: int, encoder: Encoder | None) -> FoundServers:
        """Return the servers that fit a query best, without an encoder by words alone; raises
        NoSnapshot."""
        info = self.load_info()
        index = self._load_index(encoder)
        ranking = index.search(query, limit)
        wanted = [name for hit in ranking.hits for name in (hit.id, *hit.duplicates)]
        found = {one["name"]: one for one in self.iter_servers() if one["name"] in set(wanted)}
        return FoundServers(info, ranking, tuple(found[name] for name in wanted if name in found))

    def _load_index(self, encoder: Encoder | None) -> Index:
        body = self._index_file.load()
        if body is not None and not self._is_index_old():
            with suppress(UnreadableIndex):
                return Index.load(body, encoder=encoder)
        return self.build_index(encoder or get_shipped_encoder())

    def _is_index_old(self) -> bool:
        """Return whether the servers were replaced after the index was made."""
        path = self._index_file.path
        try:
            return path is None or path.stat().st_mtime_ns < self._servers_path.stat().st_mtime_ns
        except OSError:
            return True


def make_index(
    servers: Iterable[Mapping[str, Any]],
    encoder: Encoder,
    vector_file: VectorFile,
    on_encoded: OnEncoded = lambda done, total: None,
) -> Index:
    """Return an index of servers; without a usable encoder, of their words alone."""
    documents = {document.id: document for document in map(to_document, servers)}
    index = Index.build(documents.values(), encoder=encoder)
    texts = {id_: compose_document_text(document) for id_, document in documents.items()}
    keys = {id_: compute_text_key(text) for id_, text in texts.items()}
    stored = vector_file.find(set(keys.values()))
    vectors = {id_: stored[key] for id_, key in keys.items() if key in stored}
    missing = [id_ for id_ in texts if id_ not in vectors]
    with suppress(EncoderUnavailable):
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            added = _encode(encoder, [texts[id_] for id_ in batch])
            vectors.update(zip(batch, added, strict=True))
            vector_file.add(dict(zip((keys[id_] for id_ in batch), added, strict=True)))
            on_encoded(len(vectors), len(texts))
    return index.with_vectors(vectors)


def _encode(encoder: Encoder, texts: Sequence[str]) -> list[Vector]:
    threads = max(1, (os.cpu_count() or 2) // 2)
    with closing(encoder.encode_documents(texts, threads)) as encoded:
        return list(encoded)


def to_document(server: Mapping[str, Any]) -> SearchDocument:
    """Return what is searched of a server: its own name, its title and what it says it does."""
    id_ = str(server["name"])
    namespace, _, own = id_.partition("/")
    title = str(server.get("title") or "")
    description = str(server.get("description") or "")
    words = [word for word in own.replace("_", "-").split("-") if word.lower() not in _EMPTY_WORDS]
    return SearchDocument(
        id=id_,
        hash=compute_fingerprint(id_, title, description),
        group=id_,
        name="-".join(words) or namespace.rpartition(".")[2],
        title=title,
        server=namespace.rpartition(".")[2],
        description=description,
    )


def now_utc() -> datetime:
    """Return the time that a snapshot gets."""
    return datetime.now(UTC)
