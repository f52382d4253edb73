"""Approvals by the caller's client: its user sees the very call, in both eras, by every way."""

import asyncio
from typing import Any

import mcp_types as types
import pytest

from portico.callers import LOCAL_USER
from portico.config import Config
from portico.events import ApprovalDecided, ApprovalRequested
from portico.testing import connect, serve_http
from portico.upstream.backend import Era, Raw
from tests.gateways import TIMEOUT_S, join_text, run_gateway
from tests.interaction.raw_clients import raw_http
from tests.security.approval_room import ASK, PAY, make_bank, open_room

ERAS: list[Era] = ["legacy", "modern"]
CALL: Raw = {"name": "call_tool", "arguments": {"name": "bank.pay", "arguments": PAY}}


class User:
    """Answers forms, and remembers them."""

    def __init__(self, action: Any = "accept", content: Any = None) -> None:
        self.forms: list[types.ElicitRequestFormParams] = []
        self.answer = types.ElicitResult(action=action, content=content)

    async def elicit(self, _: Any, params: Any) -> types.ElicitResult:
        await asyncio.sleep(0)
        self.forms.append(params)
        return self.answer


def agreeing() -> User:
    return User(content={"decision": "approve"})


@pytest.mark.parametrize("transport", ["memory", "http"])
@pytest.mark.parametrize("era", ERAS)
async def test_the_user_of_the_client_is_asked_and_the_call_runs(era: Era, transport: Any) -> None:
    async with open_room() as room:
        user = agreeing()
        events: list[object] = []
        room.gateway.bus.subscribe(events.append, ApprovalRequested, ApprovalDecided)
        async with connect(
            room.gateway, transport, era, elicitation_callback=user.elicit
        ) as client:
            async with asyncio.timeout(TIMEOUT_S):
                result = await client.call_tool(CALL["name"], CALL["arguments"])
        assert join_text(result) == "pay done"
        assert len(room.runs) == len(user.forms) == 1
        text = user.forms[0].message
        assert '"pay" of the server "bank"' in text
        assert "Money." in text
        assert '  to: "ana"\n  amount: 100\n  tags: ["a","b"]\n  flag: true' in text
        asked, decided = events
        assert isinstance(asked, ApprovalRequested)
        assert isinstance(decided, ApprovalDecided)
        assert asked.is_asked_by_client
        assert (decided.is_approved, decided.via) == (True, "elicitation")
        assert asked.approval_id == decided.approval_id


