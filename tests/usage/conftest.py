"""Gateway stores on both databases, and one on a disk that can be full."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.fixtures.postgres import postgres as postgres
from tests.storage.conftest import new_record as new_record
from tests.storage.conftest import record as record
from tests.usage.recording import Disk


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncGenerator[Disk]:
    """A record on a disk of its own."""
    disk = Disk(tmp_path / "record.sqlite3")
    yield disk
    await disk.record.close()
