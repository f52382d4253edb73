"""The record of the house, shared by every gateway on one database: who offered what, and how it was used.

SQLite by default, PostgreSQL by URL. Light to import: what speaks SQL is loaded, in a thread, when the record is
opened, which the first use does too. What cannot be kept raises `RecordUnavailable`; the next use tries again.
"""

import asyncio
import contextlib
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from portico.storage.manifests import Manifest
from portico.storage.plan_rows import PlanRow
from portico.storage.rows import (
    CallRow,
    CategoryRow,
    DailyRow,
    KnownServer,
    LedgerRow,
    LedgerTotal,
    News,
    Retention,
    SeenTool,
    ShapeRow,
    TierRow,
)
from portico.storage.sql.address import Postgres, Sqlite, is_postgres, read_address
from portico.storage.sql.files import prepare, set_aside
from portico.storage.sql.trouble import RecordBroken, RecordUnavailable, RecordUncertain, RecordUnreachable

if TYPE_CHECKING:
    from portico.storage.sql.database import Database, Work
    from portico.storage.sql.news import Stamps

__all__ = ["Record", "RecordUnavailable", "RecordUncertain"]

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_TRIES, _BETWEEN_TRIES_S = 4, 0.2


class Record:
    """The record. For one event loop."""

    def __init__(self, url: str | None, path: Path | None) -> None:
        """`url`: postgresql://… or sqlite:///…; else the SQLite file `path`; both None: in memory."""
        self._url = url
        self._path = path
        self._opening = asyncio.Lock()
        self._database: Database | None = None
        self._inode = 0
        self._problem = ""
        self._fallback = ""
        """Why it is in memory, where it should be on disk."""
        self._failures = 0
        self._failed: RecordUnavailable | None = None
        self._told: Stamps = {}
        """The news there were when the record was opened."""

    @property
    def problem(self) -> str:
        """Why nothing is kept; empty when all is well."""
        return self._fallback or self._problem

    @property
    def shared(self) -> bool:
        """Whether it is PostgreSQL, which gateways on other machines may use too."""
        return is_postgres(self._url)

    async def open(self) -> None:
        """Connect and bring the tables up to date. Nothing happens where that was done."""
        await self._ready()

    async def close(self) -> None:
        """End every connection. The next use opens it again."""
        async with self._opening:
            database, self._database = self._database, None
            if database is not None:
                await database.close()

    # Use

    async def add_use(self, calls: Sequence[CallRow], daily: Sequence[DailyRow], ledger: Sequence[LedgerRow]) -> None:
        """Add calls, and add counts to those that are there: all of it or nothing."""
        if calls or daily or ledger:
            await self._write(lambda db: _sql().uses.add(db, calls, daily, ledger))

    async def daily_use(self, since_day: int) -> list[DailyRow]:
        """The counts of every day since that one, and of it."""
        return await self._read(lambda db: _sql().uses.daily_use(db, since_day))

    async def calls(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        server: str | None = None,
        tool: str | None = None,
        ok: bool | None = None,
    ) -> list[CallRow]:
        """The newest calls first; `before` is the id that the last page ended with."""
        return await self._read(
            lambda db: _sql().uses.latest_calls(db, limit=limit, before=before, server=server, tool=tool, ok=ok)
        )

    async def ledger_total(self) -> LedgerTotal:
        """What every session was shown, together."""
        return await self._read(lambda db: _sql().uses.ledger_total(db))

    async def ledger_sessions(self, limit: int = 50) -> list[LedgerRow]:
        """The latest sessions first."""
        return await self._read(lambda db: _sql().uses.latest_sessions(db, limit))

    async def forget_use(self, server: str | None = None) -> int:
        """Drop the use of a server's tools, or all of it with the ledger; answers how many rows that were."""
        return await self._write(lambda db: _sql().uses.forget(db, server))

    async def prune(self, keep: Retention, now: float) -> int:
        """Drop what is too old or too much; answers how many rows that were."""
        return await self._write(lambda db: _sql().pruning.prune(db, keep, now))

    # What exists

    async def save_servers(self, servers: Sequence[KnownServer], *, origin: str) -> None:
        """Write what these servers offer now, where it differs, and tell the other gateways."""
        if servers:
            await self._write(lambda db: _sql().catalog.save(db, servers, origin=origin))

    async def manifests(self, fingerprints: Mapping[str, str], newer_than: Mapping[str, float]) -> dict[str, Manifest]:
        """The manifests of these servers, made with these fingerprints, that were listed after these moments."""
        return await self._read(lambda db: _sql().catalog.load_manifests(db, fingerprints, newer_than))

    async def seen_tools(self, server: str | None = None) -> list[SeenTool]:
        """Every tool that was ever listed, of one server or of all."""
        return await self._read(lambda db: _sql().catalog.seen_tools(db, server))

    async def save_categories(self, categories: Sequence[CategoryRow]) -> None:
        """These categories, in place of those that are there."""
        await self._write(lambda db: _sql().standing.save_categories(db, categories))

    async def categories(self) -> list[CategoryRow]:
        """Every category, by name."""
        return await self._read(lambda db: _sql().standing.load_categories(db))

    async def save_tiers(self, rows: Sequence[TierRow], *, at: float, origin: str) -> None:
        """These tiers, computed at that moment, in place of those that are there; the other gateways are told."""
        await self._write(lambda db: _sql().standing.save_tiers(db, rows, at=at, origin=origin))

    async def tiers(self) -> tuple[float, list[TierRow]]:
        """When tiers were last computed (0.0: never), and what came of it, the best first."""
        return await self._read(lambda db: _sql().standing.load_tiers(db))

    async def save_shapes(self, rows: Sequence[ShapeRow]) -> None:
        """What these definitions' results look like, in place of what was known of them."""
        if rows:
            await self._write(lambda db: _sql().shapes.save(db, rows))

    async def shapes(self, limit: int) -> list[ShapeRow]:
        """What results look like, the latest learnt first."""
        return await self._read(lambda db: _sql().shapes.latest(db, limit))

    async def add_plans(self, rows: Sequence[PlanRow]) -> None:
        """Plans that worked; one that is there has worked as often as both."""
        if rows:
            await self._write(lambda db: _sql().plans.add(db, rows))

    async def plans(self, scope: str) -> list[PlanRow]:
        """The plans that worked in a scope, the latest used first."""
        return await self._read(lambda db: _sql().plans.load(db, scope))

    async def forget_plans(self, profile: str | None = None) -> int:
        """Drop the plans of a profile, or all; answers how many that were."""
        return await self._write(lambda db: _sql().plans.forget(db, profile))

    # Others

    async def follow(self, heard: Callable[[News], None], *, origin: str) -> None:
        """Report what other gateways change, until cancelled; what is told under our own `origin` is not reported."""
        database = await self._ready()
        if isinstance(database.address, Postgres):
            listening = await asyncio.to_thread(importlib.import_module, "portico.storage.sql.listening")

            async def missed() -> list[News]:
                return _sql().news.unheard(self._told, await self._read(_sql().news.stamps), origin)

            await listening.listen(database.address, heard, origin=origin, missed=missed)
        elif database.address.path is not None:
            await _sql().watching.watch(
                database.address.path,
                heard,
                origin=origin,
                known=self._told,
                look=lambda: self._read(_sql().news.stamps),
            )
        else:
            await asyncio.Event().wait()  # nobody else sees our memory

    # Being there

    async def _read(self, work: "Work[Answer]") -> Answer:
        return await self._attempt(work, writes=False)

    async def _write(self, work: "Work[Answer]") -> Answer:
        return await self._attempt(work, writes=True)

    async def _attempt(self, work: "Work[Answer]", *, writes: bool) -> Answer:
        database = await self._ready()
        try:
            try:
                answer = await (database.write(work) if writes else database.read(work))
            except RecordBroken as error:
                await self._begin_anew(database, error)
                database = await self._ready()
                answer = await (database.write(work) if writes else database.read(work))
        except RecordUnavailable as error:
            self._problem = _said(error)
            raise
        self._problem = ""
        return answer

    async def _ready(self) -> "Database":
        failures = self._failures
        async with self._opening:
            if self._database is None:
                if self._failed is not None and self._failures != failures:
                    # It was tried while we waited: whoever comes at once hears at once.
                    raise RecordUnavailable(self._failed.message, advice=self._failed.advice) from self._failed
                try:
                    self._database = await self._opened(read_address(self._url, self._path))
                    self._problem = ""
                except RecordUnavailable as error:
                    self._problem, self._failed, self._failures = _said(error), error, self._failures + 1
                    raise
            return self._database

    async def _opened(self, address: Postgres | Sqlite) -> "Database":
        await asyncio.to_thread(importlib.import_module, f"{__package__}.sql.statements")
        self._fallback = ""
        if isinstance(address, Postgres) or address.path is None:
            return await self._connected(address)
        try:
            return await self._reached(address.path)
        except (RecordUnreachable, OSError) as error:
            reason = error.message if isinstance(error, RecordUnavailable) else f"The record cannot be reached: {error}"
            self._fallback = f"{reason.rstrip('.')}: nothing will be remembered."
            logger.warning("%s", self._fallback)
            return await self._connected(Sqlite(None))

    async def _reached(self, path: Path) -> "Database":
        """A file that others open, close and lay out at this very moment may be out of reach for that moment only."""
        for _ in range(_TRIES - 1):
            with contextlib.suppress(RecordUnreachable):
                return await self._on_disk(path)
            await asyncio.sleep(_BETWEEN_TRIES_S)
        return await self._on_disk(path)

    async def _on_disk(self, path: Path) -> "Database":
        self._inode = await asyncio.to_thread(prepare, path)
        try:
            return await self._connected(Sqlite(path))
        except RecordBroken as error:
            await asyncio.to_thread(set_aside, path, self._inode, error.message)
        self._inode = await asyncio.to_thread(prepare, path)
        return await self._connected(Sqlite(path))

    async def _connected(self, address: Postgres | Sqlite) -> "Database":
        database = await asyncio.to_thread(_sql().database.Database, address)  # which loads its driver
        try:
            await _sql().migration.migrate(database)
            self._told = await database.read(_sql().news.stamps)
        except BaseException:
            await database.close()
            raise
        return database

    async def _begin_anew(self, database: "Database", error: RecordBroken) -> None:
        async with self._opening:
            if self._database is not database:
                return  # somebody else has
            self._database = None
            await database.close()
            path = database.address.path if isinstance(database.address, Sqlite) else None
            if path is None:
                raise error
            try:
                await asyncio.to_thread(set_aside, path, self._inode, error.message)
            except OSError as trouble:  # somebody else has it open, where that keeps a file in its place
                raise RecordUnavailable(
                    f"{error.message} It cannot be set aside: {trouble}.", advice=f"Delete {path}."
                ) from error


def _sql():  # noqa: ANN202  (a module has no type that can be written)
    """What speaks SQL. `open` has loaded it, in a thread, because that takes a quarter of a second."""
    from portico.storage.sql import statements

    return statements


def _said(error: RecordUnavailable) -> str:
    return " ".join(filter(None, (error.message, error.advice)))
