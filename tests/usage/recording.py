"""Usage, ledger and recorder over one store, with an event bus and a settable clock."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from portico.callers import Caller
from portico.config import UsageConfig
from portico.events import EventBus, ToolCalled, ToolsShown
from portico.storage.gateway_store import GatewayStore
from portico.usage.recorder import UsageRecorder
from portico.usage.token_ledger import TokenLedger
from portico.usage.tool_usage import ToolUsage

DAY = 86_400.0
NOON = 1_800_014_400.0
"""The middle of a day: a test that goes on for hours stays in it."""
ME = Caller("session", "claude", "work")
TIMEOUT_S = 240
TABLES = ("portico_calls", "portico_daily_usage", "portico_ledger_sessions")

Answer = TypeVar("Answer")


class UsageServices:
    """What listens, without a gateway around it."""

    def __init__(
        self,
        record: GatewayStore | None = None,
        retention: UsageConfig = UsageConfig(),  # noqa: B008
        tasks: tuple[Callable[[], Awaitable[object]], ...] = (),
        count: Callable[[str], int] = len,
    ) -> None:
        self.now = NOON
        self.costs = {"": 5_000, "work": 9_000}
        self.bus = EventBus()
        self.record = record or GatewayStore(None, None)
        self.usage = ToolUsage(self.record, self.bus, retention, clock=lambda: self.now)
        self.ledger = TokenLedger(
            self.record,
            self.bus,
            lambda profile: self.costs.get(profile, 0),
            count=count,
            clock=lambda: self.now,
        )
        self.recorder = UsageRecorder(
            self.record,
            self.usage,
            self.ledger,
            retention,
            maintenance_tasks=tasks,
            clock=lambda: self.now,
        )

    def call(
        self,
        tool: str = "mail.send",
        ms: float = 50,
        ok: bool = True,
        cancelled: bool = False,
        times: int = 1,
        caller: Caller = ME,
    ) -> None:
        for _ in range(times):
            self.bus.publish(ToolCalled(tool, "hash", ms / 1_000, ok, caller, cancelled))

    def show(self, what: object, caller: Caller = ME, listing: bool = False) -> None:
        self.bus.publish(ToolsShown(caller, what, listing))


class Disk:
    """A record on a disk that can be full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.record = GatewayStore(None, path)

    async def fill(self, *tables: str) -> None:
        """From now on nothing can be written, or nothing to these tables."""
        await self.record.open()
        for table in tables or TABLES:
            self._do(
                f"create trigger full_{table} before insert on {table}"
                " begin select raise(abort, 'the disk is full'); end"
            )

    def clear(self) -> None:
        """Allow writes again."""
        for table in TABLES:
            self._do(f"drop trigger if exists full_{table}")

    def _do(self, statement: str) -> None:
        with contextlib.closing(sqlite3.connect(self._path)) as db, db:
            db.execute(statement)


async def soon(work: Awaitable[Answer]) -> Answer:
    """What it answers, within reason."""
    return await asyncio.wait_for(work, TIMEOUT_S)


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is so, within reason."""
    async with asyncio.timeout(TIMEOUT_S):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
