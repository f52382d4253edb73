"""Usage, ledger and keeper over one record, the bus they listen to, and a clock that is set by
hand."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from portico.access import Caller
from portico.events import EventBus, ToolCalled, ToolsShown
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import Retention
from portico.usage.recorder import UsageRecorder
from portico.usage.token_ledger import TokenLedger
from portico.usage.tool_usage import ToolUsage

DAY = 86_400.0
NOON = 1_800_014_400.0
"""The middle of a day: a test that goes on for hours stays in it."""
ME = Caller("session", "claude", "work")
PATIENCE = 20
TABLES = ("portico_calls", "portico_daily_usage", "portico_ledger_sessions")

Answer = TypeVar("Answer")


class House:
    """What listens, without a gateway around it."""

    def __init__(
        self,
        record: GatewayStore | None = None,
        retention: Retention = Retention(),  # noqa: B008
        chores: tuple[Callable[[], Awaitable[object]], ...] = (),
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
        self.keeper = UsageRecorder(
            self.record,
            self.bus,
            self.usage,
            self.ledger,
            retention,
            maintenance_tasks=chores,
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
        """There is room again."""
        for table in TABLES:
            self._do(f"drop trigger if exists full_{table}")

    def _do(self, statement: str) -> None:
        with contextlib.closing(sqlite3.connect(self._path)) as db, db:
            db.execute(statement)


async def soon(work: Awaitable[Answer]) -> Answer:
    """What it answers, within reason."""
    return await asyncio.wait_for(work, PATIENCE)


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is so, within reason."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
