"""A program that embeds the gateway, on a machine where nobody has set anything for it."""

import os

import pytest


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PORTICO_")]:
        monkeypatch.delenv(name)
