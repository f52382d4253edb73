"""Attacks on approvals: none of them makes a call that nobody approved, or one twice."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from portico.callers import LOCAL_USER, TOKEN_HOLDER, Caller, Principal
from portico.calls.pipeline import CallContext
from portico.config import Config
from portico.errors import (
    AlreadyDecided,
    ApprovalRequired,
    ApprovalUnavailable,
    PermissionDenied,
    PorticoError,
    UnknownName,
)
from portico.upstream.backend import Raw
from tests.gateways import TIMEOUT_S, wait_until
from tests.security.approval_room import (
    ANA,
    ASK,
    BOB,
    BOSS,
    PAY,
    Room,
    get_refusal,
    make_bank,
    open_room,
)

PROFILES = {"profiles": {"work": {}}}


async def test_an_approved_call_runs_once_when_it_is_made_again() -> None:
    async with open_room() as room:
        await room.get_approved()
        assert not room.runs
        result = await room.call()
        assert result["content"][0]["text"] == "pay done"
        assert [params["arguments"] for params in room.runs] == [PAY]


async def test_the_order_of_members_is_nothing() -> None:
    async with open_room() as room:
        await room.get_approved({"to": "ana", "tags": [{"x": 1, "y": 2}]})
        await room.call({"tags": [{"y": 2, "x": 1}], "to": "ana"})
        assert len(room.runs) == 1


async def test_a_call_that_waits_runs_when_it_is_approved() -> None:
    async with open_room({**ASK, "approvals": {"wait_s": 600}}) as room:
        waiting = asyncio.create_task(room.call())
        approval_id = await wait_for_request(room)
        await room.approve(approval_id)
        result = await asyncio.wait_for(waiting, TIMEOUT_S)
        assert not result.get("isError")
        assert len(room.runs) == 1


async def wait_for_request(room: Room) -> str:
    """Return the id of the only approval that is asked for, as soon as it is."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if pending := await list_pending(room):
                return pending[0]
            await asyncio.sleep(0.01)


# --- other calls than the one that was approved

OTHER_CALLS: dict[str, Any] = {
    "another amount": {**PAY, "amount": 101},
    "the number as a float": {**PAY, "amount": 100.0},
    "the number as text": {**PAY, "amount": "100"},
    "a huge number that rounds to it": {**PAY, "amount": 100.00000000000001},
    "true for one": {**PAY, "flag": 1},
    "an argument less": {"to": "ana", "amount": 100},
    "an argument more": {**PAY, "note": "x"},
    "an empty argument more": {**PAY, "note": ""},
    "null for an argument": {**PAY, "flag": None},
    "another order of a list": {**PAY, "tags": ["b", "a"]},
    "a nested list": {**PAY, "tags": [["a", "b"]]},
    "another case": {**PAY, "to": "Ana"},
    "a space": {**PAY, "to": "ana "},
    "a Cyrillic letter": {**PAY, "to": "аna"},
    "an invisible character": {**PAY, "to": "ana\u200b"},
    "a reversed text": {**PAY, "to": "\u202eana"},
    "a lone surrogate": {**PAY, "to": "ana\ud800"},
    "a name with another case": {**{key: PAY[key] for key in PAY if key != "to"}, "TO": "ana"},
    "no arguments": {},
}


@pytest.mark.parametrize("attack", OTHER_CALLS)
async def test_an_approval_is_for_no_other_arguments(attack: str) -> None:
    async with open_room() as room:
        await room.get_approved()
        refusal = get_refusal(await room.call(OTHER_CALLS[attack]))
        assert refusal["kind"] in ("approval_required", "invalid_arguments")
        assert not room.runs


async def test_two_spellings_of_one_letter_are_two_calls() -> None:
    async with open_room() as room:
        await room.get_approved({"to": "Zo\u00eb"})
        await room.ask({"to": "Zoe\u0308"})
        assert not room.runs


OTHER_CALLERS: dict[str, Caller] = {
    "another key": BOB,
    "the same name vouched for by another": replace(
        ANA, principal=Principal("https://id.example", "ana", "ana")
    ),
    "another client of the same key": replace(ANA, name="claude"),
    "another profile": replace(ANA, profile="work"),
    "the holder of the token": Caller(name="cursor", principal=TOKEN_HOLDER),
    "the local user": Caller(name="cursor", principal=LOCAL_USER),
    "a name that runs into the next": replace(
        ANA, name="", principal=Principal("key", "ana\ncursor", "ana")
    ),
}


