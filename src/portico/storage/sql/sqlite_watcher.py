"""Detects changes by other gateways in a SQLite file by polling its version twice a second.

The version changes with every commit. Only then are the change stamps read; plain usage writes
leave these alone.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from portico.storage.rows import ChangeNotification
from portico.storage.sql.change_notifications import ChangeStamps, find_unseen_changes
from portico.storage.sql.errors import StoreUnavailable

_POLL_INTERVAL_S = 0.5


async def watch(
    path: Path,
    on_change: Callable[[ChangeNotification], None],
    *,
    origin: str,
    known_stamps: ChangeStamps,
    load_stamps: Callable[[], Awaitable[ChangeStamps]],
) -> None:
    """Report changes until cancelled; `load_stamps` reads the latest stamps."""
    file = _VersionConnection(path)
    version: object = None
    try:
        while True:
            current = await asyncio.to_thread(file.read_version)
            if current != version:
                with contextlib.suppress(StoreUnavailable):  # retried at the next poll
                    latest = await load_stamps()
                    for change in find_unseen_changes(known_stamps, latest, origin):
                        on_change(change)
                    known_stamps = latest
                    version = current
            await asyncio.sleep(_POLL_INTERVAL_S)
    finally:
        file.close()


class _VersionConnection:
    """A connection that only reads the version, reopened if the file is replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._lock = threading.Lock()
        """Closing waits for a thread that may still be reading."""
        self._db: sqlite3.Connection | None = None

    def read_version(self) -> object:
        """Return a value that changes if something was written; None if unknown."""
        with self._lock:
            try:
                inode = os.stat(self._path).st_ino
                if self._db is None or inode != self._inode:
                    self._disconnect()
                    self._db = sqlite3.connect(
                        self._path, check_same_thread=False, isolation_level=None
                    )
                    self._inode = inode
                return self._inode, self._db.execute("pragma data_version").fetchone()[0]
            except (OSError, sqlite3.Error):
                return None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None
