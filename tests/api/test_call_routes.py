"""Calls over REST: the record with filters, one call in full, and calling a tool."""

import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from portico.api import activity_models as models
from portico.callers import Caller, Principal
from portico.config import Config
from portico.events import CallStages, ToolCalled
from portico.gateway.rest_app import RestApp
from portico.server.http.app import make_app
from portico.testing import FakeBackend
from tests.api.api_client import V1, backend, make_tools, open_api
from tests.gateways import run_gateway
from tests.interaction.fake_servers import text, tool

JSON = {"content-type": "application/json"}


def call_of(address: str, person: str, **more: Any) -> ToolCalled:
    caller = Caller(name=more.pop("client", "tester"), principal=Principal("key", person))
    return ToolCalled(address, "0" * 16, 0.25, more.pop("ok", True), caller, **more)


async def test_calls_are_filtered_by_person_client_and_time():
    async with open_api({"git": backend(*make_tools("git", 2))}) as api:
        before = time.time() - 1
        api.gateway.bus.publish(call_of("git.git_0", "ana"))
        api.gateway.bus.publish(call_of("git.git_1", "ben", client="other", ok=False, error="busy"))
        await api.usage_data.tool_usage.flush()

        async def find(**query: Any) -> list[str]:
            return [call["tool"] for call in (await api.get("calls", **query))["calls"]]

        assert await find(person="key ana") == ["git.git_0"]
        assert await find(client="other") == ["git.git_1"]
        assert await find(since=before) == ["git.git_1", "git.git_0"]
        assert await find(until=before) == []
        (failed,) = (await api.get("calls", ok=False))["calls"]
        assert failed["error"] == "busy"


async def test_a_call_in_full_shows_where_its_time_went():
    async with open_api({"git": backend(*make_tools("git", 1))}) as api:
        stages = CallStages(0.001, 0.002, 0.5, 0.0, 0.25)
        event = call_of("git.git_0", "ana", call_id="ab" * 8, via="script", stages=stages)
        api.gateway.bus.publish(event)
        await api.usage_data.tool_usage.flush()
        (listed,) = (await api.get("calls"))["calls"]
        body = await api.get(f"calls/{listed['id']}")
        models.CallDetails.model_validate(body)
        assert {one["stage"]: one["ms"] for one in body["stages"]} == {
            "admission": 1.0,
            "preparation": 2.0,
            "start": 500.0,
            "server_queue": 0.0,
            "tool": 250.0,
        }
        assert (body["via"], body["call"]) == ("script", "ab" * 8)
        problem = await api.get(f"calls/{listed['id'] + 1}", status=404)
        assert "lists them" in problem["advice"]


async def test_a_call_of_a_script_shows_the_others_of_its_run():
    async with open_api({"git": backend(*make_tools("git", 3))}) as api:
        run = "0f" * 8
        for tool_name, call_id in (
            ("git.git_0", f"{run}.00000001"),
            ("git.git_1", f"{run}.00000002"),
            ("git.git_2", f"{'1e' * 8}.00000003"),
        ):
            api.gateway.bus.publish(call_of(tool_name, "ana", call_id=call_id, via="script"))
        await api.usage_data.tool_usage.flush()
        listed = {call["tool"]: call["id"] for call in (await api.get("calls"))["calls"]}
        body = await api.get(f"calls/{listed['git.git_1']}")
        details = models.CallDetails.model_validate(body)
        assert {one.tool for one in details.run} == {"git.git_0", "git.git_1"}
        assert min(one.start_ms for one in details.run) == 0


async def test_a_tool_that_is_called_over_rest_is_recorded_like_any_other(tmp_path: Path):
    server = backend(tool("send", "Sends a mail.", text="string"))
    config = Config.model_validate({"audit": {"enabled": True, "arguments": "redacted"}})
    async with run_gateway({"mail": server}, config, data_dir=tmp_path) as gateway:
        app = make_app(gateway.get_endpoints(), api=RestApp(gateway))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as http:
            sent: dict[str, Any] = {"tool": "mail.send", "arguments": {"text": ["no text"]}}
            refused = (await http.post(f"{V1}/calls", json=sent)).json()
            assert refused["ok"] is False, "the arguments are checked"
            sent["arguments"] = {"text": "hello"}
            answer = (await http.post(f"{V1}/calls", json=sent)).json()
            models.CallAnswer.model_validate(answer)
            assert answer["ok"] is True
            assert answer["result"]["content"][0]["text"] == "done"
            await gateway.usage_data.tool_usage.flush()
            (listed,) = (await http.get(f"{V1}/calls")).json()["calls"]
            assert (listed["call"], listed["via"]) == (answer["call"], "rest")
            details = (await http.get(f"{V1}/calls/{listed['id']}")).json()
            assert details["audit"]["arguments"] == {"text": "hello"}
            stages = [one["stage"] for one in details["stages"]]
            assert stages == ["admission", "preparation", "start", "server_queue", "tool"]


