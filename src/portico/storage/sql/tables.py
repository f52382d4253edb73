"""The tables of the record. What has ever been released changes only by a new file in `versions/`.

Every name has a prefix, because a PostgreSQL database may be another program's too.
"""

from typing import Any

import sqlalchemy as sa

from portico.storage.sql.text import restored, storable

metadata = sa.MetaData()


class Words(sa.TypeDecorator[str]):
    """Text of anybody's."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        """What the database takes."""
        return None if value is None else storable(value)

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        """What it was."""
        return None if value is None else restored(value)


def _key(name: str = "key", **options: Any) -> sa.Column[bytes]:
    """See `text.name_key`."""
    return sa.Column(name, sa.LargeBinary, nullable=False, **options)


def _column(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


servers = sa.Table(
    "portico_servers",
    metadata,
    _key(primary_key=True),
    _column("name", Words),
    _column("title", Words),
    _column("category", Words),
    _column("first_seen", sa.Double),
    _column("last_seen", sa.Double),
    _column("digest", sa.LargeBinary),
)

tools = sa.Table(
    "portico_tools",
    metadata,
    _key(primary_key=True),
    _key("server_key", index=True),
    _column("server", Words),
    _column("name", Words),
    _column("hash", Words),
    _column("category", Words),
    _column("first_seen", sa.Double),
    _column("last_seen", sa.Double),
    _column("changes", sa.BigInteger),
    _column("gone", sa.Boolean),
)

manifests = sa.Table(
    "portico_manifests",
    metadata,
    _key(primary_key=True),
    _key("server_key", index=True),
    _column("server", Words),
    _column("fingerprint", Words),
    _column("era", Words),
    _column("hello", sa.LargeBinary),
    _column("offers", sa.LargeBinary),
    _column("listed_at", sa.Double),
    _column("digest", sa.LargeBinary),
)

manifest_tools = sa.Table(
    "portico_manifest_tools",
    metadata,
    _key("manifest_key", primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    _column("name", Words),
    _column("hash", Words),
    _column("definition", sa.LargeBinary),
    _column("warnings", Words),
)

categories = sa.Table(
    "portico_categories",
    metadata,
    _key(primary_key=True),
    _column("name", Words),
    _column("title", Words),
    _column("description", Words),
    _column("tools", sa.Integer),
    _column("servers", sa.Integer),
)

tiers = sa.Table(
    "portico_tiers",
    metadata,
    _key(primary_key=True),
    _column("server", Words),
    _column("tool", Words),
    _column("score", sa.Double),
    _column("tier", Words),
)

computed = sa.Table(
    "portico_computed",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    _column("at", sa.Double),
)

calls = sa.Table(
    "portico_calls",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    _column("at", sa.Double),
    _key("server_key"),
    _key("tool_key"),
    _column("server", Words),
    _column("tool", Words),
    _column("tool_hash", Words),
    _column("ms", sa.Double),
    _column("ok", sa.Boolean),
    _column("cancelled", sa.Boolean),
    _column("client", Words),
    _column("profile", Words),
    _column("session", Words),
    sa.Index("ix_portico_calls_server", "server_key", "id"),
    sa.Index("ix_portico_calls_tool", "tool_key", "id"),
    sa.Index("ix_portico_calls_at", "at"),
    # An id is never given twice, so a page of calls continues where it ended.
    sqlite_autoincrement=True,
)

daily = sa.Table(
    "portico_daily_usage",
    metadata,
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    _key(primary_key=True),
    sa.Column("bucket", sa.Integer, primary_key=True, autoincrement=False),
    _key("server_key"),
    _column("server", Words),
    _column("tool", Words),
    _column("calls", sa.BigInteger),
    _column("successes", sa.BigInteger),
    _column("last_at", sa.Double),
)

ledger = sa.Table(
    "portico_ledger_sessions",
    metadata,
    _key(primary_key=True),
    _column("session", Words),
    _column("client", Words),
    _column("profile", Words),
    _column("started_at", sa.Double),
    _column("last_at", sa.Double),
    _column("listing", sa.BigInteger),
    _column("shown", sa.BigInteger),
    _column("answers", sa.BigInteger),
    _column("sessions", sa.BigInteger),
    sa.Index("ix_portico_ledger_sessions_last_at", "last_at"),
)

results = sa.Table(
    "portico_results",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    _column("caller", Words),
    _column("server", Words),
    _column("tool", Words),
    _column("created_at", sa.Double),
    _column("expires_at", sa.Double),
    _column("size", sa.BigInteger),
    _column("media_type", Words),
    sa.Column("body", sa.LargeBinary),
    sa.Column("path", Words),
    sa.Index("ix_portico_results_expires_at", "expires_at"),
)

news = sa.Table(
    "portico_news",
    metadata,
    sa.Column("kind", sa.String(32), primary_key=True),
    sa.Column("origin", Words, primary_key=True),
    _column("stamp", sa.BigInteger),
    _column("at", sa.Double),
)

shapes = sa.Table(
    "portico_shapes",
    metadata,
    sa.Column("hash", sa.String(64), primary_key=True),
    _column("results", sa.Integer),
    _column("shape", Words),
    _column("seen_at", sa.Double),
    sa.Index("ix_portico_shapes_seen_at", "seen_at"),
)

plans = sa.Table(
    "portico_plans",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("scope", Words, nullable=False, index=True),
    _column("intent", Words),
    _column("words", Words),
    _column("steps", Words),
    _column("tools", Words),
    _column("runs", sa.Integer),
    _column("used_at", sa.Double),
)
