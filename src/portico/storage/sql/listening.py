"""Hearing other gateways through PostgreSQL: one connection that listens, and is made again when it is lost."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import asyncpg

from portico.storage.rows import News
from portico.storage.sql.address import Postgres
from portico.storage.sql.engine import connect_postgres
from portico.storage.sql.news import CHANNEL, KINDS, heard_news
from portico.storage.sql.trouble import RecordUnavailable, explained

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_HEARTBEAT_S = 20.0
"""A network that fails silently is noticed by asking."""
_TROUBLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


async def listen(
    address: Postgres, heard: Callable[[News], None], *, origin: str, missed: Callable[[], Awaitable[list[News]]]
) -> None:
    """Report news until cancelled. `missed` says what was told before the first connection listened."""
    pause = _FIRST_PAUSE_S
    lost = complained = False
    while True:
        try:
            async with _listening(address, heard, origin) as (connection, ended):
                # Whatever was told while nobody listened, nobody tells again.
                told, lost = [News(kind) for kind in KINDS] if lost else None, True
                for news in told or await missed():
                    heard(news)
                if complained:
                    logger.warning("other gateways are heard again")
                pause, complained = _FIRST_PAUSE_S, False
                await _stay(connection, ended)
        except (RecordUnavailable, *_TROUBLE) as error:
            if not complained:
                reason = error if isinstance(error, RecordUnavailable) else explained(error, address)
                logger.warning("other gateways are not heard for now: %s", reason.message)
            complained = True
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


@contextlib.asynccontextmanager
async def _listening(
    address: Postgres, heard: Callable[[News], None], origin: str
) -> AsyncGenerator[tuple[Any, asyncio.Event]]:
    connection = await connect_postgres(address)
    ended = asyncio.Event()

    def take(_connection: Any, _pid: int, _channel: str, body: Any) -> None:
        news = heard_news(str(body), origin)
        if news is not None:
            heard(news)

    try:
        connection.add_termination_listener(lambda _: ended.set())
        await connection.add_listener(CHANNEL, take)
        yield connection, ended
    finally:
        with contextlib.suppress(*_TROUBLE):
            await connection.close()


async def _stay(connection: Any, ended: asyncio.Event) -> None:
    while not ended.is_set():
        try:
            async with asyncio.timeout(_HEARTBEAT_S):
                await ended.wait()
        except TimeoutError:
            await connection.execute("select 1", timeout=_HEARTBEAT_S)
