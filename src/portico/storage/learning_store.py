"""Learning store: which tool was called after which search, and which were used together.

Every weight decays: a row holds a weight at a time, half of it a half-life later. Bounded in every
direction; the weakest rows are deleted first. No text of a query is stored, only keyed hashes of
its terms and, if there was one, its vector. Several gateways add to one file without overwriting
each other.

Times are parameters, and none counts as later than now: a clock that ran ahead would otherwise
dominate for years. Rows may contain anything, because anyone may have written to the file.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from portico.config import LearningConfig
from portico.storage.data_files import generate_key, load_or_create_key, renew_key
from portico.storage.rows import FollowedRow, LearnedRows, PairRow, UsedRow
from portico.storage.sqlite_file import (
    READ_TIMEOUT_MS,
    WRITE_TIMEOUT_MS,
    SqliteFile,
    SqliteLayout,
    transaction,
)

logger = logging.getLogger(__name__)

_SCHEMA = (
    """create table followed (
      scope text not null, terms blob not null, tool text not null, vector blob,
      weight real not null, at real not null,
      primary key (scope, terms, tool)
    ) without rowid""",
    """create table together (
      scope text not null, one text not null, other text not null,
      weight real not null, at real not null,
      primary key (scope, one, other)
    ) without rowid""",
    """create table used (
      scope text not null, tool text not null, weight real not null, at real not null,
      primary key (scope, tool)
    ) without rowid""",
    # Counts how often something was forgotten.
    "create table epoch (number integer not null)",
    "insert into epoch values (0)",
)
_LAYOUT = SqliteLayout(
    "record of use", 0x506F7248, 2, ("followed", "together", "used", "epoch"), _SCHEMA
)
_KEY_COLUMNS = {"followed": ("terms", "tool"), "together": ("one", "other"), "used": ("tool",)}
"""Key columns of each table within one scope."""
_MAX_USED_TOOLS = 200
"""Tools per scope whose use is counted; rarer ones are not popular."""
_EARLIEST_VALID_TIME = 1_767_225_600.0
"""Start of 2026: an earlier clock has not been set, and must not correct any date."""
_MAX_SCOPES = 100
"""Callers choose their own names, so the number of scopes is limited,"""
_MAX_DISPLACING_SCOPES = 10
"""so is the number of new scopes that may displace others at a time,"""
_NEWCOMER_SHARE = 0.5
"""and each displaces only one that is worth less than this share of it."""
_ROW_KINDS = {"followed": FollowedRow, "together": PairRow, "used": UsedRow}


@dataclass(frozen=True, slots=True)
class ForgottenCounts:
    followed: int = 0
    together: int = 0
    used: int = 0
    unreadable: int = 0
    """Set-aside files that were deleted, because their content cannot be attributed."""

    @property
    def is_empty(self) -> bool:
        return self == ForgottenCounts()


class LearningStore:
    """The learning store. Opened on first use; calls block, so use a thread."""

    def __init__(self, path: Path | None, config: LearningConfig | None = None) -> None:
        """`path` None stores everything in memory."""
        self._config = config or LearningConfig()
        self.half_life_s = self._config.half_life_days * 86_400
        self._path = path
        self._key_path = path and path.with_suffix(".key")
        self._open_lock = threading.Lock()
        self._file: SqliteFile | None = None
        self._closed = False
        self._temporary_key = generate_key()
        self._warned_of_key = False

    def get_key(self) -> bytes:
        """Return the key for hashing query terms. Created once; `forget` replaces it."""
        if self._key_path is None:
            return self._temporary_key
        try:
            return load_or_create_key(self._key_path)
        except OSError as error:
            if not self._warned_of_key:
                logger.warning(
                    "the key %s cannot be used (%s): no words will be remembered",
                    self._key_path,
                    error,
                )
            self._warned_of_key = True
            return self._temporary_key

    def read_epoch(self) -> int | None:
        """Return how often something was forgotten, or None if unknown; other epochs are stale."""
        return self._attempt("read", READ_TIMEOUT_MS, _read_epoch, None)

    def read_version(self) -> int:
        """Return a number that changes when another connection has written to the file."""
        return self._attempt(
            "read", READ_TIMEOUT_MS, lambda db: db.execute("pragma data_version").fetchone()[0], 0
        )

    def record(
        self, learned: Mapping[str, LearnedRows], *, now: float, epoch: int | None = None
    ) -> Set[str] | None:
        """Add what was learned, by scope; then prune.

        Returns the scopes that there is no room for; None when nothing could be written. Data of
        another epoch than the file's was forgotten in the meantime and is not added.
        """

        def write_rows(db: sqlite3.Connection) -> Set[str]:
            with transaction(db, "immediate"):
                if epoch is not None and epoch != _read_epoch(db):
                    return frozenset()
                self._define_functions(db, now)
                kept_scopes = self._make_room(db, learned, now)
                if now >= _EARLIEST_VALID_TIME:
                    _fix_future_dates(db, kept_scopes, now)
                for scope in kept_scopes:
                    _add_rows(db, scope, learned[scope], now)
                    self._prune(db, scope)
            return learned.keys() - kept_scopes

        return self._attempt("written", WRITE_TIMEOUT_MS, write_rows, None)

    def load(self, scope: str) -> LearnedRows:
        def read_rows(db: sqlite3.Connection) -> LearnedRows:
            # One transaction, because another gateway may be writing the same file.
            with transaction(db, "deferred"):
                found: dict[str, Any] = {}
                for table, kind in _ROW_KINDS.items():
                    columns = ", ".join(kind.__dataclass_fields__)
                    query = f"select {columns} from {table} where scope = ?"  # noqa: S608
                    found[table] = tuple(kind(*row) for row in db.execute(query, (scope,)))
                return LearnedRows(**found)

        return self._attempt("read", READ_TIMEOUT_MS, read_rows, LearnedRows())

    def forget(
        self, profile: str | None = None, server: str | None = None
    ) -> ForgottenCounts | None:
        """Delete everything, or what was learned in a profile's scopes or of a server's tools.

        Returns None if it cannot be deleted.
        """

        def delete_rows(db: sqlite3.Connection) -> ForgottenCounts | None:
            if self._path is not None and not db.execute("pragma database_list").fetchone()[2]:
                return None  # memory stands in for a file that cannot be reached
            with transaction(db, "immediate"):
                counts = {table: _delete_rows(db, table, profile, server) for table in _ROW_KINDS}
                db.execute("update epoch set number = number + 1")
                if self._key_path is not None and profile is None and server is None:
                    # Before the new epoch is visible: readers of it load the key again.
                    renew_key(self._key_path)
            with contextlib.suppress(sqlite3.OperationalError):
                # Deleted rows remain in the write-ahead log until it is truncated.
                db.execute("pragma wal_checkpoint(truncate)").fetchall()
            return ForgottenCounts(**counts)

        try:
            forgotten = self._attempt("written", WRITE_TIMEOUT_MS, delete_rows, None)
            return forgotten and replace(forgotten, unreadable=self._delete_unreadable_files())
        except OSError as error:
            logger.warning("the record of use %s cannot be forgotten: %s", self._path, error)
            return None

    def rename_server(self, old: str, new: str, *, now: float) -> None:
        """Add what was learned of a server's tools to those of its new name."""

        def rename_rows(db: sqlite3.Connection) -> None:
            with transaction(db, "immediate"):
                self._define_functions(db, now)
                for (scope,) in db.execute("select distinct scope from used").fetchall():
                    rows = _take_server_rows(db, scope, old)
                    _add_rows(db, scope, _rename_server(rows, old, new), now)

        self._attempt("written", WRITE_TIMEOUT_MS, rename_rows, None)

    def _delete_unreadable_files(self) -> int:
        if self._path is None:
            return 0
        files = list(self._path.parent.glob(f"{self._path.name}.unreadable*"))
        for file in files:
            file.unlink(missing_ok=True)
        return len(files)

    def close(self) -> None:
        with self._open_lock:
            self._closed = True
            if self._file is not None:
                self._file.close()

    def _attempt(
        self, action: str, timeout_ms: int, work: Callable[[sqlite3.Connection], Any], default: Any
    ) -> Any:
        with self._open_lock:
            if self._file is None:
                if self._closed:
                    return default
                self._file = SqliteFile(self._path, _LAYOUT)

        def run_work(db: sqlite3.Connection) -> Any:
            db.execute("pragma secure_delete = on")
            return work(db)

        return self._file.attempt(action, timeout_ms, run_work, default)

    def _decay(self, weight: Any, at: Any, until: float) -> float:
        """Return a weight at a later time; 0 for what is not a number."""
        if _are_numbers(weight, at):
            return weight * 0.5 ** (max(0.0, until - at) / self.half_life_s)
        return 0.0

    def _define_functions(self, db: sqlite3.Connection, now: float) -> None:
        """Define decay in SQL; none of these may raise, whatever a row holds."""

        def merge_at(weight: Any, at: Any, added_at: float) -> float:
            return max(at, added_at) if _are_numbers(weight, at) else added_at

        def merge_weight(weight: Any, at: Any, added: float, added_at: float) -> float:
            until = merge_at(weight, at, added_at)
            return self._decay(weight, at, until) + self._decay(added, added_at, until)

        db.create_function("faded", 2, lambda weight, at: self._decay(weight, at, now))
        db.create_function("merged_at", 3, merge_at)
        db.create_function("merged_weight", 4, merge_weight)

    def _make_room(
        self, db: sqlite3.Connection, learned: Mapping[str, LearnedRows], now: float
    ) -> list[str]:
        """Return the scopes that may be written; others are deleted to make room."""
        worth = dict(db.execute("select scope, sum(faded(weight, at)) from used group by scope"))
        known = set(worth)
        if len(known | learned.keys()) <= _MAX_SCOPES:
            return list(learned)
        added = {
            scope: sum(self._decay(row.weight, row.at, now) for row in rows.used)
            for scope, rows in learned.items()
        }
        for scope in known & added.keys():
            worth[scope] += added[scope]
        room = max(0, _MAX_SCOPES - len(known)) + _MAX_DISPLACING_SCOPES
        new = sorted(added.keys() - known, key=added.__getitem__, reverse=True)[:room]
        worth |= {scope: added[scope] * _NEWCOMER_SHARE for scope in new}
        kept = set(sorted(worth, key=worth.__getitem__, reverse=True)[:_MAX_SCOPES])
        removed = [(scope,) for scope in known - kept]
        for table in _ROW_KINDS:
            db.executemany(f"delete from {table} where scope = ?", removed)  # noqa: S608
        return [scope for scope in learned if scope in kept]

    def _prune(self, db: sqlite3.Connection, scope: str) -> None:
        config = self._config
        bounds = (config.max_followed, config.max_together, _MAX_USED_TOOLS)
        for (table, columns), bound in zip(_KEY_COLUMNS.items(), bounds, strict=True):
            keys = ", ".join(columns)
            db.execute(
                f"delete from {table} where scope = ?1"  # noqa: S608
                f" and ({keys}) in (select {keys} from {table}"
                " where scope = ?1 order by faded(weight, at) desc, at desc"
                " limit -1 offset ?2)",
                (scope, bound),
            )


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _read_epoch(db: sqlite3.Connection) -> int:
    return db.execute("select coalesce(max(number), 0) from epoch").fetchone()[0]


