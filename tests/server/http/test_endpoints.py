"""Endpoints over HTTP that are added and removed while the application runs."""

import asyncio
from typing import Any

import httpx2
from mcp.client import Client

from portico.config import Config, Profile
from portico.gateway import GatewayRuntime
from portico.server.http.app import make_app, make_server
from portico.testing import FakeBackend, gateway_over

PATIENCE_S = 30.0
TOOL = {"name": "run", "description": "Run.", "inputSchema": {"type": "object"}}


def profiles(gateway: GatewayRuntime, *names: str) -> Config:
    return gateway.config.model_copy(
        update={"profiles": {name: Profile(exposure="full") for name in names}}
    )


class Served:
    """A gateway on a free port, with its application at hand."""

    def __init__(self, gateway: GatewayRuntime) -> None:
        self.gateway = gateway
        self.app = make_app(gateway.get_endpoints())
        self._server = make_server(self.app, "127.0.0.1", 0)

    async def __aenter__(self) -> "Served":
        self._serving = asyncio.create_task(self._server.serve())
        async with asyncio.timeout(PATIENCE_S):
            while not self._server.started:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/mcp"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await asyncio.wait_for(self._serving, PATIENCE_S)

    async def show(self, *names: str) -> None:
        await self.gateway.apply(profiles(self.gateway, *names))
        await self.app.state.endpoints.replace_endpoints(self.gateway.get_endpoints())


async def test_a_profile_that_comes_is_served_and_one_that_goes_says_what_there_is() -> None:
    async with gateway_over({"s": FakeBackend([TOOL])}) as gateway, Served(gateway) as served:
        await served.show("new")
        async with Client(f"{served.url}/p/new") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["s__run"]
        await served.show()
        async with httpx2.AsyncClient(timeout=240) as http:
            gone = await http.post(
                f"{served.url}/p/new", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}
            )
        assert gone.status_code == 404
        assert "/mcp" in gone.json()["advice"]


async def test_a_call_in_flight_at_a_removed_endpoint_is_answered_in_either_era() -> None:
    begun, go = asyncio.Semaphore(0), asyncio.Event()

    async def run(_: Any) -> Any:
        begun.release()
        await go.wait()
        return {"content": [{"type": "text", "text": "done"}]}

    backend = FakeBackend([TOOL])
    backend.on_call("run", run)
    async with gateway_over({"s": backend}) as gateway, Served(gateway) as served:
        await served.show("old")
        url = f"{served.url}/p/old"
        async with (
            Client(url, mode="legacy") as one,
            Client(url) as other,
            asyncio.timeout(PATIENCE_S),
        ):
            for client in (
                one,
                other,
            ):  # a client that has listed no tools does so after its first call
                await client.list_tools()
            calls = [asyncio.create_task(client.call_tool("s__run", {})) for client in (one, other)]
            for _ in calls:
                await begun.acquire()
            leaving = asyncio.create_task(served.show())
            await asyncio.sleep(0)
            go.set()
            answers: list[Any] = await asyncio.gather(*calls)
            assert [answer.content[0].text for answer in answers] == ["done", "done"]
            await leaving


async def test_doors_that_come_and_go_leave_nothing_behind() -> None:
    async with gateway_over({"s": FakeBackend([TOOL])}) as gateway, Served(gateway) as served:
        await served.show("one")
        await served.show()
        before = len(asyncio.all_tasks())
        for _ in range(20):
            await served.show("one")
            await served.show()
        assert len(asyncio.all_tasks()) <= before + 1
        assert set(gateway.get_endpoints()) == {""}