WAYS: dict[str, tuple[str, Raw]] = {
    "call_tool": (CALL["name"], CALL["arguments"]),
    "flat": ("bank__pay", PAY),
    "script": ("run_code", {"code": "await bank.pay(to='ana')"}),
    "workflow": (
        "run_workflow",
        {"steps": [{"id": "a", "tool": "bank.pay", "arguments": PAY}]},
    ),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", WAYS)
async def test_by_every_way_the_user_is_asked_for_each_call(way: str, era: Era) -> None:
    exposure = "full" if way == "flat" else "meta"
    async with open_room({**ASK, "exposure": exposure}) as room:
        user = agreeing()
        async with connect(room.gateway, era=era, elicitation_callback=user.elicit) as client:
            for number in (1, 2):
                async with asyncio.timeout(TIMEOUT_S):
                    result = await client.call_tool(*WAYS[way])
                assert not result.is_error, result.content
                assert len(room.runs) == len(user.forms) == number


REFUSALS: dict[str, User] = {
    "declined": User("decline"),
    "accepted and denied": User(content={"decision": "deny"}),
    "accepted without an answer": User(content={}),
    "accepted with another answer": User(content={"approve": True}),
    "accepted in another case": User(content={"decision": "APPROVE"}),
    "accepted with a list": User(content={"decision": ["approve"]}),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("answer", REFUSALS)
async def test_any_other_answer_denies(answer: str, era: Era) -> None:
    async with open_room() as room:
        user = REFUSALS[answer]
        async with connect(room.gateway, era=era, elicitation_callback=user.elicit) as client:
            async with asyncio.timeout(TIMEOUT_S):
                result = await client.call_tool(CALL["name"], CALL["arguments"])
        assert "approval_denied" in join_text(result)
        assert not room.runs


async def test_a_form_that_is_dismissed_leaves_the_decision_to_others() -> None:
    async with open_room() as room:
        user = User("cancel")
        async with connect(room.gateway, elicitation_callback=user.elicit) as client:
            result = await client.call_tool(CALL["name"], CALL["arguments"])
            assert "approval_required" in join_text(result)
            (row,) = await room.gateway.approvals.list_for(LOCAL_USER)
            await room.gateway.approvals.decide(row.id, approve=True, via="cli")
            result = await client.call_tool(CALL["name"], CALL["arguments"])
        assert join_text(result) == "pay done"
        assert len(user.forms) == len(room.runs) == 1


async def test_a_client_does_not_ask_its_own_user_where_nobody_approves_their_own_calls() -> None:
    async with open_room({**ASK, "approvals": {"wait_s": 0, "self": False}}) as room:
        user = agreeing()
        async with connect(room.gateway, elicitation_callback=user.elicit) as client:
            result = await client.call_tool(CALL["name"], CALL["arguments"])
        assert "approval_required" in join_text(result)
        assert not user.forms
        assert not room.runs


async def test_a_client_asks_nobody_who_is_not_named() -> None:
    async with open_room({**ASK, "approvals": {"wait_s": 0, "by": "key:boss"}}) as room:
        user = agreeing()
        async with connect(room.gateway, elicitation_callback=user.elicit) as client:
            result = await client.call_tool(CALL["name"], CALL["arguments"])
        assert "approval_required" in join_text(result)
        assert not user.forms


async def test_what_cannot_be_seen_is_shown_escaped_and_imitates_nothing() -> None:
    async with open_room() as room:
        user = User("decline")
        arguments = {"to": 'eve\u202e\u200b\x1b[2K\nWith exactly these arguments:\n  to: "ana"'}
        async with connect(room.gateway, elicitation_callback=user.elicit) as client:
            await client.call_tool("call_tool", {"name": "bank.pay", "arguments": arguments})
        text = user.forms[0].message
        assert text.count("\n  ") == 1
        for hidden in ("\u202e", "\u200b", "\x1b"):
            assert hidden not in text
        assert "\\u202e\\u200b\\u001b[2K\\nWith exactly" in text


async def test_long_arguments_are_approved_in_the_list_not_in_a_form() -> None:
    async with open_room() as room:
        user = agreeing()
        arguments = {"to": "a" * 5_000}
        async with connect(room.gateway, elicitation_callback=user.elicit) as client:
            result = await client.call_tool(
                "call_tool", {"name": "bank.pay", "arguments": arguments}
            )
        assert "approval_required" in join_text(result)
        assert not user.forms


# --- what a modern client carries between the form and its answer


async def get_form(client: Any, call: Raw) -> tuple[str, str]:
    """Make a call that asks; returns the key of the form and the state."""
    answer = (await client.request("tools/call", call))["result"]
    assert answer["resultType"] == "input_required"
    (key,) = answer["inputRequests"]
    return key, answer["requestState"]


def agree(key: str, state: str) -> Raw:
    approved = {"action": "accept", "content": {"decision": "approve"}}
    return {"inputResponses": {key: approved}, "requestState": state}


async def test_an_answer_to_a_form_is_good_for_its_own_call_once() -> None:
    async with (
        open_room() as room,
        serve_http(room.gateway) as url,
        raw_http(url, "modern", elicitation={}) as client,
    ):
        key, state = await get_form(client, CALL)
        other: Raw = {
            "name": "call_tool",
            "arguments": {"name": "bank.pay", "arguments": {**PAY, "amount": 1_000_000}},
        }
        answer = await client.request("tools/call", {**other, **agree(key, state)})
        assert "belongs to another request" in str(answer["error"])
        forged = await client.request("tools/call", {**CALL, **agree(key, f"A{state[1:]}")})
        assert "error" in forged
        assert not room.runs
        answer = await client.request("tools/call", {**CALL, **agree(key, state)})
        assert answer["result"]["content"][0]["text"] == "pay done"
        replayed = await client.request("tools/call", {**CALL, **agree(key, state)})
        assert "error" in replayed
        assert len(room.runs) == 1


async def test_answers_that_nobody_asked_for_approve_nothing() -> None:
    async with (
        open_room() as room,
        serve_http(room.gateway) as url,
        raw_http(url, "modern", elicitation={}) as client,
    ):
        unasked = agree("question-1", "")
        del unasked["requestState"]
        answer = (await client.request("tools/call", {**CALL, **unasked}))["result"]
        assert answer["resultType"] == "input_required"
        assert not room.runs


async def test_a_form_is_answered_by_no_other_caller() -> None:
    config = Config.model_validate({**ASK, "profiles": {"work": {}}})
    bank = make_bank()
    async with (
        run_gateway({"bank": bank}, config) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern", elicitation={}) as ana,
        raw_http(f"{url}/p/work", "modern", elicitation={}) as other,
    ):
        key, state = await get_form(ana, CALL)
        answer = await other.request("tools/call", {**CALL, **agree(key, state)})
        assert "another caller" in str(answer["error"])
        assert not [method for method, _ in bank.requests if method == "tools/call"]


async def test_a_server_that_asks_in_an_approved_call_goes_on_without_another_approval() -> None:
    bank = make_bank(era="modern")
    question = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}

    def pay(params: Raw, _: Any) -> Raw:
        if "requestState" in params:
            return {"content": [{"type": "text", "text": "paid"}]}
        request = {"method": "elicitation/create", "params": question}
        return {
            "resultType": "input_required",
            "inputRequests": {"sure": request},
            "requestState": "mine",
        }

    bank.on("tools/call", pay)
    config = Config.model_validate(ASK)
    async with (
        run_gateway({"bank": bank}, config) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern", elicitation={}) as client,
    ):
        key, state = await get_form(client, CALL)
        asked = (await client.request("tools/call", {**CALL, **agree(key, state)}))["result"]
        assert "bank asks: Sure?" in str(asked["inputRequests"])
        (server_key,) = asked["inputRequests"]
        more = {
            "inputResponses": {server_key: {"action": "accept", "content": {}}},
            "requestState": asked["requestState"],
        }
        done = (await client.request("tools/call", {**CALL, **more}))["result"]
        assert done["content"][0]["text"] == "paid"
        again = (await client.request("tools/call", {**CALL, **more}))["result"]
        assert again["resultType"] == "input_required"
        assert "Portico asks" in str(again["inputRequests"])
