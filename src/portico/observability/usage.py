"""How every tool does: hears each call, knows its statistics at once, and hands what happened on to be kept.

Hearing adds to a few sums. Rows are made when they are written; what cannot be written yet waits, within bounds.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from portico.events import Bus, Event, ToolCalled
from portico.observability.statistics import UNUSED, Statistics, Tally, bucket_of, day_of, tallies, together
from portico.search import Facts
from portico.storage.record import Record
from portico.storage.rows import CallRow, DailyRow, Retention

logger = logging.getLogger(__name__)

MAX_CALLS = 20_000
"""Calls that wait to be written one by one: a database may be away for long."""
MAX_TOOLS = 50_000
MAX_COUNTS = 100_000
"""Sums by day, tool and latency that wait to be written."""
_LONGEST_NAME = 80


@dataclass(eq=False, slots=True)
class _Count:
    """Calls of one tool on one day, of about one latency."""

    calls: int = 0
    successes: int = 0
    last_at: float = 0.0


@dataclass(eq=False)
class Heard:
    """What was heard and not yet written."""

    calls: list[tuple[float, ToolCalled]] = field(default_factory=list[tuple[float, ToolCalled]])
    counts: dict[tuple[int, str, int], _Count] = field(default_factory=dict[tuple[int, str, int], _Count])

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.calls and not self.counts

    def call_rows(self) -> list[CallRow]:
        """Each call."""
        return [_call_row(at, event) for at, event in self.calls]

    def daily_rows(self) -> list[DailyRow]:
        """The sums."""
        return [
            DailyRow(day, *_parts(tool), bucket, count.calls, count.successes, count.last_at)
            for (day, tool, bucket), count in self.counts.items()
        ]

    def without(self, server: str) -> "Heard":
        """The same but for a server's tools."""
        prefix = f"{server}."
        return Heard(
            [one for one in self.calls if not one[1].tool.startswith(prefix)],
            {key: count for key, count in self.counts.items() if not key[1].startswith(prefix)},
        )


