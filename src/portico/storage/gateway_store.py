"""Store shared by every gateway on one database: listings, tiers, calls and usage.

SQLite by default, PostgreSQL by URL. Cheap to import: the SQL modules are loaded in a thread when
the store is opened, explicitly or by its first use. Failures raise `StoreUnavailable`; the next use
tries again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from portico.config import UsageConfig
from portico.storage.manifests import Manifest
from portico.storage.pin_store import PinRow
from portico.storage.rows import (
    CallerUse,
    CallQuery,
    CallRow,
    ChangeNotification,
    DailyRow,
    LedgerRow,
    LedgerTotal,
    PlanRow,
    ShapeRow,
    TaskRow,
    TierRow,
)
from portico.storage.sql.database_url import (
    CommitUncertain,
    PostgresAddress,
    SqliteAddress,
    StoreCorrupt,
    StoreUnavailable,
    StoreUnreachable,
    is_postgres,
    parse_address,
)
from portico.storage.sqlite_file import create_private_file, set_aside

if TYPE_CHECKING:
    from portico.storage.sql.change_notifications import ChangeStamps
    from portico.storage.sql.database import Database, DatabaseWork
    from portico.storage.sql.pins import PinExchange

__all__ = ["CommitUncertain", "GatewayStore", "StoreUnavailable"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

ALL_CALLS = CallQuery()
_MAX_OPEN_ATTEMPTS = 4
_RETRY_DELAY_S = 0.2


class GatewayStore:
    """The shared store. For one event loop."""

    def __init__(self, url: str | None, path: Path | None) -> None:
        """`url`: postgresql://… or sqlite:///…; else the file `path`; both None: memory."""
        self._url = url
        self._path = path
        self._open_lock = asyncio.Lock()
        self._database: Database | None = None
        self._inode = 0
        self._problem = ""
        self._fallback_reason = ""
        """Why it is in memory although it should be on disk."""
        self._failure_count = 0
        self._last_failure: StoreUnavailable | None = None
        self._known_stamps: ChangeStamps = {}
        """Change stamps at the time the store was opened."""

    @property
    def problem(self) -> str:
        """Why nothing is stored; empty if there is no problem."""
        return self._fallback_reason or self._problem

    @property
    def is_shared(self) -> bool:
        """Whether it is PostgreSQL, which gateways on other machines may use too."""
        return is_postgres(self._url)

    async def open(self) -> None:
        """Connect and migrate the tables; does nothing if already open."""
        await self._ensure_open()

    async def close(self) -> None:
        """Close every connection. The next use opens the store again."""
        async with self._open_lock:
            database = self._database
            self._database = None
            if database is not None:
                await database.close()

    # Usage

    async def add_usage(
        self, calls: Sequence[CallRow], daily: Sequence[DailyRow], ledger: Sequence[LedgerRow]
    ) -> None:
        """Add calls and increments of counts in one transaction."""
        if calls or daily or ledger:
            await self._write(lambda db: _sql().usage.add_usage(db, calls, daily, ledger))

    async def load_daily_usage(self, since_day: int) -> list[DailyRow]:
        return await self._read(lambda db: _sql().usage.load_daily_usage(db, since_day))

    async def load_calls(self, query: CallQuery = ALL_CALLS) -> list[CallRow]:
        """Return the newest calls first."""
        return await self._read(lambda db: _sql().usage.load_calls(db, query))

    async def load_caller_use(self, limit: int) -> list[CallerUse]:
        """Return who has called with which client, the latest first."""
        return await self._read(lambda db: _sql().usage.load_caller_use(db, limit))

    async def load_ledger_total(self) -> LedgerTotal:
        return await self._read(lambda db: _sql().usage.load_ledger_total(db))

    async def load_ledger_sessions(self, limit: int = 50) -> list[LedgerRow]:
        return await self._read(lambda db: _sql().usage.load_ledger_sessions(db, limit))

    async def forget_usage(self, server: str | None = None) -> int:
        """Delete usage of a server's tools, or all with the ledger; return the row count."""
        return await self._write(lambda db: _sql().usage.forget_usage(db, server))

    async def rename_server(self, old: str, new: str) -> None:
        """Move the usage and tiers of a server's tools to its new name."""
        await self._write(lambda db: _sql().usage.rename_server(db, old, new))

    async def prune(self, retention: UsageConfig, now: float) -> int:
        """Delete rows beyond the retention limits; return the row count."""
        return await self._write(lambda db: _sql().usage.prune(db, retention, now))

    # Catalog

    async def save_manifests(self, manifests: Sequence[Manifest], *, origin: str) -> None:
        """Store what these servers offer now where it differs, and notify other gateways."""
        if manifests:
            await self._write(
                lambda db: _sql().catalog.save_manifests(db, manifests, origin=origin)
            )

    async def load_manifests(
        self, fingerprints: Mapping[str, str], newer_than: Mapping[str, float]
    ) -> dict[str, Manifest]:
        return await self._read(
            lambda db: _sql().catalog.load_manifests(db, fingerprints, newer_than)
        )

    async def exchange_pins(
        self,
        servers: Sequence[str],
        own: Sequence[PinRow],
        load_definitions: Callable[[Sequence[PinRow]], Awaitable[Sequence[PinRow]]],
        *,
        origin: str,
    ) -> "PinExchange":
        """Add this gateway's pins of these servers, and return those of others."""
        return await self._write(
            lambda db: _sql().pins.exchange_pins(db, servers, own, load_definitions, origin=origin)
        )

    async def save_tiers(self, rows: Sequence[TierRow], *, at: float, origin: str) -> None:
        """Replace all tiers, computed at time `at`, and notify other gateways."""
        await self._write(lambda db: _sql().catalog.save_tiers(db, rows, at=at, origin=origin))

    async def load_tiers(self) -> tuple[float, list[TierRow]]:
        """Return when tiers were last computed (0.0: never), and the tiers, the best first."""
        return await self._read(lambda db: _sql().catalog.load_tiers(db))

    async def save_shapes(self, rows: Sequence[ShapeRow]) -> None:
        if rows:
            await self._write(lambda db: _sql().catalog.save_shapes(db, rows))

    async def load_shapes(self, limit: int) -> list[ShapeRow]:
        return await self._read(lambda db: _sql().catalog.load_shapes(db, limit))

    async def add_plans(self, rows: Sequence[PlanRow]) -> None:
        """Add successful plans; the run counts of known plans are added up."""
        if rows:
            await self._write(lambda db: _sql().usage.add_plans(db, rows))

    async def load_plans(self, scope: str) -> list[PlanRow]:
        """Return the successful plans of a scope, the latest used first."""
        return await self._read(lambda db: _sql().usage.load_plans(db, scope))

    async def forget_plans(self, profile: str | None = None) -> int:
        """Delete the plans of a profile, or all; return the row count."""
        return await self._write(lambda db: _sql().usage.forget_plans(db, profile))

    # Tasks

    async def save_task(self, row: TaskRow) -> None:
        await self._write(lambda db: _sql().tasks.save_task(db, row))

    async def load_task(self, key: str, now: float) -> TaskRow | None:
        """Return what is stored under a key, unless it has expired."""
        return await self._read(lambda db: _sql().tasks.load_task(db, key, now))

    # Change notifications

    async def follow_changes(
        self, on_change: Callable[[ChangeNotification], None], *, origin: str
    ) -> None:
        """Report changes by other gateways (not `origin`) until cancelled."""
        address = (await self._ensure_open()).address
        notifications = _sql().change_notifications

        async def load_stamps() -> "ChangeStamps":
            return await self._read(_sql().change_notifications.load_stamps)

        async def find_missed() -> list[ChangeNotification]:
            latest = await load_stamps()
            return notifications.find_unseen_changes(self._known_stamps, latest, origin)

        if isinstance(address, PostgresAddress):
            await notifications.listen_to_postgres(
                address, on_change, origin=origin, find_missed=find_missed
            )
        elif address.path is not None:
            await notifications.watch_sqlite(
                address.path,
                on_change,
                origin=origin,
                known_stamps=self._known_stamps,
                load_stamps=load_stamps,
            )
        else:
            await asyncio.Event().wait()  # no other process can see our memory

    # Opening and retrying

    async def _read(self, work: "DatabaseWork[T]") -> T:
        return await self._attempt(lambda database: database.read(work))

    async def _write(self, work: "DatabaseWork[T]") -> T:
        return await self._attempt(lambda database: database.write(work))

    async def _attempt(self, access: "Callable[[Database], Awaitable[T]]") -> T:
        database = await self._ensure_open()
        try:
            try:
                answer = await access(database)
            except StoreCorrupt as error:
                await self._replace_corrupt_file(database, error)
                database = await self._ensure_open()
                answer = await access(database)
        except StoreUnavailable as error:
            self._problem = _render_error(error)
            raise
        self._problem = ""
        return answer

    async def _ensure_open(self) -> "Database":
        failures = self._failure_count
        async with self._open_lock:
            if self._database is None:
                if self._last_failure is not None and self._failure_count != failures:
                    # Another task failed to open it while we waited; fail without trying again.
                    raise StoreUnavailable(
                        self._last_failure.message, advice=self._last_failure.advice
                    ) from self._last_failure
                try:
                    self._database = await self._open_database(parse_address(self._url, self._path))
                    self._problem = ""
                except StoreUnavailable as error:
                    self._problem = _render_error(error)
                    self._last_failure = error
                    self._failure_count += 1
                    raise
            return self._database

    async def _open_database(self, address: PostgresAddress | SqliteAddress) -> "Database":
        await asyncio.to_thread(_sql)
        self._fallback_reason = ""
        if isinstance(address, PostgresAddress) or address.path is None:
            return await self._connect(address)
        try:
            return await self._open_with_retries(address.path)
        except (StoreUnreachable, OSError) as error:
            reason = f"The record cannot be reached: {error}"
            if isinstance(error, StoreUnavailable):
                reason = error.message
            self._fallback_reason = f"{reason.rstrip('.')}: nothing will be remembered."
            logger.warning("%s", self._fallback_reason)
            return await self._connect(SqliteAddress(None))

    async def _open_with_retries(self, path: Path) -> "Database":
        """Open a file that may be briefly unavailable while other processes open or create it."""
        for _ in range(_MAX_OPEN_ATTEMPTS - 1):
            with contextlib.suppress(StoreUnreachable):
                return await self._open_file(path)
            await asyncio.sleep(_RETRY_DELAY_S)
        return await self._open_file(path)

    async def _open_file(self, path: Path) -> "Database":
        self._inode = await asyncio.to_thread(create_private_file, path)
        try:
            return await self._connect(SqliteAddress(path))
        except StoreCorrupt as error:
            await asyncio.to_thread(self._set_aside, path, error)
        self._inode = await asyncio.to_thread(create_private_file, path)
        return await self._connect(SqliteAddress(path))

    async def _connect(self, address: PostgresAddress | SqliteAddress) -> "Database":
        # In a thread, because it loads the driver.
        database = await asyncio.to_thread(_sql().database.Database, address)
        try:
            await _sql().migrations.migrate(database)
            self._known_stamps = await database.read(_sql().change_notifications.load_stamps)
        except BaseException:
            await database.close()
            raise
        return database

    async def _replace_corrupt_file(self, database: "Database", error: StoreCorrupt) -> None:
        async with self._open_lock:
            if self._database is not database:
                return  # another task has replaced it
            self._database = None
            await database.close()
            path = getattr(database.address, "path", None)
            if path is None:
                raise error
            try:
                await asyncio.to_thread(self._set_aside, path, error)
            except OSError as trouble:  # Windows: another process has the file open
                raise StoreUnavailable(
                    f"{error.message} It cannot be set aside: {trouble}.", advice=f"Delete {path}."
                ) from error

    def _set_aside(self, path: Path, error: StoreCorrupt) -> None:
        """Rename the damaged file, unless another gateway has replaced it."""
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == self._inode:
                name = set_aside(path)
                logger.warning("%s It is now %s, and a new one is used.", error.message, name)


def _sql():  # noqa: ANN202  (modules have no expressible type)
    """Return the SQL modules; opening the store loads them in a thread, as that takes 0.25 s."""
    import portico.storage.sql.catalog
    import portico.storage.sql.change_notifications
    import portico.storage.sql.database
    import portico.storage.sql.migrations
    import portico.storage.sql.pins
    import portico.storage.sql.tasks
    import portico.storage.sql.usage

    return portico.storage.sql


def _render_error(error: StoreUnavailable) -> str:
    return " ".join(filter(None, (error.message, error.advice)))
