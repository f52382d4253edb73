"""One SQLite file of ours: opened, laid out, shared by several gateways, and replaced when it is no use.

For what can be found out again, so a file may never cost more than itself: one that cannot be read is set aside and
begun anew, one that cannot be reached is replaced by memory, what cannot be written is only not remembered. Each is
logged. Another layout of ours is dropped, not migrated.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

READ_PATIENCE_MS = 1_000
"""Starting does not wait for a locked file longer than this."""
WRITE_PATIENCE_MS = 10_000
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""Errors of a file that no waiting mends; `SQLITE_ERROR` is a table or column that is not there."""


@dataclass(frozen=True)
class Layout:
    """What a file of one kind holds."""

    noun: str
    """What messages call it."""
    owner: int
    """Its `application_id`: tells our file from any other SQLite database that lies in its place."""
    version: int
    tables: tuple[str, ...]
    schema: tuple[str, ...]


class SqliteFile:
    """A file of one layout. Calls block for a millisecond or so; writers go through a thread."""

    def __init__(self, path: Path | None, layout: Layout) -> None:
        """Open it, or memory where there is no path."""
        self._path = path
        self._layout = layout
        self._lock = threading.Lock()
        self._said: set[str] = set()
        """What cannot be done, as was logged: what is tried every few seconds is not complained of every time."""
        self._db = self._open()

    def attempt(
        self, done: str, patience_ms: int, work: Callable[[sqlite3.Connection], Answer], otherwise: Answer
    ) -> Answer:
        """What `work` does with the file; `otherwise` when it cannot be `done`."""
        with self._lock:
            for _ in range(2):
                try:
                    self._db.execute(f"pragma busy_timeout = {patience_ms}")
                    answer = work(self._db)
                    self._said.discard(done)
                    return answer
                except sqlite3.Error as error:
                    if not _is_broken(error) or self._path is None:
                        place = self._path or "in memory"
                        level = logging.DEBUG if done in self._said else logging.WARNING
                        logger.log(level, "the %s %s cannot be %s: %s", self._layout.noun, place, done, error)
                        self._said.add(done)
                        break
                    self._db.close()
                    self._db = self._begin_anew(self._path, error)
        return otherwise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return _opened(":memory:", self._layout)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return _opened(self._path, self._layout)
        except sqlite3.Error as error:
            return self._begin_anew(self._path, error) if _is_broken(error) else self._in_memory(self._path, error)
        except OSError as error:
            return self._in_memory(self._path, error)

    def _begin_anew(self, path: Path, error: sqlite3.Error) -> sqlite3.Connection:
        aside = path.with_name(f"{path.name}.unreadable")
        try:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
            logger.warning(
                "the %s %s cannot be used (%s): it is now %s, and begun anew",
                self._layout.noun,
                path,
                error,
                aside.name,
            )
            return _opened(path, self._layout)
        except (OSError, sqlite3.Error) as trouble:
            return self._in_memory(path, trouble)

    def _in_memory(self, path: Path, error: Exception) -> sqlite3.Connection:
        logger.warning("the %s %s cannot be reached (%s): nothing will be remembered", self._layout.noun, path, error)
        return _opened(":memory:", self._layout)


class _Foreign(sqlite3.DatabaseError):
    """A database, but not ours."""


def _is_broken(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, _Foreign) or (code is not None and code & 0xFF in _BROKEN)


def _opened(path: Path | str, layout: Layout) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=READ_PATIENCE_MS / 1_000)
    try:
        if isinstance(path, Path):
            with contextlib.suppress(OSError):
                path.chmod(0o600)
        if _identity(db) != (layout.owner, layout.version):
            _lay_out(db, layout)
        # Better for several readers and writers, but no waiting brings it about while another gateway does the same.
        with contextlib.suppress(sqlite3.OperationalError):
            db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = normal")
    except BaseException:
        db.close()
        raise
    return db


def _identity(db: sqlite3.Connection) -> tuple[int, int]:
    return db.execute("pragma application_id").fetchone()[0], db.execute("pragma user_version").fetchone()[0]


def _lay_out(db: sqlite3.Connection, layout: Layout) -> None:
    with transaction(db, "immediate"):
        # Looked at anew under the lock: another gateway may be making the same file.
        owner, version = _identity(db)
        if (owner, version) == (layout.owner, layout.version):
            return
        if owner != layout.owner and db.execute("select 1 from sqlite_master").fetchone():
            raise _Foreign("it is the database of another program")
        for table in layout.tables:
            db.execute(f"drop table if exists {table}")
        for statement in layout.schema:
            db.execute(statement)
        db.execute(f"pragma application_id = {layout.owner}")
        db.execute(f"pragma user_version = {layout.version}")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, kind: str) -> Generator[None]:
    """All or nothing; `kind` is `deferred` for readers, `immediate` for writers."""
    db.execute(f"begin {kind}")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a serious error has already rolled back
            db.execute("rollback")
        raise
    db.execute("commit")
