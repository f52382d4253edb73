"""Subscription streams of a modern server over a pipe, which all messages share.

A `subscriptions/listen` request stays unanswered while it lasts; the acknowledgement is a
notification that names the id of that request.
"""

import asyncio
from typing import Any

from portico.upstream.backend import Raw
from portico.upstream.protocol.envelope import SUBSCRIPTION_KEY, to_modern_params
from portico.upstream.protocol.session import JsonRpcSession
from portico.upstream.protocol.subscription import (
    ACKNOWLEDGE_TIMEOUT_S,
    ACKNOWLEDGED_METHOD,
    parse_agreed_uris,
)


class StdioSubscriptionOpener:
    """Opens subscriptions over one pipe, one at a time."""

    def __init__(self, session: JsonRpcSession) -> None:
        self._session = session
        self._opening: StdioSubscriptionStream | None = None

    async def open(self, params: Raw) -> "StdioSubscriptionStream":
        """Open a subscription; return when it is acknowledged."""
        self._opening = stream = StdioSubscriptionStream(self._session, params)
        try:
            await stream.wait_for_agreement()
        except BaseException:
            stream.close()
            raise
        finally:
            self._opening = None
        return stream

    def observe_outgoing(self, frame: Raw) -> None:
        """Record the request id of the subscription that is being opened."""
        if self._opening is not None and frame.get("method") == "subscriptions/listen":
            self._opening.request_id = frame.get("id")

    def handle_acknowledgement(self, message: Raw) -> bool:
        """Handle an acknowledgement; return whether the message was one."""
        if message.get("method") != ACKNOWLEDGED_METHOD:
            return False
        params: Any = message.get("params")
        meta: Any = params.get("_meta") if isinstance(params, dict) else None
        request_id: Any = meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None
        if self._opening is not None and (
            request_id is None or str(request_id) == str(self._opening.request_id)
        ):
            self._opening.acknowledge(parse_agreed_uris(message))
        return True


class StdioSubscriptionStream:
    """One open subscription."""

    retry_ms = None

    def __init__(self, session: JsonRpcSession, params: Raw) -> None:
        self.request_id: object = None
        self.agreed_uris: frozenset[str] | None = None
        self._acknowledged = asyncio.Event()
        self._request_task = asyncio.create_task(
            session.request("subscriptions/listen", to_modern_params(params))
        )
        self._request_task.add_done_callback(_consume_exception)

    def acknowledge(self, uris: frozenset[str]) -> None:
        """Record the agreed resources, once."""
        if not self._acknowledged.is_set():
            self.agreed_uris = uris
            self._acknowledged.set()

    async def wait_for_agreement(self) -> None:
        """Wait for the acknowledgement; raise RemoteError or BackendUnavailable."""
        acknowledged = asyncio.ensure_future(self._acknowledged.wait())
        try:
            await asyncio.wait(
                {self._request_task, acknowledged},
                timeout=ACKNOWLEDGE_TIMEOUT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            acknowledged.cancel()
        if self._request_task.done() and not self._acknowledged.is_set():
            self._request_task.result()
            self.agreed_uris = frozenset()  # it ended before the acknowledgement

    async def wait_for_end(self) -> None:
        await asyncio.wait({self._request_task})

    def close(self) -> None:
        """Cancel the request, which ends the subscription."""
        self._request_task.cancel()


def _consume_exception(request_task: "asyncio.Task[Raw]") -> None:
    # Mark as retrieved: only the end matters, not how it came.
    if not request_task.cancelled():
        request_task.exception()
