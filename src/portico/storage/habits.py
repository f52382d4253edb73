"""What use has taught, on disk: which tool was called after which search, which were used together, how calls went.

Every weight fades: a row holds what it was worth at a moment, and is worth half a half-life later. Bounded in every
direction; the weakest rows go first. No text of a query is here: only the hashes of its terms and, where there was one,
its vector. Several gateways add to one file, and none overwrites what another added.
"""

import math
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portico.storage.sqlite_file import READ_PATIENCE_MS, WRITE_PATIENCE_MS, Layout, SqliteFile, transaction

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
    """create table outcomes (
      tool text primary key, calls integer not null, successes integer not null, latency_ms real not null,
      at real not null
    ) without rowid""",
)
_LAYOUT = Layout("record of use", 0x506F7248, 1, ("followed", "together", "used", "outcomes"), _SCHEMA)
_KEYS: Mapping[str, str] = {"followed": "terms, tool", "together": "one, other", "used": "tool"}
"""What tells the rows of one scope apart."""

_SCOPES = 100
"""Callers name themselves: whoever comes under ever new names must not fill the disk."""
_USED = 200
"""Tools that each scope counts the use of: rarer ones are not popular."""
_OUTCOMES = 20_000
_COUNTED = 200
"""Calls of a tool that are counted one by one; from here on both counts are halved, so that a tool can recover."""
_STEADY = 10
"""Successes after which the running latency moves a tenth of the way to each new one."""


@dataclass(frozen=True, slots=True)
class FollowedRow:
    """A tool that was called after a search."""

    terms: bytes
    """The sorted 64-bit hashes of the query's terms."""
    tool: str
    weight: float
    at: float
    vector: bytes | None = None


@dataclass(frozen=True, slots=True)
class PairRow:
    """Two tools that were called in one session, in alphabetical order."""

    one: str
    other: str
    weight: float
    at: float


@dataclass(frozen=True, slots=True)
class UsedRow:
    """A tool that was called."""

    tool: str
    weight: float
    at: float


