"""What a dropped stream of a handshake-era client can be resumed from: the last messages, in memory, bounded.

One store for each session: the SDK names a stream by the id of its request, which every client counts from one.
"""

import itertools
from collections import OrderedDict, deque

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage

MAX_STREAMS = 64
MAX_EVENTS = 200


class RecentEvents(EventStore):
    """The last events of the streams that one session used last."""

    def __init__(self) -> None:
        self._counter = itertools.count(1)
        self._streams: OrderedDict[str, deque[tuple[int, JSONRPCMessage | None]]] = OrderedDict()

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event and return its id."""
        number = next(self._counter)
        stream = self._streams.setdefault(stream_id, deque(maxlen=MAX_EVENTS))
        stream.append((number, message))
        self._streams.move_to_end(stream_id)
        if len(self._streams) > MAX_STREAMS:
            self._streams.popitem(last=False)
        return f"{stream_id}/{number}"

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what came after an event; None when it is not known any more."""
        stream_id, _, number = last_event_id.rpartition("/")
        stream = self._streams.get(stream_id)
        if stream is None or not number.isdecimal():
            return None
        for event, message in list(stream):
            if event > int(number) and message is not None:
                await send_callback(EventMessage(message, f"{stream_id}/{event}"))
        return stream_id
