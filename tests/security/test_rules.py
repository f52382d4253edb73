"""Rules in a running gateway: nothing that they deny reaches a server, by any way."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from portico.calls.call import Call, ServerRequest
from portico.calls.pipeline import CallContext, CallSettings
from portico.calls.rule_enforcement import build_rules
from portico.catalog.tool import make_tool
from portico.config import Config
from portico.errors import ApprovalUnavailable, PermissionDenied, PorticoError
from portico.policy.decision import Decision
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.gateways import GatewayUnderTest, PipelineUnderTest, open_gateway
from tests.interaction.fake_servers import text, tool

DENY: list[Raw] = [{"tools": ["mail.send"], "may": "deny", "say": "Ask #mail.", "visible": True}]
WAYS: dict[str, tuple[str, Raw]] = {
    "call_tool": ("call_tool", {"name": "mail.send", "arguments": {"to": "a"}}),
    "shape": (
        "call_tool",
        {"name": "mail.send", "arguments": {"to": "a"}, "view": "shape", "confirm": True},
    ),
    "flat name": ("mail__send", {"to": "a"}),
    "script": ("run_code", {"code": "await mail.send(to='a')"}),
    "call_tool in a script": ("run_code", {"code": "await call_tool('mail.send', {'to': 'a'})"}),
    "workflow": (
        "run_workflow",
        {"steps": [{"id": "a", "tool": "mail.send", "arguments": {"to": "a"}}]},
    ),
}


def mail() -> FakeBackend:
    backend = FakeBackend(
        [tool("send", to="string"), tool("read")],
        resources=[{"uri": "file:///open", "name": "open"}, {"uri": "file:///shut", "name": "s"}],
        templates=[{"uriTemplate": "file:///{path}", "name": "files"}],
        prompts=[{"name": "open"}, {"name": "shut"}],
    )
    backend.on_call("send", lambda _: text("sent"))
    backend.on_call("read", lambda _: text("read"))
    backend.on("resources/read", lambda params, _: {"contents": [{**params, "text": "here"}]})
    message = {"role": "user", "content": {"type": "text", "text": "here"}}
    backend.on("prompts/get", lambda *_: {"messages": [message]})
    backend.on("completion/complete", lambda *_: {"completion": {"values": ["one"]}})
    return backend


def with_rules(*rules: Raw, **options: Any) -> Config:
    return Config.model_validate({"rules": list(rules), **options})


def sent(backend: FakeBackend, method: str = "tools/call") -> list[Any]:
    return [params for name, params in backend.requests if name == method]


async def try_call(gateway: GatewayUnderTest, name: str, arguments: Raw) -> str:
    try:
        return str(await gateway.call(name, **arguments))
    except MCPError as error:
        return str(error)


@pytest.mark.parametrize("way", WAYS)
async def test_a_denied_tool_is_called_by_no_way_and_its_rule_is_told(way: str) -> None:
    backend = mail()
    async with open_gateway({"mail": backend}, with_rules(*DENY)) as gateway:
        assert "Ask #mail." in await try_call(gateway, *WAYS[way])
    assert not sent(backend)


@pytest.mark.parametrize("way", WAYS)
async def test_a_rule_that_asks_sends_nothing_before_a_person_has_answered(way: str) -> None:
    backend = mail()
    config = with_rules({"tools": ["mail.send"], "may": "ask"}, approvals={"wait_s": 0})
    async with open_gateway({"mail": backend}, config) as gateway:
        assert "portico approve" in await try_call(gateway, *WAYS[way])
    assert not sent(backend)


async def test_a_rule_is_about_the_arguments_that_are_sent() -> None:
    backend = mail()
    config = with_rules(
        {"tools": ["mail.send"], "when": {"to": "ana"}, "may": "allow"},
        {"tools": ["mail.send"], "may": "deny"},
    )
    async with open_gateway({"mail": backend}, config) as gateway:
        for arguments in ({"to": "ana"}, '{"to": "ana"}'):
            await gateway.call_text("call_tool", name="mail.send", arguments=arguments)
        for arguments in ({"to": "bob"}, '{"to": "bob"}', {}):
            await gateway.call_error("call_tool", name="mail.send", arguments=arguments)
    assert [params["arguments"] for params in sent(backend)] == [{"to": "ana"}] * 2


async def test_resources_prompts_and_completion_have_rules_too() -> None:
    backend = mail()
    config = with_rules(
        {"resources": ["mail.file:///shut*"], "prompts": ["mail.shut"], "may": "deny"},
    )
    async with open_gateway({"mail": backend}, config) as gateway:
        calls = gateway.runtime.calls
        reference = {"type": "ref/prompt", "name": "shut"}
        argument = {"name": "a", "value": ""}
        refused: list[tuple[str, Raw]] = [
            ("resources/read", {"uri": "file:///shut"}),
            ("resources/read", {"uri": "file:///shut/../shut"}),
            ("resources/subscribe", {"uri": "file:///shut"}),
            ("prompts/get", {"name": "shut"}),
            ("completion/complete", {"ref": reference, "argument": argument}),
        ]
        before = len(backend.requests)
        for method, params in refused:
            with pytest.raises(Exception, match=r"Resource not found|there is no"):
                await calls.request("mail", method, params)
        assert len(backend.requests) == before
        assert await calls.request("mail", "resources/read", {"uri": "file:///open"})
        assert await calls.request("mail", "prompts/get", {"name": "open"})


class _Person:
    """Approves what it is asked, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, str]] = []

    async def approve(self, call: Call | ServerRequest, decision: Decision) -> None:
        await asyncio.sleep(0)
        if isinstance(call, Call):
            self.asked.append((call.arguments, decision.rule))
        else:
            self.asked.append((call.params, decision.rule))


