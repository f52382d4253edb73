"""Runs the files of `versions/` with Alembic, within the caller's transaction and lock.

Without Alembic's `env.py`: its context is global, and one process may open two stores at once.
"""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, MigrationStep
from alembic.script import ScriptDirectory

from portico.storage.sql.errors import StoreUnavailable


def upgrade(connection: sa.Connection, version_table: str) -> None:
    """Run all pending migrations."""
    scripts = ScriptDirectory(str(Path(__file__).parent))
    known = {script.revision for script in scripts.walk_revisions()}

    def list_steps(current: tuple[str, ...], _: MigrationContext) -> list[Any]:
        for revision in current:
            if revision not in known:
                raise StoreUnavailable(
                    f"The record was made by a newer Portico (its tables are version {revision}).",
                    advice="Update this Portico, or give it another `database_url`."
                    " Nothing was changed.",
                )
        ahead = [*scripts.iterate_revisions("head", current or "base")]
        return [
            MigrationStep.upgrade_from_script(scripts.revision_map, script)
            for script in reversed(ahead)
        ]

    if connection.dialect.name == "sqlite" and not sa.inspect(connection).has_table(version_table):
        _refuse_foreign_database(connection)
    context = MigrationContext.configure(
        connection, opts={"version_table": version_table, "fn": list_steps}
    )
    context.run_migrations(op=Operations(context))


def _refuse_foreign_database(connection: sa.Connection) -> None:
    if sa.inspect(connection).get_table_names():
        raise StoreUnavailable(
            "The file of the record is the database of another program.",
            advice="Move it away, or name another file in `database_url`. Nothing was changed.",
        )
