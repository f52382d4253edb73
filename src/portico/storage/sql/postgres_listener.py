"""Hearing other gateways through PostgreSQL: one connection that listens, and is made again when it
is lost."""

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
"""A network that fails silently is noticed by asking."""
_CONNECTION_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


async def listen(
    address: PostgresAddress,
    on_change: Callable[[ChangeNotification], None],
    *,
    origin: str,
    find_missed: Callable[[], Awaitable[list[ChangeNotification]]],
) -> None:
    """Report news until cancelled. `missed` says what was told before the first connection
    listened."""
    pause = _FIRST_PAUSE_S
    lost = complained = False
    while True:
        try:
            async with _open_listener(address, on_change, origin) as (connection, ended):
                # Whatever was told while nobody listened, nobody tells again.
                if lost:
                    told = [ChangeNotification(kind) for kind in CHANGE_KINDS]
                else:
                    told = None
                lost = True
                for news in told or await find_missed():
                    on_change(news)
                if complained:
                    logger.warning("other gateways are heard again")
                pause = _FIRST_PAUSE_S
                complained = False
                await _wait_until_closed(connection, ended)
        except (StoreUnavailable, *_CONNECTION_ERRORS) as error:
            if not complained:
                if isinstance(error, StoreUnavailable):
                    reason = error
                else:
                    reason = to_store_error(error, address)
                logger.warning("other gateways are not heard for now: %s", reason.message)
            complained = True
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


@contextlib.asynccontextmanager
async def _open_listener(
    address: PostgresAddress, on_change: Callable[[ChangeNotification], None], origin: str
) -> AsyncGenerator[tuple[Any, asyncio.Event]]:
    connection = await connect_postgres(address)
    ended = asyncio.Event()

    def handle_notification(_connection: Any, _pid: int, _channel: str, body: Any) -> None:
        news = parse_notification(str(body), origin)
        if news is not None:
            on_change(news)

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
