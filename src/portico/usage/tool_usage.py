"""Call statistics of every tool, updated with each call and written in batches.

An event only adds to a few sums. Rows are built when they are written; what cannot be written yet
is kept, within limits.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from portico.config import UsageConfig
from portico.events import Event, EventBus, ToolCalled
from portico.search import UsageFacts
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallRow, DailyRow, UsageReader
from portico.usage.statistics import (
    UNUSED,
    CallTally,
    Statistics,
    build_tallies,
    merge_tallies,
    split_address,
    to_bucket,
    to_day,
)

logger = logging.getLogger(__name__)

MAX_UNCOUNTED = 200
"""Calls that may wait to be counted."""
MAX_PENDING_CALLS = 20_000
"""Single calls that may wait for an unavailable database."""
MAX_TOOLS = 50_000
MAX_PENDING_COUNTS = 100_000
"""Sums by day, tool and latency that may wait to be written."""
_MAX_NAME_CHARS = 80


@dataclass(eq=False, slots=True)
class _DailyCount:
    """Calls of one tool on one day in one latency bucket."""

    calls: int = 0
    successes: int = 0
    last_at: float = 0.0


@dataclass(eq=False)
class PendingCalls:
    calls: list[tuple[float, ToolCalled]] = field(default_factory=list[tuple[float, ToolCalled]])
    counts: dict[tuple[int, str, int], _DailyCount] = field(
        default_factory=dict[tuple[int, str, int], _DailyCount]
    )

    @property
    def is_empty(self) -> bool:
        return not self.calls and not self.counts

    def to_call_rows(self) -> list[CallRow]:
        return [_to_call_row(at, event) for at, event in self.calls]

    def to_daily_rows(self) -> list[DailyRow]:
        return [
            DailyRow(day, *split_address(tool), bucket, count.calls, count.successes, count.last_at)
            for (day, tool, bucket), count in self.counts.items()
        ]

    def exclude_server(self, server: str | None) -> "PendingCalls":
        """Return a copy without a server's tools, or without any."""
        prefix = "" if server is None else f"{server}."
        return PendingCalls(
            [call for call in self.calls if not call[1].tool.startswith(prefix)],
            {key: count for key, count in self.counts.items() if not key[1].startswith(prefix)},
        )


