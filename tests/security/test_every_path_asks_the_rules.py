"""Nothing reaches a server without the rules: the ways are found in the code, and walked.

What sends is found by its syntax tree: calls of `request` and `notify` on something that is a
server or a connection to one. The ways to call a tool are found by `via`, which every maker of a
context names.
"""

import ast
import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

import portico
from portico.calls.call import CallContext
from portico.calls.pipeline import CallPipeline
from portico.calls.rule_enforcement import RuleEnforcement
from portico.config import Config
from portico.errors import PorticoError
from portico.gateway.rest_app import RestApp
from portico.policy.decision import Effect
from portico.server.http.app import make_app
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.gateways import TIMEOUT_S, GatewayUnderTest, open_gateway
from tests.interaction.fake_servers import text, tool

SOURCE = Path(portico.__file__).parent
SENDERS = {"request", "notify"}
RECEIVERS = ("upstream", "connection", "channel", "session", "subscription")
"""Words in the names of what leads to a server."""
HARMLESS = {
    "initialize",
    "notifications/initialized",
    "server/discover",
    "subscriptions/listen",
    "ping",
    "resources/unsubscribe",
    "notifications/roots/list_changed",
}
"""What the gateway says on nobody's behalf, and what ends something."""


class Site:
    """A place in the code where something is sent."""

    def __init__(self, file: str, call: ast.Call, constants: dict[str, str]) -> None:
        self.file = file
        self.call = call
        self._constants = constants

    @property
    def method(self) -> str:
        """The method that is sent; empty where it is not written there."""
        if not self.call.args:
            return ""
        first = self.call.args[0]
        if isinstance(first, ast.Constant):
            return str(first.value)
        if isinstance(first, ast.Name):
            return self._constants.get(first.id, "")
        return ""

    def __repr__(self) -> str:
        return f"{self.file}:{self.call.lineno} {ast.unparse(self.call)[:80]}"


@cache
def parse_all() -> dict[str, ast.Module]:
    return {
        str(file.relative_to(SOURCE)): ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(SOURCE.rglob("*.py"))
    }


def find_calls(names: set[str]) -> Iterator[Site]:
    for file, tree in parse_all().items():
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name) and isinstance(node.value.value, str)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in names
            ):
                yield Site(file, node, constants)


def is_to_server(site: Site) -> bool:
    assert isinstance(site.call.func, ast.Attribute)
    receiver = ast.unparse(site.call.func.value).lower()
    return any(word in receiver for word in RECEIVERS)


def test_what_sends_to_a_server_is_the_dispatcher_or_speaks_for_nobody() -> None:
    sites = [site for site in find_calls(SENDERS) if is_to_server(site)]
    assert len(sites) > 15, "the sites are found"
    unexplained = [
        site
        for site in sites
        if site.file != "calls/dispatcher.py"
        # Below: the supervisor and what carries it.
        and not site.file.startswith("upstream/")
        and site.method not in HARMLESS
        and not _is_to_client(site)
        # What is watched was asked for; the rules are asked again when they change.
        and site.method != "resources/subscribe"
        and not (site.file == "catalog/listing.py" and _lists(site))
    ]
    assert not unexplained


def _is_to_client(site: Site) -> bool:
    method = ast.unparse(site.call.args[0])
    return site.file == "server/sessions.py" and (
        "list_changed" in method or "resources/updated" in method
    )


def _lists(site: Site) -> bool:
    """Whether it is of the loop over what a server is listed by."""
    names = {node.id for node in ast.walk(site.call.args[0]) if isinstance(node, ast.Name)}
    listing = parse_all()["catalog/listing.py"]
    methods = {
        node.value
        for node in ast.walk(listing)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and "/" in node.value
        and " " not in node.value
    }
    return bool(names) and all(method.endswith("list") for method in methods)


