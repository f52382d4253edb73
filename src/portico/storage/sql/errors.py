"""Converts database errors to advice. No message repeats a password."""

import sqlite3
from typing import TYPE_CHECKING

from portico.errors import PorticoError

if TYPE_CHECKING:
    from portico.storage.sql.database_url import PostgresAddress, SqliteAddress

_MAX_REASON_CHARS = 300
_CORRUPT_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNREACHABLE_CODES = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
)
"""Without SQLITE_IOERR, which a full disk causes on opening and which may pass."""
_LOCKED_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_TRANSIENT_STATES = frozenset({"40001", "40P01", "0A000"})
"""Serialization failure, deadlock, and a statement that was prepared before a migration."""
_STATE_ADVICE = {
    "28P01": ("it refused the password", "Put the right user and password into `database_url`."),
    "28000": (
        "it refused the user",
        "Put the right user and password into `database_url`, or allow the user in pg_hba.conf.",
    ),
    "3D000": (
        "there is no such database",
        "Create it with `createdb`, or name another one in `database_url`.",
    ),
    "42501": (
        "the user may not do this",
        "Grant the user CREATE and USAGE on the schema of the database.",
    ),
    "53300": ("it has no connection left", "Raise max_connections, or run fewer gateways."),
    "55P03": ("another Portico is changing its tables", "Try again in a minute."),
    "42704": (
        "it does not know a setting of the URL",
        "Take out what stands after ? in `database_url`.",
    ),
}
_CONNECT_ADVICE = (
    "See that PostgreSQL runs, that host and port in `database_url` are right, and that `sslmode`"
    " is what it offers."
)


class StoreUnavailable(PorticoError):
    """The store cannot be used now."""

    kind = "unavailable"
    retryable = True


class StoreCorrupt(StoreUnavailable):
    """The store's file is damaged."""


class StoreUnreachable(StoreUnavailable):
    """The store's file cannot be opened or written."""


class CommitUncertain(StoreUnavailable):
    """The connection was lost during a commit; whether it succeeded is unknown."""


def get_sqlstate(error: BaseException) -> str:
    """Return PostgreSQL's error code, or an empty string."""
    native = _get_driver_error(error)
    return str(getattr(native, "sqlstate", None) or getattr(error, "sqlstate", None) or "")


def is_transient(error: BaseException) -> bool:
    """Return whether the same transaction may succeed when retried."""
    return get_sqlstate(error) in _TRANSIENT_STATES or is_connection_lost(error)


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the connection is lost."""
    return bool(getattr(error, "connection_invalidated", False))


def is_busy(error: BaseException) -> bool:
    """Return whether another process holds SQLite's lock."""
    native = _get_driver_error(error)
    return isinstance(native, sqlite3.Error) and _get_code(native) in _LOCKED_CODES


def to_store_error(
    error: BaseException, address: "PostgresAddress | SqliteAddress"
) -> StoreUnavailable:
    """Convert a database error to one with advice."""
    secrets: tuple[str, ...] = getattr(address, "secrets", ())
    native = _get_driver_error(error)
    message = _mask_secrets(str(native), secrets) or type(native).__name__
    reason = message.partition("\n")[0][:_MAX_REASON_CHARS]
    if isinstance(native, sqlite3.Error):
        return _to_sqlite_error(
            native, f"The record {address.display_name} cannot be used: {reason}."
        )
    if isinstance(native, ImportError):
        return StoreUnavailable(
            f"The record cannot be kept in PostgreSQL: {reason}.",
            advice="Install the driver: pip install 'portico-mcp[postgres]'.",
        )
    known = _STATE_ADVICE.get(get_sqlstate(error))
    if known is not None:
        return StoreUnavailable(
            f"PostgreSQL ({address.display_name}): {known[0]}. It says: {reason}", advice=known[1]
        )
    return StoreUnavailable(
        f"PostgreSQL ({address.display_name}) cannot be used: {reason}.", advice=_CONNECT_ADVICE
    )


def _to_sqlite_error(error: sqlite3.Error, message: str) -> StoreUnavailable:
    code = _get_code(error)
    if code in _CORRUPT_CODES:
        return StoreCorrupt(message, advice="It is set aside and begun anew.")
    if code in _UNREACHABLE_CODES:
        return StoreUnreachable(
            message, advice="See that its folder exists and may be written, or set `data_dir`."
        )
    if code in _LOCKED_CODES:
        return StoreUnavailable(
            message, advice="Another program holds the file; end it, or try again."
        )
    return StoreUnavailable(
        message, advice="See that its disk has room and that the file is Portico's."
    )


def _get_code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _get_driver_error(error: BaseException) -> BaseException:
    """Return the driver's own error beneath SQLAlchemy's."""
    original = getattr(error, "orig", None) or error
    if getattr(original, "sqlstate", None) and original.__cause__:
        return original.__cause__
    return original


def _mask_secrets(message: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        message = message.replace(secret, "***")
    return message
