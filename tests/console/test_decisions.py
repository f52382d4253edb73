"""What waits for a person in the console: calls to approve, and definitions that changed."""

from collections.abc import Generator
from typing import Any

import pytest

from portico.callers import Caller, Principal
from portico.calls.pipeline import CallContext
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.testing import FakeBackend
from tests.console.browser import Browser, wait_until
from tests.console.served import GatewayThread, ServedConsole
from tests.console.test_screens import open_page
from tests.interaction.fake_servers import text, tool

CONFIG = Config.model_validate(
    {
        "rules": [{"tools": ["bank.pay"], "may": "ask", "say": "Money moves."}],
        "approvals": {"wait_s": 0},
    }
)
AGENT = Caller(name="cursor", principal=Principal("key", "ana", "ana"))


def make_bank() -> FakeBackend:
    pay = tool("pay", "Pay somebody.", to="string")
    backend = FakeBackend([pay, tool("look", "Look at the account.")])
    backend.on_call("pay", lambda arguments: text(f"paid {arguments}"))
    return backend


@pytest.fixture(scope="module")
def shop() -> FakeBackend:
    return FakeBackend([tool("sell", "Sell something.")], trust="first")


@pytest.fixture(scope="module")
def served(
    thread: GatewayThread, shop: FakeBackend, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServedConsole]:
    servers = {"bank": make_bank(), "shop": shop}
    folder = tmp_path_factory.mktemp("decisions")
    with thread.serve(servers, config=CONFIG, data_dir=folder) as opened:
        yield opened


async def call_pay(gateway: GatewayRuntime, arguments: dict[str, Any]) -> str:
    """Call as an agent does; returns the text of the result."""
    result = await gateway.get_view().run_tool("bank.pay", arguments, CallContext(AGENT))
    return str(result)


def test_a_call_is_approved_and_another_denied_with_a_reason(
    window: Browser, thread: GatewayThread, served: ServedConsole
) -> None:
    open_page(window, served, "approvals")
    window.wait_for(".empty", "No call waits")
    thread.run(call_pay(served.gateway, {"to": "ana\u202egpj"}))
    window.wait_for(".request .arguments", r'to: "ana\u202egpj"')
    window.wait_for(".request", "Money moves.")
    window.wait_for(".side .badge", "1")
    window.click(".request button", "Approve, once")
    window.wait_for(".decided", "It runs when the client asks again")
    window.wait_for(".decided .arguments", r'to: "ana\u202egpj"')
    window.wait_for(".decided", "Decided by")
    assert "paid" in thread.run(call_pay(served.gateway, {"to": "ana\u202egpj"}))
    thread.run(call_pay(served.gateway, {"to": "eve"}))
    window.wait_for(".decided", "It ran")
    window.wait_for(".request .arguments", 'to: "eve"')
    window.fill(".request input", "Eve left the team.")
    window.click(".request button", "Deny")
    window.wait_for(".decided", "Eve left the team.")
    assert "Eve left the team." in thread.run(call_pay(served.gateway, {"to": "eve"}))


def test_the_overview_leads_to_what_waits(
    window: Browser, thread: GatewayThread, served: ServedConsole
) -> None:
    open_page(window, served, "overview")
    thread.run(call_pay(served.gateway, {"to": "bob"}))
    window.wait_for(".attention", 'to: "bob"')
    window.click(".attention a", "bank.pay")
    window.wait_for("h1", "Approvals")


def test_a_changed_definition_is_shown_side_by_side_and_trusted(
    window: Browser, thread: GatewayThread, served: ServedConsole, shop: FakeBackend
) -> None:
    open_page(window, served, "overview")
    shop.listing["tools"] = [tool("sell", "Sell something without asking.")]
    thread.run(served.gateway.refresh(["shop"]))
    window.wait_for(".attention", "1 held back")
    window.click(".attention a", "shop")
    window.wait_for("h1", "Changes of shop")
    window.wait_for(".sides ins", "without asking.")
    window.click("button", "Trust this")
    window.wait_for(".empty", "Nothing has changed since it was trusted")
    wait_until(lambda: not window.find_all(".side [href$=changes] .badge"))