async def test_a_failed_call_says_what_its_caller_was_told_without_secrets():
    server = backend(tool("send", "Sends a mail.", text="string"))
    server.on_call("send", lambda _: {**text("no login: API_TOKEN=hidden-1"), "isError": True})
    async with run_gateway({"mail": server}) as gateway:
        app = make_app(gateway.get_endpoints(), api=RestApp(gateway))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as http:
            sent = {"tool": "mail.send", "arguments": {"text": "hello"}}
            assert (await http.post(f"{V1}/calls", json=sent)).json()["ok"] is False
            await gateway.usage_data.tool_usage.flush()
            (listed,) = (await http.get(f"{V1}/calls", params={"ok": "false"})).json()["calls"]
            details = (await http.get(f"{V1}/calls/{listed['id']}")).json()
            models.CallDetails.model_validate(details)
            assert details["message"].startswith("no login: ")
            assert "hidden-1" not in str(details)
            assert (await http.get(f"{V1}/calls/refused")).json()["calls"] == []


async def test_refused_calls_are_listed_with_their_kind_and_what_the_caller_was_told():
    tools = (tool("send", "Sends a mail.", text="string"), tool("delete", "Deletes a mail."))
    server = backend(*tools)
    rules = [{"tools": "mail.delete", "may": "ask"}]
    async with run_gateway({"mail": server}, Config.model_validate({"rules": rules})) as gateway:
        app = make_app(gateway.get_endpoints(), api=RestApp(gateway))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as http:
            for sent in (
                {"tool": "mail.gone"},
                {"tool": "mail.send", "arguments": {"text": ["no text"]}},
                {"tool": "mail.delete"},
            ):
                await http.post(f"{V1}/calls", json=sent)
            body = (await http.get(f"{V1}/calls/refused")).json()
            models.RefusedCallList.model_validate(body)
            found = [(one["tool"], one["error"]) for one in body["calls"]]
            assert found == [
                ("mail.delete", "approval_required"),
                ("mail.send", "invalid_arguments"),
                ("mail.gone", "unknown_name"),
            ]
            assert all(one["message"] and one["call"] for one in body["calls"])


async def test_a_tool_is_not_called_by_what_a_page_of_another_origin_can_send():
    server = backend(*make_tools("git", 1))
    async with run_gateway({"git": server}) as gateway:
        app = make_app(gateway.get_endpoints(), api=RestApp(gateway))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as http:
            body = b'{"tool": "git.git_0"}'
            assert (await http.post(f"{V1}/calls", content=body)).status_code == 415
            foreign = {**JSON, "origin": "http://127.0.0.1:2"}
            reply = await http.post(f"{V1}/calls", content=body, headers=foreign)
            assert reply.status_code == 403
        assert not [method for method, _ in server.requests if method == "tools/call"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"not json", 422),
        (b"[]", 422),
        (b'{"tool": 1}', 422),
        (b'{"tool": "git.git_0", "more": 1}', 422),
        (b'{"tool": "git.gone"}', 404),
        (b'{"tool": "git.git_0", "arguments": {"a": "' + b"x" * 2**20 + b'"}}', 413),
        (b'{"tool": "git.git_0", "arguments": {"a": [' + b"1," * 30_000 + b"1]}}", 413),
    ],
)
async def test_a_body_that_cannot_be_used_is_refused_with_advice(content: bytes, status: int):
    async with run_gateway({"git": backend(*make_tools("git", 1))}) as gateway:
        app = make_app(gateway.get_endpoints(), api=RestApp(gateway))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as http:
            reply = await http.post(f"{V1}/calls", content=content, headers=JSON)
            assert (reply.status_code, bool(reply.json()["detail"])) == (status, True)


async def test_the_log_of_a_server_is_read_without_secrets():
    class Talking(FakeBackend):
        def diagnostics(self) -> dict[str, Any]:
            return {"stderr": ["no login with API_TOKEN=hidden-1"]}

    async with open_api({"git": Talking(make_tools("git", 1))}) as api:
        body = await api.get("servers/git/log")
        models.ServerLogPage.model_validate(body)
        assert [line["state"] for line in body["lines"] if line.get("state")][-1] == "ready"
        assert "hidden" not in str(body)
        last = body["lines"][-1]["sequence"]
        assert (await api.get("servers/git/log", after=last))["lines"] == []


async def test_a_search_says_why_each_tool_ranks_and_where_an_expected_one_is():
    servers = {"git": backend(*make_tools("git", 3)), "mail": backend(tool("send", "Sends mail."))}
    async with open_api(servers) as api:
        body = await api.get("tools", query="send mail", explain="true", expect="git.git_1")
        assert body["tools"][0]["tool"] == "mail.send"
        assert any(line.startswith("score ") for line in body["tools"][0]["why"])
        assert body["explanation"].startswith("Confidence ")
        assert body["expected"][0].startswith("git.git_1: ")
        unknown = await api.get("tools", query="send mail", expect="git.git_9")
        assert "git.git_0" in " ".join(unknown["expected"])
