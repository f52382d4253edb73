"""Tables of the gateway store. Released tables change only by a new file in `versions/`.

All names have a prefix, because a PostgreSQL database may be shared with other programs.
"""

from typing import Any

import sqlalchemy as sa

from portico.storage.sql.text_encoding import escape_text, unescape_text

metadata = sa.MetaData()


class EscapedText(sa.TypeDecorator[str]):
    """Text column that stores characters databases refuse in escaped form."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        """Escape a value for the database."""
        if value is None:
            return None
        return escape_text(value)

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        """Restore a value from the database."""
        if value is None:
            return None
        return unescape_text(value)


def _make_key_column(name: str = "key", **options: Any) -> sa.Column[bytes]:
    """Create a column for `text_encoding.compute_name_key`."""
    return sa.Column(name, sa.LargeBinary, nullable=False, **options)


def _make_column(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


servers = sa.Table(
    "portico_servers",
    metadata,
    _make_key_column(primary_key=True),
    _make_column("name", EscapedText),
    _make_column("title", EscapedText),
    _make_column("category", EscapedText),
    _make_column("first_seen", sa.Double),
    _make_column("last_seen", sa.Double),
    _make_column("digest", sa.LargeBinary),
)

tools = sa.Table(
    "portico_tools",
    metadata,
    _make_key_column(primary_key=True),
    _make_key_column("server_key", index=True),
    _make_column("server", EscapedText),
    _make_column("name", EscapedText),
    _make_column("hash", EscapedText),
    _make_column("category", EscapedText),
    _make_column("first_seen", sa.Double),
    _make_column("last_seen", sa.Double),
    _make_column("changes", sa.BigInteger),
    _make_column("gone", sa.Boolean),
)

manifests = sa.Table(
    "portico_manifests",
    metadata,
    _make_key_column(primary_key=True),
    _make_key_column("server_key", index=True),
    _make_column("server", EscapedText),
    _make_column("fingerprint", EscapedText),
    _make_column("era", EscapedText),
    _make_column("hello", sa.LargeBinary),
    _make_column("offers", sa.LargeBinary),
    _make_column("listed_at", sa.Double),
    _make_column("digest", sa.LargeBinary),
)

manifest_tools = sa.Table(
    "portico_manifest_tools",
    metadata,
    _make_key_column("manifest_key", primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    _make_column("name", EscapedText),
    _make_column("hash", EscapedText),
    _make_column("definition", sa.LargeBinary),
    _make_column("warnings", EscapedText),
)

categories = sa.Table(
    "portico_categories",
    metadata,
    _make_key_column(primary_key=True),
    _make_column("name", EscapedText),
    _make_column("title", EscapedText),
    _make_column("description", EscapedText),
    _make_column("tools", sa.Integer),
    _make_column("servers", sa.Integer),
)

tiers = sa.Table(
    "portico_tiers",
    metadata,
    _make_key_column(primary_key=True),
    _make_column("server", EscapedText),
    _make_column("tool", EscapedText),
    _make_column("score", sa.Double),
    _make_column("tier", EscapedText),
)

computed = sa.Table(
    "portico_computed",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    _make_column("at", sa.Double),
)

calls = sa.Table(
    "portico_calls",
    metadata,
    sa.Column(
        "id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    _make_column("at", sa.Double),
    _make_key_column("server_key"),
    _make_key_column("tool_key"),
    _make_column("server", EscapedText),
    _make_column("tool", EscapedText),
    _make_column("tool_hash", EscapedText),
    _make_column("ms", sa.Double),
    _make_column("ok", sa.Boolean),
    _make_column("cancelled", sa.Boolean),
    _make_column("client", EscapedText),
    _make_column("profile", EscapedText),
    _make_column("session", EscapedText),
    sa.Index("ix_portico_calls_server", "server_key", "id"),
    sa.Index("ix_portico_calls_tool", "tool_key", "id"),
    sa.Index("ix_portico_calls_at", "at"),
    # An id is never reused, so that pages of calls continue correctly.
    sqlite_autoincrement=True,
)

daily = sa.Table(
    "portico_daily_usage",
    metadata,
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    _make_key_column(primary_key=True),
    sa.Column("bucket", sa.Integer, primary_key=True, autoincrement=False),
    _make_key_column("server_key"),
    _make_column("server", EscapedText),
    _make_column("tool", EscapedText),
    _make_column("calls", sa.BigInteger),
    _make_column("successes", sa.BigInteger),
    _make_column("last_at", sa.Double),
)

ledger = sa.Table(
    "portico_ledger_sessions",
    metadata,
    _make_key_column(primary_key=True),
    _make_column("session", EscapedText),
    _make_column("client", EscapedText),
    _make_column("profile", EscapedText),
    _make_column("started_at", sa.Double),
    _make_column("last_at", sa.Double),
    _make_column("listing", sa.BigInteger),
    _make_column("shown", sa.BigInteger),
    _make_column("answers", sa.BigInteger),
    _make_column("sessions", sa.BigInteger),
    sa.Index("ix_portico_ledger_sessions_last_at", "last_at"),
)

results = sa.Table(
    "portico_results",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    _make_column("caller", EscapedText),
    _make_column("server", EscapedText),
    _make_column("tool", EscapedText),
    _make_column("created_at", sa.Double),
    _make_column("expires_at", sa.Double),
    _make_column("size", sa.BigInteger),
    _make_column("media_type", EscapedText),
    sa.Column("body", sa.LargeBinary),
    sa.Column("path", EscapedText),
    sa.Index("ix_portico_results_expires_at", "expires_at"),
)

news = sa.Table(
    "portico_news",
    metadata,
    sa.Column("kind", sa.String(32), primary_key=True),
    sa.Column("origin", EscapedText, primary_key=True),
    _make_column("stamp", sa.BigInteger),
    _make_column("at", sa.Double),
)

shapes = sa.Table(
    "portico_shapes",
    metadata,
    sa.Column("hash", sa.String(64), primary_key=True),
    _make_column("results", sa.Integer),
    _make_column("shape", EscapedText),
    _make_column("seen_at", sa.Double),
    sa.Index("ix_portico_shapes_seen_at", "seen_at"),
)

plans = sa.Table(
    "portico_plans",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("scope", EscapedText, nullable=False, index=True),
    _make_column("intent", EscapedText),
    _make_column("words", EscapedText),
    _make_column("steps", EscapedText),
    _make_column("tools", EscapedText),
    _make_column("runs", sa.Integer),
    _make_column("used_at", sa.Double),
)