def test_the_dispatcher_is_used_by_the_pipeline_alone_and_behind_the_rules() -> None:
    users = {
        file
        for file, tree in parse_all().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "Dispatcher"
    }
    # The follower of tasks is composed into the pipeline, behind the same middlewares.
    assert users == {"calls/pipeline.py", "calls/task_follower.py"}
    pipeline = CallPipeline({}, portico_settings(), portico_recorder())
    for handler, checks in (
        (pipeline._compose_call(), {"check_tool", "check_call", "check_again"}),  # pyright: ignore
        (pipeline._run_request, {"check_request"}),  # pyright: ignore
        (pipeline._resume_call, {"check_tool"}),  # pyright: ignore
    ):
        names = list(unfold(handler))
        assert checks <= set(names[:-1])
        assert names[-1] in ("send_and_check", "send_request", "resume")


def unfold(handler: Any) -> Iterator[str]:
    """Yield the middlewares of a composed handler, outermost first, and what is inside them."""
    while isinstance(handler, partial):
        yield handler.func.__name__
        handler = handler.keywords["call_next"]
    yield handler.__name__


def portico_settings() -> Any:
    from portico.calls.pipeline import CallSettings

    return CallSettings()


def portico_recorder() -> Any:
    from portico.calls.call_recorder import CallRecorder
    from portico.events import EventBus

    return CallRecorder(EventBus())


# --- every way, for every caller and effect

Walk = Callable[[GatewayUnderTest, str], Awaitable[str]]


async def by_client(gateway: GatewayUnderTest, name: str, arguments: Raw) -> str:
    try:
        return str(await gateway.call(name, **arguments))
    except MCPError as error:
        return str(error)


def walk(name: str, arguments: Callable[[str], Raw]) -> Walk:
    return lambda gateway, tool_name: by_client(gateway, name, arguments(tool_name))


async def by_flat_name(gateway: GatewayUnderTest, tool_name: str) -> str:
    return await by_client(gateway, f"mail__{tool_name}", {"to": "a"})


async def by_rest(gateway: GatewayUnderTest, tool_name: str) -> str:
    app = make_app(gateway.runtime.get_endpoints(), api=RestApp(gateway.runtime))
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:1", timeout=TIMEOUT_S
    ) as http:
        body = {"tool": f"mail.{tool_name}", "arguments": {"to": "a"}}
        return (await http.post("/api/v1/calls", json=body)).text


async def by_pipeline(via: str, gateway: GatewayUnderTest, tool_name: str) -> str:
    found = gateway.runtime.catalog.snapshot.tools[f"mail.{tool_name}"]
    try:
        return json.dumps(
            await gateway.runtime.calls.call(found, {"to": "a"}, CallContext(via=via))
        )
    except PorticoError as error:
        return str(error)


def make_steps(name: str) -> Raw:
    return {"steps": [{"id": "a", "tool": f"mail.{name}", "arguments": {"to": "a"}}]}


WAYS: dict[str, Walk] = {
    "call_tool": walk("call_tool", lambda name: {"name": f"mail.{name}", "arguments": {"to": "a"}}),
    "flat": by_flat_name,
    "script": walk("run_code", lambda name: {"code": f"await mail.{name}(to='a')"}),
    "workflow": walk("run_workflow", make_steps),
    "rest": by_rest,
    "cli": partial(by_pipeline, "cli"),
    "library": partial(by_pipeline, "library"),
}


def find_ways() -> set[str]:
    """Return every `via` that a context of a call is made with."""
    found = {CallContext().via}
    for tree in parse_all().values():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in (
                "CallContext",
                "replace",
            ):
                continue
            found |= {
                str(keyword.value.value)
                for keyword in node.keywords
                if keyword.arg == "via" and isinstance(keyword.value, ast.Constant)
            }
    return found


def test_every_way_in_the_code_is_walked_here() -> None:
    assert find_ways() == set(WAYS)


