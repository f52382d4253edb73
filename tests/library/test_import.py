"""Importing the package loads one module, and every export exists."""

import subprocess
import sys

import pytest

import portico


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_importing_the_package_imports_nothing_else():
    script = (
        "import sys; before = set(sys.modules); import portico; print(*set(sys.modules) - before)"
    )
    assert run(script).split() == ["portico"]


def test_everything_that_is_exported_can_be_imported_and_nothing_else():
    for name in portico.__all__:
        assert getattr(portico, name)
        assert name in dir(portico)
    with pytest.raises(AttributeError, match="no attribute 'Gatway'"):
        portico.Gatway  # noqa: B018  # pyright: ignore


def test_it_prints_nothing_and_needs_no_database_no_rest_and_nobodys_library():
    """Not even where nobody has set up logging, and a server cannot be started."""
    script = """
import asyncio, sys
from portico import BackendUnavailable, Gateway

async def main():
    async with Gateway({"servers": {"gone": {"command": "no-such-program-here"}}}, in_memory=True) as gateway:
        try:
            await gateway.call("gone.anything")
        except BackendUnavailable:
            return
        sys.exit("it was not shown")

asyncio.run(main())
heavy = {"fastapi", "sqlalchemy", "anthropic", "openai", "langchain_core"} & sys.modules.keys()
sys.exit(f"loaded: {heavy}" if heavy else 0)
"""  # noqa: E501
    assert run(script) == ""
