"""Manifests on disk: what every server offered last time, so that search works before any starts.

A manifest is valid for the configuration it was made with: it is stored with a fingerprint of that
configuration, and a different fingerprint finds nothing. Definitions are stored as the bytes they
came in; loading thousands of them parses none. Servers can be listed again, so an unusable file is
recreated (`sqlite_file`).
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from portico.storage.sqlite_file import (
    READ_TIMEOUT_MS,
    WRITE_TIMEOUT_MS,
    SqliteFile,
    SqliteLayout,
    transaction,
)

_SCHEMA = (
    """create table manifests (
      server text primary key, fingerprint text not null, era text not null, hello blob not null,
      offers blob not null, listed_at real not null
    ) without rowid""",
    """create table tools (
      server text not null, position integer not null, name text not null, hash text not null,
      definition blob not null, warnings text not null, primary key (server, position)
    ) without rowid""",
)
_LAYOUT = SqliteLayout("manifest", 0x506F7274, 2, ("manifests", "tools", "indexes"), _SCHEMA)
"""`indexes` existed in version 1: dropped, and not created again."""


@dataclass(frozen=True, slots=True)
class ToolRow:
    name: str
    hash: str
    definition: bytes
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    server: str
    fingerprint: str
    era: str
    hello: bytes
    offers: bytes
    """Resources, resource templates and prompts as one JSON object."""
    tools: tuple[ToolRow, ...]
    listed_at: float


class ManifestStore:
    """The manifest file. Calls block for about a millisecond; writers use a thread."""

    def __init__(self, path: Path | None) -> None:
        self._file = SqliteFile(path, _LAYOUT)

    def load(self, fingerprints: dict[str, str]) -> dict[str, Manifest]:
        return self._file.attempt("read", READ_TIMEOUT_MS, lambda db: _load(db, fingerprints), {})

    def save(self, manifest: Manifest) -> None:
        self._file.attempt("written", WRITE_TIMEOUT_MS, lambda db: _save(db, manifest), None)

    def forget(self, servers: Iterable[str]) -> None:
        names = tuple(servers)

        def delete_servers(db: sqlite3.Connection) -> None:
            with transaction(db, "immediate"):
                for server in names:
                    _delete_server(db, server)

        self._file.attempt("written", WRITE_TIMEOUT_MS, delete_servers, None)

    def close(self) -> None:
        self._file.close()


def read_tool_names(path: Path) -> dict[str, list[str]]:
    """Return the tools of every server that was ever listed; empty without a usable file."""
    names: dict[str, list[str]] = {}
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            rows = db.execute("select server, name from tools order by server, position")
            for server, name in rows:
                names.setdefault(server, []).append(name)
    except sqlite3.Error:
        return {}
    return names


def _load(db: sqlite3.Connection, fingerprints: dict[str, str]) -> dict[str, Manifest]:
    # One transaction, because another gateway may be writing the same file.
    with transaction(db, "deferred"):
        columns = "server, fingerprint, era, hello, offers, listed_at"
        rows = db.execute(f"select {columns} from manifests").fetchall()  # noqa: S608
        found = {
            server: Manifest(
                server, fingerprint, era, hello, offers, _load_tools(db, server), listed_at
            )
            for server, fingerprint, era, hello, offers, listed_at in rows
            if fingerprints.get(server) == fingerprint
        }
    db.execute("pragma shrink_memory")  # the cache is not needed again
    return found


def _load_tools(db: sqlite3.Connection, server: str) -> tuple[ToolRow, ...]:
    rows = db.execute(
        "select name, hash, definition, warnings from tools where server = ? order by position",
        (server,),
    )
    return tuple(
        ToolRow(name, digest, definition, tuple(warnings.split("\n")) if warnings else ())
        for name, digest, definition, warnings in rows
    )


def _save(db: sqlite3.Connection, manifest: Manifest) -> None:
    with transaction(db, "immediate"):
        _delete_server(db, manifest.server)
        listed_at = manifest.listed_at or time.time()
        head = (manifest.server, manifest.fingerprint, manifest.era, manifest.hello)
        db.execute(
            "insert into manifests values (?, ?, ?, ?, ?, ?)", (*head, manifest.offers, listed_at)
        )
        rows = (
            (manifest.server, at, tool.name, tool.hash, tool.definition, "\n".join(tool.warnings))
            for at, tool in enumerate(manifest.tools)
        )
        db.executemany("insert into tools values (?, ?, ?, ?, ?, ?)", rows)


def _delete_server(db: sqlite3.Connection, server: str) -> None:
    db.execute("delete from manifests where server = ?", (server,))
    db.execute("delete from tools where server = ?", (server,))