class Usage:
    """What is known of every tool's calls: those on record, whoever made them, and those just heard."""

    def __init__(
        self, record: Record, bus: Bus, retention: Retention, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._record = record
        self._single_calls = retention.calls_days > 0 and retention.max_calls > 0
        self._clock = clock
        self._heard = Heard()
        self._tallies: dict[str, Tally] = {}
        self._past: dict[str, Tally] = {}
        """What the record says of the days before `_past_until`: nobody adds to them, so they are read once a day."""
        self._past_until: int | None = None
        self._day = day_of(clock())
        self._stale: set[str] = set()
        """Tools whose statistics are not those shown."""
        self._used: Mapping[str, Statistics] = {}
        self._facts: Mapping[str, Facts] = {}
        self._dropped = 0
        self._lock = asyncio.Lock()
        self._end = bus.subscribe(self._hear, ToolCalled)

    # --- asking

    def statistics(self, address: str) -> Statistics:
        """How a tool does, every call included that was heard until now."""
        return self.used.get(address, UNUSED)

    @property
    def used(self) -> Mapping[str, Statistics]:
        """Every tool with a call. What was handed out does not change."""
        self._refresh()
        return self._used

    @property
    def facts(self) -> Mapping[str, Facts]:
        """The same as filters of search want it."""
        self._refresh()
        return self._facts

    @property
    def waiting(self) -> bool:
        """Whether anything is to be written."""
        return not self._heard.empty

    def _refresh(self) -> None:
        if (today := day_of(self._clock())) != self._day:
            self._day, self._stale = today, set(self._tallies)
        if self._stale:
            fresh = {tool: self._tallies[tool].statistics(today) for tool in self._stale}
            self._used = {**self._used, **fresh}
            self._facts = {**self._facts, **{tool: _facts(use) for tool, use in fresh.items()}}
            self._stale = set()

    # --- hearing

    def _hear(self, event: Event) -> None:
        if not isinstance(event, ToolCalled) or event.cached:
            return
        now = self._clock()
        if self._single_calls:
            if len(self._heard.calls) < MAX_CALLS:
                self._heard.calls.append((now, event))
            else:
                self._drop()
        if not event.cancelled:
            self._count(event.tool, day_of(now), bucket_of(event.seconds * 1_000), _Count(1, int(event.ok), now))

    def _count(self, tool: str, day: int, bucket: int, more: _Count) -> None:
        tally = self._tallies.get(tool)
        if tally is None:
            if len(self._tallies) >= MAX_TOOLS:
                self._drop()
                return
            tally = self._tallies[tool] = Tally()
        tally.add(day, bucket, more.calls, more.successes, more.last_at)
        self._stale.add(tool)
        self._wait(self._heard, (day, tool, bucket), more)

    def _wait(self, heard: Heard, key: tuple[int, str, int], more: _Count) -> None:
        count = heard.counts.get(key)
        if count is None:
            if len(heard.counts) >= MAX_COUNTS:
                self._drop()
                return
            count = heard.counts[key] = _Count()
        count.calls += more.calls
        count.successes += more.successes
        count.last_at = max(count.last_at, more.last_at)

    def _drop(self) -> None:
        self._dropped += 1
        if self._dropped == 1:
            logger.warning("more calls wait to be recorded than there is room for: further ones are not kept")

    # --- memory and record

    async def load(self) -> None:
        """Know what is on record, other gateways' calls among it; what waits to be written stays."""
        async with self._lock:
            await self._load(whole=False)

    async def _load(self, *, whole: bool) -> None:
        settled = day_of(self._clock()) - 1
        whole = whole or self._past_until != settled
        rows = await self._record.daily_use(0 if whole else settled)
        # A year of rows takes a while to add up.
        before, recent = await asyncio.to_thread(_added_up, rows, settled)
        if whole:
            self._past, self._past_until = before, settled
        # Nothing awaits from here on: whatever was heard meanwhile is among what waits.
        known = together(self._past, recent, tallies(self._heard.daily_rows()))
        changed = {tool for tool, tally in known.items() if tally != self._tallies.get(tool)}
        self._used = {tool: use for tool, use in self._used.items() if tool in known}
        self._facts = {tool: facts for tool, facts in self._facts.items() if tool in known}
        self._tallies, self._stale = known, changed | (self._stale & known.keys())

    @asynccontextmanager
    async def handing_over(self) -> AsyncGenerator[Heard]:
        """What is to be written: whoever fails to, raises, and it waits on."""
        async with self._lock:
            heard, self._heard = self._heard, Heard()
            try:
                yield heard
            except BaseException:
                self._put_back(heard)
                raise
            if self._dropped and not heard.empty:
                logger.warning("%d calls were not recorded, because too many waited", self._dropped)
                self._dropped = 0

    def _put_back(self, heard: Heard) -> None:
        since, self._heard = self._heard, heard
        room = MAX_CALLS - len(heard.calls)
        heard.calls += since.calls[:room]
        for _ in since.calls[room:]:
            self._drop()
        for key, count in since.counts.items():
            self._wait(heard, key, count)

    async def flush(self) -> None:
        """Write what waits, where no keeper does."""
        async with self.handing_over() as heard:
            if not heard.empty:
                await self._record.add_use(heard.call_rows(), heard.daily_rows(), [])

    async def forget(self, server: str | None = None) -> int:
        """Drop what is known of all tools, or of a server's, in memory and on record; how many rows were there."""
        async with self._lock:
            rows = await self._record.forget_use(server)
            self._heard = Heard() if server is None else self._heard.without(server)
            await self._load(whole=True)
            return rows

    async def reload(self) -> None:
        """As `load`, with the days that do not change any more: somebody may have forgotten them."""
        async with self._lock:
            await self._load(whole=True)

    def end(self) -> None:
        """Hear no more."""
        self._end()


def _added_up(rows: Sequence[DailyRow], settled: int) -> tuple[dict[str, Tally], dict[str, Tally]]:
    """The calls before a day, and since."""
    return tallies(row for row in rows if row.day < settled), tallies(row for row in rows if row.day >= settled)


def _facts(use: Statistics) -> Facts:
    return Facts(use.calls, use.successes, use.p50_ms)


def _parts(address: str) -> tuple[str, str]:
    server, _, tool = address.partition(".")
    return server, tool


def _call_row(at: float, event: ToolCalled) -> CallRow:
    caller = event.caller
    return CallRow(
        at,
        *_parts(event.tool),
        event.tool_hash,
        event.seconds * 1_000,
        event.ok,
        event.cancelled,
        caller.name[:_LONGEST_NAME],
        caller.profile,
        caller.session,
    )
