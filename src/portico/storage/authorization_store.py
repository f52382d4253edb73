"""What the authorization server keeps: in the PostgreSQL that gateways share, or in a file of its
own in the data folder. Codes and tokens are digests, and what the identity provider issued is
encrypted, before they come here.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from portico.storage.authorization_rows import ConsentRow, GrantRow, OAuthClientRow, SignInRow
from portico.storage.sql.database_url import (
    PostgresAddress,
    SqliteAddress,
    is_postgres,
    parse_address,
)
from portico.storage.sqlite_file import create_private_file

if TYPE_CHECKING:
    from portico.storage.sql.database import Database

FILE_NAME = "authorization.sqlite3"
MAX_CLIENTS = 10_000
MAX_SIGN_INS = 10_000
MAX_GRANTS_PER_PERSON = 200
MAX_CONSENTS = 100_000


class AuthorizationStore:
    """For one event loop. Failures raise StoreUnavailable or OSError."""

    def __init__(
        self, url: str | None, data_dir: Path | None, *, max_clients: int = MAX_CLIENTS
    ) -> None:
        """`url`: PostgreSQL; else the file is in the data folder, without one in memory."""
        self._path = data_dir / FILE_NAME if data_dir is not None else None
        self._address: PostgresAddress | SqliteAddress = SqliteAddress(self._path)
        if is_postgres(url):
            self._address = parse_address(url, None)
        self._max_clients = max_clients
        self._database: Database | None = None
        self._opening = asyncio.Lock()

    async def add_client(self, client: OAuthClientRow) -> None:
        database = await self._open()
        await database.write(lambda db: _sql().add_client(db, client, self._max_clients))

    async def find_client(self, client_id: str) -> OAuthClientRow | None:
        database = await self._open()
        return await database.read(lambda db: _sql().find_client(db, client_id))

    async def add_sign_in(self, sign_in: SignInRow, now: float) -> None:
        database = await self._open()
        await database.write(lambda db: _sql().add_sign_in(db, sign_in, now, MAX_SIGN_INS))

    async def take_sign_in(self, state_digest: str) -> SignInRow | None:
        """Return a sign-in under way, once; it may have expired."""
        database = await self._open()
        return await database.write(lambda db: _sql().take_sign_in(db, state_digest))

    async def add_grant(self, grant: GrantRow, now: float) -> None:
        database = await self._open()
        await database.write(lambda db: _sql().add_grant(db, grant, now, MAX_GRANTS_PER_PERSON))

    async def find_grant(self, grant_id: str) -> GrantRow | None:
        database = await self._open()
        return await database.read(lambda db: _sql().find_grant(db, grant_id))

    async def replace_grant(
        self, digest: str, grant: GrantRow, access_digest: str, access_expires_at: float, now: float
    ) -> bool:
        """Replace a grant whose code or refresh token still has this digest, and add an access
        token; return whether it had."""
        database = await self._open()
        return await database.write(
            lambda db: _sql().replace_grant(
                db, digest, grant, access_digest, access_expires_at, now
            )
        )

    async def end_grant(self, grant_id: str) -> None:
        database = await self._open()
        await database.write(lambda db: _sql().end_grant(db, grant_id))

    async def find_access(self, digest: str) -> tuple[GrantRow, float] | None:
        """Return the grant of an access token, and when the token expires."""
        database = await self._open()
        return await database.read(lambda db: _sql().find_access(db, digest))

    async def add_consent(self, consent: ConsentRow, now: float) -> None:
        database = await self._open()
        await database.write(lambda db: _sql().add_consent(db, consent, now, MAX_CONSENTS))

    async def find_consent(
        self, browser_digest: str, client_id: str, redirect_uri: str, now: float
    ) -> str:
        """Return the person (issuer and subject) who agreed; empty: nobody did."""
        database = await self._open()
        key = _sql().compute_consent_key(browser_digest, client_id, redirect_uri)
        return await database.read(lambda db: _sql().find_consent(db, key, now))

    async def end_consent(self, browser_digest: str, client_id: str, redirect_uri: str) -> None:
        database = await self._open()
        key = _sql().compute_consent_key(browser_digest, client_id, redirect_uri)
        await database.write(lambda db: _sql().end_consent(db, key))

    async def close(self) -> None:
        database = self._database
        self._database = None
        if database is not None:
            await database.close()

    async def _open(self) -> "Database":
        async with self._opening:
            if self._database is None:
                if isinstance(self._address, SqliteAddress) and self._path is not None:
                    await asyncio.to_thread(create_private_file, self._path)
                database = await asyncio.to_thread(_make_database, self._address)
                try:
                    await database.write(lambda db: _sql().create_tables(db))
                except BaseException:
                    await database.close()
                    raise
                self._database = database
            return self._database


def _make_database(address: PostgresAddress | SqliteAddress) -> "Database":
    """Load the SQL modules, which takes 0.25 s, and open the database; runs in a thread."""
    _sql()
    from portico.storage.sql.database import Database

    return Database(address)


def _sql():  # noqa: ANN202  (modules have no expressible type)
    from portico.storage.sql import authorization

    return authorization
