"""Approvals over REST: the list, the decision, the event stream, and who may use them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from portico.api import approval_models as models
from portico.auth.authenticator import KeyRing
from portico.auth.keys import create_key
from portico.config import Config
from portico.gateway.rest_app import RestApp
from portico.testing import serve_http
from tests.api.api_client import V1
from tests.gateways import TIMEOUT_S, run_gateway
from tests.http import open_client
from tests.security.approval_room import ANA, ASK, PAY, Room, make_bank

TOKEN = "s3cret-t0ken-of-the-test-0123456789"
CONFIG = {**ASK, "gateway": {"token": TOKEN}, "profiles": {"work": {}}}
RIGHTS: dict[str, dict[str, Any]] = {
    "full": {},
    "reader": {"is_read_only": True},
    "worker": {"profiles": ("work",)},
}


@asynccontextmanager
async def serve(tmp_path: Path) -> AsyncGenerator[tuple[Room, httpx2.AsyncClient, dict[str, str]]]:
    ring = KeyRing()
    made = {name: create_key(name, 1.0, **rights) for name, rights in RIGHTS.items()}
    ring.replace(row for row, _ in made.values())
    bank = make_bank()
    config = Config.model_validate(CONFIG)
    async with run_gateway({"bank": bank}, config, data_dir=tmp_path) as gateway:
        gateway.keys = ring
        async with (
            serve_http(gateway, token=TOKEN, keys=ring, api=RestApp(gateway)) as url,
            open_client(url, {"authorization": f"Bearer {TOKEN}"}) as http,
        ):
            yield Room(gateway, bank, make_bank()), http, {name: made[name][1] for name in made}


async def test_a_call_is_listed_approved_and_runs_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as (room, http, _):
        approval_id = await room.ask()
        (card,) = (await http.get(f"{V1}/approvals")).json()["approvals"]
        models.ApprovalCard.model_validate(card)
        assert card["id"] == approval_id
        assert card["arguments"] == PAY
        assert card["shown"][:2] == ['to: "ana"', "amount: 100"]
        assert (card["tool"], card["person"], card["state"]) == ("bank.pay", "key ana", "pending")
        answer = await http.post(f"{V1}/approvals/{approval_id}", json={"decision": "approve"})
        assert answer.json()["state"] == "approved"
        assert answer.json()["decided_by"] == "gateway token"
        assert not (await room.call()).get("isError")
        assert len(room.runs) == 1
        again = await http.post(f"{V1}/approvals/{approval_id}", json={"decision": "deny"})
        assert again.status_code == 409
        assert again.json()["kind"] == "already_decided"
        log = (tmp_path / "audit.jsonl").read_text()
        assert '"approvals/approve"' in log
        lines = [line for line in log.splitlines() if '"outcome":"ok"' in line]
        assert all(approval_id in line and '"by":"gateway token"' in line for line in lines)
        assert len(lines) == 2


async def test_a_call_by_rest_says_which_approval_it_waits_for(tmp_path: Path) -> None:
    async with serve(tmp_path) as (room, http, _):
        call = {"tool": "bank.pay", "arguments": PAY}
        first = await http.post(f"{V1}/calls", json=call)
        text = first.text
        approval_id = text[text.index("portico approve ") + 16 :][:10]
        await http.post(f"{V1}/approvals/{approval_id}", json={"decision": "deny"})
        assert "approval_denied" in (await http.post(f"{V1}/calls", json=call)).text
        assert not room.runs


@pytest.mark.parametrize("name", ["reader", "worker"])
async def test_keys_with_fewer_rights_see_and_decide_nothing(tmp_path: Path, name: str) -> None:
    async with serve(tmp_path) as (room, http, keys):
        approval_id = await room.ask()
        headers = {"authorization": f"Bearer {keys[name]}"}
        assert (await http.get(f"{V1}/approvals", headers=headers)).status_code == 403
        for decision in ("approve", "deny"):
            answer = await http.post(
                f"{V1}/approvals/{approval_id}", json={"decision": decision}, headers=headers
            )
            assert answer.status_code == 403
        await room.ask()
        assert not room.runs


async def test_a_key_with_all_rights_approves(tmp_path: Path) -> None:
    async with serve(tmp_path) as (room, http, keys):
        approval_id = await room.ask()
        headers = {"authorization": f"Bearer {keys['full']}"}
        answer = await http.post(
            f"{V1}/approvals/{approval_id}", json={"decision": "approve"}, headers=headers
        )
        assert answer.json()["decided_by"] == "key full"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("0000000000", {"decision": "approve"}, 404),
        ("x", {"decision": "approve"}, 404),
        ("%00", {"decision": "approve"}, 404),
        ("0000000000", {"decision": "allow"}, 422),
        ("0000000000", {"decision": "approve", "arguments": {}}, 422),
        ("0000000000", {}, 422),
    ],
)
async def test_a_forged_decision_is_refused(
    tmp_path: Path, path: str, body: dict[str, object], status: int
) -> None:
    async with serve(tmp_path) as (room, http, _):
        await room.ask()
        answer = await http.post(f"{V1}/approvals/{path}", json=body)
        assert answer.status_code == status
        page = await http.post(f"{V1}/approvals/0000000000", content=b'{"decision":"approve"}')
        assert page.status_code == 415
        await room.ask()
        assert not room.runs


async def test_the_event_stream_has_requests_and_decisions(tmp_path: Path) -> None:
    async with serve(tmp_path) as (room, http, _), asyncio.timeout(TIMEOUT_S):
        async with http.stream("GET", f"{V1}/events") as stream:
            lines = stream.aiter_lines()
            async for line in lines:
                if line == "event: hello":
                    break
            approval_id = await room.ask(caller=ANA)
            await http.post(f"{V1}/approvals/{approval_id}", json={"decision": "deny"})
            seen: list[str] = []
            async for line in lines:
                if line.startswith("event: approval"):
                    seen.append(line)
                elif line.startswith("data: ") and seen and approval_id in line:
                    seen.append("id")
                if len(seen) == 4:
                    break
        assert seen == ["event: approval_requested", "id", "event: approval_decided", "id"]


async def test_who_is_denied_reads_the_reason(tmp_path: Path) -> None:
    async with serve(tmp_path) as (room, http, _):
        approval_id = await room.ask()
        body = {"decision": "deny", "reason": "Not before Monday.\u202e"}
        answer = await http.post(f"{V1}/approvals/{approval_id}", json=body)
        assert answer.json()["reason"].startswith("Not before Monday.")
        assert "\u202e" not in answer.json()["reason"]
        assert "Not before Monday." in str(await room.call())
        assert '"reason":"Not before Monday.' in (tmp_path / "audit.jsonl").read_text()
        too_long = {"decision": "deny", "reason": "x" * 401}
        assert (await http.post(f"{V1}/approvals/{approval_id}", json=too_long)).status_code == 422
