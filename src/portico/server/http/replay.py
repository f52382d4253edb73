"""What a dropped stream of a handshake-era client can be resumed from: the last messages, in
memory, bounded.

One store for each session: the SDK names a stream by the id of its request, which every client
counts from one. All of them together are bounded too: what is too much goes from the session that
has been quiet for longest.
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
"""Of all sessions: a thousand that are idle must not keep two gigabytes."""

_StoredEvent = tuple[int, JSONRPCMessage | None, int]
"""The event's number, its message, and the memory that takes."""


class ReplayBudget:
    """What the stores of all sessions hold; each belongs to its session and goes with it. For one
    event loop."""

    def __init__(self, max_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._stores: OrderedDict[int, tuple[ref[RecentEvents], int]] = OrderedDict()
        """With what each holds; the one that was used last comes last."""
        self._dead_stores: deque[int] = deque()
        """Stores that went: noted only, because that can happen in any thread and at any step."""
        self._bytes = 0

    @property
    def held_bytes(self) -> int:
        """About how much memory all of them take."""
        self._remove_dead_stores()
        return self._bytes

    def record_use(self, store: "RecentEvents", size: int) -> None:
        """A store was used and holds so much now: make room for it."""
        self._remove_dead_stores()
        self._record_size(store, size)
        while self._bytes > self._max_bytes:
            quiet = next((one for one, held in self._stores.values() if held), None)
            if quiet is not None:
                quietest = quiet()
            else:
                quietest = None
            if quietest is None:
                return  # it goes at this moment, and will be noted
            self._record_size(quietest, quietest.shrink(), last=False)

    def _record_size(self, store: "RecentEvents", size: int, *, last: bool = True) -> None:
        key = store.number
        known, before = self._stores.get(key) or (
            ref(store, lambda _: self._dead_stores.append(key)),
            0,
        )
        self._stores[key] = known, size
        self._bytes += size - before
        self._stores.move_to_end(key, last=last)

    def _remove_dead_stores(self) -> None:
        while self._dead_stores:
            if (store := self._stores.pop(self._dead_stores.popleft(), None)) is not None:
                self._bytes -= store[1]


_SHARED_BUDGET = ReplayBudget()
_NUMBERS = itertools.count()


class RecentEvents(EventStore):
    """The last events of the streams that one session used last."""

    def __init__(self, budget: ReplayBudget = _SHARED_BUDGET) -> None:
        self.number = next(_NUMBERS)
        """Its own: no other store of this process has it, or will have it."""
        self._budget = budget
        self._counter = itertools.count(1)
        self._streams: OrderedDict[str, deque[_StoredEvent]] = OrderedDict()
        self._bytes = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event and return its id; of a message that is too large only the id."""
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
        """Whether the message of this event, the last of its stream, is kept."""
        stream = self._streams.get((event_id or "").rpartition("/")[0])
        return stream is not None and stream[-1][1] is not None

    def drop_stream(self, stream_id: str) -> None:
        """Nobody can resume this stream: it was never opened."""
        self._bytes -= sum(size for _, _, size in self._streams.pop(stream_id, ()))
        self._budget.record_use(self, self._bytes)

    def shrink(self) -> int:
        """Let go of the oldest; answers how many bytes are left."""
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
        """Send what came after an event; None when it is not known any more."""
        stream_id, _, number = last_event_id.rpartition("/")
        stream = self._streams.get(stream_id)
        if stream is None or not number.isdecimal():
            return None
        for event, message, _ in list(stream):
            if event > int(number) and message is not None:
                await send_callback(EventMessage(message, f"{stream_id}/{event}"))
        return stream_id


def _estimate_size(message: JSONRPCMessage | None, limit: int) -> int:
    """About the memory a message takes; counting ends soon after the limit."""
    total = 0
    if message is None:
        left: list[Any] = []
    else:
        left = list(vars(message).values())
    while left and total <= limit:
        node = left.pop()
        total += sys.getsizeof(node)
        if isinstance(node, dict):
            left += node.keys()
            left += node.values()
        elif isinstance(node, list):
            left += node
        elif hasattr(node, "__dict__"):
            left += vars(node).values()
    return total
