"""A client of the API of a real gateway, through its complete application with authentication."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from starlette.applications import Starlette

from portico.api.app import make_api
from portico.api.gateway_services import GatewayServices
from portico.callers import Caller
from portico.config import Config, UsageConfig
from portico.events import ToolCalled
from portico.gateway import GatewayRuntime
from portico.profiles.profile_state import ProfileState
from portico.server.http.app import make_app
from portico.storage.gateway_store import GatewayStore
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Raw
from portico.usage.token_ledger import TokenLedger
from portico.usage.tool_tiers import Standings, UsageData
from portico.usage.tool_usage import ToolUsage
from tests.interaction.fake_servers import tool

V1 = "/api/v1"
ENCODE_TIMEOUT_S = 240.0


@dataclass
class ApiClient:
    """A gateway and a client of its API."""

    gateway: GatewayRuntime
    app: Starlette
    http: httpx2.AsyncClient
    usage_data: UsageData
    record: GatewayStore

    async def get(
        self,
        path: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Raw:
        """The JSON of an answer that has this status."""
        path = path if path.startswith("/api") else f"{V1}/{path}"
        given = {key: value for key, value in query.items() if value is not None}
        reply = await self.http.get(path, params=given or None, headers=dict(headers or {}))
        assert reply.status_code == status, (path, reply.status_code, reply.text[:500])
        found: Raw = reply.json()
        return found

    async def wait_until_encoded(self) -> None:
        """Wait until every tool has its vector, so that rankings no longer change."""
        async with asyncio.timeout(ENCODE_TIMEOUT_S):
            while self.gateway.catalog.snapshot.index.unencoded_count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def record_call(
        self, address: str, *, times: int = 1, ms: float = 10.0, ok: bool = True
    ) -> None:
        """Let the gateway hear that a tool was called."""
        for _ in range(times):
            self.gateway.bus.publish(
                ToolCalled(address, "0" * 16, ms / 1_000, ok, Caller(name="tester"))
            )

    async def get_all(self, path: str, key: str, **query: Any) -> list[Raw]:
        """All items of a list, its pages followed to the end."""
        body = await self.get(path, **query)
        found: list[Raw] = list(body[key])
        for _ in range(10_000):
            if "next" not in body:
                return found
            assert body[key], "a page that goes on shows something"
            body = await self.get(body["next"])
            found += body[key]
        raise AssertionError("the list does not end")


def make_profile_state(gateway: GatewayRuntime) -> tuple[ProfileState, UsageData, GatewayStore]:
    """Return the default profile with usage data of its own, which the gateway does not
    maintain."""
    record = GatewayStore(None, None)
    usage = ToolUsage(record, gateway.bus, UsageConfig())
    usage_data = UsageData(
        usage, Standings(usage, record), TokenLedger(record, gateway.bus, lambda _: 0)
    )
    return (
        ProfileState(gateway.get_view().settings, gateway.catalog, gateway.upstreams, usage_data),
        usage_data,
        record,
    )


@asynccontextmanager
async def open_api(
    backends: Mapping[str, Any],
    config: Config | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    **options: Any,
) -> AsyncGenerator[ApiClient]:
    """A gateway over these backends, and a client of its API in this process."""
    async with gateway_over(backends, config) as gateway:
        profile_state, usage_data, record = make_profile_state(gateway)
        api = make_api(
            profile_state,
            gateway.get_view().search_service,
            record,
            services=GatewayServices(upstreams=gateway.upstreams),
            clock=clock,
        )
        app = make_app(gateway.get_endpoints(), api=api, **options)
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8420"
        ) as http:
            yield ApiClient(gateway, app, http, usage_data, record)
        await record.close()


def make_tools(
    prefix: str, number: int, words: str = "Does something useful with a thing of kind"
) -> Iterable[Raw]:
    """Definitions of so many tools."""
    return [
        tool(f"{prefix}_{at}", f"{words} {at}.", path="string", depth="integer")
        for at in range(number)
    ]


def backend(*definitions: Raw, **options: Any) -> FakeBackend:
    """A server with these tools, each of which answers."""
    made = FakeBackend(definitions, **options)
    for one in definitions:
        made.on_call(one["name"], lambda _: {"content": [{"type": "text", "text": "done"}]})
    return made