def _fix_future_dates(db: sqlite3.Connection, scopes: Iterable[str], now: float) -> None:
    """Set times in the future to now, so that these rows begin to decay."""
    for table in _ROW_KINDS:
        db.executemany(
            f"update {table} set at = ?1 where scope = ?2 and at > ?1",  # noqa: S608
            [(now, scope) for scope in scopes],
        )


def _add_rows(db: sqlite3.Connection, scope: str, rows: LearnedRows, now: float) -> None:
    """Insert rows, or add their weights to the stored ones."""
    for table, kind in _ROW_KINDS.items():
        names = tuple(kind.__dataclass_fields__)
        added: Iterable[Any] = getattr(rows, table)
        # A newer vector replaces an older one; a search without any keeps it.
        vector = ", vector = coalesce(excluded.vector, vector)" if "vector" in names else ""
        db.executemany(
            f"insert into {table} (scope, {', '.join(names)})"  # noqa: S608
            f" values (:scope, {', '.join(f':{name}' for name in names)})"
            " on conflict do update set at = merged_at(weight, at, excluded.at),"
            f" weight = merged_weight(weight, at, excluded.weight, excluded.at){vector}",
            [
                {name: getattr(row, name) for name in names}
                | {"scope": scope, "at": min(row.at, now)}
                for row in added
            ],
        )


