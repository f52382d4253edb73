"""An embedding program without any configured environment."""

import os

import pytest


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PORTICO_")]:
        monkeypatch.delenv(name)
