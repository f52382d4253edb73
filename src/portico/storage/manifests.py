"""What every server offered last time, on disk, so that search and describe work before any server has started.

A manifest is only as good as the configuration it was made with: it is kept under the server's name together with a
fingerprint of that configuration, and a different fingerprint finds nothing. Definitions are stored as the bytes they
came in; reading thousands of them parses none.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SCHEMA = """
create table if not exists manifests (
  server text primary key, fingerprint text not null, era text not null, hello blob not null,
  offers blob not null, listed_at real not null
) without rowid;
create table if not exists tools (
  server text not null, position integer not null, name text not null, hash text not null,
  definition blob not null, warnings text not null, primary key (server, position)
) without rowid;
create table if not exists indexes (id integer primary key check (id = 1), body blob not null);
"""
_VERSION = 1


@dataclass(frozen=True)
class ToolRow:
    """One tool as it was listed."""

    name: str
    hash: str
    definition: bytes
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What one server offered."""

    server: str
    fingerprint: str
    era: str
    hello: bytes
    offers: bytes
    """Resources, resource templates and prompts as one JSON object."""
    tools: tuple[ToolRow, ...]
    listed_at: float


class Manifests:
    """The manifest file. Calls block for a millisecond or so; writers go through a thread."""

    def __init__(self, path: Path | None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            ":memory:" if path is None else path, check_same_thread=False, isolation_level=None, timeout=10
        )
        if path is not None:
            with contextlib.suppress(OSError):
                path.chmod(0o600)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = normal")
        if self._db.execute("pragma user_version").fetchone()[0] != _VERSION:
            # A manifest can always be listed again, so an older layout is dropped, not migrated.
            self._db.executescript(
                "drop table if exists manifests; drop table if exists tools; drop table if exists indexes;"
            )
            self._db.executescript(_SCHEMA)
            self._db.execute(f"pragma user_version = {_VERSION}")

    def load(self, fingerprints: dict[str, str]) -> dict[str, Manifest]:
        """The manifests of these servers that were made with these fingerprints."""
        with self._lock:
            heads = self._db.execute(
                "select server, fingerprint, era, hello, offers, listed_at from manifests"
            ).fetchall()
            wanted = {head[0]: head for head in heads if fingerprints.get(head[0]) == head[1]}
            rows: dict[str, list[ToolRow]] = {server: [] for server in wanted}
            for server, name, digest, definition, warnings in self._db.execute(
                "select server, name, hash, definition, warnings from tools order by server, position"
            ):
                if server in rows:
                    notes = tuple(warnings.split("\n")) if warnings else ()
                    rows[server].append(ToolRow(name, digest, definition, notes))
        return {
            server: Manifest(server, fingerprint, era, hello, offers, tuple(rows[server]), listed_at)
            for server, fingerprint, era, hello, offers, listed_at in wanted.values()
        }

    def save(self, manifest: Manifest) -> None:
        """Replace what is known about one server."""
        with self._lock, self._transaction():
            self._forget(manifest.server)
            self._db.execute(
                "insert into manifests values (?, ?, ?, ?, ?, ?)",
                (
                    manifest.server,
                    manifest.fingerprint,
                    manifest.era,
                    manifest.hello,
                    manifest.offers,
                    manifest.listed_at or time.time(),
                ),
            )
            self._db.executemany(
                "insert into tools values (?, ?, ?, ?, ?, ?)",
                (
                    (manifest.server, position, tool.name, tool.hash, tool.definition, "\n".join(tool.warnings))
                    for position, tool in enumerate(manifest.tools)
                ),
            )

    def forget(self, servers: Iterable[str]) -> None:
        """Drop what is known about these servers."""
        with self._lock, self._transaction():
            for server in servers:
                self._forget(server)

    def load_index(self) -> bytes | None:
        """The search index as it was last saved."""
        with self._lock:
            row = self._db.execute("select body from indexes").fetchone()
        return row[0] if row else None

    def save_index(self, body: bytes) -> None:
        """Keep a search index in place of the last one."""
        with self._lock:
            self._db.execute("insert or replace into indexes values (1, ?)", (body,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _forget(self, server: str) -> None:
        self._db.execute("delete from manifests where server = ?", (server,))
        self._db.execute("delete from tools where server = ?", (server,))

    @contextlib.contextmanager
    def _transaction(self):  # noqa: ANN202 - a context manager over nothing
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")