class ToolUsage:
    """Statistics of all calls: those in the store, from any gateway, and those since."""

    def __init__(
        self,
        store: GatewayStore,
        bus: EventBus,
        retention: UsageConfig,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._records_single_calls = retention.calls_days > 0 and retention.max_calls > 0
        self._clock = clock
        self._pending = PendingCalls()
        self._uncounted: list[tuple[float, ToolCalled]] = []
        """Calls that are not in `_pending` and `_tallies` yet, with the time of their end."""
        self._tallies: dict[str, CallTally] = {}
        self._past_tallies: dict[str, CallTally] = {}
        """Stored tallies of the days before `_past_until`, which no longer change; read daily."""
        self._past_until: int | None = None
        self._day = to_day(clock())
        self._stale: set[str] = set()
        """Tools whose cached statistics are outdated."""
        self._statistics_by_tool: Mapping[str, Statistics] = {}
        self._facts: Mapping[str, UsageFacts] = {}
        self._dropped = 0
        self._lock = asyncio.Lock()
        self._is_writing = False
        self.has_new = asyncio.Event()
        """Set when there is something to write."""
        self.was_called = asyncio.Event()
        self.unsubscribe = bus.subscribe(self._on_tool_called, ToolCalled)

    # --- queries

    def get_statistics(self, address: str) -> Statistics:
        """Return a tool's statistics, including every call until now."""
        return self.statistics_by_tool.get(address, UNUSED)

    @property
    def statistics_by_tool(self) -> Mapping[str, Statistics]:
        """Statistics of every called tool. A returned mapping never changes."""
        self._refresh()
        return self._statistics_by_tool

    @property
    def facts(self) -> Mapping[str, UsageFacts]:
        """The same figures in the form that search filters use."""
        self._refresh()
        return self._facts

    @property
    def has_pending(self) -> bool:
        """Whether anything is not written yet."""
        return self._is_writing or bool(self._uncounted) or not self._pending.is_empty

    def _refresh(self) -> None:
        self._count_calls()
        if (today := to_day(self._clock())) != self._day:
            self._day = today
            self._stale = set(self._tallies)
        if self._stale:
            fresh = {tool: self._tallies[tool].to_statistics(today) for tool in self._stale}
            self._statistics_by_tool = {**self._statistics_by_tool, **fresh}
            self._facts = {
                **self._facts,
                **{
                    tool: UsageFacts(use.calls, use.successes, use.p50_ms)
                    for tool, use in fresh.items()
                },
            }
            self._stale = set()

    # --- events

    def _on_tool_called(self, event: Event) -> None:
        if isinstance(event, ToolCalled) and not event.cached:
            self._uncounted.append((self._clock(), event))
            self.has_new.set()
            self.was_called.set()
            if len(self._uncounted) >= MAX_UNCOUNTED:
                self._count_calls()

    def _count_calls(self) -> None:
        """Count the calls since the last time: only who needs the counts pays for them."""
        calls = self._uncounted
        self._uncounted = []
        for at, call in calls:
            self._count_call(at, call)

    def _count_call(self, at: float, call: ToolCalled) -> None:
        if self._records_single_calls:
            if len(self._pending.calls) < MAX_PENDING_CALLS:
                self._pending.calls.append((at, call))
            else:
                self._count_dropped()
        if call.cancelled:
            return
        if call.tool not in self._tallies and len(self._tallies) >= MAX_TOOLS:
            self._count_dropped()
            return
        bucket = to_bucket(call.seconds * 1_000)
        tally = self._tallies.setdefault(call.tool, CallTally())
        tally.add(to_day(at), bucket, 1, int(call.ok), at)
        self._stale.add(call.tool)
        key = (to_day(at), call.tool, bucket)
        self._add_pending_count(self._pending, key, _DailyCount(1, int(call.ok), at))

    def _add_pending_count(
        self, pending: PendingCalls, key: tuple[int, str, int], added: _DailyCount
    ) -> None:
        if key not in pending.counts and len(pending.counts) >= MAX_PENDING_COUNTS:
            self._count_dropped()
            return
        count = pending.counts.setdefault(key, _DailyCount())
        count.calls += added.calls
        count.successes += added.successes
        count.last_at = max(count.last_at, added.last_at)

    def _count_dropped(self) -> None:
        self._dropped += 1
        if self._dropped == 1:
            logger.warning(
                "more calls wait to be recorded than there is room for: further ones are not kept"
            )

    # --- storage

    async def load(self, source: UsageReader | None = None) -> None:
        """Load stored statistics, including other gateways'; unwritten calls are kept.

        `source` is read instead of the store.
        """
        async with self._lock:
            await self._load(source or self._store, from_start=False)

    async def _load(self, source: UsageReader | GatewayStore, *, from_start: bool) -> None:
        first_recent_day = to_day(self._clock()) - 1
        from_start = from_start or self._past_until != first_recent_day
        rows = await source.load_daily_usage(0 if from_start else first_recent_day)
        # Adding up a year of rows takes too long for the event loop.
        past, recent = await asyncio.to_thread(
            lambda: (
                build_tallies(row for row in rows if row.day < first_recent_day),
                build_tallies(row for row in rows if row.day >= first_recent_day),
            )
        )
        if from_start:
            self._past_tallies = past
            self._past_until = first_recent_day
        # No await from here on: every call until now is among the pending ones.
        self._count_calls()
        tallies = merge_tallies(
            self._past_tallies, recent, build_tallies(self._pending.to_daily_rows())
        )
        changed = {tool for tool, tally in tallies.items() if tally != self._tallies.get(tool)}
        self._statistics_by_tool = {
            tool: use for tool, use in self._statistics_by_tool.items() if tool in tallies
        }
        self._facts = {tool: facts for tool, facts in self._facts.items() if tool in tallies}
        self._tallies = tallies
        self._stale = changed | (self._stale & tallies.keys())

    @asynccontextmanager
    async def take_pending(self) -> AsyncGenerator[PendingCalls]:
        """Yield what is to be written. If the block raises, it stays pending."""
        async with self._lock:
            self._count_calls()
            pending = self._pending
            self._pending = PendingCalls()
            self._is_writing = True
            try:
                yield pending
            except BaseException:
                self._restore_pending(pending)
                raise
            finally:
                self._is_writing = False
            if self._dropped and not pending.is_empty:
                logger.warning("%d calls were not recorded, because too many waited", self._dropped)
                self._dropped = 0

    def _restore_pending(self, pending: PendingCalls) -> None:
        newer = self._pending
        self._pending = pending
        capacity = MAX_PENDING_CALLS - len(pending.calls)
        pending.calls += newer.calls[:capacity]
        for _ in newer.calls[capacity:]:
            self._count_dropped()
        for key, count in newer.counts.items():
            self._add_pending_count(pending, key, count)

    async def flush(self) -> None:
        """Write what is pending, for use without a recorder."""
        async with self.take_pending() as pending:
            await self._store.add_usage(pending.to_call_rows(), pending.to_daily_rows(), [])

    async def forget(self, server: str | None = None) -> int:
        """Delete the statistics of all tools, or of a server's; return the number of rows."""
        async with self._lock:
            rows = await self._store.forget_usage(server)
            self._count_calls()
            self._pending = self._pending.exclude_server(server)
            await self._load(self._store, from_start=True)
            return rows

    async def reload(self) -> None:
        """Load as `load` does, including past days: they may have been deleted elsewhere."""
        async with self._lock:
            await self._load(self._store, from_start=True)


def _to_call_row(at: float, event: ToolCalled) -> CallRow:
    caller = event.caller
    return CallRow(
        at,
        *split_address(event.tool),
        event.tool_hash,
        event.seconds * 1_000,
        event.ok,
        event.cancelled,
        caller.name[:_MAX_NAME_CHARS],
        caller.profile,
        caller.session,
        person=caller.principal.id,
        call_id=event.call_id,
        via=event.via,
        error=event.error,
        stages=" ".join(f"{seconds * 1_000:.2f}" for seconds in event.stages),
    )
