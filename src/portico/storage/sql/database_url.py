"""Parses `database_url`. No message or error repeats a password."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from portico.storage.sql.errors import StoreUnavailable

_POSTGRES_SCHEMES = ("postgres", "postgresql", "postgresql+asyncpg")
_SQLITE_SCHEMES = ("sqlite", "sqlite+aiosqlite")
_URL_ADVICE = "Write postgresql://user:password@host:5432/database, or sqlite:///path/to/file."
_ENCODING_ADVICE = (
    "Write postgresql://user:password@host:5432/database, and inside user and password %40 for @,"
    " %2F for /, %3A for :, %3F for ?, %23 for # and %25 for %."
)


@dataclass(frozen=True)
class PostgresAddress:
    """A PostgreSQL database."""

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
        """For messages."""
        return str(self.path or "in memory")


def is_postgres(url: str | None) -> bool:
    """Return whether this URL means PostgreSQL."""
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
