"""Result cache with single flight: identical concurrent calls are made once.

Off unless a server's configuration sets a time: `readOnlyHint` says that a tool changes nothing,
not that its result stays true, and only the operator knows how stale a result may be. With a time
for the server, results of its read-only tools are cached; a tool with a time of its own is cached
whatever its annotations say.

An entry is dropped when it expires, when the tool's definition changes, when a tool of the same
server that may change things is called, and when the cache is full. Errors are never cached.
Entries are JSON text: exact in size, small in memory, and no caller can change another's copy.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import orjson

from portico.calls.call import Call, Handler
from portico.catalog.tool import Tool
from portico.config import CacheConfig
from portico.events import CatalogChanged, Event
from portico.json_text import json_codec
from portico.json_text.part_stream import estimate_size
from portico.results.result_meta import CACHED, add_gateway_meta
from portico.upstream.backend import Raw

MAX_BYTES = 32 * 1024**2
MAX_ENTRIES = 10_000
MAX_ENTRY_BYTES = 1024**2
"""Maximum size of an entry. Decoding a larger one would block the event loop; result handles store
it anyway."""
_ENTRY_OVERHEAD_BYTES = 400
"""Estimated memory of an entry in addition to its text."""

CacheKey = tuple[str, str, str, str, bytes]


def get_ttl(rule: CacheConfig, tool: Tool) -> float:
    """Return the seconds to cache results of a tool; 0 for not at all."""
    for pattern, seconds in rule.tools.items():
        if fnmatchcase(tool.name, pattern):
            return seconds
    if is_read_only(tool):
        return rule.ttl_s
    return 0


def is_read_only(tool: Tool) -> bool:
    return tool.is_read_only


@dataclass
class _CacheEntry:
    body: bytes
    stored_at: float
    expires_at: float
    size: int


@dataclass
class _InFlightCall:
    task: "asyncio.Task[Raw]"
    waiter_count: int = 0


class ResultCache:
    """LRU cache of results; bound to one event loop."""

    def __init__(
        self,
        rules: Mapping[str, CacheConfig],
        isolated: Collection[str] = (),
        *,
        max_bytes: int = MAX_BYTES,
        max_entries: int = MAX_ENTRIES,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rules` by server; `isolated` names the servers where each session has its own state."""
        self.configure(rules, isolated)
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._max_entry_bytes = max_entry_bytes
        self._clock = clock
        self._entries: OrderedDict[CacheKey, _CacheEntry] = OrderedDict()
        self.size_bytes = 0
        """Estimated memory of all entries."""
        self._in_flight: dict[CacheKey, _InFlightCall] = {}
        self._change_counts: dict[str, int] = {}
        """Invalidations by server: a result requested before one is not stored after it."""
        self.hits = self.misses = 0

    def configure(
        self,
        rules: Mapping[str, CacheConfig],
        isolated: Collection[str],
        personal: Collection[str] = (),
    ) -> None:
        """Apply new rules; entries that are stored keep their expiry. `personal` names the servers
        at which each person uses an own account."""
        self._rules = {
            server: rule
            for server, rule in rules.items()
            if rule.ttl_s > 0 or any(rule.tools.values())
        }
        self._isolated = frozenset(isolated)
        self._personal = frozenset(personal)
        self.is_enabled = bool(self._rules)
        """Whether any server has a rule."""

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_call(self, call: Call, call_next: Handler[Call]) -> Coroutine[Any, Any, Raw]:
        """Middleware: return the cached result, join an identical call in flight, or make it."""
        rule = self._rules.get(call.server)
        if rule is None or call.is_continuation:
            return call_next(call)
        ttl = get_ttl(rule, call.tool)
        key = self._build_key(call) if ttl > 0 else None
        if key is None:
            return self._call_uncached(call, call_next)
        return self._call_cached(key, ttl, call, call_next)

    def _build_key(self, call: Call) -> CacheKey | None:
        """Return the key that identical calls share, or None if the arguments cannot be
        compared."""
        try:
            text = orjson.dumps(call.arguments, option=orjson.OPT_SORT_KEYS)
        except TypeError:  # numbers beyond 64 bits: too rare to support
            return None
        caller = call.context.caller
        # What a server asked its caller during a call may be in the result: never another person's.
        owner = "" if caller.principal.is_shared else caller.principal.id
        if call.server in self._personal:
            owner = caller.principal.id
        elif call.server in self._isolated:
            owner += caller.instance_key
        return call.tool.address, call.tool.hash, caller.profile, owner, text

    def invalidate(self, server: str, tools: Collection[str] | None = None) -> None:
        """Drop the entries of these tools (addresses) of a server, or of all its tools."""
        self._change_counts[server] = self._change_counts.get(server, 0) + 1
        prefix = f"{server}."

        def is_affected(key: CacheKey) -> bool:
            if tools is not None:
                return key[0] in tools
            return key[0].startswith(prefix)

        for key in list(filter(is_affected, self._entries)):
            self._drop(key)
        # Waiters keep the call in flight; later callers must not join it.
        for key in list(filter(is_affected, self._in_flight)):
            del self._in_flight[key]

    def handle_event(self, event: Event) -> None:
        """Drop entries of changed or removed tools; subscribe to `CatalogChanged`."""
        if isinstance(event, CatalogChanged) and event.tools_changed:
            self.invalidate(event.server, {*event.changed, *event.removed})

    def expire(self) -> None:
        """Drop expired entries."""
        now = self._clock()
        for key in [key for key, entry in self._entries.items() if entry.expires_at <= now]:
            self._drop(key)

    async def _call_uncached(self, call: Call, call_next: Handler[Call]) -> Raw:
        """Call without caching; a tool that may change things invalidates its server."""
        if is_read_only(call.tool):
            return await call_next(call)
        self.invalidate(call.server)
        try:
            return await call_next(call)
        finally:
            self.invalidate(call.server)

    async def _call_cached(
        self, key: CacheKey, ttl: float, call: Call, call_next: Handler[Call]
    ) -> Raw:
        if (cached := self._get_cached(key)) is not None:
            self.hits += 1
            call.is_cached = True
            return cached
        self.misses += 1
        flight = self._in_flight.get(key)
        shared = flight is not None
        if flight is None:
            work = self._call_and_store(key, ttl, call, call_next)
            flight = _InFlightCall(asyncio.create_task(work, name=f"call {key[0]}"))
            self._in_flight[key] = flight
        flight.waiter_count += 1
        try:
            result = await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            if flight.waiter_count == 1 and not flight.task.done():
                # The last waiter is gone. Awaited, so that the upstream has been notified when
                # this returns.
                if self._in_flight.get(key) is flight:
                    del self._in_flight[key]
                flight.task.cancel()
                await asyncio.wait({flight.task})
            raise
        finally:
            flight.waiter_count -= 1
        return dict(result) if shared else result

    def _get_cached(self, key: CacheKey) -> Raw | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        now = self._clock()
        if entry.expires_at <= now:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        result: Raw = json_codec.loads(entry.body)
        return add_gateway_meta(result, {CACHED: {"age_s": round(now - entry.stored_at, 3)}})

    async def _call_and_store(
        self, key: CacheKey, ttl: float, call: Call, call_next: Handler[Call]
    ) -> Raw:
        changes = self._change_counts.get(call.server, 0)
        try:
            result = await call_next(call)
        finally:
            if (flight := self._in_flight.get(key)) and flight.task is asyncio.current_task():
                del self._in_flight[key]
        if changes == self._change_counts.get(call.server, 0):
            self._store(key, result, ttl)
        return result

    def _store(self, key: CacheKey, result: Raw, ttl: float) -> None:
        if result.get("isError") or result.get("resultType", "complete") != "complete":
            return
        if estimate_size(result, self._max_entry_bytes) >= self._max_entry_bytes:
            return
        try:
            body = json_codec.dumps(result)
        except (TypeError, ValueError, RecursionError):
            return
        if len(body) > self._max_entry_bytes:
            return
        now = self._clock()
        self._drop(key)
        size = len(body) + len(key[4]) + _ENTRY_OVERHEAD_BYTES
        self._entries[key] = _CacheEntry(body, now, now + ttl, size)
        self.size_bytes += size
        while self.size_bytes > self._max_bytes or len(self._entries) > self._max_entries:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: CacheKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry.size
