"""Follows what a server says outside any request: the GET stream of a session, or a modern subscription.

Comes back after a break, later and later, for as long as the conversation lasts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from portico.errors import BackendUnavailable, RemoteError
from portico.upstream.backend import Raw
from portico.upstream.envelope import modern_params, subscription_params, without_subscription
from portico.upstream.http_exchange import Exchange, Hear, ServerUnreachable
from portico.upstream.http_headers import routing_headers
from portico.upstream.http_refusal import HttpRefusal, SessionGone
from portico.upstream.wire import Reply

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
MAX_UNREACHABLE = 4
"""Attempts in a row that found nobody there before the conversation counts as lost."""

Announce = Callable[[str], None]


async def follow_session(exchange: Exchange, hear: Hear) -> str | None:
    """Read the session's GET stream; answers why the conversation is lost, or None if there is nothing to follow."""
    return await _follow(exchange, exchange.stream, hear, _nothing_missed)


async def follow_subscription(
    exchange: Exchange, capabilities: Mapping[str, Any], hear: Hear, announce: Announce
) -> str | None:
    """Read a `subscriptions/listen` stream; as `follow_session`.

    A subscription replays nothing: after a break every list that is followed is announced as changed.
    """
    wanted = subscription_params(capabilities)
    if wanted is None:
        return None
    opened = 0

    async def open_stream(last_id: str | None) -> Reply:
        nonlocal opened
        opened += 1
        frame = {
            "jsonrpc": "2.0",
            "id": f"listen-{opened}",
            "method": "subscriptions/listen",
            "params": modern_params(wanted),
        }
        return await exchange.stream(None, frame, routing_headers("subscriptions/listen", None))

    async def hear_change(message: Raw) -> None:
        if message.get("method") != "notifications/subscriptions/acknowledged":
            await hear(without_subscription(message))

    def catch_up() -> None:
        for kind in wanted["notifications"]:
            announce(f"notifications/{kind.removesuffix('ListChanged')}/list_changed")

    return await _follow(exchange, open_stream, hear_change, catch_up)


async def _follow(
    exchange: Exchange,
    open_stream: Callable[[str | None], Awaitable[Reply]],
    hear: Hear,
    catch_up: Callable[[], None],
) -> str | None:
    failures, unreachable, opened = 0, 0, False
    last_id: str | None = None
    retry_ms: int | None = None
    while True:
        try:
            reply = await open_stream(last_id)
        except SessionGone as error:
            return error.message if opened else None
        except RemoteError:
            return None
        except HttpRefusal as error:
            if not opened or error.status in (401, 403, 404, 405):
                return None
        except ServerUnreachable as error:
            unreachable += 1
            if unreachable >= MAX_UNREACHABLE:
                return error.message
        except BackendUnavailable:
            pass
        else:
            unreachable = 0
            if opened:
                catch_up()
            opened = True
            messages = exchange.messages(reply)
            try:
                while (message := await messages.next()) is not None:
                    failures = 0
                    await hear(message)
            except BackendUnavailable:
                pass  # cut, or garbage: a new stream is the only remedy for both
            finally:
                reply.abort()
            last_id = messages.last_id or last_id
            retry_ms = retry_ms if messages.retry_ms is None else messages.retry_ms
        await asyncio.sleep(_pause(failures, retry_ms))
        failures += 1


def _pause(failures: int, retry_ms: int | None) -> float:
    grown = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 10))
    return max(grown, min(retry_ms or 0, 60_000) / 1000)


def _nothing_missed() -> None:
    """A session's stream is resumed by its event ids; a lost session is told by its own error."""
