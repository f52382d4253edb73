"""Initial tables."""

from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade(op: Operations) -> None:
    """Create the tables."""
    _create_catalog_tables(op)
    _create_tier_tables(op)
    _create_usage_tables(op)
    _create_other_tables(op)


def _make_binary_column(name: str = "key") -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary, nullable=False)


def _make_text_column(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _make_double_column(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Double, nullable=False)


def _make_bigint_column(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _make_integer_column(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, nullable=False)


def _make_boolean_column(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _create_catalog_tables(op: Operations) -> None:
    op.create_table(
        "portico_servers",
        _make_binary_column(),
        _make_text_column("name"),
        _make_text_column("title"),
        _make_text_column("category"),
        _make_double_column("first_seen"),
        _make_double_column("last_seen"),
        _make_binary_column("digest"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "portico_tools",
        _make_binary_column(),
        _make_binary_column("server_key"),
        _make_text_column("server"),
        _make_text_column("name"),
        _make_text_column("hash"),
        _make_text_column("category"),
        _make_double_column("first_seen"),
        _make_double_column("last_seen"),
        _make_bigint_column("changes"),
        _make_boolean_column("gone"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("ix_portico_tools_server_key", "portico_tools", ["server_key"])
    op.create_table(
        "portico_manifests",
        _make_binary_column(),
        _make_binary_column("server_key"),
        _make_text_column("server"),
        _make_text_column("fingerprint"),
        _make_text_column("era"),
        sa.Column("hello", sa.LargeBinary, nullable=False),
        sa.Column("offers", sa.LargeBinary, nullable=False),
        _make_double_column("listed_at"),
        _make_binary_column("digest"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("ix_portico_manifests_server_key", "portico_manifests", ["server_key"])
    op.create_table(
        "portico_manifest_tools",
        _make_binary_column("manifest_key"),
        _make_integer_column("position"),
        _make_text_column("name"),
        _make_text_column("hash"),
        sa.Column("definition", sa.LargeBinary, nullable=False),
        _make_text_column("warnings"),
        sa.PrimaryKeyConstraint("manifest_key", "position"),
    )


def _create_tier_tables(op: Operations) -> None:
    op.create_table(
        "portico_categories",
        _make_binary_column(),
        _make_text_column("name"),
        _make_text_column("title"),
        _make_text_column("description"),
        _make_integer_column("tools"),
        _make_integer_column("servers"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "portico_tiers",
        _make_binary_column(),
        _make_text_column("server"),
        _make_text_column("tool"),
        _make_double_column("score"),
        _make_text_column("tier"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "portico_computed",
        sa.Column("name", sa.String(32), nullable=False),
        _make_double_column("at"),
        sa.PrimaryKeyConstraint("name"),
    )


def _create_usage_tables(op: Operations) -> None:
    op.create_table(
        "portico_calls",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        _make_double_column("at"),
        _make_binary_column("server_key"),
        _make_binary_column("tool_key"),
        _make_text_column("server"),
        _make_text_column("tool"),
        _make_text_column("tool_hash"),
        _make_double_column("ms"),
        _make_boolean_column("ok"),
        _make_boolean_column("cancelled"),
        _make_text_column("client"),
        _make_text_column("profile"),
        _make_text_column("session"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_portico_calls_server", "portico_calls", ["server_key", "id"])
    op.create_index("ix_portico_calls_tool", "portico_calls", ["tool_key", "id"])
    op.create_index("ix_portico_calls_at", "portico_calls", ["at"])
    op.create_table(
        "portico_daily_usage",
        _make_integer_column("day"),
        _make_binary_column(),
        _make_integer_column("bucket"),
        _make_binary_column("server_key"),
        _make_text_column("server"),
        _make_text_column("tool"),
        _make_bigint_column("calls"),
        _make_bigint_column("successes"),
        _make_double_column("last_at"),
        sa.PrimaryKeyConstraint("day", "key", "bucket"),
    )
    op.create_table(
        "portico_ledger_sessions",
        _make_binary_column(),
        _make_text_column("session"),
        _make_text_column("client"),
        _make_text_column("profile"),
        _make_double_column("started_at"),
        _make_double_column("last_at"),
        _make_bigint_column("listing"),
        _make_bigint_column("shown"),
        _make_bigint_column("answers"),
        _make_bigint_column("sessions"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("ix_portico_ledger_sessions_last_at", "portico_ledger_sessions", ["last_at"])


def _create_other_tables(op: Operations) -> None:
    op.create_table(
        "portico_results",
        sa.Column("id", sa.String(64), nullable=False),
        _make_text_column("caller"),
        _make_text_column("server"),
        _make_text_column("tool"),
        _make_double_column("created_at"),
        _make_double_column("expires_at"),
        _make_bigint_column("size"),
        _make_text_column("media_type"),
        sa.Column("body", sa.LargeBinary),
        _make_text_column("path", nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_portico_results_expires_at", "portico_results", ["expires_at"])
    op.create_table(
        "portico_news",
        sa.Column("kind", sa.String(32), nullable=False),
        _make_text_column("origin"),
        _make_bigint_column("stamp"),
        _make_double_column("at"),
        sa.PrimaryKeyConstraint("kind", "origin"),
    )
