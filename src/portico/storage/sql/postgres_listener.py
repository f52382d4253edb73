"""Listens for changes by other gateways through PostgreSQL, and reconnects."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import asyncpg

from portico.storage.rows import ChangeNotification
from portico.storage.sql.change_notifications import CHANGE_KINDS, CHANNEL, parse_notification
from portico.storage.sql.database_url import PostgresAddress
from portico.storage.sql.engine import connect_postgres
from portico.storage.sql.errors import StoreUnavailable, to_store_error

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_HEARTBEAT_S = 20.0
"""Seconds between queries that detect a silently dead connection."""
_CONNECTION_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


async def listen(
    address: PostgresAddress,
    on_change: Callable[[ChangeNotification], None],
    *,
    origin: str,
    find_missed: Callable[[], Awaitable[list[ChangeNotification]]],
) -> None:
    """Report changes until cancelled; `find_missed` returns those before the first connection."""
    delay = _FIRST_PAUSE_S
    is_reconnect = is_failure_logged = False
    while True:
        try:
            async with _open_listener(address, on_change, origin) as (connection, ended):
                # Notifications sent without a connection are lost: report every kind.
                missed = None
                if is_reconnect:
                    missed = [ChangeNotification(kind) for kind in CHANGE_KINDS]
                is_reconnect = True
                for change in missed or await find_missed():
                    on_change(change)
                if is_failure_logged:
                    logger.warning("notifications of other gateways arrive again")
                delay = _FIRST_PAUSE_S
                is_failure_logged = False
                await _wait_until_closed(connection, ended)
        except (StoreUnavailable, *_CONNECTION_ERRORS) as error:
            if not is_failure_logged:
                if isinstance(error, StoreUnavailable):
                    reason = error
                else:
                    reason = to_store_error(error, address)
                logger.warning(
                    "notifications of other gateways do not arrive for now: %s", reason.message
                )
            is_failure_logged = True
        await asyncio.sleep(delay)
        delay = min(2 * delay, _LONGEST_PAUSE_S)


@contextlib.asynccontextmanager
async def _open_listener(
    address: PostgresAddress, on_change: Callable[[ChangeNotification], None], origin: str
) -> AsyncGenerator[tuple[Any, asyncio.Event]]:
    connection = await connect_postgres(address)
    ended = asyncio.Event()

    def handle_notification(_connection: Any, _pid: int, _channel: str, body: Any) -> None:
        change = parse_notification(str(body), origin)
        if change is not None:
            on_change(change)

    try:
        connection.add_termination_listener(lambda _: ended.set())
        await connection.add_listener(CHANNEL, handle_notification)
        yield connection, ended
    finally:
        with contextlib.suppress(*_CONNECTION_ERRORS):
            await connection.close()


async def _wait_until_closed(connection: Any, ended: asyncio.Event) -> None:
    while not ended.is_set():
        try:
            async with asyncio.timeout(_HEARTBEAT_S):
                await ended.wait()
        except TimeoutError:
            await connection.execute("select 1", timeout=_HEARTBEAT_S)
