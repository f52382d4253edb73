"""Tables of result shapes and successful plans."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade(op: Operations) -> None:
    """Create the tables."""
    op.create_table(
        "portico_shapes",
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("results", sa.Integer, nullable=False),
        sa.Column("shape", sa.Text, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_index("ix_portico_shapes_seen_at", "portico_shapes", ["seen_at"])
    op.create_table(
        "portico_plans",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("intent", sa.Text, nullable=False),
        sa.Column("words", sa.Text, nullable=False),
        sa.Column("steps", sa.Text, nullable=False),
        sa.Column("tools", sa.Text, nullable=False),
        sa.Column("runs", sa.Integer, nullable=False),
        sa.Column("used_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_portico_plans_scope", "portico_plans", ["scope"])
