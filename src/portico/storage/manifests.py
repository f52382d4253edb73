"""What every server offered last time, on disk, so that search and describe work before any server has started.

A manifest is only as good as the configuration it was made with: it is kept under the server's name together with a
fingerprint of that configuration, and a different fingerprint finds nothing. Definitions are stored as the bytes they
came in; reading thousands of them parses none.

All of it can be listed again, so nothing here may cost more than itself: a file that cannot be read is set aside and
begun anew, one that cannot be reached is replaced by memory, what cannot be written is only not remembered. Each is
logged.
"""

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_SCHEMA = (
    """create table manifests (
      server text primary key, fingerprint text not null, era text not null, hello blob not null,
      offers blob not null, listed_at real not null
    ) without rowid""",
    """create table tools (
      server text not null, position integer not null, name text not null, hash text not null,
      definition blob not null, warnings text not null, primary key (server, position)
    ) without rowid""",
    "create table indexes (id integer primary key check (id = 1), body blob not null)",
)
_TABLES = ("manifests", "tools", "indexes")
_VERSION = 1
_OURS = 0x506F7274
"""`application_id` of the file: tells our file from any other SQLite database that lies in its place."""
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""Errors of a file that no waiting mends; `SQLITE_ERROR` is a table or column that is not there."""
_READ_PATIENCE_MS = 1_000
"""Starting does not wait for a locked file longer than this."""
_WRITE_PATIENCE_MS = 10_000


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
        self._path = path
        self._lock = threading.Lock()
        self._db = self._open()

    def load(self, fingerprints: dict[str, str]) -> dict[str, Manifest]:
        """The manifests of these servers that were made with these fingerprints."""
        return self._attempt("read", _READ_PATIENCE_MS, lambda db: _load(db, fingerprints), {})

    def save(self, manifest: Manifest) -> None:
        """Replace what is known about one server."""
        self._attempt("written", _WRITE_PATIENCE_MS, lambda db: _save(db, manifest), None)

    def forget(self, servers: Iterable[str]) -> None:
        """Drop what is known about these servers."""
        names = tuple(servers)

        def forget(db: sqlite3.Connection) -> None:
            with _transaction(db, "immediate"):
                for server in names:
                    _forget(db, server)

        self._attempt("written", _WRITE_PATIENCE_MS, forget, None)

    def load_index(self) -> bytes | None:
        """The search index as it was last saved."""

        def load(db: sqlite3.Connection) -> bytes | None:
            row = db.execute("select body from indexes").fetchone()
            return row[0] if row else None

        return self._attempt("read", _READ_PATIENCE_MS, load, None)

    def save_index(self, body: bytes) -> None:
        """Keep a search index in place of the last one."""

        def save(db: sqlite3.Connection) -> None:
            db.execute("insert or replace into indexes values (1, ?)", (body,))

        self._attempt("written", _WRITE_PATIENCE_MS, save, None)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _attempt(
        self, done: str, patience_ms: int, work: Callable[[sqlite3.Connection], Answer], otherwise: Answer
    ) -> Answer:
        with self._lock:
            for _ in range(2):
                try:
                    self._db.execute(f"pragma busy_timeout = {patience_ms}")
                    return work(self._db)
                except sqlite3.Error as error:
                    if not _is_broken(error) or self._path is None:
                        logger.warning("the manifest %s cannot be %s: %s", self._path or "in memory", done, error)
                        break
                    self._db.close()
                    self._db = self._begin_anew(self._path, error)
        return otherwise

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return _opened(":memory:")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return _opened(self._path)
        except sqlite3.Error as error:
            return self._begin_anew(self._path, error) if _is_broken(error) else _in_memory(self._path, error)
        except OSError as error:
            return _in_memory(self._path, error)

    def _begin_anew(self, path: Path, error: sqlite3.Error) -> sqlite3.Connection:
        aside = path.with_name(f"{path.name}.unreadable")
        try:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
            logger.warning("the manifest %s cannot be used (%s): it is now %s, and begun anew", path, error, aside.name)
            return _opened(path)
        except (OSError, sqlite3.Error) as trouble:
            return _in_memory(path, trouble)


class _Foreign(sqlite3.DatabaseError):
    """A database, but not ours."""


def _is_broken(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, _Foreign) or (code is not None and code & 0xFF in _BROKEN)


def _in_memory(path: Path, error: Exception) -> sqlite3.Connection:
    logger.warning("the manifest %s cannot be reached (%s): nothing will be remembered", path, error)
    return _opened(":memory:")


def _opened(path: Path | str) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=_READ_PATIENCE_MS / 1_000)
    try:
        if isinstance(path, Path):
            with contextlib.suppress(OSError):
                path.chmod(0o600)
        if _layout(db) != (_OURS, _VERSION):
            _lay_out(db)
        # Better for several readers and writers, but no waiting brings it about while another gateway does the same.
        with contextlib.suppress(sqlite3.OperationalError):
            db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = normal")
    except BaseException:
        db.close()
        raise
    return db


def _layout(db: sqlite3.Connection) -> tuple[int, int]:
    return db.execute("pragma application_id").fetchone()[0], db.execute("pragma user_version").fetchone()[0]


def _lay_out(db: sqlite3.Connection) -> None:
    """Make the tables. A manifest can always be listed again, so another layout of ours is dropped, not migrated."""
    with _transaction(db, "immediate"):
        # Looked at anew under the lock: another gateway may be making the same file.
        owner, version = _layout(db)
        if (owner, version) == (_OURS, _VERSION):
            return
        if owner != _OURS and db.execute("select 1 from sqlite_master").fetchone():
            raise _Foreign("it is the database of another program")
        for table in _TABLES:
            db.execute(f"drop table if exists {table}")
        for statement in _SCHEMA:
            db.execute(statement)
        db.execute(f"pragma application_id = {_OURS}")
        db.execute(f"pragma user_version = {_VERSION}")


def _load(db: sqlite3.Connection, fingerprints: dict[str, str]) -> dict[str, Manifest]:
    # One transaction, because another gateway may be writing the same file.
    with _transaction(db, "deferred"):
        heads = db.execute("select server, fingerprint, era, hello, offers, listed_at from manifests").fetchall()
        wanted = {head[0]: head for head in heads if fingerprints.get(head[0]) == head[1]}
        rows: dict[str, list[ToolRow]] = {server: [] for server in wanted}
        for server, name, digest, definition, warnings in db.execute(
            "select server, name, hash, definition, warnings from tools order by server, position"
        ):
            if server in rows:
                notes = tuple(warnings.split("\n")) if warnings else ()
                rows[server].append(ToolRow(name, digest, definition, notes))
    return {
        server: Manifest(server, fingerprint, era, hello, offers, tuple(rows[server]), listed_at)
        for server, fingerprint, era, hello, offers, listed_at in wanted.values()
    }


def _save(db: sqlite3.Connection, manifest: Manifest) -> None:
    with _transaction(db, "immediate"):
        _forget(db, manifest.server)
        db.execute(
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
        db.executemany(
            "insert into tools values (?, ?, ?, ?, ?, ?)",
            (
                (manifest.server, position, tool.name, tool.hash, tool.definition, "\n".join(tool.warnings))
                for position, tool in enumerate(manifest.tools)
            ),
        )


def _forget(db: sqlite3.Connection, server: str) -> None:
    db.execute("delete from manifests where server = ?", (server,))
    db.execute("delete from tools where server = ?", (server,))


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection, kind: str):  # noqa: ANN202 - a context manager over nothing
    db.execute(f"begin {kind}")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a serious error has already rolled back
            db.execute("rollback")
        raise
    db.execute("commit")
