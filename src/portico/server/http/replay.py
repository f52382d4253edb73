"""Event store of handshake-era streams: the last messages of a session, in memory and bounded.

There is one store for each session, because the SDK names a stream by the id of its request, which
every client counts from one. All stores together are bounded too: above that, the session that has
been quiet longest loses its oldest events.
"""

import itertools
import sys
from collections import OrderedDict, deque
from typing import Any
from weakref import ref

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage

MAX_STREAMS = 64
MAX_EVENTS = 200
MAX_MESSAGE_BYTES = 256 * 2**10
MAX_BYTES = 2 * 2**20
MAX_TOTAL_BYTES = 32 * 2**20
"""Of all sessions: a thousand idle ones must not hold two gigabytes."""

_StoredEvent = tuple[int, JSONRPCMessage | None, int]
"""Number of the event, its message, and the memory it takes."""


class ReplayBudget:
    """Memory limit over the stores of all sessions, which it references weakly. For one event
    loop."""

    def __init__(self, max_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._stores: OrderedDict[int, tuple[ref[RecentEvents], int]] = OrderedDict()
        """Each store with its size; the most recently used one is last."""
        self._dead_stores: deque[int] = deque()
        """Collected stores: only noted, because a finalizer can run in any thread and at any
        step."""
        self._bytes = 0

    @property
    def held_bytes(self) -> int:
        """Approximate memory of all stores, in bytes."""
        self._remove_dead_stores()
        return self._bytes

    def record_use(self, store: "RecentEvents", size: int) -> None:
        """Record the size of a store that was used, and shrink the quietest ones above the
        limit."""
        self._remove_dead_stores()
        self._record_size(store, size)
        while self._bytes > self._max_bytes:
            reference = next((store_ref for store_ref, held in self._stores.values() if held), None)
            quietest = reference and reference()
            if quietest is None:
                return  # it is being collected, and will be removed later
            self._record_size(quietest, quietest.shrink(), last=False)

    def _record_size(self, store: "RecentEvents", size: int, *, last: bool = True) -> None:
        key = store.number
        reference, before = self._stores.get(key) or (
            ref(store, lambda _: self._dead_stores.append(key)),
            0,
        )
        self._stores[key] = reference, size
        self._bytes += size - before
        self._stores.move_to_end(key, last=last)

    def _remove_dead_stores(self) -> None:
        while self._dead_stores:
            if (store := self._stores.pop(self._dead_stores.popleft(), None)) is not None:
                self._bytes -= store[1]


_SHARED_BUDGET = ReplayBudget()
_NUMBERS = itertools.count()


class RecentEvents(EventStore):
    """The latest events of the most recently used streams of one session."""

    def __init__(self, budget: ReplayBudget = _SHARED_BUDGET) -> None:
        self.number = next(_NUMBERS)
        """Unique among all stores of this process."""
        self._budget = budget
        self._counter = itertools.count(1)
        self._streams: OrderedDict[str, deque[_StoredEvent]] = OrderedDict()
        self._bytes = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event and return its id; a message over `MAX_MESSAGE_BYTES` is not stored."""
        number = next(self._counter)
        size = _estimate_size(message, MAX_MESSAGE_BYTES)
        if size > MAX_MESSAGE_BYTES:
            message = None
            size = 0
        stream = self._streams.setdefault(stream_id, deque())
        stream.append((number, message, size))
        self._bytes += size
        self._streams.move_to_end(stream_id)
        if len(stream) > MAX_EVENTS:
            self._bytes -= stream.popleft()[2]
        while len(self._streams) > MAX_STREAMS or self._bytes > MAX_BYTES:
            self._drop_oldest()
        self._budget.record_use(self, self._bytes)
        return f"{stream_id}/{number}"

    def has_message(self, event_id: str | None) -> bool:
        """Return whether the message of this event, the last of its stream, is stored."""
        stream = self._streams.get((event_id or "").rpartition("/")[0])
        return stream is not None and stream[-1][1] is not None

    def drop_stream(self, stream_id: str) -> None:
        """Drop a stream that was never opened, so that nobody can resume it."""
        self._bytes -= sum(size for _, _, size in self._streams.pop(stream_id, ()))
        self._budget.record_use(self, self._bytes)

    def shrink(self) -> int:
        """Drop the oldest events and return the bytes that are left."""
        if self._streams:
            self._drop_oldest()
        return self._bytes

    def _drop_oldest(self) -> None:
        stream_id, stream = next(iter(self._streams.items()))
        if len(self._streams) > 1:
            del self._streams[stream_id]
            self._bytes -= sum(size for _, _, size in stream)
        else:
            self._bytes -= stream.popleft()[2]

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        """Send the events after `last_event_id`; return None if its stream is unknown."""
        stream_id, _, number = last_event_id.rpartition("/")
        stream = self._streams.get(stream_id)
        if stream is None or not number.isdecimal():
            return None
        for event, message, _ in list(stream):
            if event > int(number) and message is not None:
                await send_callback(EventMessage(message, f"{stream_id}/{event}"))
        return stream_id


def _estimate_size(message: JSONRPCMessage | None, limit: int) -> int:
    """Estimate the memory of a message in bytes; stops soon after the limit."""
    total = 0
    pending: list[Any] = []
    if message is not None:
        pending += vars(message).values()
    while pending and total <= limit:
        node = pending.pop()
        total += sys.getsizeof(node)
        if isinstance(node, dict):
            pending += node.keys()
            pending += node.values()
        elif isinstance(node, list):
            pending += node
        elif hasattr(node, "__dict__"):
            pending += vars(node).values()
    return total
