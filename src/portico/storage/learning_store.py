"""Learning store: which tool was called after which search, and which were used together.

Every weight decays: a row holds a weight at a time, half of it a half-life later. Bounded in every
direction; the weakest rows are deleted first. No text of a query is stored, only keyed hashes of
its terms and, if there was one, its vector. Several gateways add to one file without overwriting
each other.

Times are parameters, and none counts as later than now: a clock that ran ahead would otherwise
dominate for years.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from portico.storage.hash_key import generate_key, read_key, renew_key
from portico.storage.learning_decay import (
    MAX_SCOPES,
    are_numbers,
    choose_scopes,
    compute_lasting_weight,
    decay_weight,
)
from portico.storage.learning_rows import FollowedRow, LearnedRows, PairRow, UsedRow
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
_KEY_COLUMNS: Mapping[str, str] = {
    "followed": "terms, tool",
    "together": "one, other",
    "used": "tool",
}
"""Key columns within one scope."""

_MAX_USED_TOOLS = 200
"""Tools per scope whose use is counted; rarer ones are not popular."""
_EARLIEST_VALID_TIME = 1_767_225_600.0
"""Start of 2026: an earlier clock has not been set, and must not correct any date."""


@dataclass(frozen=True, slots=True)
class LearningLimits:
    """Half-life in seconds and row limits per scope."""

    half_life_s: float = 30 * 86_400
    max_followed: int = 2_000
    max_together: int = 5_000


@dataclass(frozen=True, slots=True)
class ForgottenCounts:
    """Number of forgotten rows per table."""

    followed: int = 0
    together: int = 0
    used: int = 0
    unreadable: int = 0
    """Set-aside files that were deleted, because their content cannot be attributed."""

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to forget."""
        return self == ForgottenCounts()


