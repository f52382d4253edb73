"""What use has taught, on disk: which tool was called after which search, which were used together.

Every weight fades: a row holds what it was worth at a moment, and is worth half a half-life later. Bounded in every
direction; the weakest rows go first. No text of a query is here: only keyed hashes of its terms and, where there was
one, its vector. Several gateways add to one file, and none overwrites what another added.

Moments are given, and none counts as later than now: a clock that ran ahead would else have the last word for years.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from portico.storage.habit_key import new_key, read_key, renew_key
from portico.storage.habit_rows import FollowedRow, Learnt, PairRow, UsedRow
from portico.storage.habit_worth import SCOPES, are_numbers, faded, lasting_worth, staying_scopes
from portico.storage.sqlite_file import READ_PATIENCE_MS, WRITE_PATIENCE_MS, Layout, SqliteFile, transaction

logger = logging.getLogger(__name__)

_SCHEMA = (
    """create table followed (
      scope text not null, terms blob not null, tool text not null, vector blob, weight real not null, at real not null,
      primary key (scope, terms, tool)
    ) without rowid""",
    """create table together (
      scope text not null, one text not null, other text not null, weight real not null, at real not null,
      primary key (scope, one, other)
    ) without rowid""",
    """create table used (
      scope text not null, tool text not null, weight real not null, at real not null, primary key (scope, tool)
    ) without rowid""",
    # Counts how often something was forgotten.
    "create table epoch (number integer not null)",
    "insert into epoch values (0)",
)
_LAYOUT = Layout("record of use", 0x506F7248, 2, ("followed", "together", "used", "epoch"), _SCHEMA)
_KEYS: Mapping[str, str] = {"followed": "terms, tool", "together": "one, other", "used": "tool"}
"""What tells the rows of one scope apart."""

_USED = 200
"""Tools that each scope counts the use of: rarer ones are not popular."""
_WRONG_BEFORE = 1_767_225_600.0
"""2026: a clock that says less has not been set yet, and no date is put right by it."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long and how much is remembered."""

    half_life_s: float = 30 * 86_400
    followed: int = 2_000
    together: int = 5_000


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was forgotten."""

    followed: int = 0
    together: int = 0
    used: int = 0
    unreadable: int = 0
    """Files that had been set aside: nobody can tell whose habits are in them."""

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to forget."""
        return self == Forgotten()


