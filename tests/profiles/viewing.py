"""A view of a few servers with known use, without a transport."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from portico.callers import Caller
from portico.calls.pipeline import CallContext
from portico.config import Config, UsageConfig
from portico.events import Event, ToolCalled, ToolsShown
from portico.gateway import GatewayRuntime
from portico.profiles.profile_state import ProfileState
from portico.profiles.view import ProfileSettings, ProfileView
from portico.storage.gateway_store import GatewayStore
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Era, Raw
from portico.usage.token_ledger import TokenLedger
from portico.usage.tool_tiers import Standings, UsageData
from portico.usage.tool_usage import ToolUsage
from tests.interaction.fake_servers import text, tool

TIMEOUT_S = 240
ME = Caller("me", "a client")


def servers() -> dict[str, FakeBackend]:
    """A tracker, a post office, and one that says nothing of itself."""
    tracker = FakeBackend(
        [
            tool("create_issue", "Create an issue in a repository.", title="string"),
            tool("close_issue", "Close an issue.", number="integer"),
        ],
        resources=[{"uri": "note://1", "name": "note"}],
        prompts=[{"name": "greet"}],
        instructions="Say the repository.",
    )
    post = FakeBackend(
        [tool("send_mail", "Send an e-mail.", to="string"), tool("odd/name here", "Odd.")]
    )
    for backend in (tracker, post):
        for one in backend.listing["tools"]:
            backend.on_call(one["name"], lambda _: text("done"))
    return {"github": tracker, "post": post, "bare": FakeBackend()}


class Viewing:
    """A view, the gateway behind it, and the events it published."""

    def __init__(self, gateway: GatewayRuntime, view: ProfileView, usage_data: UsageData) -> None:
        self.gateway, self.view, self.usage_data = gateway, view, usage_data
        self.shown: list[ToolsShown] = []
        gateway.bus.subscribe(self._hear, ToolsShown)

    def _hear(self, event: Event) -> None:
        if isinstance(event, ToolsShown):
            self.shown.append(event)

    async def ask(self, method: str, params: Raw | None = None, era: Era = "legacy") -> Raw:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.view.handle(method, params or {}, CallContext(ME), era)

    async def read(self, uri: str, era: Era = "legacy") -> str:
        contents = (await self.ask("resources/read", {"uri": uri}, era))["contents"]
        assert contents[0]["uri"] == uri
        return contents[0]["text"]

    async def data(self, uri: str) -> Any:
        return json.loads(await self.read(uri))

    async def call(self, name: str, /, **arguments: Any) -> str:
        answer = await self.ask("tools/call", {"name": name, "arguments": arguments})
        return answer["content"][0]["text"]

    async def use(self, name: str, times: int = 1) -> None:
        """Somebody calls a tool so often, and the standings are computed again."""
        for _ in range(times):
            self.gateway.bus.publish(ToolCalled(name, "hash", 0.025, True, ME))
        await asyncio.wait_for(self.usage_data.standings.recompute(), TIMEOUT_S)


@asynccontextmanager
async def viewing(
    backends: dict[str, FakeBackend] | None = None, config: Config | None = None, **face: Any
) -> AsyncGenerator[Viewing]:
    """A view of these servers that knows of nobody's use yet."""
    async with gateway_over(servers() if backends is None else backends, config) as gateway:
        record = GatewayStore(None, None)
        usage = ToolUsage(record, gateway.bus, UsageConfig())
        usage_data = UsageData(
            usage,
            Standings(usage, record),
            TokenLedger(record, gateway.bus, lambda profile: 5_000, count=len),
        )
        settings = ProfileSettings(**face)
        state = ProfileState(settings, gateway.catalog, gateway.upstreams, usage_data, gateway.bus)
        view = ProfileView(state, gateway.calls)
        yield Viewing(gateway, view, usage_data)