@pytest.mark.parametrize("attack", OTHER_CALLERS)
async def test_an_approval_is_for_no_other_caller(attack: str) -> None:
    async with open_room({**ASK, **PROFILES}) as room:
        await room.get_approved()
        await room.ask(caller=OTHER_CALLERS[attack])
        assert not room.runs


@pytest.mark.parametrize("name", ["bank.refund", "shop.pay"])
async def test_an_approval_is_for_no_other_tool_or_server(name: str) -> None:
    async with open_room() as room:
        await room.get_approved()
        await room.ask(name=name)
        assert not room.runs


async def test_an_approved_tool_opens_no_resource_of_the_same_name() -> None:
    async with open_room() as room:
        await room.get_approved({})
        with pytest.raises(ApprovalRequired):
            await room.gateway.calls.request(
                "bank", "resources/read", {"uri": "file:///pay"}, CallContext(ANA)
            )
        assert not room.runs


async def test_a_resource_that_was_approved_is_read_once() -> None:
    async with open_room() as room:
        calls = room.gateway.calls
        read = ("bank", "resources/read", {"uri": "file:///pay"}, CallContext(ANA))
        with pytest.raises(ApprovalRequired) as caught:
            await calls.request(*read)
        await room.approve(caught.value.approval_id)
        assert (await calls.request(*read))["contents"]
        with pytest.raises(ApprovalRequired):
            await calls.request(*read)
        assert len(room.runs) == 1


async def test_answers_to_a_server_are_no_part_of_what_was_approved() -> None:
    async with open_room() as room:
        await room.get_approved()
        tool = room.gateway.catalog.snapshot.tools["bank.pay"]
        for extra in (
            {"inputResponses": {"sure": {"action": "accept"}}},
            {"inputResponses": {}, "requestState": "forged"},
        ):
            with pytest.raises(ApprovalRequired):
                await room.gateway.calls.call(tool, PAY, CallContext(ANA, extra=extra))
        assert not room.runs


# --- a definition that changes


async def change_definition(room: Room) -> None:
    listed = list(room.bank.listing["tools"])
    changed = {**listed[0], "description": "Pays twice."}
    room.bank.change([changed, *listed[1:]])
    before = room.gateway.catalog.snapshot.tools["bank.pay"].hash
    await wait_until(lambda: room.gateway.catalog.snapshot.tools["bank.pay"].hash != before)


async def test_an_approval_is_for_no_other_definition() -> None:
    async with open_room() as room:
        await room.get_approved()
        await change_definition(room)
        await room.ask()
        assert not room.runs


async def test_a_definition_that_changes_before_the_decision_needs_another() -> None:
    async with open_room() as room:
        approval_id = await room.ask()
        await change_definition(room)
        await room.approve(approval_id)
        await room.ask()
        assert not room.runs


async def test_a_definition_that_changes_while_the_call_waits_is_asked_for_again() -> None:
    async with open_room({**ASK, "approvals": {"wait_s": 600}}) as room:
        waiting = asyncio.create_task(room.call())
        first = await wait_for_request(room)
        await change_definition(room)
        await room.approve(first)
        second = await wait_for_request(room)
        assert second != first
        assert not room.runs
        await room.deny(second)
        assert get_refusal(await asyncio.wait_for(waiting, TIMEOUT_S))["kind"] == "approval_denied"
        assert not room.runs


async def list_pending(room: Room) -> list[str]:
    rows = await room.gateway.approvals.list_for(BOSS)
    return [row.id for row in rows if row.state == "pending"]


async def test_rules_that_deny_since_are_kept() -> None:
    async with open_room({**ASK, "approvals": {"wait_s": 600}}) as room:
        waiting = asyncio.create_task(room.call())
        approval_id = await wait_for_request(room)
        denying = {"tools": ["bank.pay"], "may": "deny", "visible": True}
        changed = Config.model_validate({**ASK, "rules": [denying]})
        await room.gateway.apply(room.gateway.config.model_copy(update={"rules": changed.rules}))
        await room.approve(approval_id)
        with pytest.raises(PermissionDenied):
            await asyncio.wait_for(waiting, TIMEOUT_S)
        assert not room.runs


# --- once, and in time


