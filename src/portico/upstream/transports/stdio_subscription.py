"""The streams of a modern subscription over a pipe, which all its messages share.

A `subscriptions/listen` stays unanswered for as long as it lasts; what the server agrees to is a
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
    """Opens subscriptions over one pipe, one after the other."""

    def __init__(self, session: JsonRpcSession) -> None:
        self._session = session
        self._opening: StdioSubscriptionStream | None = None

    async def open(self, params: Raw) -> "StdioSubscriptionStream":
        """Ask for one; returns when the server has said what it agrees to."""
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
        """A frame goes out: by its id the server will name the subscription."""
        if self._opening is not None and frame.get("method") == "subscriptions/listen":
            self._opening.request_id = frame.get("id")

    def handle_acknowledgement(self, message: Raw) -> bool:
        """Whether a message was an acknowledgement, which concerns nobody else."""
        if message.get("method") != ACKNOWLEDGED_METHOD:
            return False
        params: Any = message.get("params")
        if isinstance(params, dict):
            meta: Any = params.get("_meta")
        else:
            meta = None
        if isinstance(meta, dict):
            named: Any = meta.get(SUBSCRIPTION_KEY)
        else:
            named = None
        if self._opening is not None and (
            named is None or str(named) == str(self._opening.request_id)
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
        """The server has said what it agrees to."""
        if not self._acknowledged.is_set():
            self.agreed_uris = uris
            self._acknowledged.set()

    async def wait_for_agreement(self) -> None:
        """Wait for what the server agrees to; raises RemoteError, BackendUnavailable."""
        heard = asyncio.ensure_future(self._acknowledged.wait())
        try:
            await asyncio.wait(
                {self._request_task, heard},
                timeout=ACKNOWLEDGE_TIMEOUT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            heard.cancel()
        if self._request_task.done() and not self._acknowledged.is_set():
            self._request_task.result()
            self.agreed_uris = frozenset()  # over before it began

    async def wait_for_end(self) -> None:
        """Wait for its end."""
        await asyncio.wait({self._request_task})

    def close(self) -> None:
        """Say that it is no longer wanted."""
        self._request_task.cancel()


def _consume_exception(request_task: "asyncio.Task[Raw]") -> None:
    # However it ended, the end is all that counts.
    if not request_task.cancelled():
        request_task.exception()
