"""A gateway whose rules ask before money moves, for the tests of approvals."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portico.callers import Caller, Principal
from portico.calls.pipeline import CallContext
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.rendering.tool_result import ERROR_META_KEY
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.gateways import run_gateway
from tests.interaction.fake_servers import text, tool

ANA = Caller(name="cursor", principal=Principal("key", "ana", "ana", credential="k1"))
BOB = Caller(name="cursor", principal=Principal("key", "bob", "bob", credential="k2"))
BOSS = Principal("key", "boss", "boss", credential="k3")
PAY: Raw = {"to": "ana", "amount": 100, "tags": ["a", "b"], "flag": True}
ASK: Raw = {
    "rules": [{"tools": ["*.pay", "*.refund"], "resources": ["*"], "may": "ask", "say": "Money."}],
    "approvals": {"wait_s": 0},
    "trust": "always",
}


def make_bank(**options: Any) -> FakeBackend:
    """A server that moves money, and remembers each call."""
    pay = tool("pay", to="string", note="string")
    pay["inputSchema"]["properties"] |= {"amount": {}, "tags": {}, "flag": {}}
    backend = FakeBackend(
        [pay, {**pay, "name": "refund"}, tool("look")],
        resources=[{"uri": "file:///pay", "name": "pay"}],
        **options,
    )
    for name in ("pay", "refund", "look"):
        backend.on_call(name, lambda _, name=name: text(f"{name} done"))
    backend.on("resources/read", lambda params, _: {"contents": [{**params, "text": "here"}]})
    return backend


@dataclass
class Room:
    """The gateway, its two servers, and what may be done with them."""

    gateway: GatewayRuntime
    bank: FakeBackend
    shop: FakeBackend

    @property
    def runs(self) -> list[Any]:
        """Every call that reached a server."""
        return [
            params
            for backend in (self.bank, self.shop)
            for method, params in backend.requests
            if method in ("tools/call", "resources/read")
        ]

    async def call(
        self, arguments: Any = None, caller: Caller = ANA, name: str = "bank.pay"
    ) -> Raw:
        """Call a tool; returns its result, or the error as a result."""
        view = self.gateway.get_view(caller.profile or None)
        context = CallContext(caller, via="call_tool")
        return await view.run_tool(name, PAY if arguments is None else arguments, context)

    async def ask(self, arguments: Any = None, caller: Caller = ANA, name: str = "bank.pay") -> str:
        """Make a call that waits for a person, and return the id of the approval."""
        refusal = get_refusal(await self.call(arguments, caller, name))
        assert refusal["kind"] == "approval_required", refusal
        return refusal["approval"]

    async def approve(self, approval_id: str, by: Principal = BOSS) -> None:
        await self.gateway.approvals.decide(approval_id, approve=True, principal=by, via="rest")

    async def deny(self, approval_id: str, by: Principal = BOSS) -> None:
        await self.gateway.approvals.decide(approval_id, approve=False, principal=by, via="rest")

    async def get_approved(self, arguments: Any = None, caller: Caller = ANA) -> str:
        """Get a call approved that has not run yet."""
        approval_id = await self.ask(arguments, caller)
        await self.approve(approval_id)
        return approval_id


def get_refusal(result: Mapping[str, Any]) -> Raw:
    """Return what an error result says to programs."""
    assert result.get("isError"), result
    return result["_meta"][ERROR_META_KEY]


@asynccontextmanager
async def open_room(
    config: Mapping[str, Any] = ASK, data_dir: Path | None = None
) -> AsyncGenerator[Room]:
    bank = make_bank()
    shop = make_bank()
    servers = {"bank": bank, "shop": shop}
    model = Config.model_validate(config)
    async with run_gateway(servers, model, data_dir=data_dir) as gateway:
        yield Room(gateway, bank, shop)
