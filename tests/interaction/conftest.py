"""Shared fixtures: the matrix's servers, gateway and clients are started once."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from mcp.client import Client

from portico.config import Config, Profile
from portico.gateway import GatewayRuntime
from portico.testing import connect, gateway_over, serve_http
from tests.gateways import ContextHolder
from tests.interaction import raw_clients
from tests.interaction.upstreams import CORNERS, Corner, make_backend_config

Exposed = str
"""`full`: by the flat name; `meta`: through `call_tool`."""


@dataclass(frozen=True)
class Matrix:
    """A gateway over the four servers, and a client of each kind at each of its two endpoints."""

    gateway: GatewayRuntime
    clients: dict[tuple[Corner, Exposed], Client]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def holder() -> AsyncGenerator[ContextHolder]:
    holder = ContextHolder()
    yield holder
    await holder.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def matrix(holder: ContextHolder, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    servers = await asyncio.gather(
        *(holder.hold(make_backend_config(corner)) for corner in CORNERS)
    )
    config = Config(
        servers={corner.name: server for corner, server in zip(CORNERS, servers, strict=True)},
        exposure="full",
        profiles={"meta": Profile(exposure="meta")},
        data_dir=tmp_path_factory.mktemp("matrix"),
    )
    gateway = await holder.hold(gateway_over(config=config))
    url = await holder.hold(serve_http(gateway))
    clients: dict[tuple[Corner, Exposed], Client] = {}
    for corner in CORNERS:
        mode = "legacy" if corner.era == "legacy" else "auto"
        for exposed, profile in (("full", None), ("meta", "meta")):
            if corner.transport == "stdio":
                context = connect(gateway, "stdio", corner.era, profile)
            else:
                context = Client(f"{url}/p/{profile}" if profile else url, mode=mode)
            clients[corner, exposed] = await holder.hold(context)
    return Matrix(gateway, clients)


@pytest.fixture(params=["pipes", "bridge"])
def line_transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raw clients of lines are connected by pipes, or by `portico stdio` to a shared gateway."""
    if request.param == "bridge":
        if sys.platform == "win32":
            pytest.skip("the test reads pipes of its own event loop")
        monkeypatch.setattr(raw_clients, "pipes_to", raw_clients.bridge_to)
