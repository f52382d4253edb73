"""Statements for servers, their tools and manifests, with first and last listing times.

Unchanged entries, compared by hash, only get a new time, and nobody is notified.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.manifests import Manifest, ToolRow
from portico.storage.rows import KnownServer, ToolHistory
from portico.storage.sql import tables
from portico.storage.sql.bulk_rows import (
    Columns,
    Row,
    acquire_lock,
    execute_many,
    fetch_rows,
    split_into_chunks,
    upsert,
)
from portico.storage.sql.change_notifications import notify_gateways
from portico.storage.sql.text_encoding import compute_digest, compute_name_key

_MAX_VARIANTS = 4
"""Manifests kept per server: gateways may configure it differently, and configurations change."""
_RELEASE_BATCH = 500
_MAX_CLOCK_SKEW_S = 60
"""A listing dated further ahead was dated by a wrong clock, and may be replaced by an earlier
one."""


@dataclass
class _CatalogChanges:
    """Rows to write in one save."""

    heads: list[Row] = field(default_factory=list[Row])
    manifest_tools: list[Row] = field(default_factory=list[Row])
    servers: list[Row] = field(default_factory=list[Row])
    tools: list[Row] = field(default_factory=list[Row])
    listed_again: list[Row] = field(default_factory=list[Row])
    seen_again: list[Row] = field(default_factory=list[Row])
    changed_servers: list[str] = field(default_factory=list[str])


async def save_servers(db: AsyncConnection, servers: Sequence[KnownServer], *, origin: str) -> None:
    """Write what has changed, and notify other gateways of these servers."""
    await acquire_lock(db, "catalog")
    now = time.time()
    manifests = await _load_rows(
        db, tables.manifests, map(_get_manifest_key, servers), "digest", "listed_at"
    )
    known = await _load_rows(
        db,
        tables.servers,
        (compute_name_key(server.manifest.server) for server in servers),
        "digest",
    )
    # In a thread, because a server may have thousands of tools to hash.
    changes = await asyncio.to_thread(_plan_changes, servers, manifests, known, now)
    await _touch(db, changes)
    await _write_manifests(db, changes)
    await _write_tools(db, changes)
    if changes.changed_servers:
        await notify_gateways(db, "catalog", changes.changed_servers, origin=origin)
    await asyncio.to_thread(_release_rows, changes)


def _plan_changes(
    servers: Sequence[KnownServer],
    manifests: Mapping[bytes, Any],
    known: Mapping[bytes, Any],
    now: float,
) -> _CatalogChanges:
    changes = _CatalogChanges()
    for server in servers:
        _plan_server(
            changes,
            server,
            manifests.get(_get_manifest_key(server)),
            known.get(compute_name_key(server.manifest.server)),
            now,
        )
    return changes


def _release_rows(writing: _CatalogChanges) -> None:
    """Free rows in batches: freeing tens of thousands at once would block the event loop."""
    for rows in (writing.manifest_tools, writing.tools):
        while rows:
            del rows[-_RELEASE_BATCH:]


def _plan_server(
    writing: _CatalogChanges, server: KnownServer, listed: Any, known: Any, now: float
) -> None:
    manifest = server.manifest
    at = manifest.listed_at or now
    key = _get_manifest_key(server)
    server_key = compute_name_key(manifest.server)
    offer = _hash_offer(manifest)
    if listed is not None and listed.digest == offer:
        writing.listed_again.append({"its_key": key, "seen_at": at})
    elif listed is not None and at < listed.listed_at < now + _MAX_CLOCK_SKEW_S:
        return  # another gateway has listed the server since
    else:
        writing.heads.append(_make_manifest_row(manifest, key, server_key, at, offer))
        writing.manifest_tools += (
            _make_manifest_tool_row(key, position, tool)
            for position, tool in enumerate(manifest.tools)
        )
        writing.changed_servers.append(manifest.server)
    facts = _hash_facts(server)
    if known is not None and known.digest == facts:
        writing.seen_again.append({"its_key": server_key, "seen_at": at})
        return
    writing.servers.append(_make_server_row(server, server_key, at, facts))
    writing.tools += (
        {
            "key": compute_name_key(manifest.server, tool.name),
            "server_key": server_key,
            "server": manifest.server,
            "name": tool.name,
            "hash": tool.hash,
            "category": tool.category,
            "first_seen": at,
            "last_seen": at,
            "changes": 0,
            "gone": False,
        }
        for tool in server.tools
    )


async def _touch(db: AsyncConnection, writing: _CatalogChanges) -> None:
    """Advance last-seen times, never backwards."""
    its_key = sa.bindparam("its_key")
    seen_at = sa.bindparam("seen_at", type_=sa.Double)

    def build_update(table: sa.Table, key: str, column: str) -> sa.Update:
        return (
            sa.update(table)
            .where(table.c[key] == its_key, table.c[column] < seen_at)
            .values({column: seen_at})
        )

    await execute_many(db, build_update(tables.manifests, "key", "listed_at"), writing.listed_again)
    await execute_many(db, build_update(tables.servers, "key", "last_seen"), writing.seen_again)
    listed_tools = build_update(tables.tools, "server_key", "last_seen").where(
        sa.not_(tables.tools.c.gone)
    )
    await execute_many(db, listed_tools, writing.seen_again)


async def _write_manifests(db: AsyncConnection, writing: _CatalogChanges) -> None:
    if not writing.heads:
        return
    replaced = ("era", "hello", "offers", "listed_at", "digest")
    await upsert(db, tables.manifests, writing.heads, replaced=replaced)
    await _delete_manifest_tools(db, (head["key"] for head in writing.heads))
    await execute_many(db, sa.insert(tables.manifest_tools), writing.manifest_tools)
    surplus = await _find_surplus(db, (head["server_key"] for head in writing.heads))
    await _delete_manifest_tools(db, surplus)
    for chunk in split_into_chunks(surplus):
        await db.execute(sa.delete(tables.manifests).where(tables.manifests.c.key.in_(chunk)))


async def _find_surplus(db: AsyncConnection, server_keys: Iterable[bytes]) -> list[bytes]:
    table = tables.manifests.c
    counts: dict[bytes, int] = {}
    surplus: list[bytes] = []
    for chunk in split_into_chunks(server_keys):
        wanted = sa.select(table.key, table.server_key).where(table.server_key.in_(chunk))
        for key, server_key in await db.execute(wanted.order_by(table.listed_at.desc())):
            counts[server_key] = counts.get(server_key, 0) + 1
            if counts[server_key] > _MAX_VARIANTS:
                surplus.append(key)
    return surplus


async def _delete_manifest_tools(db: AsyncConnection, manifest_keys: Iterable[bytes]) -> None:
    for chunk in split_into_chunks(manifest_keys):
        await db.execute(
            sa.delete(tables.manifest_tools).where(tables.manifest_tools.c.manifest_key.in_(chunk))
        )


async def _write_tools(db: AsyncConnection, writing: _CatalogChanges) -> None:
    await upsert(
        db,
        tables.servers,
        writing.servers,
        largest=("last_seen",),
        replaced=("name", "title", "category", "digest"),
    )
    table = tables.tools.c
    for chunk in split_into_chunks(row["key"] for row in writing.servers):
        await db.execute(
            sa.update(tables.tools).where(table.server_key.in_(chunk)).values(gone=True)
        )

    def count_changes(old: Columns, new: Columns) -> dict[str, Any]:
        return {"changes": old.changes + sa.case((old.hash != new.hash, 1), else_=0)}

    replaced = ("hash", "category", "gone")
    await upsert(
        db,
        tables.tools,
        writing.tools,
        largest=("last_seen",),
        replaced=replaced,
        derive=count_changes,
    )


async def load_manifests(
    db: AsyncConnection, fingerprints: Mapping[str, str], newer_than: Mapping[str, float]
) -> dict[str, Manifest]:
    """Return manifests with these fingerprints that are newer than these times."""
    if db.dialect.name == "postgresql":
        # A consistent read of manifests and tools while another gateway may be writing.
        await db.exec_driver_sql("set transaction isolation level repeatable read")
    servers = {
        compute_name_key(server, fingerprint): server
        for server, fingerprint in fingerprints.items()
    }
    dates = await _load_rows(db, tables.manifests, servers, "listed_at")
    wanted = [
        key
        for key, row in dates.items()
        if servers[key] not in newer_than or row.listed_at > newer_than[servers[key]]
    ]
    tools: dict[bytes, list[ToolRow]] = {key: [] for key in wanted}
    table = tables.manifest_tools.c
    columns = (table.manifest_key, table.name, table.hash, table.definition, table.warnings)
    for chunk in split_into_chunks(wanted):
        rows = (
            sa.select(*columns)
            .where(table.manifest_key.in_(chunk))
            .order_by(table.manifest_key, table.position)
        )
        async for key, name, tool_hash, definition, warnings in fetch_rows(db, rows):
            tools[key].append(
                ToolRow(
                    name, tool_hash, definition, tuple(warnings.split("\n")) if warnings else ()
                )
            )
    manifest_rows = await _load_rows(
        db, tables.manifests, wanted, "fingerprint", "era", "hello", "offers", "listed_at"
    )
    return {
        servers[key]: Manifest(
            servers[key],
            head.fingerprint,
            head.era,
            head.hello,
            head.offers,
            tuple(tools[key]),
            head.listed_at,
        )
        for key, head in manifest_rows.items()
    }


async def load_tool_history(db: AsyncConnection, server: str | None) -> list[ToolHistory]:
    """Return every tool that was ever listed, of one server or of all."""
    table = tables.tools.c
    columns = (
        table.server,
        table.name,
        table.hash,
        table.category,
        table.first_seen,
        table.last_seen,
        table.gone,
        table.changes,
    )
    wanted = sa.select(*columns)
    if server is not None:
        wanted = wanted.where(table.server_key == compute_name_key(server))
    history = [ToolHistory(*row) async for row in fetch_rows(db, wanted)]
    return sorted(history, key=lambda tool: (tool.server, tool.tool))


async def _load_rows(
    db: AsyncConnection, table: sa.Table, keys: Iterable[bytes], *columns: str
) -> dict[bytes, Any]:
    known: dict[bytes, Any] = {}
    for chunk in split_into_chunks(keys):
        wanted = sa.select(table.c.key, *(table.c[name] for name in columns)).where(
            table.c.key.in_(chunk)
        )
        known |= {row.key: row for row in await db.execute(wanted)}
    return known


def _get_manifest_key(server: KnownServer) -> bytes:
    return compute_name_key(server.manifest.server, server.manifest.fingerprint)


def _hash_offer(manifest: Manifest) -> bytes:
    tools = (
        part for tool in manifest.tools for part in (tool.name, tool.hash, "\n".join(tool.warnings))
    )
    return compute_digest(manifest.era, manifest.hello, manifest.offers, *tools)


def _hash_facts(server: KnownServer) -> bytes:
    tools = (part for tool in server.tools for part in (tool.name, tool.hash, tool.category))
    return compute_digest(server.title, server.category, *tools)


def _make_manifest_row(
    manifest: Manifest, key: bytes, server_key: bytes, at: float, offer: bytes
) -> Row:
    return {
        "key": key,
        "server_key": server_key,
        "server": manifest.server,
        "fingerprint": manifest.fingerprint,
        "era": manifest.era,
        "hello": manifest.hello,
        "offers": manifest.offers,
        "listed_at": at,
        "digest": offer,
    }


def _make_manifest_tool_row(key: bytes, position: int, tool: ToolRow) -> Row:
    return {
        "manifest_key": key,
        "position": position,
        "name": tool.name,
        "hash": tool.hash,
        "definition": tool.definition,
        "warnings": "\n".join(tool.warnings),
    }


def _make_server_row(server: KnownServer, key: bytes, at: float, facts: bytes) -> Row:
    return {
        "key": key,
        "name": server.manifest.server,
        "title": server.title,
        "category": server.category,
        "first_seen": at,
        "last_seen": at,
        "digest": facts,
    }
