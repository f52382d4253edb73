"""Pins on disk: what servers said of their tools, prompts and themselves when it was trusted.

Every version that was trusted is kept with its text, so that a server can go back to one. Nothing
is ever evicted: a server that fills its share cannot make the gateway forget.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from portico.errors import PorticoError
from portico.policy.definition_change import Item
from portico.storage.sqlite_file import (
    READ_TIMEOUT_MS,
    WRITE_TIMEOUT_MS,
    SqliteFile,
    SqliteLayout,
    transaction,
)

T = TypeVar("T")

MAX_PINS = 20_000
"""Pins of one server; what it offers beyond is not trusted."""
MAX_PIN_BYTES = 64 * 1024**2
"""Bytes of the definitions of one server's pins."""
_SCHEMA = (
    """create table pins (
      server text not null, kind text not null, name text not null, digest text not null,
      definition blob not null, at real not null, person text not null,
      primary key (server, kind, name, digest)
    ) without rowid""",
)
_LAYOUT = SqliteLayout("file of pins", 0x506F7450, 1, ("pins",), _SCHEMA)
"""A later version must migrate: a table that is dropped would trust everything again."""


@dataclass(frozen=True, slots=True)
class PinRow:
    server: str
    kind: str
    name: str
    digest: str
    definition: bytes
    at: float
    person: str = ""
    """Who looked at it; empty for what was trusted on first sight."""


@dataclass
class ServerPins:
    """The pins of one server, without their texts."""

    latest: dict[Item, str] = field(default_factory=dict[Item, str])
    """Digest that was trusted last."""
    trusted: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    """Kind, name and digest of everything that was trusted."""
    looked_at: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    """That of it which a person has looked at."""
    size: int = 0
    """Bytes of all texts."""


class PinsUnavailable(PorticoError):
    """The pins cannot be read or written now, so nothing new can be trusted."""

    kind = "pins_unavailable"


class PinStore:
    """The file of pins. Calls block for about a millisecond; use a thread."""

    def __init__(self, path: Path | None) -> None:
        self._file = SqliteFile(path, _LAYOUT)

    def load(self, servers: Iterable[str] | None = None) -> dict[str, ServerPins]:
        """Return the pins of these servers, or of all; raises PinsUnavailable."""
        wanted = None if servers is None else tuple(servers)

        def read(db: sqlite3.Connection) -> dict[str, ServerPins]:
            columns = "server, kind, name, digest, person, length(definition)"
            where = ""
            if wanted is not None:
                where = f"where server in ({', '.join('?' * len(wanted))})"
            query = f"select {columns} from pins {where} order by at"  # noqa: S608
            return _collect(db.execute(query, wanted or ()))

        return self._attempt("read", READ_TIMEOUT_MS, read)

    def load_definitions(self, server: str, wanted: Mapping[Item, str]) -> dict[Item, bytes]:
        """Return the texts of pins by kind and name, each of its digest."""

        def read(db: sqlite3.Connection) -> dict[Item, bytes]:
            query = (
                "select definition from pins"
                " where server = ? and kind = ? and name = ? and digest = ?"
            )
            found: dict[Item, bytes] = {}
            for (kind, name), digest in wanted.items():
                row = db.execute(query, (server, kind, name, digest)).fetchone()
                if row is not None:
                    found[kind, name] = row[0]
            return found

        return self._attempt("read", READ_TIMEOUT_MS, read)

    def list_pins(self, servers: Iterable[str]) -> list[PinRow]:
        """Return the pins of these servers without their texts."""
        names = tuple(servers)

        def read(db: sqlite3.Connection) -> list[PinRow]:
            columns = "server, kind, name, digest, at, person"
            where = f"where server in ({', '.join('?' * len(names))})"
            query = f"select {columns} from pins {where}"  # noqa: S608
            return [
                PinRow(server, kind, name, digest, b"", at, person)
                for server, kind, name, digest, at, person in db.execute(query, names)
            ]

        return self._attempt("read", READ_TIMEOUT_MS, read)

    def complete(self, rows: Sequence[PinRow]) -> list[PinRow]:
        """Return pins with their texts."""
        return [
            replace(row, definition=definition)
            for row in rows
            for definition in self.load_definitions(
                row.server, {(row.kind, row.name): row.digest}
            ).values()
        ]

    def drop(self, rows: Sequence[PinRow]) -> None:
        """Take pins back that another gateway has overruled."""

        def write(db: sqlite3.Connection) -> bool:
            with transaction(db, "immediate"):
                db.executemany(
                    "delete from pins where server = ? and kind = ? and name = ? and digest = ?",
                    [(row.server, row.kind, row.name, row.digest) for row in rows],
                )
            return True

        if rows:
            self._attempt("written", WRITE_TIMEOUT_MS, write)

    def save(self, rows: Sequence[PinRow]) -> None:
        """Add pins; one that is there gets the later time and the person."""

        def write(db: sqlite3.Connection) -> bool:
            with transaction(db, "immediate"):
                db.executemany(
                    "insert into pins values (?, ?, ?, ?, ?, ?, ?)"
                    " on conflict do update set at = excluded.at,"
                    " person = case excluded.person when '' then person else excluded.person end",
                    [tuple(getattr(row, name) for name in PinRow.__slots__) for row in rows],
                )
            return True

        if rows:
            self._attempt("written", WRITE_TIMEOUT_MS, write)

    def copy_server(self, old: str, new: str) -> None:
        """Give a server's pins to its new name too; raises PinsUnavailable."""

        def write(db: sqlite3.Connection) -> bool:
            with transaction(db, "immediate"):
                db.execute(
                    "insert or ignore into pins"
                    " select ?, kind, name, digest, definition, at, person"
                    " from pins where server = ?",
                    (new, old),
                )
            return True

        self._attempt("written", WRITE_TIMEOUT_MS, write)

    def read_version(self) -> int:
        """Return a number that differs once another process has written; raises PinsUnavailable."""

        def read(db: sqlite3.Connection) -> int:
            return db.execute("pragma data_version").fetchone()[0]

        return self._attempt("read", READ_TIMEOUT_MS, read)

    def close(self) -> None:
        self._file.close()

    def _attempt(self, action: str, timeout_ms: int, work: Callable[[sqlite3.Connection], T]) -> T:
        answer = self._file.attempt(action, timeout_ms, work, None)
        if answer is None:
            raise PinsUnavailable(
                f"what was trusted of the servers cannot be {action} now",
                advice="The log says why. Nothing that is new is trusted meanwhile.",
            )
        return answer


def _collect(rows: Iterable[tuple[str, str, str, str, str, int]]) -> dict[str, ServerPins]:
    found: dict[str, ServerPins] = {}
    for server, kind, name, digest, person, size in rows:
        pins = found.setdefault(server, ServerPins())
        pins.latest[kind, name] = digest
        pins.trusted.add((kind, name, digest))
        if person:
            pins.looked_at.add((kind, name, digest))
        pins.size += size
    return found
