"""Statements for listings, tiers and result shapes.

A listing that is unchanged, compared by hash, only gets a new time, and nobody is notified. Tiers
are replaced as a whole.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.manifests import Manifest, ToolRow
from portico.storage.rows import ShapeRow, TierRow
from portico.storage.sql import tables
from portico.storage.sql.change_notifications import notify_gateways
from portico.storage.sql.tables import (
    Row,
    acquire_lock,
    compute_digest,
    compute_name_key,
    execute_many,
    fetch_rows,
    read_consistently,
    select_fields,
    split_into_chunks,
    to_row,
    upsert,
)

_MAX_VARIANTS = 4
"""Manifests kept per server: gateways may configure it differently, and configurations change."""
_RELEASE_BATCH = 500
_MAX_CLOCK_SKEW_S = 60
"""A listing dated further ahead was dated by a wrong clock, and may be replaced by an earlier
one."""


@dataclass
class _CatalogChanges:
    manifests: list[Row] = field(default_factory=list[Row])
    tools: list[Row] = field(default_factory=list[Row])
    listed_again: list[Row] = field(default_factory=list[Row])


async def save_manifests(
    db: AsyncConnection, manifests: Sequence[Manifest], *, origin: str
) -> None:
    """Write what has changed, and notify other gateways of these servers."""
    await acquire_lock(db, "catalog")
    known = await _load_rows(db, map(_get_key, manifests), "digest", "listed_at")
    # In a thread, because a server may have thousands of tools to hash.
    changes = await asyncio.to_thread(_plan_changes, manifests, known, time.time())
    table = tables.manifests
    seen_at = sa.bindparam("seen_at", type_=sa.Double)
    # A time never goes backwards.
    touch = sa.update(table).where(table.c.key == sa.bindparam("its_key"))
    touch = touch.where(table.c.listed_at < seen_at).values(listed_at=seen_at)
    await execute_many(db, touch, changes.listed_again)
    if changes.manifests:
        await _write_manifests(db, changes)
        names = [row["server"] for row in changes.manifests]
        await notify_gateways(db, "catalog", names, origin=origin)
    await asyncio.to_thread(_release_rows, changes)


def _plan_changes(
    manifests: Sequence[Manifest], known: Mapping[bytes, Any], now: float
) -> _CatalogChanges:
    changes = _CatalogChanges()
    for manifest in manifests:
        key = _get_key(manifest)
        listed = known.get(key)
        at = manifest.listed_at or now
        digest = _hash_offer(manifest)
        if listed is not None and listed.digest == digest:
            changes.listed_again.append({"its_key": key, "seen_at": at})
            continue
        if listed is not None and at < listed.listed_at < now + _MAX_CLOCK_SKEW_S:
            continue  # another gateway has listed the server since
        server_key = compute_name_key(manifest.server)
        row = to_row(manifest, key=key, server_key=server_key, listed_at=at, digest=digest)
        del row["tools"]
        changes.manifests.append(row)
        changes.tools += (
            to_row(tool, manifest_key=key, position=position, warnings="\n".join(tool.warnings))
            for position, tool in enumerate(manifest.tools)
        )
    return changes


def _release_rows(changes: _CatalogChanges) -> None:
    """Free rows in batches: freeing tens of thousands at once would block the event loop."""
    while changes.tools:
        del changes.tools[-_RELEASE_BATCH:]


async def _write_manifests(db: AsyncConnection, changes: _CatalogChanges) -> None:
    table = tables.manifests
    replaced = ("era", "hello", "offers", "listed_at", "digest")
    await upsert(db, table, changes.manifests, replaced=replaced)
    await _delete_tools(db, (row["key"] for row in changes.manifests))
    await execute_many(db, sa.insert(tables.manifest_tools), changes.tools)
    surplus = await _find_surplus(db, (row["server_key"] for row in changes.manifests))
    await _delete_tools(db, surplus)
    for chunk in split_into_chunks(surplus):
        await db.execute(sa.delete(table).where(table.c.key.in_(chunk)))


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


async def _delete_tools(db: AsyncConnection, manifest_keys: Iterable[bytes]) -> None:
    table = tables.manifest_tools
    for chunk in split_into_chunks(manifest_keys):
        await db.execute(sa.delete(table).where(table.c.manifest_key.in_(chunk)))


async def load_manifests(
    db: AsyncConnection, fingerprints: Mapping[str, str], newer_than: Mapping[str, float]
) -> dict[str, Manifest]:
    await read_consistently(db)
    servers = {compute_name_key(*names): names[0] for names in fingerprints.items()}
    dates = await _load_rows(db, servers, "listed_at")
    wanted = [
        key
        for key, row in dates.items()
        if servers[key] not in newer_than or row.listed_at > newer_than[servers[key]]
    ]
    tools: dict[bytes, list[ToolRow]] = {key: [] for key in wanted}
    table = tables.manifest_tools.c
    columns = (table.manifest_key, table.name, table.hash, table.definition, table.warnings)
    for chunk in split_into_chunks(wanted):
        rows = sa.select(*columns).where(table.manifest_key.in_(chunk))
        ordered = rows.order_by(table.manifest_key, table.position)
        async for key, name, tool_hash, definition, warnings in fetch_rows(db, ordered):
            notes = tuple(warnings.split("\n")) if warnings else ()
            tools[key].append(ToolRow(name, tool_hash, definition, notes))
    heads = await _load_rows(db, wanted, "fingerprint", "era", "hello", "offers", "listed_at")
    return {
        servers[key]: Manifest(
            servers[key], fingerprint, era, hello, offers, tuple(tools[key]), listed_at
        )
        for key, (_, fingerprint, era, hello, offers, listed_at) in heads.items()
    }


async def _load_rows(db: AsyncConnection, keys: Iterable[bytes], *columns: str) -> dict[bytes, Any]:
    table = tables.manifests.c
    known: dict[bytes, Any] = {}
    for chunk in split_into_chunks(keys):
        wanted = sa.select(table.key, *(table[name] for name in columns))
        known |= {row.key: row for row in await db.execute(wanted.where(table.key.in_(chunk)))}
    return known


def _get_key(manifest: Manifest) -> bytes:
    return compute_name_key(manifest.server, manifest.fingerprint)


def _hash_offer(manifest: Manifest) -> bytes:
    tools = (
        part for tool in manifest.tools for part in (tool.name, tool.hash, "\n".join(tool.warnings))
    )
    return compute_digest(manifest.era, manifest.hello, manifest.offers, *tools)


async def save_tiers(
    db: AsyncConnection, rows: Sequence[TierRow], *, at: float, origin: str
) -> None:
    """Replace all tiers, computed at time `at`, and notify other gateways."""
    await acquire_lock(db, "tiers")
    await db.execute(sa.delete(tables.tiers))
    values = (to_row(row, key=compute_name_key(row.server, row.tool)) for row in rows)
    await upsert(db, tables.tiers, values, replaced=("score", "tier"), is_locked=True)
    await upsert(db, tables.computed, [{"name": "tiers", "at": at}], replaced=("at",))
    await notify_gateways(db, "tiers", [""], origin=origin)


async def load_tiers(db: AsyncConnection) -> tuple[float, list[TierRow]]:
    """Return when tiers were last computed (0.0: never), and the tiers, the best first."""
    await read_consistently(db)
    computed = tables.computed.c
    at = (await db.execute(sa.select(computed.at).where(computed.name == "tiers"))).scalar()
    table = tables.tiers.c
    wanted = select_fields(tables.tiers, TierRow).order_by(table.score.desc(), table.key)
    return at or 0.0, [TierRow(*row) async for row in fetch_rows(db, wanted)]


async def save_shapes(db: AsyncConnection, rows: Sequence[ShapeRow]) -> None:
    latest = {row.hash: to_row(row) for row in rows}
    await upsert(db, tables.shapes, latest.values(), replaced=("results", "shape", "seen_at"))


async def load_shapes(db: AsyncConnection, limit: int) -> list[ShapeRow]:
    """Return result shapes, the most recently seen first."""
    table = tables.shapes.c
    wanted = select_fields(tables.shapes, ShapeRow).order_by(table.seen_at.desc(), table.hash)
    return [ShapeRow(*row) async for row in fetch_rows(db, wanted.limit(limit))]