LOCAL: list[str] = ["local"]
OTHERS = ["key:somebody"]
EFFECTS: tuple[Effect, ...] = ("allow", "ask", "deny")


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("callers", [LOCAL, OTHERS], ids=["for the caller", "for others"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_rule_holds_on_every_way_for_whom_it_is(
    way: str, callers: list[str], effect: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeBackend([tool("send", to="string")])
    backend.on_call("send", lambda _: text("sent"))
    rule: Raw = {"for": callers, "tools": ["mail.send"], "may": effect}
    asked: list[str] = []
    check_call = RuleEnforcement.check_call

    def note(self: RuleEnforcement, call: Any, /, call_next: Any) -> Any:
        asked.append(call.tool.address)
        return check_call(self, call, call_next=call_next)

    monkeypatch.setattr(RuleEnforcement, "check_call", note)
    config = Config.model_validate({"rules": [rule], "approvals": {"wait_s": 0}})
    async with open_gateway({"mail": backend}, config) as gateway:
        with suppress(MCPError):
            await WAYS[way](gateway, "send")
    runs = [method for method, _ in backend.requests if method == "tools/call"]
    is_allowed = effect == "allow" or callers is OTHERS
    assert len(runs) == (1 if is_allowed else 0)
    if is_allowed:
        assert asked == ["mail.send"], "exactly once, with the arguments that are sent"


@pytest.mark.parametrize("method", ["resources/read", "prompts/get", "completion/complete"])
@pytest.mark.parametrize("effect", EFFECTS)
async def test_requests_beside_calls_are_held_to_the_rules(method: str, effect: Effect) -> None:
    backend = FakeBackend(
        [tool("send")],
        resources=[{"uri": "x:/a", "name": "a"}],
        prompts=[{"name": "greet"}],
    )
    for one in ("resources/read", "prompts/get", "completion/complete"):
        backend.on(one, lambda *_: {"contents": [], "messages": [], "completion": {"values": []}})
    params: dict[str, Raw] = {
        "resources/read": {"uri": "portico://backend/mail/resource/x:/a"},
        "prompts/get": {"name": "mail__greet"},
        "completion/complete": {
            "ref": {"type": "ref/prompt", "name": "mail__greet"},
            "argument": {"name": "a", "value": ""},
        },
    }
    rules: list[Raw] = [{"resources": ["mail.*"], "prompts": ["mail.*"], "may": effect}]
    config = Config.model_validate({"rules": rules, "approvals": {"wait_s": 0}})
    async with open_gateway({"mail": backend}, config) as gateway:
        view = gateway.runtime.get_view()
        with suppress(PorticoError):
            await view.handle(method, params[method], CallContext(), "modern")
    sent = [one for one, _ in backend.requests if one == method]
    # Completion runs nothing: it is for callers who may use the prompt with some values.
    is_allowed = effect == "allow" or (method == "completion/complete" and effect == "ask")
    assert len(sent) == (1 if is_allowed else 0)


async def test_new_rules_end_what_was_subscribed_to_before() -> None:
    backend = FakeBackend([tool("send")], resources=[{"uri": "x:/a", "name": "a"}])
    unsubscribed = asyncio.Event()
    backend.on("resources/subscribe", lambda *_: {})

    def note(*_: Any) -> Raw:
        unsubscribed.set()
        return {}

    backend.on("resources/unsubscribe", note)
    uri = "portico://backend/mail/resource/x:/a"
    async with open_gateway({"mail": backend}, Config(), era="legacy") as gateway:
        await gateway.client.session.subscribe_resource(uri)  # pyright: ignore[reportDeprecated]
        registry = gateway.runtime.subscription_registry
        assert registry.list_resources()
        rules: list[Raw] = [{"resources": ["mail.*"], "may": "deny"}]
        await gateway.runtime.apply(Config.model_validate({"rules": rules}))
        assert not registry.list_resources()
        await asyncio.wait_for(unsubscribed.wait(), TIMEOUT_S)
