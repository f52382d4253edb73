"""Call statistics of every tool, updated with each call and written in batches.

An event only adds to a few sums. Rows are built when they are written; what cannot be written yet
is kept, within limits.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from portico.events import Event, EventBus, ToolCalled
from portico.search import UsageFacts
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallRow, DailyRow, Retention
from portico.usage.statistics import (
    UNUSED,
    CallTally,
    Statistics,
    build_tallies,
    merge_tallies,
    to_bucket,
    to_day,
)

logger = logging.getLogger(__name__)

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
    """Calls that are not yet written."""

    calls: list[tuple[float, ToolCalled]] = field(default_factory=list[tuple[float, ToolCalled]])
    counts: dict[tuple[int, str, int], _DailyCount] = field(
        default_factory=dict[tuple[int, str, int], _DailyCount]
    )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.calls and not self.counts

    def to_call_rows(self) -> list[CallRow]:
        """Return a row for each call."""
        return [_to_call_row(at, event) for at, event in self.calls]

    def to_daily_rows(self) -> list[DailyRow]:
        """Return a row for each daily sum."""
        return [
            DailyRow(
                day, *_split_address(tool), bucket, count.calls, count.successes, count.last_at
            )
            for (day, tool, bucket), count in self.counts.items()
        ]

    def exclude_server(self, server: str) -> "PendingCalls":
        """Return a copy without a server's tools."""
        prefix = f"{server}."
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
        retention: Retention,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._records_single_calls = retention.calls_days > 0 and retention.max_calls > 0
        self._clock = clock
        self._pending = PendingCalls()
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
        self._unsubscribe = bus.subscribe(self._on_tool_called, ToolCalled)

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
        """Whether anything is to be written."""
        return not self._pending.is_empty

    def _refresh(self) -> None:
        if (today := to_day(self._clock())) != self._day:
            self._day = today
            self._stale = set(self._tallies)
        if self._stale:
            fresh = {tool: self._tallies[tool].to_statistics(today) for tool in self._stale}
            self._statistics_by_tool = {**self._statistics_by_tool, **fresh}
            self._facts = {**self._facts, **{tool: _to_facts(use) for tool, use in fresh.items()}}
            self._stale = set()

    # --- events

    def _on_tool_called(self, event: Event) -> None:
        if not isinstance(event, ToolCalled) or event.cached:
            return
        now = self._clock()
        if self._records_single_calls:
            if len(self._pending.calls) < MAX_PENDING_CALLS:
                self._pending.calls.append((now, event))
            else:
                self._count_dropped()
        if not event.cancelled:
            self._add_count(
                event.tool,
                to_day(now),
                to_bucket(event.seconds * 1_000),
                _DailyCount(1, int(event.ok), now),
            )

    def _add_count(self, tool: str, day: int, bucket: int, added: _DailyCount) -> None:
        tally = self._tallies.get(tool)
        if tally is None:
            if len(self._tallies) >= MAX_TOOLS:
                self._count_dropped()
                return
            tally = self._tallies[tool] = CallTally()
        tally.add(day, bucket, added.calls, added.successes, added.last_at)
        self._stale.add(tool)
        self._add_pending_count(self._pending, (day, tool, bucket), added)

    def _add_pending_count(
        self, pending: PendingCalls, key: tuple[int, str, int], added: _DailyCount
    ) -> None:
        count = pending.counts.get(key)
        if count is None:
            if len(pending.counts) >= MAX_PENDING_COUNTS:
                self._count_dropped()
                return
            count = pending.counts[key] = _DailyCount()
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

    async def load(self) -> None:
        """Load stored statistics, including other gateways'; unwritten calls are kept."""
        async with self._lock:
            await self._load(from_start=False)

    async def _load(self, *, from_start: bool) -> None:
        first_recent_day = to_day(self._clock()) - 1
        from_start = from_start or self._past_until != first_recent_day
        rows = await self._store.load_daily_usage(0 if from_start else first_recent_day)
        # Adding up a year of rows takes too long for the event loop.
        past, recent = await asyncio.to_thread(_split_tallies, rows, first_recent_day)
        if from_start:
            self._past_tallies = past
            self._past_until = first_recent_day
        # No await from here on: every call until now is among the pending ones.
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
            pending = self._pending
            self._pending = PendingCalls()
            try:
                yield pending
            except BaseException:
                self._restore_pending(pending)
                raise
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
            if not pending.is_empty:
                await self._store.add_usage(pending.to_call_rows(), pending.to_daily_rows(), [])

    async def forget(self, server: str | None = None) -> int:
        """Delete the statistics of all tools, or of a server's; return the number of rows."""
        async with self._lock:
            rows = await self._store.forget_usage(server)
            if server is None:
                self._pending = PendingCalls()
            else:
                self._pending = self._pending.exclude_server(server)
            await self._load(from_start=True)
            return rows

    async def reload(self) -> None:
        """Load as `load` does, including past days: they may have been deleted elsewhere."""
        async with self._lock:
            await self._load(from_start=True)

    def unsubscribe(self) -> None:
        """Stop receiving events."""
        self._unsubscribe()


def _split_tallies(
    rows: Sequence[DailyRow], first_recent_day: int
) -> tuple[dict[str, CallTally], dict[str, CallTally]]:
    """Return the tallies before a day, and since."""
    past = build_tallies(row for row in rows if row.day < first_recent_day)
    recent = build_tallies(row for row in rows if row.day >= first_recent_day)
    return past, recent


def _to_facts(statistics: Statistics) -> UsageFacts:
    return UsageFacts(statistics.calls, statistics.successes, statistics.p50_ms)


def _split_address(address: str) -> tuple[str, str]:
    server, _, tool = address.partition(".")
    return server, tool


def _to_call_row(at: float, event: ToolCalled) -> CallRow:
    caller = event.caller
    return CallRow(
        at,
        *_split_address(event.tool),
        event.tool_hash,
        event.seconds * 1_000,
        event.ok,
        event.cancelled,
        caller.name[:_MAX_NAME_CHARS],
        caller.profile,
        caller.session,
    )