@dataclass(frozen=True, slots=True)
class Learnt:
    """What was learnt in one scope."""

    followed: tuple[FollowedRow, ...] = ()
    together: tuple[PairRow, ...] = ()
    used: tuple[UsedRow, ...] = ()


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """How the calls of one tool went, whoever made them."""

    tool: str
    calls: int
    successes: int
    latency_ms: float
    """The geometric mean of the successful calls, so that one slow start does not stand for all."""
    at: float


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
    outcomes: int = 0

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

    def record(self, learnt: Mapping[str, Learnt], outcomes: Sequence[OutcomeRow] = ()) -> None:
        """Add what was learnt, by scope, and how calls went; then drop what is too much."""

        def record(db: sqlite3.Connection) -> None:
            with transaction(db, "immediate"):
                for scope, rows in learnt.items():
                    self._add(db, scope, rows)
                for row in outcomes:
                    _add_outcome(db, row)
                self._prune(db, learnt)

        self._attempt("written", WRITE_PATIENCE_MS, record, None)

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

    def outcomes(self, now: float) -> tuple[OutcomeRow, ...]:
        """How the calls of each tool went that was called within the last half-life."""

        def load(db: sqlite3.Connection) -> tuple[OutcomeRow, ...]:
            rows = db.execute(
                "select tool, calls, successes, latency_ms, at from outcomes where at >= ?",
                (now - self.keeping.half_life_s,),
            )
            return tuple(OutcomeRow(*row) for row in rows)

        return self._attempt("read", READ_PATIENCE_MS, load, ())

    def version(self) -> int:
        """Changes when another connection has written to the file."""
        return self._attempt("read", READ_PATIENCE_MS, lambda db: db.execute("pragma data_version").fetchone()[0], 0)

    def forget(self, profile: str | None = None, server: str | None = None) -> Forgotten | None:
        """Drop everything, or what was learnt in a profile's scopes, or of a server's tools. None: it cannot be."""

        def forget(db: sqlite3.Connection) -> Forgotten:
            with transaction(db, "immediate"):
                counts = {
                    table: _delete(db, table, profile, server, columns)
                    for table, columns in (("followed", ("tool",)), ("together", ("one", "other")), ("used", ("tool",)))
                }
                # How a tool does is known of everybody's calls, so no profile can have it forgotten.
                counts["outcomes"] = _delete(db, "outcomes", None, server, ("tool",)) if profile is None else 0
            return Forgotten(**counts)

        return self._attempt("written", WRITE_PATIENCE_MS, forget, None)

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
        return self._opened.attempt(done, patience_ms, work, otherwise)

    def _add(self, db: sqlite3.Connection, scope: str, rows: Learnt) -> None:
        for row in rows.followed:
            key = (scope, row.terms, row.tool)
            weight, at = self._sum(
                db, "select weight, at from followed where (scope, terms, tool) = (?, ?, ?)", key, row
            )
            # A vector of the newest encoder replaces an older one; a search without any leaves it.
            db.execute(
                "insert into followed values (?, ?, ?, ?, ?, ?) on conflict do update set"
                " vector = coalesce(excluded.vector, vector), weight = excluded.weight, at = excluded.at",
                (*key, row.vector, weight, at),
            )
        for row in rows.together:
            key = (scope, row.one, row.other)
            total = self._sum(db, "select weight, at from together where (scope, one, other) = (?, ?, ?)", key, row)
            db.execute("insert or replace into together values (?, ?, ?, ?, ?)", (*key, *total))
        for row in rows.used:
            key = (scope, row.tool)
            total = self._sum(db, "select weight, at from used where (scope, tool) = (?, ?)", key, row)
            db.execute("insert or replace into used values (?, ?, ?, ?)", (*key, *total))

    def _sum(
        self, db: sqlite3.Connection, query: str, key: tuple[Any, ...], row: FollowedRow | PairRow | UsedRow
    ) -> tuple[float, float]:
        """What a row is worth together with the one that is there, and when."""
        known = db.execute(query, key).fetchone()
        if known is None:
            return row.weight, row.at
        at = max(known[1], row.at)
        return sum(weight * self._faded(at - then) for weight, then in (known, (row.weight, row.at))), at

    def _faded(self, age_s: float) -> float:
        return 0.5 ** (max(0.0, age_s) / self.keeping.half_life_s)

    def _prune(self, db: sqlite3.Connection, scopes: Iterable[str]) -> None:
        # All fade alike, so what is weakest at any moment is weakest at every moment.
        db.create_function(
            "worth", 2, lambda weight, at: math.log2(max(weight, 1e-300)) + at / self.keeping.half_life_s
        )
        bounds = {"followed": self.keeping.followed, "together": self.keeping.together, "used": _USED}
        for scope in scopes:
            for table, bound in bounds.items():
                keys = _KEYS[table]
                db.execute(
                    f"delete from {table} where scope = ?1 and ({keys}) in (select {keys} from {table}"  # noqa: S608
                    " where scope = ?1 order by worth(weight, at) desc, at desc limit -1 offset ?2)",
                    (scope, bound),
                )
        stale = db.execute(
            "select scope from used group by scope order by max(at) desc limit -1 offset ?", (_SCOPES,)
        ).fetchall()
        for table in bounds:
            db.executemany(f"delete from {table} where scope = ?", stale)  # noqa: S608
        db.execute(
            "delete from outcomes where tool in (select tool from outcomes order by at desc limit -1 offset ?)",
            (_OUTCOMES,),
        )


def _add_outcome(db: sqlite3.Connection, row: OutcomeRow) -> None:
    known = db.execute("select calls, successes, latency_ms, at from outcomes where tool = ?", (row.tool,)).fetchone()
    calls, successes, latency, at = known or (0, 0, 0.0, row.at)
    if row.successes:
        share = max(row.successes / (successes + row.successes), min(1.0, row.successes / _STEADY))
        latency = (
            row.latency_ms
            if not successes
            else math.exp((1 - share) * math.log(max(latency, 1e-3)) + share * math.log(max(row.latency_ms, 1e-3)))
        )
    calls, successes = calls + row.calls, successes + row.successes
    while calls > _COUNTED:
        calls, successes = calls // 2, successes // 2
    db.execute(
        "insert or replace into outcomes values (?, ?, ?, ?, ?)", (row.tool, calls, successes, latency, max(at, row.at))
    )


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
