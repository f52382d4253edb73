"""A gateway that is served for other commands of the same user."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from portico.cli.local_gateway.connection import RunningGateway, find_gateway
from portico.cli.local_gateway.registration import identify_configuration
from tests.cli.conftest import TIMEOUT_S, Home, Start, home, start

__all__ = ["home", "start"]

SERVERS: dict[str, Any] = {
    name: {"functions": f"portico.demo.{name}:TOOLS"} for name in ("text", "units", "notes")
}

Serve = Callable[..., tuple["subprocess.Popen[bytes]", RunningGateway]]


def find(home: Home, *files: str) -> RunningGateway | None:
    """Return the gateway that a command in this folder would ask."""
    return find_gateway(
        identify_configuration(files, environ=home.environment, cwd=str(home.folder))
    )


def wait_for_gateway(home: Home, *files: str) -> RunningGateway:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if (found := find(home, *files)) is not None:
            return found
        time.sleep(0.05)
    raise AssertionError("no gateway was registered in time")


@pytest.fixture
def serve(home: Home, start: Start) -> Serve:
    """Serves the configuration of this home on a free port."""

    def begin(*arguments: str) -> tuple["subprocess.Popen[bytes]", RunningGateway]:
        process = start("serve", "--port", "0", *arguments)
        return process, wait_for_gateway(home)

    return begin
