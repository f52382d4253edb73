"""Masking in a running gateway: what a rule masks reaches its callers by no way."""

import json
import re
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from portico.callers import KEY_ISSUER, Caller, Principal
from portico.calls.call import CallContext
from portico.config import Config
from portico.errors import ApprovalRequired, PermissionDenied, PorticoError, RemoteError
from portico.testing import FakeBackend
from portico.upstream.backend import Raw, RequestOptions
from tests.gateways import GatewayUnderTest, open_gateway, run_gateway
from tests.interaction.fake_servers import text, tool

ANA = "ana@example.org"
CARD = "4111 1111 1111 1111"
RULES: list[Raw] = [{"servers": ["crm"], "may": "allow", "mask": ["email", "card"]}]
BOSS = Caller(principal=Principal(KEY_ISSUER, "boss"))
LOCAL = Caller()


def make_crm() -> FakeBackend:
    backend = FakeBackend(
        [tool("find"), tool("rows"), tool("fail"), tool("large"), tool("slow")],
        resources=[{"uri": "x:/a", "name": "a"}],
        prompts=[{"name": "greet"}],
    )
    backend.on_call("find", lambda _: text(f"write to {ANA}"))
    rows = [{"to": ANA, "card": int(CARD.replace(" ", ""))}]
    backend.on_call("rows", lambda _: {"content": [], "structuredContent": {"rows": rows}})
    backend.on_call("fail", lambda _: {**text(f"no {ANA}"), "isError": True})
    backend.on_call("large", lambda _: text(f"{ANA} and {CARD}\n" * 20_000))
    backend.on("resources/read", lambda params, _: {"contents": [{**params, "text": ANA}]})
    message = {"role": "user", "content": {"type": "text", "text": f"Hello {ANA}"}}
    backend.on("prompts/get", lambda *_: {"messages": [message]})
    return backend


def with_masks(*rules: Raw, **options: Any) -> Config:
    return Config.model_validate({"rules": list(rules) or RULES, **options})


async def ask(gateway: GatewayUnderTest, name: str, arguments: Raw) -> str:
    try:
        return (await gateway.call(name, **arguments)).model_dump_json()
    except MCPError as error:
        return str(error)


WAYS: dict[str, tuple[str, Raw]] = {
    "text": ("call_tool", {"name": "crm.find", "arguments": {}}),
    "structured content": ("call_tool", {"name": "crm.rows", "arguments": {}}),
    "a failure": ("call_tool", {"name": "crm.fail", "arguments": {}}),
    "the shape": ("call_tool", {"name": "crm.rows", "arguments": {}, "view": "shape"}),
    "a large result": ("call_tool", {"name": "crm.large", "arguments": {}}),
    "flat name": ("crm__find", {}),
    "script": ("run_code", {"code": "return await crm.rows()"}),
    "workflow": ("run_workflow", {"steps": [{"id": "a", "tool": "crm.find", "arguments": {}}]}),
}


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_rule_masks_is_masked_on_every_way(way: str) -> None:
    async with open_gateway({"crm": make_crm()}, Config()) as gateway:
        plain = await ask(gateway, *WAYS[way])
        assert way == "the shape" or ANA in plain
        await gateway.runtime.apply(with_masks())
        masked = await ask(gateway, *WAYS[way])
        assert "ana@" not in masked
        assert "4111" not in masked
        assert way == "the shape" or "[email]" in masked


async def test_a_large_result_is_stored_masked() -> None:
    async with open_gateway({"crm": make_crm()}, with_masks()) as gateway:
        summary = await gateway.call_text("call_tool", name="crm.large", arguments={})
        handle = re.search(r'result_id="([^"]+)"', summary)
        assert handle is not None, summary
        found = await gateway.call_text("read_result", result_id=handle[1], grep="and")
        assert "[email] and [card]" in found
        assert "ana@" not in found


async def test_resources_and_prompts_are_masked() -> None:
    async with run_gateway({"crm": make_crm()}, with_masks()) as gateway:
        for method, params in (
            ("resources/read", {"uri": "x:/a"}),
            ("prompts/get", {"name": "greet"}),
        ):
            answer = json.dumps(await gateway.calls.request("crm", method, params))
            assert "[email]" in answer
            assert "ana@" not in answer


