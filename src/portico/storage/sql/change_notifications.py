"""Change notifications between gateways, sent within the transaction that changes shared data.

Every gateway has one row per kind of change and updates its stamp. On SQLite the others poll these,
twice a second, whenever the file's version has changed; on PostgreSQL they show what happened
before a gateway listened, and a notification also names the server.
"""

import asyncio
import contextlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.rows import ChangeNotification
from portico.storage.sql import tables
from portico.storage.sql.database import connect_postgres
from portico.storage.sql.database_url import (
    PostgresAddress,
    StoreUnavailable,
    is_database_error,
    to_store_error,
)
from portico.storage.sql.tables import upsert

logger = logging.getLogger(__name__)

_CHANNEL = "portico_news"
_CHANGE_KINDS = ("catalog", "pins", "tiers")
_MAX_BODY_CHARS = 7_000
"""Bytes of a notification; PostgreSQL allows fewer than 8,000."""
_MAX_NAMED_SERVERS = 50
"""Servers that are named individually."""
_POLL_INTERVAL_S = 0.5
_INITIAL_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 10.0
_HEARTBEAT_S = 20.0
"""Seconds between queries that detect a silently dead connection."""

ChangeStamps = Mapping[tuple[str, str], int]
"""Latest stamps, by kind and origin."""
OnChange = Callable[[ChangeNotification], None]


async def notify_gateways(
    db: AsyncConnection, kind: str, servers: Sequence[str], *, origin: str
) -> None:
    """Notify other gateways once this transaction is committed."""
    row = {"kind": kind, "origin": origin, "stamp": time.time_ns(), "at": time.time()}
    await upsert(db, tables.news, [row], replaced=("stamp", "at"))
    if db.dialect.name != "postgresql":
        return
    bodies: list[str] = []
    if len(servers) <= _MAX_NAMED_SERVERS:
        bodies = [_encode_notification(kind, server, origin) for server in servers]
    if not bodies or any(len(body) > _MAX_BODY_CHARS for body in bodies):
        bodies = [_encode_notification(kind, "", origin)]
    for body in bodies:
        await db.execute(sa.select(sa.func.pg_notify(_CHANNEL, body)))


def _encode_notification(kind: str, server: str, origin: str) -> str:
    return json.dumps({"kind": kind, "server": server, "origin": origin})


def _parse_notification(body: str, origin: str) -> ChangeNotification | None:
    """Parse a notification; None if it is our own or not Portico's, as anyone may notify."""
    try:
        message: Any = json.loads(body)
    except ValueError:
        return None
    match message:
        case {"kind": str(kind), "server": str(server), "origin": str(sender)} if (
            kind in _CHANGE_KINDS and sender != origin
        ):
            return ChangeNotification(kind, server)
        case _:
            return None


async def load_stamps(db: AsyncConnection) -> ChangeStamps:
    table = tables.news.c
    rows = await db.execute(sa.select(table.kind, table.origin, table.stamp))
    return {(kind, origin): stamp for kind, origin, stamp in rows}


def find_unseen_changes(
    before: ChangeStamps, after: ChangeStamps, origin: str
) -> list[ChangeNotification]:
    """Return the changes other gateways made between two sets of stamps."""
    changed = {
        kind
        for (kind, sender), stamp in after.items()
        if sender != origin and before.get((kind, sender)) != stamp
    }
    return [ChangeNotification(kind) for kind in _CHANGE_KINDS if kind in changed]


async def watch_sqlite(
    path: Path,
    on_change: OnChange,
    *,
    origin: str,
    known_stamps: ChangeStamps,
    load_stamps: Callable[[], Awaitable[ChangeStamps]],
) -> None:
    """Report changes in a file until cancelled; `load_stamps` reads the latest stamps."""
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
    """A connection that only reads the file's version, reopened if the file is replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._lock = threading.Lock()
        """Closing waits for a thread that may still be reading."""
        self._db: sqlite3.Connection | None = None

    def read_version(self) -> object:
        """Return a value that changes with every commit; None if unknown."""
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
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None


async def listen_to_postgres(
    address: PostgresAddress,
    on_change: OnChange,
    *,
    origin: str,
    find_missed: Callable[[], Awaitable[list[ChangeNotification]]],
) -> None:
    """Report changes until cancelled, and reconnect.

    `find_missed` returns those before the first connection.
    """
    backoff_s = _INITIAL_BACKOFF_S
    is_reconnect = False
    is_failure_logged = False
    while True:
        try:
            async with _open_listener(address, on_change, origin) as (connection, ended):
                # Notifications sent without a connection are lost: report every kind.
                missed = [ChangeNotification(kind) for kind in _CHANGE_KINDS]
                if not is_reconnect:
                    missed = await find_missed()
                is_reconnect = True
                for change in missed:
                    on_change(change)
                if is_failure_logged:
                    logger.warning("notifications of other gateways arrive again")
                backoff_s = _INITIAL_BACKOFF_S
                is_failure_logged = False
                await _wait_until_closed(connection, ended)
        except Exception as error:
            if isinstance(error, StoreUnavailable):
                reason = error
            elif is_database_error(error):
                reason = to_store_error(error, address)
            else:
                raise
            if not is_failure_logged:
                logger.warning(
                    "notifications of other gateways do not arrive for now: %s", reason.message
                )
            is_failure_logged = True
        await asyncio.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)


@contextlib.asynccontextmanager
async def _open_listener(
    address: PostgresAddress, on_change: OnChange, origin: str
) -> AsyncGenerator[tuple[Any, asyncio.Event]]:
    connection = await connect_postgres(address)
    ended = asyncio.Event()

    def handle_notification(_connection: Any, _pid: int, _channel: str, body: Any) -> None:
        change = _parse_notification(str(body), origin)
        if change is not None:
            on_change(change)

    try:
        connection.add_termination_listener(lambda _: ended.set())
        await connection.add_listener(_CHANNEL, handle_notification)
        yield connection, ended
    finally:
        with contextlib.suppress(Exception):  # it is lost already
            await connection.close()


async def _wait_until_closed(connection: Any, ended: asyncio.Event) -> None:
    while not ended.is_set():
        try:
            async with asyncio.timeout(_HEARTBEAT_S):
                await ended.wait()
        except TimeoutError:
            await connection.execute("select 1", timeout=_HEARTBEAT_S)
