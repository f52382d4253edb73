"""The four real servers of the matrix: both eras, both transports, each its own process."""

import asyncio
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from portico.config import BackendConfig
from portico.upstream.backend import Era
from tests.fixtures import everything_command

TIMEOUT_S = 240.0
FILLERS = 70
"""So many that the four together fill more than one page of the gateway's listing."""
UPSTREAM_PAGE = 40
"""So few that each server lists itself in several pages."""


@dataclass(frozen=True)
class Corner:
    """One kind of peer: an era and a transport."""

    era: Era
    transport: str

    @property
    def name(self) -> str:
        """As a server's key, and as a test's id."""
        return f"{self.era}_{self.transport}"


CORNERS = tuple(
    Corner(era, transport) for era in ("legacy", "modern") for transport in ("stdio", "http")
)


def options(corner: Corner) -> tuple[str, ...]:
    return ("--era", corner.era, "--fillers", str(FILLERS), "--page-size", str(UPSTREAM_PAGE))


@asynccontextmanager
async def listening(*command: str) -> AsyncGenerator[str]:
    """The URL of a fixture server over HTTP, as long as the context lasts."""
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT_S):
            said = (await process.stdout.readline()).decode().split()
        assert said, f"the server ended before it listened: {command}"
        yield said[1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def make_backend_config(corner: Corner) -> AsyncGenerator[BackendConfig]:
    """One corner of the matrix as the gateway's configuration names it."""
    if corner.transport == "stdio":
        command, *arguments = everything_command("--stdio", *options(corner))
        yield BackendConfig(command=command, args=tuple(arguments))
    else:
        async with listening(*everything_command("--port", "0", *options(corner))) as url:
            yield BackendConfig(url=url)