async def test_each_caller_gets_what_its_own_rule_leaves_from_the_cache_too() -> None:
    rules: list[Raw] = [{"for": ["key:boss"], "may": "allow"}, *RULES]
    backend = make_crm()
    async with run_gateway({"crm": backend}, with_masks(*rules)) as gateway:
        cached = {"crm": {"command": "x", "cache": {"tools": {"find": 60}}}}
        gateway.calls.configure(Config.model_validate({"servers": cached}).servers)
        find = gateway.catalog.snapshot.tools["crm.find"]
        for caller, is_masked in ((Caller(), True), (BOSS, False), (Caller(), True)):
            answer = json.dumps(await gateway.calls.call(find, {}, CallContext(caller)))
            assert (ANA not in answer) is is_masked
    assert len([method for method, _ in backend.requests if method == "tools/call"]) < 3


class _Recording:
    """A relay that keeps what a client would get."""

    client_key = "test"

    def __init__(self) -> None:
        self.capabilities: Raw = {"elicitation": {}}
        self.received: list[Any] = []

    async def notify(self, method: str, params: Raw) -> None:
        self.received.append(params)

    async def request(self, method: str, params: Raw) -> Raw:
        self.received.append(params)
        return {"action": "decline"}

    async def pause(self) -> None:
        return


async def test_progress_logs_and_questions_of_the_server_are_masked() -> None:
    backend = make_crm()

    async def act(params: Raw, options: RequestOptions) -> Raw:
        assert options.relay is not None
        await options.relay.notify("notifications/message", {"level": "info", "data": {"to": ANA}})
        await options.relay.notify(
            "notifications/progress", {"progressToken": 4111111111111111, "message": ANA}
        )
        question = {"message": f"Write to {ANA}?", "requestedSchema": {"type": "object"}}
        await options.relay.request("elicitation/create", question)
        raise RemoteError(-32000, f"cannot reach {ANA}", {"to": ANA})

    backend.on("tools/call", act)
    relay = _Recording()
    async with run_gateway({"crm": backend}, with_masks()) as gateway:
        slow = gateway.catalog.snapshot.tools["crm.slow"]
        with pytest.raises(PorticoError) as failure:
            await gateway.calls.call(slow, {}, CallContext(relay=relay))
    assert "ana@" not in f"{failure.value} {getattr(failure.value, 'data', '')}"
    assert len(relay.received) == 3
    assert "ana@" not in str(relay.received)
    assert relay.received[1]["progressToken"] == 4111111111111111


async def test_values_of_configured_secrets_are_masked_in_results() -> None:
    backend = FakeBackend([tool("show")])
    backend.on_call("show", lambda _: text("the word is correct-horse-9, sk-abcdefgh12345678XY"))
    servers = {"other": {"command": "x", "env": {"API_TOKEN": "correct-horse-9"}, "disabled": True}}
    rules: list[Raw] = [{"servers": ["crm"], "may": "allow", "mask": ["secrets"]}]
    async with run_gateway({"crm": backend}, with_masks(*rules, servers=servers)) as gateway:
        show = gateway.catalog.snapshot.tools["crm.show"]
        answer = json.dumps(await gateway.calls.call(show, {}, CallContext()))
        assert "correct-horse" not in answer
        assert "sk-abc" not in answer


def test_a_mask_that_means_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="mask"):
        with_masks({"may": "deny", "mask": ["email"]})
    with pytest.raises(ValueError, match="mask"):
        with_masks({"may": "allow", "mask": ["everything"]})
    assert with_masks({"mask": "email"}).rules[0].mask == ("email",)


# --- arguments

ARGUMENT_RULES: list[Raw] = [
    {"servers": ["crm"], "may": "allow", "mask_arguments": ["email", "card", "secrets"]}
]
NOTES: Raw = {"note": f"{ANA} pays by {CARD}", "more": [{"to": ANA}]}
ARGUMENT_WAYS: dict[str, tuple[str, Raw]] = {
    "call_tool": ("call_tool", {"name": "crm.find", "arguments": NOTES}),
    "flat name": ("crm__find", NOTES),
    "script": ("run_code", {"code": f"return await crm.find(**{NOTES!r})"}),
    "workflow": ("run_workflow", {"steps": [{"id": "a", "tool": "crm.find", "arguments": NOTES}]}),
}


def list_received(backend: FakeBackend) -> list[Any]:
    return [params["arguments"] for method, params in backend.requests if method == "tools/call"]


@pytest.mark.parametrize("way", ARGUMENT_WAYS)
async def test_a_server_is_sent_masked_arguments_on_every_way(way: str) -> None:
    backend = make_crm()
    async with open_gateway({"crm": backend}, with_masks(*ARGUMENT_RULES)) as gateway:
        answer = await ask(gateway, *ARGUMENT_WAYS[way])
    masked = {"note": "[email] pays by [card]", "more": [{"to": "[email]"}]}
    assert list_received(backend) == [masked]
    assert ANA in answer, "what the server answers is another matter"
    if way in ("call_tool", "flat name"):
        assert "masked by rules[0], as the rules here say: note, more" in answer


