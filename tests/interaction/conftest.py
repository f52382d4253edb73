"""What the tests share: the matrix's servers, gateway and clients are started once."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from mcp.client import Client

from portico.app import GatewayRuntime
from portico.config import Config, Profile
from portico.testing import connect, gateway_over, serve_http
from tests.interaction.holding import Holder
from tests.interaction.upstreams import CORNERS, Corner, configured

Exposed = str
"""`full`: by the flat name; `meta`: through `call_tool`."""


@dataclass(frozen=True)
class Matrix:
    """A gateway over the four servers, and a client of each kind at each of its two doors."""

    gateway: GatewayRuntime
    clients: dict[tuple[Corner, Exposed], Client]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def holder() -> AsyncGenerator[Holder]:
    holder = Holder()
    yield holder
    await holder.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def matrix(holder: Holder, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    servers = await asyncio.gather(*(holder.hold(configured(corner)) for corner in CORNERS))
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
