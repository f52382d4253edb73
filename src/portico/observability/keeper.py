"""Keeps what happened: one task that opens the record, writes use and ledger together, and sees that it stays small.

Nobody waits for it. While the record cannot be used everything is known from memory, and it is tried again.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence

from portico.events import Bus, Event, Shown, ToolCalled
from portico.observability.ledger import Ledger
from portico.observability.usage import Usage
from portico.storage.record import Record, RecordUnavailable, RecordUncertain
from portico.storage.rows import Retention

logger = logging.getLogger(__name__)

WRITE_AFTER_S = 0.5
"""What was heard is written so much later, together with what was heard meanwhile."""
COUNT_PATIENCE_S = 0.2
"""So long calls wait to be written together with answers that are still being counted."""
READ_EVERY_S = 15.0
"""How often what other gateways wrote is read."""
PRUNE_EVERY_S = 3_600.0
RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
END_PATIENCE_S = 3.0
"""How long the last write may take."""


class Keeper:
    """The task that writes."""

    def __init__(
        self,
        record: Record,
        bus: Bus,
        usage: Usage,
        ledger: Ledger,
        retention: Retention,
        *,
        chores: Sequence[Callable[[], Awaitable[object]]] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`chores` are done after each reading of the record."""
        self._record = record
        self._usage = usage
        self._ledger = ledger
        self._retention = retention
        self._chores = chores
        self._clock = clock
        self._stirred = asyncio.Event()
        self._needed = asyncio.Event()
        """The record is to be opened without delay."""
        self._ending = asyncio.Event()
        self._tried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._retry_s = RETRY_S
        self._complained = False
        self._end = bus.subscribe(self._hear, ToolCalled, Shown)

    def start(self, after_s: float = 0.0) -> None:
        """Begin; answers at once. The record is opened so much later, or when a tool is called."""
        self._task = asyncio.create_task(self._keep(after_s), name="keep what happened")

    async def loaded(self) -> None:
        """Wait until what is on record is known, or cannot be."""
        if self._task is not None:
            self._needed.set()
            await self._tried.wait()

    async def flush(self, patience_s: float = COUNT_PATIENCE_S) -> None:
        """Write what waits, in one transaction; raises RecordUnavailable, and it waits on."""
        # Calls are taken last: those heard while answers are counted are written too.
        async with self._ledger.handing_over(patience_s) as rows, self._usage.handing_over() as heard:
            if rows or not heard.empty:
                try:
                    keep = self._retention
                    daily, sessions = heard.daily_rows() if keep.daily_days else (), rows if keep.sessions_days else ()
                    await self._record.add_use(heard.call_rows(), daily, sessions)
                except RecordUncertain as error:
                    # It counts as written: to miss half a second of use once is better than to count it twice.
                    logger.warning("whether what was used last is recorded is not known: %s", error.message)

    async def reread(self) -> None:
        """Read all of the record anew: somebody says that it changed."""
        await self._attempt(self._read_all)
        await self._tend()

    async def close(self) -> bool:
        """Hear no more and write what waits, but not for long; whether the record answered in time."""
        late: set[asyncio.Task[None]] = set()
        for end in (self._usage.end, self._ledger.end, self._end):
            end()
        for event in (self._ending, self._needed, self._stirred):
            event.set()
        if self._task is None and (self._usage.waiting or self._ledger.waiting):
            self.start()  # a command that made one call and ends
        if self._task is not None:
            _, late = await asyncio.wait({self._task}, timeout=END_PATIENCE_S)
            if late:
                logger.warning("what was used last is not recorded: the record did not answer in time")
                self._task.cancel()
                await asyncio.wait(late)
        await self._ledger.stop_counting()
        return not late

    def _hear(self, event: Event) -> None:
        self._stirred.set()
        # Not for a listing: that is how a client begins, and what speaks SQL takes long to load.
        if isinstance(event, ToolCalled):
            self._needed.set()

    async def _keep(self, after_s: float) -> None:
        await _within(after_s, self._needed)
        while not self._ending.is_set() and not await self._attempt(self._open):
            await self._tend()
            self._tried.set()
            await self._rest(self._retry_s)
        if not self._ending.is_set():
            await self._tend()
        self._tried.set()
        # Pruned on the first round: a gateway that never runs for an hour would else never do it.
        read_at, pruned_at = time.monotonic(), -math.inf
        while not self._ending.is_set():
            if await _within(READ_EVERY_S, self._stirred):
                await self._write()
            if self._ending.is_set():
                break
            if time.monotonic() - read_at >= READ_EVERY_S:
                await self._attempt(self._read)
                await self._tend()
                read_at = time.monotonic()
            if time.monotonic() - pruned_at >= PRUNE_EVERY_S and await self._attempt(self._prune):
                pruned_at = time.monotonic()
        if self._usage.waiting or self._ledger.waiting:
            await self._attempt(lambda: self.flush(END_PATIENCE_S / 2))

    async def _write(self) -> None:
        await self._rest(WRITE_AFTER_S)
        self._stirred.clear()
        done = await self._attempt(self.flush)
        if self._usage.waiting or self._ledger.waiting:
            self._stirred.set()
        if not done:
            await self._rest(self._retry_s)

    async def _open(self) -> None:
        await self._record.open()
        await self._read()

    async def _read(self) -> None:
        await self._usage.load()
        await self._ledger.load()

    async def _read_all(self) -> None:
        await self._usage.reload()
        await self._ledger.load()

    async def _tend(self) -> None:
        for chore in self._chores:
            try:
                await chore()
            except Exception:  # one chore's fault is no other's
                logger.exception("a chore could not be done")

    async def _prune(self) -> None:
        await self._record.prune(self._retention, self._clock())
        # Somebody may have had it forget: what is read daily is read anew with this.
        await self._usage.reload()

    async def _attempt(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Whether it was done; complains once, until something is again."""
        try:
            await work()
        except Exception as error:  # whatever it is, calls go on, and so does this task
            if not self._complained:
                expected = isinstance(error, RecordUnavailable)
                reason = error.message if expected else "an error of our own"
                logger.warning("use is not recorded for now: %s", reason, exc_info=None if expected else error)
            self._complained = True
            self._retry_s = min(self._retry_s * 2, LONGEST_RETRY_S)
            return False
        if self._complained:
            logger.warning("use is recorded again")
        self._complained, self._retry_s = False, RETRY_S
        return True

    async def _rest(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        await _within(seconds, self._ending)


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for it, but not longer; whether it came."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