def _delete_rows(
    db: sqlite3.Connection, table: str, profile: str | None, server: str | None
) -> int:
    conditions = ["true"]
    values: list[str] = []
    if profile is not None:
        conditions.append("substr(scope, 1, length(?)) = ?")
        values += [f"{profile}/"] * 2
    if server is not None:
        condition, names = _match_server(table, server)
        conditions.append(condition)
        values += names
    statement = f"delete from {table} where {' and '.join(conditions)}"  # noqa: S608
    return db.execute(statement, values).rowcount


def _match_server(table: str, server: str) -> tuple[str, list[str]]:
    """Return the condition of rows about a server's tools, and its values."""
    tools = [column for column in _KEY_COLUMNS[table] if column != "terms"]
    matches = (f"substr({column}, 1, length(?)) = ?" for column in tools)
    return f"({' or '.join(matches)})", [f"{server}."] * 2 * len(tools)


def _take_server_rows(db: sqlite3.Connection, scope: str, server: str) -> LearnedRows:
    """Delete the rows about a server's tools in a scope, and return them."""
    found: dict[str, Any] = {}
    for table, kind in _ROW_KINDS.items():
        condition, values = _match_server(table, server)
        where = f"from {table} where scope = ? and {condition}"
        columns = ", ".join(kind.__dataclass_fields__)
        rows = db.execute(f"select {columns} {where}", (scope, *values))
        found[table] = tuple(kind(*row) for row in rows)
        db.execute(f"delete {where}", (scope, *values))
    return LearnedRows(**found)


def _rename_server(rows: LearnedRows, old: str, new: str) -> LearnedRows:
    """Return rows with the addresses of a server's tools under its new name."""

    def rename(address: str) -> str:
        if address.startswith(f"{old}."):
            return new + address[len(old) :]
        return address

    def rename_pair(row: PairRow) -> PairRow:
        one, other = sorted((rename(row.one), rename(row.other)))
        return replace(row, one=one, other=other)

    return LearnedRows(
        tuple(replace(row, tool=rename(row.tool)) for row in rows.followed),
        tuple(map(rename_pair, rows.together)),
        tuple(replace(row, tool=rename(row.tool)) for row in rows.used),
    )