async def test_an_approval_is_used_once() -> None:
    async with open_room() as room:
        await room.get_approved()
        await room.call()
        for _ in range(3):
            await room.ask()
        assert len(room.runs) == 1


async def test_of_many_calls_at_once_one_uses_the_approval() -> None:
    async with open_room() as room:
        await room.get_approved()
        results = await asyncio.gather(*(room.call() for _ in range(20)))
        assert sum(not result.get("isError") for result in results) == 1
        assert len(room.runs) == 1


async def test_of_two_calls_that_wait_for_one_approval_one_runs() -> None:
    async with open_room({**ASK, "approvals": {"wait_s": 600}}) as room:
        waiting = [asyncio.create_task(room.call()) for _ in range(2)]
        first = await wait_for_request(room)
        await room.approve(first)
        done, rest = await asyncio.wait(
            waiting, timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        assert len(done) == len(rest) == len(room.runs) == 1
        await room.deny(await wait_for_request(room))
        await asyncio.wait_for(rest.pop(), TIMEOUT_S)
        assert len(room.runs) == 1


def advance_clock(room: Room, seconds: float) -> None:
    store = room.gateway.approvals.store
    earlier = store.clock
    store.clock = lambda: earlier() + seconds


async def test_an_approval_expires() -> None:
    async with open_room() as room:
        await room.get_approved()
        advance_clock(room, 601)
        await room.ask()
        assert not room.runs


async def test_a_request_expires_before_it_is_decided() -> None:
    async with open_room() as room:
        approval_id = await room.ask()
        advance_clock(room, 601)
        with pytest.raises(UnknownName):
            await room.approve(approval_id)
        assert not room.runs


async def test_a_denied_call_stays_denied() -> None:
    async with open_room() as room:
        await room.deny(await room.ask())
        for _ in range(2):
            assert get_refusal(await room.call())["kind"] == "approval_denied"
        assert not room.runs


async def test_what_was_denied_cannot_be_approved() -> None:
    async with open_room() as room:
        approval_id = await room.ask()
        await room.deny(approval_id)
        with pytest.raises(AlreadyDecided):
            await room.approve(approval_id)
        await room.call()
        assert not room.runs


async def test_an_approval_that_was_used_cannot_be_approved_again() -> None:
    async with open_room() as room:
        approval_id = await room.get_approved()
        with pytest.raises(AlreadyDecided):
            await room.approve(approval_id)
        await room.call()
        with pytest.raises(AlreadyDecided):
            await room.approve(approval_id)
        await room.ask()
        assert len(room.runs) == 1


async def test_of_approve_and_deny_at_once_one_counts() -> None:
    async with open_room() as room:
        for number in range(5):
            arguments = {"to": f"person {number}"}
            before = len(room.runs)
            approval_id = await room.ask(arguments)
            approving, denying = await asyncio.gather(
                room.approve(approval_id), room.deny(approval_id), return_exceptions=True
            )
            assert (approving is None) != (denying is None)
            result = await room.call(arguments)
            assert bool(result.get("isError")) == (approving is not None)
            assert len(room.runs) - before == (approving is None)


# --- who decides

OUTSIDERS: dict[str, Principal] = {
    "a read-only key": Principal("key", "reader", credential="k", is_read_only=True),
    "a key for a profile": Principal("key", "worker", credential="k", profiles=("work",)),
}


@pytest.mark.parametrize("attack", OUTSIDERS)
async def test_an_outsider_decides_nothing(attack: str) -> None:
    async with open_room({**ASK, **PROFILES}) as room:
        approval_id = await room.ask()
        outsider = OUTSIDERS[attack]
        with pytest.raises(PermissionDenied):
            await room.approve(approval_id, outsider)
        with pytest.raises(PermissionDenied):
            await room.deny(approval_id, outsider)
        with pytest.raises(PermissionDenied):
            await room.gateway.approvals.list_for(outsider)
        await room.ask()
        assert not room.runs


async def test_nobody_approves_a_call_of_their_own_where_that_is_not_allowed() -> None:
    async with open_room({**ASK, "approvals": {"wait_s": 0, "self": False}}) as room:
        approval_id = await room.ask()
        with pytest.raises(PermissionDenied):
            await room.approve(approval_id, ANA.principal)
        # Another key of the same name is the same person.
        with pytest.raises(PermissionDenied):
            await room.approve(approval_id, Principal("key", "ana", credential="another"))
        await room.ask()
        assert not room.runs
        await room.approve(approval_id, BOB.principal)
        await room.call()
        assert len(room.runs) == 1


@pytest.mark.parametrize("by", [["key:boss"], ["group:ops"], ["person:boss"], ["local"], ["token"]])
async def test_only_who_is_named_decides(by: list[str]) -> None:
    async with open_room({**ASK, "approvals": {"wait_s": 0, "by": by}}) as room:
        approval_id = await room.ask()
        named = {
            "key:boss": BOSS,
            "group:ops": Principal("https://id.example", "eve", groups=("ops",)),
            "person:boss": Principal("https://id.example", "boss"),
            "local": LOCAL_USER,
            "token": TOKEN_HOLDER,
        }
        for name, principal in named.items():
            if name not in by:
                with pytest.raises(PermissionDenied):
                    await room.approve(approval_id, principal)
        assert not room.runs
        await room.approve(approval_id, named[by[0]])
        await room.call()
        assert len(room.runs) == 1


@pytest.mark.parametrize(
    "forged",
    ["", "0" * 10, "' OR '1'='1", "%", "*", "../approvals", "\x00", "\ud800", "a" * 100_000],
)
async def test_a_forged_id_decides_nothing(forged: str) -> None:
    async with open_room() as room:
        await room.ask()
        with pytest.raises(UnknownName):
            await room.approve(forged)
        await room.ask()
        assert not room.runs


async def test_an_id_is_no_key_for_its_caller() -> None:
    async with open_room() as room:
        approval_id = await room.get_approved()
        for extra in ({"approval": approval_id}, {"_meta": {"portico/approval": approval_id}}):
            tool = room.gateway.catalog.snapshot.tools["bank.pay"]
            with pytest.raises(PorticoError):
                await room.gateway.calls.call(
                    tool, {"to": "eve"}, CallContext(ANA, extra={**extra})
                )
            await room.call({"to": "eve", **extra})
        assert not room.runs


# --- names and ways

Way = Callable[[Room], Awaitable[object]]
SMUGGLED: dict[str, tuple[str, Raw]] = {
    **{
        f"call_tool {name!r}": ("call_tool", {"name": name, "arguments": PAY})
        for name in (
            *("bank.refund", "bank::refund", "bank__refund", "bank/refund", "BANK.REFUND"),
            *(" bank.refund ", "bank.Refund", "refund", "bank.refund\u200b", "bank.look"),
        )
        if name != "bank.look"
    },
    "a shape": (
        "call_tool",
        {"name": "bank.refund", "arguments": PAY, "view": "shape", "confirm": True},
    ),
    "arguments as text": ("call_tool", {"name": "bank.refund", "arguments": json.dumps(PAY)}),
    "a flat name": ("bank__refund", PAY),
    "a function in a script": ("run_code", {"code": "await bank.refund(to='ana')"}),
    "call_tool in a script": (
        "run_code",
        {"code": "await call_tool('bank.refund', {'to': 'ana'})"},
    ),
    "a flat name in a script": (
        "run_code",
        {"code": "await call_tool('bank__refund', {'to': 'ana'})"},
    ),
    "another name in a script": (
        "run_code",
        {"code": "await call_tool(name='bank::refund', arguments={'to': 'ana'})"},
    ),
    "Lua": ("run_code", {"language": "lua", "code": "return bank.refund({to='ana'}):await()"}),
    "a caught error in a script": (
        "run_code",
        {
            "code": "for n in range(3):\n  try:\n    await bank.refund(to='ana')\n"
            "  except Exception as error:\n    print(error)\n"
        },
    ),
    "a workflow": (
        "run_workflow",
        {"steps": [{"id": "a", "tool": "bank.refund", "arguments": PAY}]},
    ),
    "a loop in a workflow": (
        "run_workflow",
        {
            "steps": [
                {
                    "id": "a",
                    "tool": "bank.refund",
                    "for_each": "${inputs.n}",
                    "arguments": {"to": "${item}"},
                }
            ],
            "inputs": {"n": ["a", "b", "c"]},
        },
    ),
    "an alias in a workflow": (
        "run_workflow",
        {"steps": [{"id": "a", "tool": "bank__refund", "arguments": PAY}]},
    ),
}


@pytest.mark.parametrize("way", SMUGGLED)
async def test_every_way_to_a_tool_asks(way: str) -> None:
    async with open_room() as room:
        await room.get_approved()
        name, arguments = SMUGGLED[way]
        view = room.gateway.get_view()
        params: Raw = {"name": name, "arguments": arguments}
        try:
            answer = str(await view.handle("tools/call", params, CallContext(ANA), "modern"))
        except PorticoError as error:
            answer = str(error)
        assert not room.runs, answer


async def test_an_approval_is_good_for_one_call_of_a_script() -> None:
    async with open_room() as room:
        await room.get_approved({"to": "ana"})
        code = (
            "for n in range(3):\n"
            "    try:\n"
            "        await bank.pay(to='ana')\n"
            "    except Exception as error:\n"
            "        print(error)\n"
        )
        view = room.gateway.get_view()
        params: Raw = {"name": "run_code", "arguments": {"code": code}}
        answer = str(await view.handle("tools/call", params, CallContext(ANA), "modern"))
        assert len(room.runs) == 1
        assert answer.count("approval_required") == 2


# --- what is shown


async def test_what_cannot_be_shown_whole_cannot_be_approved() -> None:
    async with open_room() as room:
        tool = room.gateway.catalog.snapshot.tools["bank.pay"]
        with pytest.raises(ApprovalUnavailable, match="cannot be shown"):
            await room.gateway.calls.call(tool, {"to": "a" * 70_000}, CallContext(ANA))
        assert not await list_pending(room)
        assert not room.runs


async def test_nobody_fills_the_list_for_others() -> None:
    async with open_room() as room:
        kinds: set[str] = set()
        for number in range(60):
            try:
                kinds.add(get_refusal(await room.call({"to": str(number)}))["kind"])
            except ApprovalUnavailable:
                kinds.add("unavailable")
        assert kinds == {"approval_required", "unavailable"}
        assert await room.ask(caller=BOB)
        assert not room.runs


# --- a gateway that was started again


async def test_after_a_restart_an_approval_is_still_for_its_caller_and_still_for_once(
    tmp_path: Path,
) -> None:
    async with open_room(data_dir=tmp_path) as room:
        first = await room.ask()
        await room.get_approved({"to": "bob"})
        await room.call({"to": "bob"})
        assert len(room.runs) == 1
    async with open_room(data_dir=tmp_path) as room:
        await room.ask({"to": "bob"})
        assert not room.runs
        await room.approve(first)
        await room.ask(caller=BOB)
        assert not room.runs
        await room.call()
        assert len(room.runs) == 1
    async with open_room(data_dir=tmp_path) as room:
        with pytest.raises(AlreadyDecided):
            await room.approve(first)
        await room.ask()
        assert not room.runs


async def test_another_gateway_on_the_same_data_uses_an_approval_once(tmp_path: Path) -> None:
    async with (
        open_room(data_dir=tmp_path) as one,
        open_room(data_dir=tmp_path) as other,
    ):
        approval_id = await one.ask()
        await other.approve(approval_id)
        results = await asyncio.gather(*(room.call() for room in (one, other) * 5))
        assert sum(not result.get("isError") for result in results) == 1
        assert len(one.runs) + len(other.runs) == 1


async def test_a_decision_in_another_process_is_noticed_while_the_call_waits(
    tmp_path: Path,
) -> None:
    waiting_config = {**ASK, "approvals": {"wait_s": 600}}
    async with (
        open_room(waiting_config, data_dir=tmp_path) as one,
        open_room(data_dir=tmp_path) as other,
    ):
        events: list[object] = []
        one.gateway.bus.subscribe(events.append)
        waiting = asyncio.create_task(one.call())
        await other.approve(await wait_for_request(one))
        assert not (await asyncio.wait_for(waiting, TIMEOUT_S)).get("isError")
        names = [type(event).__name__ for event in events]
        assert names.index("ApprovalRequested") < names.index("ApprovalDecided")
        assert len(one.runs) == 1


async def test_a_damaged_store_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "approvals.sqlite3").write_bytes(b"no database" * 1_000)
    async with open_room(data_dir=tmp_path) as room:
        with pytest.raises(ApprovalUnavailable):
            await room.gateway.calls.call(
                room.gateway.catalog.snapshot.tools["bank.pay"], PAY, CallContext(ANA)
            )
        assert not room.runs


def test_the_servers_of_these_tests_run_what_reaches_them() -> None:
    assert len(make_bank().listing["tools"]) == 3