class HabitStore:
    """The record of use. Opened when it is first wanted; calls block, so they go through a thread."""

    def __init__(self, path: Path | None, keeping: Keeping | None = None) -> None:
        """`path` None keeps everything in memory."""
        self.keeping = keeping or Keeping()
        self._path = path
        self._opening = threading.Lock()
        self._opened: SqliteFile | None = None
        self._closed = False
        self._own_key: bytes | None = None

    def key(self) -> bytes:
        """What the terms of queries are hashed with. Made once; `forget` makes another."""
        if self._path is None:
            return self._passing_key()
        path = _key_path(self._path)

        def make(db: sqlite3.Connection) -> bytes | None:
            if self._is_elsewhere(db):
                return None
            # Looked for anew under the lock: another gateway may have made it.
            with transaction(db, "immediate"):
                return read_key(path) or renew_key(path)

        try:
            made = read_key(path) or self._attempt("written", WRITE_PATIENCE_MS, make, None)
        except OSError as error:
            made = None
            if self._own_key is None:
                logger.warning("the key %s cannot be used (%s): no words will be remembered", path, error)
        return made or self._passing_key()

    def _passing_key(self) -> bytes:
        self._own_key = self._own_key or new_key()
        return self._own_key

    def epoch(self) -> int | None:
        """How often something was forgotten: what was heard under another number is not to be kept. None: unknown."""
        return self._attempt("read", READ_PATIENCE_MS, _epoch, None)

    def record(
        self,
        learnt: Mapping[str, Learnt],
        *,
        now: float,
        epoch: int | None = None,
    ) -> Set[str] | None:
        """Add what was learnt, by scope; then drop what is too much.

        Answers the scopes that there is no room for; None when nothing could be written. What is of another epoch than
        the file was forgotten meanwhile, and is not added.
        """

        def record(db: sqlite3.Connection) -> Set[str]:
            with transaction(db, "immediate"):
                if epoch is not None and epoch != _epoch(db):
                    return frozenset()
                staying = self._make_room(db, learnt, now)
                _mend(db, staying, now)
                for scope in staying:
                    self._add(db, scope, learnt[scope], now)
                self._prune(db, staying)
            return learnt.keys() - staying

        return self._attempt("written", WRITE_PATIENCE_MS, record, None)

    def load(self, scope: str) -> Learnt:
        """What was learnt in a scope."""

        def load(db: sqlite3.Connection) -> Learnt:
            # One transaction, because another gateway may be writing the same file.
            with transaction(db, "deferred"):
                followed = db.execute("select terms, tool, weight, at, vector from followed where scope = ?", (scope,))
                together = db.execute("select one, other, weight, at from together where scope = ?", (scope,))
                used = db.execute("select tool, weight, at from used where scope = ?", (scope,))
                return Learnt(
                    tuple(FollowedRow(*row) for row in followed),
                    tuple(PairRow(*row) for row in together),
                    tuple(UsedRow(*row) for row in used),
                )

        return self._attempt("read", READ_PATIENCE_MS, load, Learnt())

    def version(self) -> int:
        """Changes when another connection has written to the file."""
        return self._attempt("read", READ_PATIENCE_MS, lambda db: db.execute("pragma data_version").fetchone()[0], 0)

    def forget(self, profile: str | None = None, server: str | None = None) -> Forgotten | None:
        """Drop everything, or what was learnt in a profile's scopes, or of a server's tools. None: it cannot be."""

        def forget(db: sqlite3.Connection) -> Forgotten | None:
            if self._is_elsewhere(db):
                return None
            with transaction(db, "immediate"):
                counts = {
                    table: _delete(db, table, profile, server, columns)
                    for table, columns in (("followed", ("tool",)), ("together", ("one", "other")), ("used", ("tool",)))
                }
                db.execute("update epoch set number = number + 1")
                if self._path is not None and profile is None and server is None:
                    # Before anybody sees the new epoch: whoever does reads the key anew.
                    renew_key(_key_path(self._path))
            with contextlib.suppress(sqlite3.OperationalError):
                # What was deleted is also in the log of changes, until that is cleared.
                db.execute("pragma wal_checkpoint(truncate)").fetchall()
            return Forgotten(**counts)

        try:
            forgotten = self._attempt("written", WRITE_PATIENCE_MS, forget, None)
            return forgotten and replace(forgotten, unreadable=self._drop_set_aside())
        except OSError as error:
            logger.warning("the record of use %s cannot be forgotten: %s", self._path, error)
            return None

    def _drop_set_aside(self) -> int:
        files = [] if self._path is None else list(self._path.parent.glob(f"{self._path.name}.unreadable*"))
        for file in files:
            file.unlink(missing_ok=True)
        return len(files)

    def close(self) -> None:
        """Close the file."""
        with self._opening:
            self._closed = True
            if self._opened is not None:
                self._opened.close()

    def _attempt(self, done: str, patience_ms: int, work: Callable[[sqlite3.Connection], Any], otherwise: Any) -> Any:
        with self._opening:
            if self._opened is None:
                if self._closed:
                    return otherwise
                self._opened = SqliteFile(self._path, _LAYOUT)
                self._opened.attempt("written", READ_PATIENCE_MS, _drop_outcomes, None)

        def working(db: sqlite3.Connection) -> Any:
            db.execute("pragma secure_delete = on")
            return work(db)

        return self._opened.attempt(done, patience_ms, working, otherwise)

    def _is_elsewhere(self, db: sqlite3.Connection) -> bool:
        """Whether memory stands in for a file that cannot be reached."""
        return self._path is not None and not db.execute("pragma database_list").fetchone()[2]

    def _make_room(self, db: sqlite3.Connection, learnt: Mapping[str, Learnt], now: float) -> list[str]:
        """The scopes of those with something learnt that may stay; others make room for them."""
        known = {scope for (scope,) in db.execute("select distinct scope from used")}
        if len(known | learnt.keys()) <= SCOPES:
            return list(learnt)
        half_life_s = self.keeping.half_life_s
        db.create_function("faded", 2, lambda weight, at: faded(weight, at, now, half_life_s))
        worth = dict.fromkeys(learnt, 0.0)
        worth.update(db.execute("select scope, sum(faded(weight, at)) from used group by scope"))
        for scope, rows in learnt.items():
            worth[scope] += sum(faded(row.weight, row.at, now, half_life_s) for row in rows.used)
        staying = staying_scopes(
            {scope: worth[scope] for scope in worth if scope in known},
            {scope: worth[scope] for scope in worth if scope not in known},
        )
        gone = [(scope,) for scope in known - staying]
        for table in _KEYS:
            db.executemany(f"delete from {table} where scope = ?", gone)  # noqa: S608
        return [scope for scope in learnt if scope in staying]

    def _add(self, db: sqlite3.Connection, scope: str, rows: Learnt, now: float) -> None:
        for row in rows.followed:
            key = (scope, row.terms, row.tool)
            weight, at = self._sum(
                db, "select weight, at from followed where (scope, terms, tool) = (?, ?, ?)", key, row, now
            )
            # A vector of the newest encoder replaces an older one; a search without any leaves it.
            db.execute(
                "insert into followed values (?, ?, ?, ?, ?, ?) on conflict do update set"
                " vector = coalesce(excluded.vector, vector), weight = excluded.weight, at = excluded.at",
                (*key, row.vector, weight, at),
            )
        for row in rows.together:
            key = (scope, row.one, row.other)
            total = self._sum(
                db, "select weight, at from together where (scope, one, other) = (?, ?, ?)", key, row, now
            )
            db.execute("insert or replace into together values (?, ?, ?, ?, ?)", (*key, *total))
        for row in rows.used:
            key = (scope, row.tool)
            total = self._sum(db, "select weight, at from used where (scope, tool) = (?, ?)", key, row, now)
            db.execute("insert or replace into used values (?, ?, ?, ?)", (*key, *total))

    def _sum(
        self, db: sqlite3.Connection, query: str, key: tuple[Any, ...], row: FollowedRow | PairRow | UsedRow, now: float
    ) -> tuple[float, float]:
        """What a row is worth together with the one that is there, and when."""
        known = db.execute(query, key).fetchone()
        if known is None or not are_numbers(*known):
            return row.weight, min(row.at, now)
        at = min(max(known[1], row.at), now)
        half_life_s = self.keeping.half_life_s
        return faded(known[0], known[1], at, half_life_s) + faded(row.weight, row.at, at, half_life_s), at

    def _prune(self, db: sqlite3.Connection, scopes: Iterable[str]) -> None:
        half_life_s = self.keeping.half_life_s
        # All fade alike, so what is weakest at any moment is weakest at every moment.
        db.create_function("worth", 2, lambda weight, at: lasting_worth(weight, at, half_life_s))
        bounds = {"followed": self.keeping.followed, "together": self.keeping.together, "used": _USED}
        for scope in scopes:
            for table, bound in bounds.items():
                keys = _KEYS[table]
                db.execute(
                    f"delete from {table} where scope = ?1 and ({keys}) in (select {keys} from {table}"  # noqa: S608
                    " where scope = ?1 order by worth(weight, at) desc, at desc limit -1 offset ?2)",
                    (scope, bound),
                )


