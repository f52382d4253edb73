"""Manifests on disk: what every server offered last time, so that search works before any starts.

A manifest is valid for the configuration it was made with: it is stored with a fingerprint of that
configuration, and a different fingerprint finds nothing. Definitions are stored as the bytes they
came in; loading thousands of them parses none. Servers can be listed again, so an unusable file is
recreated (`sqlite_file`).
"""

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
    """One tool as it was listed."""

    name: str
    hash: str
    definition: bytes
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """Stored listing of one server."""

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
        """Return the manifests of these servers with these fingerprints."""
        return self._file.attempt("read", READ_TIMEOUT_MS, lambda db: _load(db, fingerprints), {})

    def save(self, manifest: Manifest) -> None:
        """Replace the manifest of one server."""
        self._file.attempt("written", WRITE_TIMEOUT_MS, lambda db: _save(db, manifest), None)

    def forget(self, servers: Iterable[str]) -> None:
        """Delete the manifests of these servers."""
        names = tuple(servers)

        def delete_servers(db: sqlite3.Connection) -> None:
            with transaction(db, "immediate"):
                for server in names:
                    _delete_server(db, server)

        self._file.attempt("written", WRITE_TIMEOUT_MS, delete_servers, None)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _load(db: sqlite3.Connection, fingerprints: dict[str, str]) -> dict[str, Manifest]:
    # One transaction, because another gateway may be writing the same file.
    with transaction(db, "deferred"):
        manifest_rows = db.execute(
            "select server, fingerprint, era, hello, offers, listed_at from manifests"
        ).fetchall()
        wanted = {row[0]: row for row in manifest_rows if fingerprints.get(row[0]) == row[1]}
        found = {
            server: Manifest(
                server, fingerprint, era, hello, offers, _load_tools(db, server), listed_at
            )
            for server, fingerprint, era, hello, offers, listed_at in wanted.values()
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
        db.execute(
            "insert into manifests values (?, ?, ?, ?, ?, ?)",
            (
                manifest.server,
                manifest.fingerprint,
                manifest.era,
                manifest.hello,
                manifest.offers,
                manifest.listed_at or time.time(),
            ),
        )
        db.executemany(
            "insert into tools values (?, ?, ?, ?, ?, ?)",
            (
                (
                    manifest.server,
                    position,
                    tool.name,
                    tool.hash,
                    tool.definition,
                    "\n".join(tool.warnings),
                )
                for position, tool in enumerate(manifest.tools)
            ),
        )


def _delete_server(db: sqlite3.Connection, server: str) -> None:
    db.execute("delete from manifests where server = ?", (server,))
    db.execute("delete from tools where server = ?", (server,))
