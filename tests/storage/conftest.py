"""Gateway stores on SQLite and on PostgreSQL."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from portico.storage.gateway_store import GatewayStore
from tests.fixtures.postgres import postgres as postgres

NewRecord = Callable[[], GatewayStore]


@pytest.fixture(params=["sqlite", "postgresql"])
async def new_record(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[NewRecord]:
    """Makes records of one and the same database, as several gateways would."""
    url = request.getfixturevalue("postgres").url if request.param == "postgresql" else None
    made: list[GatewayStore] = []

    def new() -> GatewayStore:
        made.append(GatewayStore(url, tmp_path / "data" / "record.sqlite3"))
        return made[-1]

    yield new
    for record in made:
        await record.close()


@pytest.fixture
def record(new_record: NewRecord) -> GatewayStore:
    """A record that nothing is in yet."""
    return new_record()