async def test_an_approver_is_asked_for_the_very_call_and_it_runs_then() -> None:
    backend = mail()
    config = with_rules({"tools": ["mail.send"], "resources": ["*"], "may": "ask"})
    async with open_gateway({"mail": backend}, config) as gateway:
        person = gateway.runtime.calls.enforcement.approver = _Person()
        call = {"name": "mail.send", "arguments": '{"to": "ana"}'}
        assert await gateway.call_text("call_tool", **call) == "sent"
        await gateway.runtime.calls.request("mail", "resources/read", {"uri": "file:///open"})
        assert person.asked == [({"to": "ana"}, "rules[0]"), ({"uri": "file:///open"}, "rules[0]")]


READ: Raw = {**tool("act"), "annotations": {"readOnlyHint": True}}


async def test_a_definition_that_changes_while_its_call_waits_is_decided_again() -> None:
    rules = build_rules(with_rules({"read_only": False, "may": "deny", "visible": True}))
    pipeline = PipelineUnderTest([READ])
    pipeline.calls.enforcement.rules = rules
    pipeline.backend.on_call("act", lambda _: text("done"))
    harmless = make_tool("s", READ)
    assert await pipeline.call(harmless, {})
    enforcement = pipeline.calls.enforcement

    async def replace_definition(call: Call) -> Raw:
        call.tool = make_tool("s", tool("act"))
        return await enforcement.check_again(call, call_next=_send)

    async def _send(call: Call) -> Raw:
        raise AssertionError("it was sent")

    call = Call(
        tool=harmless,
        arguments={},
        context=CallContext(),
        server="s",
        initial_hash=harmless.hash,
        params={},
    )
    with pytest.raises(PermissionDenied):
        await enforcement.check_call(call, call_next=replace_definition)


async def test_new_rules_hold_from_the_next_call_on() -> None:
    backend = mail()
    async with open_gateway({"mail": backend}, Config()) as gateway:
        call = {"name": "mail.send", "arguments": {"to": "a"}}
        assert await gateway.call_text("call_tool", **call) == "sent"
        await gateway.runtime.apply(with_rules(*DENY))
        assert "Ask #mail." in await gateway.call_error("call_tool", **call)
        with pytest.raises(ValueError, match="only a claim"):
            with_rules({"for": ["client:x"]})
        await gateway.runtime.apply(Config())
        assert await gateway.call_text("call_tool", **call) == "sent"


async def test_rules_that_cannot_be_used_change_nothing() -> None:
    async with open_gateway({"mail": mail()}, with_rules(*DENY)) as gateway:
        broken = with_rules({"when": {"to": {"pattern": "("}}, "may": "allow"})
        with pytest.raises(Exception, match=r"rules\[0\]\.when"):
            await gateway.runtime.apply(broken)
        error = await gateway.call_error("call_tool", name="mail.send", arguments={"to": "a"})
        assert "Ask #mail." in error


async def test_without_an_approver_the_error_has_its_own_kind() -> None:
    settings = CallSettings(rules=build_rules(with_rules({"may": "ask", "say": "Ask Ana."})))
    pipeline = PipelineUnderTest([READ])
    pipeline.calls.enforcement.rules = settings.rules
    with pytest.raises(ApprovalUnavailable, match=r"Ask Ana\.") as caught:
        await pipeline.call(make_tool("s", READ), {})
    assert caught.value.kind == "approval_unavailable"


async def test_the_audit_log_names_the_rule_of_calls_and_of_other_requests(tmp_path: Path) -> None:
    config = with_rules(
        {"tools": ["mail.send"], "may": "deny"},
        {"resources": ["mail.*"], "prompts": ["mail.shut"], "may": "allow"},
    )
    async with open_gateway({"mail": mail()}, config, data_dir=tmp_path) as gateway:
        await try_call(gateway, "call_tool", {"name": "mail.read"})
        calls = gateway.runtime.calls
        with pytest.raises(PorticoError):
            await calls.call(gateway.runtime.catalog.snapshot.tools["mail.send"], {"to": "a"})
        await calls.request("mail", "resources/read", {"uri": "file:///open"})
        await calls.request("mail", "prompts/get", {"name": "open"})
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    decided = [(line.get("tool") or line["method"], line["rule"]) for line in lines]
    assert decided == [
        ("mail.read", "default"),
        ("mail.send", "rules[0]"),
        ("resources/read", "rules[1]"),
        ("prompts/get", "default"),
    ]