async def test_arguments_of_prompts_are_masked() -> None:
    backend = make_crm()
    async with run_gateway({"crm": backend}, with_masks(*ARGUMENT_RULES)) as gateway:
        params: Raw = {"name": "greet", "arguments": {"whom": ANA}}
        await gateway.calls.request("crm", "prompts/get", params)
    sent = [params["arguments"] for method, params in backend.requests if method == "prompts/get"]
    assert sent == [{"whom": "[email]"}]


async def test_a_person_approves_what_is_sent_and_the_rules_look_at_what_was_meant() -> None:
    rule: Raw = {
        "tools": ["crm.find"],
        "when": {"to": {"pattern": "@example.org$"}},
        "may": "ask",
        "mask_arguments": ["email"],
    }
    backend = make_crm()
    config = with_masks(rule, {"may": "deny"}, approvals={"wait_s": 0})
    async with run_gateway({"crm": backend}, config) as gateway:
        find = gateway.catalog.snapshot.tools["crm.find"]
        for _ in range(2):
            with pytest.raises(ApprovalRequired):
                await gateway.calls.call(find, {"to": ANA}, CallContext(LOCAL))
        (row,) = await gateway.approvals.list_for(LOCAL.principal)
        assert json.loads(row.arguments) == {"to": "[email]"}
        await gateway.approvals.decide(row.id, approve=True, via="cli")
        await gateway.calls.call(find, {"to": ANA}, CallContext(LOCAL))
    assert list_received(backend) == [{"to": "[email]"}]


async def test_rules_look_at_arguments_before_they_are_masked() -> None:
    denying: Raw = {"when": {"to": {"pattern": "@example.org"}}, "may": "deny", "visible": True}
    backend = make_crm()
    async with run_gateway({"crm": backend}, with_masks(denying, *ARGUMENT_RULES)) as gateway:
        find = gateway.catalog.snapshot.tools["crm.find"]
        with pytest.raises(PermissionDenied):
            await gateway.calls.call(find, {"to": ANA}, CallContext(LOCAL))
        await gateway.calls.call(find, {"to": "bob@example.net"}, CallContext(LOCAL))
    assert list_received(backend) == [{"to": "[email]"}]


# --- values cut in two

CUTS = [
    *((ANA, at) for at in (1, 4, 8)),
    *((CARD, at) for at in (2, 5, 12, 18)),
    ("DE89 3704 0044 0532 0130 00", 9),
    ("+49 (0)30 1234567", 6),
    ("sk-proj-abcdefgh12345678", 12),
]


@pytest.mark.parametrize(("value", "at"), CUTS)
async def test_a_value_cut_between_two_blocks_of_text_is_masked(value: str, at: int) -> None:
    backend = make_crm()
    pieces = [f"first {value[:at]}", f"{value[at:]} last", "nothing"]
    blocks = [{"type": "text", "text": piece} for piece in pieces]
    backend.on_call("find", lambda _: {"content": blocks})
    kinds = ["email", "card", "iban", "phone", "secrets"]
    rules: list[Raw] = [{"servers": ["crm"], "may": "allow", "mask": kinds}]
    async with run_gateway({"crm": backend}, with_masks(*rules)) as gateway:
        find = gateway.catalog.snapshot.tools["crm.find"]
        answer = await gateway.calls.call(find, {}, CallContext())
    texts = [block["text"] for block in answer["content"]]
    assert re.fullmatch(r"first \[\w+\] last", texts[0] + texts[1]), texts
    assert texts[2] == "nothing"


@pytest.mark.parametrize("size", [1_000, 16_384, 65_536, 131_072, 1_000_000])
async def test_a_value_at_any_border_of_a_large_result_is_masked(size: int) -> None:
    """Values lie across every multiple of the sizes in which large results are read."""
    backend = make_crm()
    filler = "x " * ((size - 8) // 2)
    body = f"{filler}{ANA} {filler}{CARD} {filler}{ANA}"
    backend.on_call("large", lambda _: text(body))
    async with run_gateway({"crm": backend}, with_masks()) as gateway:
        large = gateway.catalog.snapshot.tools["crm.large"]
        answer = (await gateway.calls.call(large, {}, CallContext()))["content"][0]["text"]
    assert answer == f"{filler}[email] {filler}[card] {filler}[email]"
