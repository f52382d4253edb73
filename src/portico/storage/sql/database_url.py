"""Parses `database_url`, and converts database errors to advice. No message repeats a password."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from portico.errors import PorticoError

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
_POSTGRES_SCHEMES = ("postgres", "postgresql", "postgresql+asyncpg")
_SQLITE_SCHEMES = ("sqlite", "sqlite+aiosqlite")
_URL_ADVICE = "Write postgresql://user:password@host:5432/database, or sqlite:///path/to/file."
_ENCODING_ADVICE = (
    "Write postgresql://user:password@host:5432/database, and inside user and password %40 for @,"
    " %2F for /, %3A for :, %3F for ?, %23 for # and %25 for %."
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


def is_database_error(error: BaseException) -> bool:
    """Return whether it is an error of SQLAlchemy, of a driver or of the network.

    Errors of asyncpg while connecting are not wrapped by SQLAlchemy.
    """
    modules = ("sqlalchemy.", "asyncpg.")
    return (
        isinstance(error, OSError | ImportError)
        or bool(get_sqlstate(error))
        or any(kind.__module__.startswith(modules) for kind in type(error).__mro__)
    )


def is_transient(error: BaseException) -> bool:
    """Return whether the same transaction may succeed when retried."""
    return get_sqlstate(error) in _TRANSIENT_STATES or is_connection_lost(error)


def is_connection_lost(error: BaseException) -> bool:
    return bool(getattr(error, "connection_invalidated", False))


def is_busy(error: BaseException) -> bool:
    """Return whether another process holds SQLite's lock."""
    native = _get_driver_error(error)
    return isinstance(native, sqlite3.Error) and _get_code(native) in _LOCKED_CODES


def to_store_error(
    error: BaseException, address: "PostgresAddress | SqliteAddress"
) -> StoreUnavailable:
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
        return StoreCorrupt(message, advice="It is set aside and a new one is created.")
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


@dataclass(frozen=True)
class PostgresAddress:
    dsn: str
    """Contains the password: for the driver only."""
    display_name: str
    """For messages."""
    database: str
    secrets: tuple[str, ...] = ()
    """Texts that no message may repeat."""


@dataclass(frozen=True)
class SqliteAddress:
    """A SQLite file; in memory if there is no path."""

    path: Path | None

    @property
    def display_name(self) -> str:
        return str(self.path or "in memory")


def is_postgres(url: str | None) -> bool:
    return bool(url) and str(url).partition(":")[0].strip().lower() in _POSTGRES_SCHEMES


def parse_address(url: str | None, path: Path | None) -> PostgresAddress | SqliteAddress:
    """Parse the URL; without one, use the SQLite file `path`; without either, memory.

    Raises StoreUnavailable for an invalid URL.
    """
    if not url:
        return SqliteAddress(path)
    scheme, colon, rest = url.strip().partition("://")
    scheme = scheme.lower()
    if colon and scheme in _SQLITE_SCHEMES:
        return _parse_sqlite(rest)
    if colon and scheme in _POSTGRES_SCHEMES:
        return _parse_postgres(f"postgresql://{rest}")
    if not colon:
        raise StoreUnavailable("`database_url` is not a URL.", advice=_URL_ADVICE)
    raise StoreUnavailable(
        f"`database_url` begins with {scheme}://, which Portico does not speak.", advice=_URL_ADVICE
    )


def _parse_sqlite(rest: str) -> SqliteAddress:
    host, _, file = rest.partition("/")
    if host:
        raise StoreUnavailable(
            "`database_url` names a host for SQLite, which has none.",
            advice="Write sqlite:///file for a relative path and sqlite:////folder/file for an"
            " absolute one.",
        )
    if "?" in file:
        raise StoreUnavailable(
            "`database_url` has options that SQLite does not take.",
            advice="Leave out ? and the rest.",
        )
    return SqliteAddress(None if file in ("", ":memory:") else Path(file).expanduser())


def _parse_postgres(dsn: str) -> PostgresAddress:
    try:
        parts = urlsplit(dsn)
        options = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
    except ValueError:  # its message may repeat a password
        raise StoreUnavailable("`database_url` cannot be read.", advice=_ENCODING_ADVICE) from None
    login, at, hosts = parts.netloc.rpartition("@")
    # A password with an unescaped separator ends early, and its rest would be shown as host or
    # database.
    if (
        "@" in login
        or parts.fragment
        or (not at and "@" in parts.path + parts.query)
        or not _has_valid_ports(hosts)
    ):
        raise StoreUnavailable("`database_url` cannot be read.", advice=_ENCODING_ADVICE)
    password = login.partition(":")[2]
    secrets = {
        password,
        unquote(password),
        *options.get("password", ()),
        *options.get("sslpassword", ()),
    }
    user = unquote(login.partition(":")[0])
    named = options.get("database") or options.get("dbname") or [""]
    database = unquote(parts.path.removeprefix("/")) or named[-1] or user
    location = hosts or ",".join(options.get("host", ())) or "the local socket"
    return PostgresAddress(
        dsn,
        f"{database or 'the default database'} at {location}",
        database,
        tuple(filter(None, secrets)),
    )


def _has_valid_ports(hosts: str) -> bool:
    for host in hosts.split(","):
        port = host.rpartition("]")[2].partition(":")[2]
        if port and not (port.isascii() and port.isdigit() and int(port) < 65_536):
            return False
    return True
