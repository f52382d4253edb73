"""What can be wrong with the record, as advice. No message repeats a password, whoever wrote it."""

import sqlite3
from typing import TYPE_CHECKING

from portico.errors import PorticoError

if TYPE_CHECKING:
    from portico.storage.sql.address import Postgres, Sqlite

_LONGEST = 300
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNREACHABLE = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
"""Without SQLITE_IOERR: that is what a full disk says while the file is opened, and there may be room again."""
_HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_PASSING = frozenset({"40001", "40P01", "0A000"})
"""Serialization failure, deadlock, and a statement that was prepared before a migration."""
_ADVICE = {
    "28P01": ("it refused the password", "Put the right user and password into `database_url`."),
    "28000": (
        "it refused the user",
        "Put the right user and password into `database_url`, or allow the user in pg_hba.conf.",
    ),
    "3D000": ("there is no such database", "Create it with `createdb`, or name another one in `database_url`."),
    "42501": ("the user may not do this", "Grant the user CREATE and USAGE on the schema of the database."),
    "53300": ("it has no connection left", "Raise max_connections, or run fewer gateways."),
    "55P03": ("another Portico is changing its tables", "Try again in a minute."),
    "42704": ("it does not know a setting of the URL", "Take out what stands after ? in `database_url`."),
}
_REACH = (
    "See that PostgreSQL runs, that host and port in `database_url` are right, and that `sslmode` is what it offers."
)


class RecordUnavailable(PorticoError):
    """The record cannot be used now."""

    kind = "unavailable"
    retryable = True


class RecordBroken(RecordUnavailable):
    """The file of the record is damaged."""


class RecordUnreachable(RecordUnavailable):
    """The file of the record cannot be opened or written."""


class RecordUncertain(RecordUnavailable):
    """The connection was lost while a change was made final: whether it was, nobody knows."""


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's code for what happened; empty where it has none."""
    native = _native(error)
    return str(getattr(native, "sqlstate", None) or getattr(error, "sqlstate", None) or "")


def is_passing(error: BaseException) -> bool:
    """Whether the same transaction may well succeed when it is tried again."""
    return sqlstate(error) in _PASSING or is_lost(error)


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone."""
    return bool(getattr(error, "connection_invalidated", False))


def is_busy(error: BaseException) -> bool:
    """Whether another program holds the file, which seldom takes long."""
    native = _native(error)
    return isinstance(native, sqlite3.Error) and _code(native) in _HELD


def explained(error: BaseException, address: "Postgres | Sqlite") -> RecordUnavailable:
    """The advice for an error of a database."""
    secrets: tuple[str, ...] = getattr(address, "secrets", ())
    native = _native(error)
    reason = (_masked(str(native), secrets) or type(native).__name__).partition("\n")[0][:_LONGEST]
    if isinstance(native, sqlite3.Error):
        return _of_sqlite(native, f"The record {address.shown} cannot be used: {reason}.")
    if isinstance(native, ImportError):
        return RecordUnavailable(
            f"The record cannot be kept in PostgreSQL: {reason}.",
            advice="Install the driver: pip install 'portico-mcp[postgres]'.",
        )
    known = _ADVICE.get(sqlstate(error))
    if known is not None:
        return RecordUnavailable(f"PostgreSQL ({address.shown}): {known[0]}. It says: {reason}", advice=known[1])
    return RecordUnavailable(f"PostgreSQL ({address.shown}) cannot be used: {reason}.", advice=_REACH)


def _of_sqlite(error: sqlite3.Error, message: str) -> RecordUnavailable:
    code = _code(error)
    if code in _BROKEN:
        return RecordBroken(message, advice="It is set aside and begun anew.")
    if code in _UNREACHABLE:
        return RecordUnreachable(message, advice="See that its folder exists and may be written, or set `data_dir`.")
    if code in _HELD:
        return RecordUnavailable(message, advice="Another program holds the file; end it, or try again.")
    return RecordUnavailable(message, advice="See that its disk has room and that the file is Portico's.")


def _code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _native(error: BaseException) -> BaseException:
    """What the driver said, under what SQLAlchemy made of it."""
    original = getattr(error, "orig", None) or error
    return original.__cause__ if getattr(original, "sqlstate", None) and original.__cause__ else original


def _masked(message: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        message = message.replace(secret, "***")
    return message
