"""The streams of a modern subscription over a pipe, which all its messages share.

A `subscriptions/listen` stays unanswered for as long as it lasts; what the server agrees to is a notification that
names the id of that request.
"""

import asyncio
from typing import Any

from portico.upstream.backend import Raw
from portico.upstream.envelope import SUBSCRIPTION_KEY, modern_params
from portico.upstream.peer import Peer
from portico.upstream.subscription import ACKNOWLEDGED, ACKNOWLEDGED_S, agreed_on


class PipeListens:
    """Opens subscriptions over one pipe, one after the other."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._opening: PipeStream | None = None

    async def open(self, wanted: Raw) -> "PipeStream":
        """Ask for one; returns when the server has said what it agrees to."""
        self._opening = stream = PipeStream(self._peer, wanted)
        try:
            await stream.agree()
        except BaseException:
            stream.close()
            raise
        finally:
            self._opening = None
        return stream

    def sent(self, frame: Raw) -> None:
        """A frame goes out: by its id the server will name the subscription."""
        if self._opening is not None and frame.get("method") == "subscriptions/listen":
            self._opening.id = frame.get("id")

    def take(self, message: Raw) -> bool:
        """Whether a message was an acknowledgement, which concerns nobody else."""
        if message.get("method") != ACKNOWLEDGED:
            return False
        params: Any = message.get("params")
        meta: Any = params.get("_meta") if isinstance(params, dict) else None
        named: Any = meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None
        if self._opening is not None and (named is None or str(named) == str(self._opening.id)):
            self._opening.acknowledge(agreed_on(message))
        return True


class PipeStream:
    """One open subscription."""

    retry_ms = None

    def __init__(self, peer: Peer, wanted: Raw) -> None:
        self.id: object = None
        self.agreed: frozenset[str] | None = None
        self._acknowledged = asyncio.Event()
        self._asking = asyncio.create_task(peer.request("subscriptions/listen", modern_params(wanted)))
        self._asking.add_done_callback(_heeded)

    def acknowledge(self, uris: frozenset[str]) -> None:
        """The server has said what it agrees to."""
        if not self._acknowledged.is_set():
            self.agreed = uris
            self._acknowledged.set()

    async def agree(self) -> None:
        """Wait for what the server agrees to; raises RemoteError, BackendUnavailable."""
        heard = asyncio.ensure_future(self._acknowledged.wait())
        try:
            await asyncio.wait({self._asking, heard}, timeout=ACKNOWLEDGED_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard.cancel()
        if self._asking.done() and not self._acknowledged.is_set():
            self._asking.result()
            self.agreed = frozenset()  # over before it began

    async def ended(self) -> None:
        """Wait for its end."""
        await asyncio.wait({self._asking})

    def close(self) -> None:
        """Say that it is no longer wanted."""
        self._asking.cancel()


def _heeded(asking: "asyncio.Task[Raw]") -> None:
    # However it ended, the end is all that counts.
    if not asking.cancelled():
        asking.exception()
