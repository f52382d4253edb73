"""Hearing other gateways through a SQLite file: its version number, looked at twice a second.

The number moves with every commit of anybody's. Only then are the news read, and use that is written down is none.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from portico.storage.rows import News
from portico.storage.sql.news import Stamps, unheard
from portico.storage.sql.trouble import RecordUnavailable

_EVERY_S = 0.5


async def watch(
    path: Path, heard: Callable[[News], None], *, origin: str, known: Stamps, look: Callable[[], Awaitable[Stamps]]
) -> None:
    """Report news until cancelled; `look` reads the latest."""
    file = _Watched(path)
    version: object = None
    try:
        while True:
            seen = await asyncio.to_thread(file.version)
            if seen != version:
                with contextlib.suppress(RecordUnavailable):  # asked again at the next look
                    latest = await look()
                    for news in unheard(known, latest, origin):
                        heard(news)
                    known, version = latest, seen
            await asyncio.sleep(_EVERY_S)
    finally:
        file.close()


class _Watched:
    """A connection that only asks for the number, made again where another file has taken its place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._using = threading.Lock()
        """Whoever is cancelled closes it, while a thread may still be asking."""
        self._db: sqlite3.Connection | None = None

    def version(self) -> object:
        """Differs from the last one if and only if something was written; None while there is no telling."""
        with self._using:
            try:
                inode = os.stat(self._path).st_ino
                if self._db is None or inode != self._inode:
                    self._end()
                    self._db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
                    self._inode = inode
                return self._inode, self._db.execute("pragma data_version").fetchone()[0]
            except (OSError, sqlite3.Error):
                return None

    def close(self) -> None:
        """Close it."""
        with self._using:
            self._end()

    def _end(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None
