"""A SQLite file with a fixed layout, shared by several gateways and recreated when unusable.

For data that can be collected again: a file that cannot be read is set aside and recreated, one
that cannot be reached is replaced by memory, and what cannot be written is dropped. Each is logged.
Another layout version is dropped, not migrated.
"""

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

READ_TIMEOUT_MS = 1_000
"""Start-up waits no longer than this for a locked file."""
WRITE_TIMEOUT_MS = 10_000
_CORRUPT_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""Errors that waiting does not fix; `SQLITE_ERROR` is a missing table or column."""


@dataclass(frozen=True)
class SqliteLayout:
    label: str
    """Name used in messages."""
    application_id: int
    """SQLite `application_id`, which tells our file from any other database."""
    version: int
    tables: tuple[str, ...]
    schema: tuple[str, ...]


class SqliteFile:
    """A file of one layout. Calls block for about a millisecond; writers use a thread."""

    def __init__(self, path: Path | None, layout: SqliteLayout) -> None:
        self._path = path
        self._layout = layout
        self._lock = threading.Lock()
        self._reported: set[str] = set()
        """Actions whose failure was logged, so that repeated attempts are not logged again."""
        self._db = self._open()

    def attempt(
        self, action: str, timeout_ms: int, work: Callable[[sqlite3.Connection], T], default: T
    ) -> T:
        """Run `work` with the connection; return `default` if it fails. `action` is for the log."""
        with self._lock:
            for _ in range(2):
                try:
                    self._db.execute(f"pragma busy_timeout = {timeout_ms}")
                    answer = work(self._db)
                    self._reported.discard(action)
                    return answer
                except sqlite3.Error as error:
                    if not _is_broken(error) or self._path is None:
                        self._report(action, error)
                        break
                    self._db.close()
                    self._db = self._recreate(self._path, error)
        return default

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _report(self, action: str, error: sqlite3.Error) -> None:
        level = logging.DEBUG if action in self._reported else logging.WARNING
        self._reported.add(action)
        place = self._path or "in memory"
        logger.log(level, "the %s %s cannot be %s: %s", self._layout.label, place, action, error)

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return _connect(":memory:", self._layout)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return _connect(self._path, self._layout)
        except sqlite3.Error as error:
            if _is_broken(error):
                return self._recreate(self._path, error)
            return self._open_in_memory(self._path, error)
        except OSError as error:
            return self._open_in_memory(self._path, error)

    def _recreate(self, path: Path, error: sqlite3.Error) -> sqlite3.Connection:
        try:
            logger.warning(
                "the %s %s cannot be used (%s): it is now %s, and a new one is used",
                self._layout.label,
                path,
                error,
                set_aside(path),
            )
            return _connect(path, self._layout)
        except (OSError, sqlite3.Error) as trouble:
            return self._open_in_memory(path, trouble)

    def _open_in_memory(self, path: Path, error: Exception) -> sqlite3.Connection:
        logger.warning(
            "the %s %s cannot be reached (%s): nothing will be remembered",
            self._layout.label,
            path,
            error,
        )
        return _connect(":memory:", self._layout)


def create_private_file(path: Path) -> int:
    """Create a file for its owner only, if missing; return its inode. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # An existing file is not opened: closing it would drop SQLite's locks on it in this process.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.suppress(OSError):
        path.chmod(0o600)
    return path.stat().st_ino


def set_aside(path: Path) -> str:
    """Rename a damaged file with its companions; return its new name. Raises OSError."""
    aside = path.with_name(f"{path.name}.unreadable")
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
    return aside.name


class _ForeignDatabase(sqlite3.DatabaseError):
    """A database of another program."""


def _is_broken(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, _ForeignDatabase) or (
        code is not None and code & 0xFF in _CORRUPT_CODES
    )


def _connect(path: Path | str, layout: SqliteLayout) -> sqlite3.Connection:
    db = sqlite3.connect(
        path, check_same_thread=False, isolation_level=None, timeout=READ_TIMEOUT_MS / 1_000
    )
    try:
        if isinstance(path, Path):
            with contextlib.suppress(OSError):
                path.chmod(0o600)
        if _read_identity(db) != (layout.application_id, layout.version):
            _create_tables(db, layout)
        # Better for concurrent readers and writers; fails while another gateway sets the same.
        with contextlib.suppress(sqlite3.OperationalError):
            db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = normal")
    except BaseException:
        db.close()
        raise
    return db


def _read_identity(db: sqlite3.Connection) -> tuple[int, int]:
    return db.execute("pragma application_id").fetchone()[0], db.execute(
        "pragma user_version"
    ).fetchone()[0]


def _create_tables(db: sqlite3.Connection, layout: SqliteLayout) -> None:
    with transaction(db, "immediate"):
        # Checked again under the lock: another gateway may be creating the same file.
        owner, version = _read_identity(db)
        if (owner, version) == (layout.application_id, layout.version):
            return
        if owner != layout.application_id and db.execute("select 1 from sqlite_master").fetchone():
            raise _ForeignDatabase("it is the database of another program")
        for table in layout.tables:
            db.execute(f"drop table if exists {table}")
        for statement in layout.schema:
            db.execute(statement)
        db.execute(f"pragma application_id = {layout.application_id}")
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
