"""Tables of the authorization server. They are created where they are missing; a later layout will
need a migration.

Rows are counted and made room for in the transaction that adds one, under a lock.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from portico.storage.authorization_rows import ConsentRow, GrantRow, OAuthClientRow, SignInRow
from portico.storage.sql.tables import EscapedText, acquire_lock, compute_digest

_metadata = sa.MetaData()
_clients = sa.Table(
    "portico_oauth_clients",
    _metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("name", EscapedText, nullable=False),
    sa.Column("redirect_uris", EscapedText, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("used_at", sa.Double),
)
_sign_ins = sa.Table(
    "portico_sign_ins",
    _metadata,
    sa.Column("state_digest", sa.String(64), primary_key=True),
    sa.Column("browser_digest", sa.String(64), nullable=False),
    sa.Column("client_id", EscapedText, nullable=False),
    sa.Column("redirect_uri", EscapedText, nullable=False),
    sa.Column("client_state", EscapedText, nullable=False),
    sa.Column("challenge", sa.String(64), nullable=False),
    sa.Column("resource", EscapedText, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False, index=True),
    sa.Column("person", EscapedText, nullable=False),
)
_grants = sa.Table(
    "portico_grants",
    _metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("is_code", sa.Boolean, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False, index=True),
    sa.Column("ends_at", sa.Double, nullable=False),
    sa.Column("client_id", EscapedText, nullable=False),
    sa.Column("redirect_uri", EscapedText, nullable=False),
    sa.Column("challenge", sa.String(64), nullable=False),
    sa.Column("resource", EscapedText, nullable=False),
    sa.Column("issuer", EscapedText, nullable=False),
    sa.Column("subject", EscapedText, nullable=False),
    sa.Column("claims", EscapedText, nullable=False),
    sa.Column("confirmed_at", sa.Double, nullable=False),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("person_key", sa.LargeBinary(16), nullable=False, index=True),
)
_access_tokens = sa.Table(
    "portico_access_tokens",
    _metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("grant_id", sa.String(32), nullable=False, index=True),
    sa.Column("expires_at", sa.Double, nullable=False, index=True),
)
_consents = sa.Table(
    "portico_consents",
    _metadata,
    sa.Column("key", sa.LargeBinary(16), primary_key=True),
    sa.Column("person", EscapedText, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False, index=True),
)
_LISTS = ("redirect_uris",)
"""Columns that hold a JSON array."""


async def create_tables(db: AsyncConnection) -> None:
    await acquire_lock(db, "authorization")
    await db.run_sync(_metadata.create_all, checkfirst=True)


async def add_client(db: AsyncConnection, client: OAuthClientRow, limit: int) -> None:
    """Add a client; where there are too many, those go that nobody signed in with, the oldest
    first, and then those not used for the longest time."""
    await acquire_lock(db, "authorization")
    columns = _clients.c
    excess = await _count(db, _clients) - limit + 1
    if excess > 0:
        order = (columns.used_at.is_not(None), columns.used_at, columns.created_at)
        oldest = sa.select(columns.id).order_by(*order).limit(excess)
        await db.execute(sa.delete(_clients).where(columns.id.in_(oldest)))
    await db.execute(sa.insert(_clients).values(_to_row(client)))


async def find_client(db: AsyncConnection, client_id: str) -> OAuthClientRow | None:
    row = await _find(db, sa.select(_clients).where(_clients.c.id == client_id))
    return OAuthClientRow(**row) if row is not None else None


async def add_sign_in(db: AsyncConnection, sign_in: SignInRow, now: float, limit: int) -> None:
    """Add a sign-in; expired ones go, and where there are too many the oldest."""
    await acquire_lock(db, "authorization")
    columns = _sign_ins.c
    await db.execute(sa.delete(_sign_ins).where(columns.expires_at <= now))
    excess = await _count(db, _sign_ins) - limit + 1
    if excess > 0:
        oldest = sa.select(columns.state_digest).order_by(columns.expires_at).limit(excess)
        await db.execute(sa.delete(_sign_ins).where(columns.state_digest.in_(oldest)))
    await db.execute(sa.insert(_sign_ins).values(_to_row(sign_in)))


async def take_sign_in(db: AsyncConnection, state_digest: str) -> SignInRow | None:
    """Return and delete a sign-in, so that it is found once."""
    statement = sa.delete(_sign_ins).where(_sign_ins.c.state_digest == state_digest)
    row = await _find(db, statement.returning(*_sign_ins.c))
    return SignInRow(**row) if row is not None else None


async def add_grant(db: AsyncConnection, grant: GrantRow, now: float, limit: int) -> None:
    """Add a grant; expired ones go, and the oldest where a person has too many."""
    await acquire_lock(db, "authorization")
    await _delete_expired(db, now)
    columns = _grants.c
    person_key = _to_person_key(grant)
    of_person = columns.person_key == person_key
    count = sa.select(sa.func.count()).select_from(_grants).where(of_person)
    excess = (await db.execute(count)).scalar_one() - limit + 1
    if excess > 0:
        oldest = sa.select(columns.id).where(of_person).order_by(columns.expires_at).limit(excess)
        for grant_id in (await db.execute(oldest)).scalars().all():
            await end_grant(db, grant_id)
    await db.execute(sa.insert(_grants).values(_to_row(grant) | {"person_key": person_key}))
    used = sa.update(_clients).where(_clients.c.id == grant.client_id).values(used_at=now)
    await db.execute(used)


async def find_grant(db: AsyncConnection, grant_id: str) -> GrantRow | None:
    return _to_grant(await _find(db, sa.select(_grants).where(_grants.c.id == grant_id)))


async def replace_grant(
    db: AsyncConnection,
    digest: str,
    grant: GrantRow,
    access_digest: str,
    access_expires_at: float,
    now: float,
) -> bool:
    """Replace a grant whose code or refresh token still has this digest, and add an access token;
    return whether it had."""
    await _delete_expired(db, now)
    still = sa.and_(_grants.c.id == grant.id, _grants.c.digest == digest)
    replaced = await db.execute(sa.update(_grants).where(still).values(_to_row(grant)))
    if replaced.rowcount != 1:
        return False
    values = {"digest": access_digest, "grant_id": grant.id, "expires_at": access_expires_at}
    await db.execute(sa.insert(_access_tokens).values(values))
    return True


async def end_grant(db: AsyncConnection, grant_id: str) -> None:
    """Delete a grant and its tokens."""
    await db.execute(sa.delete(_access_tokens).where(_access_tokens.c.grant_id == grant_id))
    await db.execute(sa.delete(_grants).where(_grants.c.id == grant_id))


async def find_access(db: AsyncConnection, digest: str) -> tuple[GrantRow, float] | None:
    """Return the grant of an access token, and when the token expires."""
    joined = sa.join(_grants, _access_tokens, _grants.c.id == _access_tokens.c.grant_id)
    expires_at = _access_tokens.c.expires_at.label("access_expires_at")
    statement = sa.select(*_grants.c, expires_at).select_from(joined)
    row = await _find(db, statement.where(_access_tokens.c.digest == digest))
    if row is None:
        return None
    access_expires_at = row.pop("access_expires_at")
    grant = _to_grant(row)
    return (grant, access_expires_at) if grant is not None else None


async def add_consent(db: AsyncConnection, consent: ConsentRow, now: float, limit: int) -> None:
    """Add a consent; expired ones go, and where there are too many the oldest."""
    await acquire_lock(db, "authorization")
    columns = _consents.c
    key = compute_consent_key(consent.browser_digest, consent.client_id, consent.redirect_uri)
    await db.execute(sa.delete(_consents).where((columns.expires_at <= now) | (columns.key == key)))
    excess = await _count(db, _consents) - limit + 1
    if excess > 0:
        oldest = sa.select(columns.key).order_by(columns.expires_at).limit(excess)
        await db.execute(sa.delete(_consents).where(columns.key.in_(oldest)))
    values = {"key": key, "person": consent.person, "expires_at": consent.expires_at}
    await db.execute(sa.insert(_consents).values(values))


async def find_consent(db: AsyncConnection, key: bytes, now: float) -> str:
    """Return the person who agreed; empty: nobody did."""
    columns = _consents.c
    statement = sa.select(columns.person).where(columns.key == key, columns.expires_at > now)
    return (await db.execute(statement)).scalar() or ""


async def end_consent(db: AsyncConnection, key: bytes) -> None:
    await db.execute(sa.delete(_consents).where(_consents.c.key == key))


def compute_consent_key(browser_digest: str, client_id: str, redirect_uri: str) -> bytes:
    return compute_digest(browser_digest, client_id, redirect_uri, size=16)


async def _delete_expired(db: AsyncConnection, now: float) -> None:
    await db.execute(sa.delete(_access_tokens).where(_access_tokens.c.expires_at <= now))
    await db.execute(sa.delete(_grants).where(_grants.c.expires_at <= now))


async def _count(db: AsyncConnection, table: sa.Table) -> int:
    return (await db.execute(sa.select(sa.func.count()).select_from(table))).scalar_one()


async def _find(db: AsyncConnection, statement: sa.Executable) -> dict[str, Any] | None:
    found = (await db.execute(statement)).mappings().first()
    return _from_row(found) if found is not None else None


def _to_person_key(grant: GrantRow) -> bytes:
    return compute_digest(grant.issuer, grant.subject, size=16)


def _to_row(record: Any) -> dict[str, Any]:
    row = asdict(record)
    return {name: json.dumps(row[name]) if name in _LISTS else row[name] for name in row}


def _from_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {name: tuple(json.loads(row[name])) if name in _LISTS else row[name] for name in row}


def _to_grant(row: dict[str, Any] | None) -> GrantRow | None:
    if row is None:
        return None
    return GrantRow(**{name: row[name] for name in GrantRow.__dataclass_fields__})