def _key_path(path: Path) -> Path:
    return path.with_suffix(".key")


def _epoch(db: sqlite3.Connection) -> int:
    return db.execute("select coalesce(max(number), 0) from epoch").fetchone()[0]


def _mend(db: sqlite3.Connection, scopes: Sequence[str], now: float) -> None:
    """Rows of these scopes that a clock dated ahead begin to fade now."""
    if now < _WRONG_BEFORE:
        return
    for table in _KEYS:
        db.executemany(
            f"update {table} set at = ?1 where scope = ?2 and at > ?1",  # noqa: S608
            [(now, scope) for scope in scopes],
        )


def _drop_outcomes(db: sqlite3.Connection) -> None:
    """How calls went was kept here once."""
    db.execute("pragma secure_delete = on")
    db.execute("drop table if exists outcomes")


def _delete(
    db: sqlite3.Connection, table: str, profile: str | None, server: str | None, columns: tuple[str, ...]
) -> int:
    conditions: list[str] = []
    values: list[str] = []
    if profile is not None:
        conditions.append("substr(scope, 1, length(?)) = ?")
        values += [f"{profile}/"] * 2
    if server is not None:
        conditions.append("(" + " or ".join(f"substr({column}, 1, length(?)) = ?" for column in columns) + ")")
        values += [f"{server}."] * 2 * len(columns)
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return db.execute(f"delete from {table}{where}", values).rowcount  # noqa: S608
