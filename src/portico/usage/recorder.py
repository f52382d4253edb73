"""Recorder: one task that opens the store, writes usage and ledger together, and prunes.

Nothing waits for it. While the store is unavailable, figures come from memory and it retries.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence

from portico.config import UsageConfig
from portico.storage.gateway_store import CommitUncertain, GatewayStore, StoreUnavailable
from portico.usage.token_ledger import TokenLedger
from portico.usage.tool_usage import ToolUsage

logger = logging.getLogger(__name__)

WRITE_DELAY_S = 0.5
"""Delay of a write in seconds, to batch events."""
COUNT_TIMEOUT_S = 0.2
"""Seconds that a write waits for responses that are still being counted."""
READ_INTERVAL_S = 15.0
"""Seconds between reads of what other gateways wrote."""
PRUNE_INTERVAL_S = 3_600.0
INITIAL_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
CLOSE_TIMEOUT_S = 3.0
"""Seconds that the last write may take."""


class UsageRecorder:
    def __init__(
        self,
        store: GatewayStore,
        usage: ToolUsage,
        ledger: TokenLedger,
        retention: UsageConfig,
        *,
        maintenance_tasks: Sequence[Callable[[], Awaitable[object]]] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the recorder; `maintenance_tasks` run after each read of the store."""
        self._store = store
        self._usage = usage
        self._ledger = ledger
        self._retention = retention
        self._maintenance_tasks = maintenance_tasks
        self._clock = clock
        self._has_pending = ledger.has_new = usage.has_new
        # Not by a listing: every client starts with one, and the SQL libraries take long to load.
        self._open_now = usage.was_called
        """Set to open the store without delay."""
        self._closing = asyncio.Event()
        self._first_attempt_done = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._backoff_s = INITIAL_BACKOFF_S
        self._warned = False

    def start(self, delay_s: float = 0.0) -> None:
        """Start the task. The store opens after `delay_s` seconds, or at the first tool call."""
        self._task = asyncio.create_task(self._run(delay_s), name="usage recorder")

    async def wait_until_loaded(self) -> None:
        """Wait until the stored figures are loaded, or loading has failed."""
        if self._task is not None:
            self._open_now.set()
            await self._first_attempt_done.wait()

    async def flush(self, timeout_s: float = COUNT_TIMEOUT_S) -> None:
        """Write what is pending in one transaction; it stays pending on StoreUnavailable."""
        # Calls are taken last, so that those made while responses are counted are written too.
        async with (
            self._ledger.take_pending(timeout_s) as rows,
            self._usage.take_pending() as pending,
        ):
            if rows or not pending.is_empty:
                try:
                    daily = pending.to_daily_rows() if self._retention.daily_days else ()
                    sessions = rows if self._retention.sessions_days else ()
                    await self._store.add_usage(pending.to_call_rows(), daily, sessions)
                except CommitUncertain as error:
                    # Treated as written: missing half a second of use is better than counting it
                    # twice.
                    logger.warning(
                        "whether what was used last is recorded is not known: %s", error.message
                    )

    async def reload(self) -> None:
        """Reload everything from the store, after a notification that it changed."""
        await self._attempt(self._read_all)
        await self._run_maintenance()

    async def close(self) -> bool:
        """Unsubscribe and write what is pending; return whether the store responded in time."""
        late: set[asyncio.Task[None]] = set()
        self._usage.unsubscribe()
        self._ledger.unsubscribe()
        for event in (self._closing, self._open_now, self._has_pending):
            event.set()
        if self._task is None and (self._usage.has_pending or self._ledger.has_pending):
            self.start()  # a short-lived command that made one call
        if self._task is not None:
            _, late = await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT_S)
            if late:
                logger.warning(
                    "what was used last is not recorded: the record did not answer in time"
                )
                self._task.cancel()
                await asyncio.wait(late)
        await self._ledger.stop_counting()
        return not late

    async def _run(self, delay_s: float) -> None:
        await _wait_for_event(delay_s, self._open_now)
        while not self._closing.is_set() and not await self._attempt(self._open_record):
            await self._run_maintenance()
            self._first_attempt_done.set()
            await self._sleep(self._backoff_s)
        if not self._closing.is_set():
            await self._run_maintenance()
        self._first_attempt_done.set()
        # Pruned in the first round, for gateways that never run for an hour.
        read_at = time.monotonic()
        pruned_at = -math.inf
        while not self._closing.is_set():
            if await _wait_for_event(READ_INTERVAL_S, self._has_pending):
                await self._write_batch()
            if self._closing.is_set():
                break
            if time.monotonic() - read_at >= READ_INTERVAL_S:
                await self._attempt(self._read_recent)
                await self._run_maintenance()
                read_at = time.monotonic()
            if time.monotonic() - pruned_at >= PRUNE_INTERVAL_S and await self._attempt(
                self._prune
            ):
                pruned_at = time.monotonic()
        if self._usage.has_pending or self._ledger.has_pending:
            await self._attempt(lambda: self.flush(CLOSE_TIMEOUT_S / 2))

    async def _write_batch(self) -> None:
        await self._sleep(WRITE_DELAY_S)
        self._has_pending.clear()
        done = await self._attempt(self.flush)
        if self._usage.has_pending or self._ledger.has_pending:
            self._has_pending.set()
        if not done:
            await self._sleep(self._backoff_s)

    async def _open_record(self) -> None:
        await self._store.open()
        await self._read_recent()

    async def _read_recent(self) -> None:
        await self._usage.load()
        await self._ledger.load()

    async def _read_all(self) -> None:
        await self._usage.reload()
        await self._ledger.load()

    async def _run_maintenance(self) -> None:
        for task in self._maintenance_tasks:
            try:
                await task()
            except Exception:  # one task's failure must not affect the others
                logger.exception("a maintenance task failed")

    async def _prune(self) -> None:
        await self._store.prune(self._retention, self._clock())
        # Past days may have been deleted elsewhere, so everything is read again.
        await self._usage.reload()

    async def _attempt(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Run `work`; return whether it succeeded. Warns once until it works again."""
        try:
            await work()
        except Exception as error:  # recording must not affect calls nor end this task
            if not self._warned:
                if isinstance(error, StoreUnavailable):
                    logger.warning("use is not recorded for now: %s", error.message)
                else:
                    logger.warning("use is not recorded for now: a fault", exc_info=error)
            self._warned = True
            self._backoff_s = min(self._backoff_s * 2, MAX_BACKOFF_S)
            return False
        if self._warned:
            logger.warning("use is recorded again")
        self._warned = False
        self._backoff_s = INITIAL_BACKOFF_S
        return True

    async def _sleep(self, seconds: float) -> None:
        await _wait_for_event(seconds, self._closing)


async def _wait_for_event(seconds: float, event: asyncio.Event) -> bool:
    """Wait for an event for at most `seconds`; return whether it is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