class LearningStore:
    """The learning store. Opened on first use; calls block, so use a thread."""

    def __init__(self, path: Path | None, limits: LearningLimits | None = None) -> None:
        """`path` None stores everything in memory."""
        self.limits = limits or LearningLimits()
        self._path = path
        self._open_lock = threading.Lock()
        self._file: SqliteFile | None = None
        self._closed = False
        self._temporary_key: bytes | None = None

    def get_key(self) -> bytes:
        """Return the key for hashing query terms. Created once; `forget` replaces it."""
        if self._path is None:
            return self._get_temporary_key()
        path = _get_key_path(self._path)

        def make_key(db: sqlite3.Connection) -> bytes | None:
            if self._is_in_memory(db):
                return None
            # Checked again under the lock: another gateway may have created it.
            with transaction(db, "immediate"):
                return read_key(path) or renew_key(path)

        try:
            key = read_key(path) or self._attempt("written", WRITE_TIMEOUT_MS, make_key, None)
        except OSError as error:
            key = None
            if self._temporary_key is None:
                logger.warning(
                    "the key %s cannot be used (%s): no words will be remembered", path, error
                )
        return key or self._get_temporary_key()

    def _get_temporary_key(self) -> bytes:
        self._temporary_key = self._temporary_key or generate_key()
        return self._temporary_key

    def read_epoch(self) -> int | None:
        """Return how often something was forgotten, or None if unknown; other epochs are stale."""
        return self._attempt("read", READ_TIMEOUT_MS, _read_epoch, None)

    def record(
        self,
        learned: Mapping[str, LearnedRows],
        *,
        now: float,
        epoch: int | None = None,
    ) -> Set[str] | None:
        """Add what was learnt, by scope; then prune.

        Returns the scopes that there is no room for; None when nothing could be written. Data of
        another epoch than the file's was forgotten in the meantime and is not added.
        """

        def write_rows(db: sqlite3.Connection) -> Set[str]:
            with transaction(db, "immediate"):
                if epoch is not None and epoch != _read_epoch(db):
                    return frozenset()
                kept_scopes = self._make_room(db, learned, now)
                _fix_future_dates(db, kept_scopes, now)
                for scope in kept_scopes:
                    self._add(db, scope, learned[scope], now)
                self._prune(db, kept_scopes)
            return learned.keys() - kept_scopes

        return self._attempt("written", WRITE_TIMEOUT_MS, write_rows, None)

    def load(self, scope: str) -> LearnedRows:
        """Return what was learnt in a scope."""

        def read_rows(db: sqlite3.Connection) -> LearnedRows:
            # One transaction, because another gateway may be writing the same file.
            with transaction(db, "deferred"):
                followed = db.execute(
                    "select terms, tool, weight, at, vector from followed where scope = ?", (scope,)
                )
                together = db.execute(
                    "select one, other, weight, at from together where scope = ?", (scope,)
                )
                used = db.execute("select tool, weight, at from used where scope = ?", (scope,))
                return LearnedRows(
                    tuple(FollowedRow(*row) for row in followed),
                    tuple(PairRow(*row) for row in together),
                    tuple(UsedRow(*row) for row in used),
                )

        return self._attempt("read", READ_TIMEOUT_MS, read_rows, LearnedRows())

    def read_version(self) -> int:
        """Return a number that changes when another connection has written to the file."""
        return self._attempt(
            "read", READ_TIMEOUT_MS, lambda db: db.execute("pragma data_version").fetchone()[0], 0
        )

    def forget(
        self, profile: str | None = None, server: str | None = None
    ) -> ForgottenCounts | None:
        """Delete everything, or what was learnt in a profile's scopes or of a server's tools.

        Returns None if it cannot be deleted.
        """

        def delete_rows(db: sqlite3.Connection) -> ForgottenCounts | None:
            if self._is_in_memory(db):
                return None
            with transaction(db, "immediate"):
                counts = {
                    table: _delete_rows(db, table, profile, server, columns)
                    for table, columns in (
                        ("followed", ("tool",)),
                        ("together", ("one", "other")),
                        ("used", ("tool",)),
                    )
                }
                db.execute("update epoch set number = number + 1")
                if self._path is not None and profile is None and server is None:
                    # Before the new epoch is visible: readers of it load the key again.
                    renew_key(_get_key_path(self._path))
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

    def _delete_unreadable_files(self) -> int:
        if self._path is None:
            files = []
        else:
            files = list(self._path.parent.glob(f"{self._path.name}.unreadable*"))
        for file in files:
            file.unlink(missing_ok=True)
        return len(files)

    def close(self) -> None:
        """Close the file."""
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
                self._file.attempt("written", READ_TIMEOUT_MS, _drop_outcomes, None)

        def run_work(db: sqlite3.Connection) -> Any:
            db.execute("pragma secure_delete = on")
            return work(db)

        return self._file.attempt(action, timeout_ms, run_work, default)

    def _is_in_memory(self, db: sqlite3.Connection) -> bool:
        """Return whether memory stands in for a file that cannot be reached."""
        return self._path is not None and not db.execute("pragma database_list").fetchone()[2]

    def _make_room(
        self, db: sqlite3.Connection, learned: Mapping[str, LearnedRows], now: float
    ) -> list[str]:
        """Return the scopes that may be written; others are deleted to make room."""
        known = {scope for (scope,) in db.execute("select distinct scope from used")}
        if len(known | learned.keys()) <= MAX_SCOPES:
            return list(learned)
        half_life_s = self.limits.half_life_s
        db.create_function(
            "faded", 2, lambda weight, at: decay_weight(weight, at, now, half_life_s)
        )
        weights = dict.fromkeys(learned, 0.0)
        weights.update(db.execute("select scope, sum(faded(weight, at)) from used group by scope"))
        for scope, rows in learned.items():
            weights[scope] += sum(
                decay_weight(row.weight, row.at, now, half_life_s) for row in rows.used
            )
        kept_scopes = choose_scopes(
            {scope: weights[scope] for scope in weights if scope in known},
            {scope: weights[scope] for scope in weights if scope not in known},
        )
        removed = [(scope,) for scope in known - kept_scopes]
        for table in _KEY_COLUMNS:
            db.executemany(f"delete from {table} where scope = ?", removed)  # noqa: S608
        return [scope for scope in learned if scope in kept_scopes]

    def _add(self, db: sqlite3.Connection, scope: str, rows: LearnedRows, now: float) -> None:
        for row in rows.followed:
            key = (scope, row.terms, row.tool)
            weight, at = self._sum_weights(
                db,
                "select weight, at from followed where (scope, terms, tool) = (?, ?, ?)",
                key,
                row,
                now,
            )
            # A newer vector replaces an older one; a search without any keeps it.
            db.execute(
                "insert into followed values (?, ?, ?, ?, ?, ?) on conflict do update set"
                " vector = coalesce(excluded.vector, vector), weight = excluded.weight,"
                " at = excluded.at",
                (*key, row.vector, weight, at),
            )
        for row in rows.together:
            key = (scope, row.one, row.other)
            total = self._sum_weights(
                db,
                "select weight, at from together where (scope, one, other) = (?, ?, ?)",
                key,
                row,
                now,
            )
            db.execute("insert or replace into together values (?, ?, ?, ?, ?)", (*key, *total))
        for row in rows.used:
            key = (scope, row.tool)
            total = self._sum_weights(
                db, "select weight, at from used where (scope, tool) = (?, ?)", key, row, now
            )
            db.execute("insert or replace into used values (?, ?, ?, ?)", (*key, *total))

    def _sum_weights(
        self,
        db: sqlite3.Connection,
        query: str,
        key: tuple[Any, ...],
        row: FollowedRow | PairRow | UsedRow,
        now: float,
    ) -> tuple[float, float]:
        """Return the sum of a row's weight and the stored one, and its time."""
        known = db.execute(query, key).fetchone()
        if known is None or not are_numbers(*known):
            return row.weight, min(row.at, now)
        at = min(max(known[1], row.at), now)
        half_life_s = self.limits.half_life_s
        return decay_weight(known[0], known[1], at, half_life_s) + decay_weight(
            row.weight, row.at, at, half_life_s
        ), at

    def _prune(self, db: sqlite3.Connection, scopes: Iterable[str]) -> None:
        half_life_s = self.limits.half_life_s
        # All weights decay alike, so their order is the same at every time.
        db.create_function(
            "worth", 2, lambda weight, at: compute_lasting_weight(weight, at, half_life_s)
        )
        bounds = {
            "followed": self.limits.max_followed,
            "together": self.limits.max_together,
            "used": _MAX_USED_TOOLS,
        }
        for scope in scopes:
            for table, bound in bounds.items():
                keys = _KEY_COLUMNS[table]
                db.execute(
                    f"delete from {table} where scope = ?1"  # noqa: S608
                    f" and ({keys}) in (select {keys} from {table}"
                    " where scope = ?1 order by worth(weight, at) desc, at desc"
                    " limit -1 offset ?2)",
                    (scope, bound),
                )


