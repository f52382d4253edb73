"""The tables of the first record."""

from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade(op: Operations) -> None:
    """Make the tables."""
    _catalog(op)
    _standing(op)
    _use(op)
    _others(op)


def _key(name: str = "key") -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary, nullable=False)


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _moment(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Double, nullable=False)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _small(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, nullable=False)


def _whether(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _catalog(op: Operations) -> None:
    op.create_table(
        "portico_servers",
        _key(),
        _text("name"),
        _text("title"),
        _text("category"),
        _moment("first_seen"),
        _moment("last_seen"),
        _key("digest"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "portico_tools",
        _key(),
        _key("server_key"),
        _text("server"),
        _text("name"),
        _text("hash"),
        _text("category"),
        _moment("first_seen"),
        _moment("last_seen"),
        _number("changes"),
        _whether("gone"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("ix_portico_tools_server_key", "portico_tools", ["server_key"])
    op.create_table(
        "portico_manifests",
        _key(),
        _key("server_key"),
        _text("server"),
        _text("fingerprint"),
        _text("era"),
        sa.Column("hello", sa.LargeBinary, nullable=False),
        sa.Column("offers", sa.LargeBinary, nullable=False),
        _moment("listed_at"),
        _key("digest"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("ix_portico_manifests_server_key", "portico_manifests", ["server_key"])
    op.create_table(
        "portico_manifest_tools",
        _key("manifest_key"),
        _small("position"),
        _text("name"),
        _text("hash"),
        sa.Column("definition", sa.LargeBinary, nullable=False),
        _text("warnings"),
        sa.PrimaryKeyConstraint("manifest_key", "position"),
    )


def _standing(op: Operations) -> None:
    op.create_table(
        "portico_categories",
        _key(),
        _text("name"),
        _text("title"),
        _text("description"),
        _small("tools"),
        _small("servers"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "portico_tiers",
        _key(),
        _text("server"),
        _text("tool"),
        _moment("score"),
        _text("tier"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "portico_computed",
        sa.Column("name", sa.String(32), nullable=False),
        _moment("at"),
        sa.PrimaryKeyConstraint("name"),
    )


def _use(op: Operations) -> None:
    op.create_table(
        "portico_calls",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        _moment("at"),
        _key("server_key"),
        _key("tool_key"),
        _text("server"),
        _text("tool"),
        _text("tool_hash"),
        _moment("ms"),
        _whether("ok"),
        _whether("cancelled"),
        _text("client"),
        _text("profile"),
        _text("session"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_portico_calls_server", "portico_calls", ["server_key", "id"])
    op.create_index("ix_portico_calls_tool", "portico_calls", ["tool_key", "id"])
    op.create_index("ix_portico_calls_at", "portico_calls", ["at"])
    op.create_table(
        "portico_daily_usage",
        _small("day"),
        _key(),
        _small("bucket"),
        _key("server_key"),
        _text("server"),
        _text("tool"),
        _number("calls"),
        _number("successes"),
        _moment("last_at"),
        sa.PrimaryKeyConstraint("day", "key", "bucket"),
    )
    op.create_table(
        "portico_ledger_sessions",
        _key(),
        _text("session"),
        _text("client"),
        _text("profile"),
        _moment("started_at"),
        _moment("last_at"),
        _number("listing"),
        _number("shown"),
        _number("answers"),
        _number("sessions"),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("ix_portico_ledger_sessions_last_at", "portico_ledger_sessions", ["last_at"])


def _others(op: Operations) -> None:
    op.create_table(
        "portico_results",
        sa.Column("id", sa.String(64), nullable=False),
        _text("caller"),
        _text("server"),
        _text("tool"),
        _moment("created_at"),
        _moment("expires_at"),
        _number("size"),
        _text("media_type"),
        sa.Column("body", sa.LargeBinary),
        _text("path", nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_portico_results_expires_at", "portico_results", ["expires_at"])
    op.create_table(
        "portico_news",
        sa.Column("kind", sa.String(32), nullable=False),
        _text("origin"),
        _number("stamp"),
        _moment("at"),
        sa.PrimaryKeyConstraint("kind", "origin"),
    )
