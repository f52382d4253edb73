"""Hearing other gateways through a SQLite file: its version number, looked at twice a second.

The number moves with every commit of anybody's. Only then are the news read, and use that is
written down is none.
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
    """Report news until cancelled; `look` reads the latest."""
    file = _VersionConnection(path)
    version: object = None
    try:
        while True:
            seen = await asyncio.to_thread(file.read_version)
            if seen != version:
                with contextlib.suppress(StoreUnavailable):  # asked again at the next look
                    latest = await load_stamps()
                    for news in find_unseen_changes(known_stamps, latest, origin):
                        on_change(news)
                    known_stamps = latest
                    version = seen
            await asyncio.sleep(_POLL_INTERVAL_S)
    finally:
        file.close()


class _VersionConnection:
    """A connection that only asks for the number, made again where another file has taken its
    place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._lock = threading.Lock()
        """Whoever is cancelled closes it, while a thread may still be asking."""
        self._db: sqlite3.Connection | None = None

    def read_version(self) -> object:
        """Differs from the last one if and only if something was written; None while there is no
        telling."""
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
        """Close it."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None
