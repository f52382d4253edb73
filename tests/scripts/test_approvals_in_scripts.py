"""A script or workflow whose call waits for a person: it waits too, and its clock stands still."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from portico.calls.pipeline import CallContext
from portico.upstream.backend import Raw
from tests.gateways import TIMEOUT_S
from tests.security.approval_room import ANA, ASK, BOSS, Room, open_room

SCRIPTS: dict[str, Raw] = {
    "python": {"code": "await bank.pay(to='ana')"},
    "lua": {"language": "lua", "code": "return bank.pay({to='ana'}):await()"},
}
WAITING = {**ASK, "approvals": {"wait_s": 600}}


async def start(room: Room, name: str, arguments: Raw) -> "asyncio.Task[Any]":
    view = room.gateway.get_view()
    params: Raw = {"name": name, "arguments": arguments}
    return asyncio.create_task(view.handle("tools/call", params, CallContext(ANA), "modern"))


async def wait_for_request(room: Room) -> str:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            for row in await room.gateway.approvals.list_for(BOSS):
                if row.state == "pending":
                    return row.id
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("language", SCRIPTS)
async def test_a_script_waits_for_longer_than_it_may_run(language: str) -> None:
    async with open_room({**WAITING, "code": {"wall_s": 2}}) as room:
        warm = {**SCRIPTS[language], "code": SCRIPTS[language]["code"].replace("pay(", "look(")}
        warm["code"] = warm["code"].replace("to='ana'", "").replace("{}", "")
        await asyncio.wait_for(await start(room, "run_code", warm), TIMEOUT_S)
        running = await start(room, "run_code", SCRIPTS[language])
        approval_id = await wait_for_request(room)
        # Longer than the script may take: it is only late here, never early.
        done, _ = await asyncio.wait({running}, timeout=3)
        assert not done, running.result()
        await room.approve(approval_id)
        result = await asyncio.wait_for(running, TIMEOUT_S)
        assert not result.get("isError"), result
        assert "pay done" in str(result)


async def test_a_script_that_was_approved_still_has_its_time_limit() -> None:
    async with open_room({**WAITING, "code": {"wall_s": 2}}) as room:
        code = "import asyncio\nawait bank.pay(to='ana')\nawait asyncio.sleep(3600)"
        running = await start(room, "run_code", {"code": code})
        await room.approve(await wait_for_request(room))
        result = await asyncio.wait_for(running, TIMEOUT_S)
        assert "took longer" in str(result)
        assert len(room.runs) == 1


async def test_a_script_can_catch_a_denial() -> None:
    async with open_room(WAITING) as room:
        code = (
            "try:\n    await bank.pay(to='ana')\nexcept Exception as error:\n    result(str(error))"
        )
        running = await start(room, "run_code", {"code": code})
        await room.deny(await wait_for_request(room))
        assert "approval_denied" in str(await asyncio.wait_for(running, TIMEOUT_S))
        assert not room.runs


STEPS: list[Raw] = [
    {"id": "look", "tool": "bank.look"},
    {"id": "pay", "tool": "bank.pay", "arguments": {"to": "ana"}, "depends_on": ["look"]},
    {"id": "after", "tool": "bank.look", "depends_on": ["pay"]},
]


async def test_a_workflow_waits_and_its_clock_stands_still() -> None:
    async with open_room({**WAITING, "workflow": {"wall_s": 2}}) as room:
        running = await start(room, "run_workflow", {"steps": STEPS})
        approval_id = await wait_for_request(room)
        done, _ = await asyncio.wait({running}, timeout=3)
        assert not done, running.result()
        await room.approve(approval_id)
        assert "Workflow finished" in str(await asyncio.wait_for(running, TIMEOUT_S))
        assert len(room.runs) == 3


async def test_a_workflow_stops_and_goes_on_only_when_a_person_has_approved(
    tmp_path: Path,
) -> None:
    async with open_room(data_dir=tmp_path) as room:
        stopped = await (await start(room, "run_workflow", {"steps": STEPS}))
        text = str(stopped["content"])
        assert not stopped.get("isError")
        assert "Workflow stopped for approval" in text
        approval_id = await wait_for_request(room)
        assert f"portico approve {approval_id}" in text
        run_id = text[text.index('resume="') + 8 :].partition('"')[0]
        # To resume is no approval: the model that asks does not answer.
        again = str(await (await start(room, "run_workflow", {"resume": run_id})))
        assert "stopped for approval" in again
        assert len(room.runs) == 1
        await room.approve(approval_id)
        finished = str(await (await start(room, "run_workflow", {"resume": run_id})))
        assert "Workflow finished" in finished
        assert len(room.runs) == 3