def _get_key_path(path: Path) -> Path:
    return path.with_suffix(".key")


def _read_epoch(db: sqlite3.Connection) -> int:
    return db.execute("select coalesce(max(number), 0) from epoch").fetchone()[0]


def _fix_future_dates(db: sqlite3.Connection, scopes: Sequence[str], now: float) -> None:
    """Set times in the future to now, so that these rows begin to decay."""
    if now < _EARLIEST_VALID_TIME:
        return
    for table in _KEY_COLUMNS:
        db.executemany(
            f"update {table} set at = ?1 where scope = ?2 and at > ?1",  # noqa: S608
            [(now, scope) for scope in scopes],
        )


def _drop_outcomes(db: sqlite3.Connection) -> None:
    """Drop a table of an earlier layout."""
    db.execute("pragma secure_delete = on")
    db.execute("drop table if exists outcomes")


def _delete_rows(
    db: sqlite3.Connection,
    table: str,
    profile: str | None,
    server: str | None,
    columns: tuple[str, ...],
) -> int:
    conditions: list[str] = []
    values: list[str] = []
    if profile is not None:
        conditions.append("substr(scope, 1, length(?)) = ?")
        values += [f"{profile}/"] * 2
    if server is not None:
        conditions.append(
            "(" + " or ".join(f"substr({column}, 1, length(?)) = ?" for column in columns) + ")"
        )
        values += [f"{server}."] * 2 * len(columns)
    if conditions:
        where = f" where {' and '.join(conditions)}"
    else:
        where = ""
    return db.execute(f"delete from {table}{where}", values).rowcount  # noqa: S608
