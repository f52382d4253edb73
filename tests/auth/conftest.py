"""Stored keys, in a file and in PostgreSQL."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from portico.storage.key_store import KeyStore
from tests.fixtures.postgres import postgres as postgres

OpenStore = Callable[[], KeyStore]


@pytest.fixture(params=["sqlite", "postgresql"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[OpenStore]:
    """Opens the same keys, as gateways and commands do beside each other."""
    url = request.getfixturevalue("postgres").url if request.param == "postgresql" else None
    opened: list[KeyStore] = []

    def make() -> KeyStore:
        opened.append(KeyStore(url, tmp_path))
        return opened[-1]

    yield make
    for store in opened:
        await store.close()
