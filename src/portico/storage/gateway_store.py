"""Store shared by every gateway on one database: listings, tiers, calls and usage.

SQLite by default, PostgreSQL by URL. Cheap to import: the SQL modules are loaded in a thread when
the store is opened, explicitly or by its first use. Failures raise `StoreUnavailable`; the next use
tries again.
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
    ChangeNotification,
    DailyRow,
    KnownServer,
    LedgerRow,
    LedgerTotal,
    Retention,
    ShapeRow,
    TierRow,
    ToolHistory,
)
from portico.storage.sql.database_url import (
    PostgresAddress,
    SqliteAddress,
    is_postgres,
    parse_address,
)
from portico.storage.sql.errors import (
    CommitUncertain,
    StoreCorrupt,
    StoreUnavailable,
    StoreUnreachable,
)
from portico.storage.sql.sqlite_files import prepare_file, set_aside

if TYPE_CHECKING:
    from portico.storage.sql.change_notifications import ChangeStamps
    from portico.storage.sql.database import Database, DatabaseWork

__all__ = ["CommitUncertain", "GatewayStore", "StoreUnavailable"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

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
            await self._write(
                lambda db: _get_statements().usage.add_usage(db, calls, daily, ledger)
            )

    async def load_daily_usage(self, since_day: int) -> list[DailyRow]:
        """Return the counts of every day from `since_day` on."""
        return await self._read(lambda db: _get_statements().usage.load_daily_usage(db, since_day))

    async def load_calls(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        server: str | None = None,
        tool: str | None = None,
        ok: bool | None = None,
    ) -> list[CallRow]:
        """Return the newest calls first; `before` is the last id of the previous page."""
        return await self._read(
            lambda db: _get_statements().usage.load_calls(
                db, limit=limit, before=before, server=server, tool=tool, ok=ok
            )
        )

    async def load_ledger_total(self) -> LedgerTotal:
        """Return the tokens shown to all sessions together."""
        return await self._read(lambda db: _get_statements().usage.load_ledger_total(db))

    async def load_ledger_sessions(self, limit: int = 50) -> list[LedgerRow]:
        """Return the latest sessions first."""
        return await self._read(lambda db: _get_statements().usage.load_sessions(db, limit))

    async def forget_usage(self, server: str | None = None) -> int:
        """Delete usage of a server's tools, or all with the ledger; return the row count."""
        return await self._write(lambda db: _get_statements().usage.forget_usage(db, server))

    async def prune(self, retention: Retention, now: float) -> int:
        """Delete rows beyond the retention limits; return the row count."""
        return await self._write(lambda db: _get_statements().retention.prune(db, retention, now))

    # Catalog

    async def save_servers(self, servers: Sequence[KnownServer], *, origin: str) -> None:
        """Store what these servers offer now where it differs, and notify other gateways."""
        if servers:
            await self._write(
                lambda db: _get_statements().catalog.save_servers(db, servers, origin=origin)
            )

    async def load_manifests(
        self, fingerprints: Mapping[str, str], newer_than: Mapping[str, float]
    ) -> dict[str, Manifest]:
        """Return manifests with these fingerprints that are newer than these times."""
        return await self._read(
            lambda db: _get_statements().catalog.load_manifests(db, fingerprints, newer_than)
        )

    async def load_tool_history(self, server: str | None = None) -> list[ToolHistory]:
        """Return every tool that was ever listed, of one server or of all."""
        return await self._read(lambda db: _get_statements().catalog.load_tool_history(db, server))

    async def save_categories(self, categories: Sequence[CategoryRow]) -> None:
        """Replace all categories."""
        await self._write(lambda db: _get_statements().tiers.save_categories(db, categories))

    async def load_categories(self) -> list[CategoryRow]:
        """Return every category, by name."""
        return await self._read(lambda db: _get_statements().tiers.load_categories(db))

    async def save_tiers(self, rows: Sequence[TierRow], *, at: float, origin: str) -> None:
        """Replace all tiers, computed at time `at`, and notify other gateways."""
        await self._write(
            lambda db: _get_statements().tiers.save_tiers(db, rows, at=at, origin=origin)
        )

    async def load_tiers(self) -> tuple[float, list[TierRow]]:
        """Return when tiers were last computed (0.0: never), and the tiers, the best first."""
        return await self._read(lambda db: _get_statements().tiers.load_tiers(db))

    async def save_shapes(self, rows: Sequence[ShapeRow]) -> None:
        """Replace the result shapes of these definitions."""
        if rows:
            await self._write(lambda db: _get_statements().shapes.save_shapes(db, rows))

    async def load_shapes(self, limit: int) -> list[ShapeRow]:
        """Return result shapes, the most recent first."""
        return await self._read(lambda db: _get_statements().shapes.load_latest_shapes(db, limit))

    async def add_plans(self, rows: Sequence[PlanRow]) -> None:
        """Add successful plans; the run counts of known plans are added up."""
        if rows:
            await self._write(lambda db: _get_statements().plans.add_plans(db, rows))

    async def load_plans(self, scope: str) -> list[PlanRow]:
        """Return the successful plans of a scope, the latest used first."""
        return await self._read(lambda db: _get_statements().plans.load_plans(db, scope))

    async def forget_plans(self, profile: str | None = None) -> int:
        """Delete the plans of a profile, or all; return the row count."""
        return await self._write(lambda db: _get_statements().plans.forget_plans(db, profile))

    # Change notifications

    async def follow_changes(
        self, on_change: Callable[[ChangeNotification], None], *, origin: str
    ) -> None:
        """Report changes by other gateways (not `origin`) until cancelled."""
        database = await self._ensure_open()
        if isinstance(database.address, PostgresAddress):
            listener = await asyncio.to_thread(
                importlib.import_module, "portico.storage.sql.postgres_listener"
            )

            async def find_missed() -> list[ChangeNotification]:
                return _get_statements().change_notifications.find_unseen_changes(
                    self._known_stamps,
                    await self._read(_get_statements().change_notifications.load_stamps),
                    origin,
                )

            await listener.listen(
                database.address, on_change, origin=origin, find_missed=find_missed
            )
        elif database.address.path is not None:
            await _get_statements().sqlite_watcher.watch(
                database.address.path,
                on_change,
                origin=origin,
                known_stamps=self._known_stamps,
                load_stamps=lambda: self._read(_get_statements().change_notifications.load_stamps),
            )
        else:
            await asyncio.Event().wait()  # no other process can see our memory

    # Opening and retrying

    async def _read(self, work: "DatabaseWork[T]") -> T:
        return await self._attempt(work, writes=False)

    async def _write(self, work: "DatabaseWork[T]") -> T:
        return await self._attempt(work, writes=True)

    async def _attempt(self, work: "DatabaseWork[T]", *, writes: bool) -> T:
        database = await self._ensure_open()
        try:
            try:
                answer = await (database.write(work) if writes else database.read(work))
            except StoreCorrupt as error:
                await self._replace_corrupt_file(database, error)
                database = await self._ensure_open()
                answer = await (database.write(work) if writes else database.read(work))
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
                    self._failure_count = self._failure_count + 1
                    raise
            return self._database

    async def _open_database(self, address: PostgresAddress | SqliteAddress) -> "Database":
        await asyncio.to_thread(importlib.import_module, f"{__package__}.sql.statements")
        self._fallback_reason = ""
        if isinstance(address, PostgresAddress) or address.path is None:
            return await self._connect(address)
        try:
            return await self._open_with_retries(address.path)
        except (StoreUnreachable, OSError) as error:
            if isinstance(error, StoreUnavailable):
                reason = error.message
            else:
                reason = f"The record cannot be reached: {error}"
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
        self._inode = await asyncio.to_thread(prepare_file, path)
        try:
            return await self._connect(SqliteAddress(path))
        except StoreCorrupt as error:
            await asyncio.to_thread(set_aside, path, self._inode, error.message)
        self._inode = await asyncio.to_thread(prepare_file, path)
        return await self._connect(SqliteAddress(path))

    async def _connect(self, address: PostgresAddress | SqliteAddress) -> "Database":
        # In a thread, because it loads the driver.
        database = await asyncio.to_thread(_get_statements().database.Database, address)
        try:
            await _get_statements().migration.migrate(database)
            self._known_stamps = await database.read(
                _get_statements().change_notifications.load_stamps
            )
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
            if isinstance(database.address, SqliteAddress):
                path = database.address.path
            else:
                path = None
            if path is None:
                raise error
            try:
                await asyncio.to_thread(set_aside, path, self._inode, error.message)
            except OSError as trouble:  # Windows: another process has the file open
                raise StoreUnavailable(
                    f"{error.message} It cannot be set aside: {trouble}.", advice=f"Delete {path}."
                ) from error


def _get_statements():  # noqa: ANN202  (modules have no expressible type)
    """Return the SQL modules; `open` has loaded them in a thread, because that takes 0.25 s."""
    from portico.storage.sql import statements

    return statements


def _render_error(error: StoreUnavailable) -> str:
    return " ".join(filter(None, (error.message, error.advice)))
