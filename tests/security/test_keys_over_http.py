"""Keys over HTTP: what they open, and that nothing of one person reaches another."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from portico.api.app import make_api
from portico.api.gateway_services import GatewayServices
from portico.auth.authenticator import KeyRing
from portico.auth.keys import create_key
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.storage.rows import KeyRow
from portico.testing import FakeBackend, serve_http
from portico.upstream.backend import Era
from tests.gateways import TIMEOUT_S, run_gateway, wait_until
from tests.interaction.fake_servers import text, tool
from tests.interaction.raw_clients import Message, RawHttp, call, raw_http

NOW = 1_000_000.0
TOKEN = "the token of the configuration"
ERAS: list[Era] = ["legacy", "modern"]
PROFILES = {"profiles": {"work": {"servers": ["mail"]}, "home": {"servers": ["disk"]}}}


def server() -> FakeBackend:
    """A server with a tool that reads, one that writes, one it does not list, and a long answer."""
    read = {**tool("read"), "annotations": {"readOnlyHint": True}}
    backend = FakeBackend([read, tool("write"), {**read, "name": "long"}])
    for name in ("read", "write", "hidden"):
        backend.on_call(name, lambda _, name=name: text(f"{name} done"))
    backend.on_call("long", lambda _: text("line\n" * 40_000))
    return backend


class Keys:
    """The ring of a gateway, and the texts of its keys by name."""

    def __init__(self) -> None:
        self.now = NOW
        self.ring = KeyRing(clock=lambda: self.now)
        self.texts: dict[str, str] = {}
        self._rows: dict[str, KeyRow] = {}

    def add(self, name: str, **rights: Any) -> str:
        row, self.texts[name] = create_key(name, NOW, **rights)
        self._rows[name] = row
        self.ring.replace(self._rows.values())
        return self.texts[name]

    def revoke(self, name: str) -> None:
        self._rows[name] = replace(self._rows[name], revoked_at=self.now)
        self.ring.replace(self._rows.values())


@asynccontextmanager
async def serve(
    keys: Keys, token: str | None = None, extra: Mapping[str, Any] | None = None
) -> AsyncGenerator[tuple[GatewayRuntime, str]]:
    config = Config.model_validate({**PROFILES, **(extra or {})})
    async with run_gateway({"mail": server(), "disk": server()}, config) as gateway:
        view = gateway.get_view()
        api = make_api(
            view.profile_state,
            view.search_service,
            gateway.store,
            services=GatewayServices(upstreams=gateway.upstreams),
        )
        monitoring = gateway.ensure_monitoring()
        async with serve_http(
            gateway,
            token=token,
            keys=keys.ring,
            api=api,
            metrics=lambda: monitoring.metrics,
            health=monitoring.readiness.check_health,
        ) as url:
            yield gateway, url


async def request_status(url: str, key: str = "", method: str = "GET") -> int:
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    async with httpx2.AsyncClient(timeout=60) as http:
        return (await http.request(method, url, headers=headers)).status_code


async def post_status(url: str, key: str = "") -> int:
    """The status of a call over MCP."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    headers |= {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    frame = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with httpx2.AsyncClient(timeout=60) as http:
        return (await http.post(url, json=frame, headers=headers)).status_code


async def test_as_soon_as_there_is_a_key_every_request_needs_one_or_the_token() -> None:
    keys = Keys()
    async with serve(keys) as (_, url):
        assert await post_status(url) == 400, "no session: but it came in"
        ci = keys.add("ci")
        assert await post_status(url) == 401
        assert await post_status(url, ci) == 400
        assert await post_status(url, "portico_0123456789_" + "A" * 43) == 401
        assert await post_status(url, TOKEN) == 401
    async with serve(keys, TOKEN) as (_, url):
        assert await post_status(url, TOKEN) == 400
        assert await post_status(url, ci) == 400
        assert await post_status(url) == 401


async def test_an_expired_or_revoked_key_stays_out_also_within_an_open_session() -> None:
    keys = Keys()
    short = keys.add("short", expires_at=NOW + 60)
    ana = keys.add("ana")
    async with serve(keys) as (_, url), raw_http(url, "legacy", token=ana) as client:
        assert "result" in await client.request("ping")
        assert await post_status(url, short) == 400
        keys.now = NOW + 60
        assert await post_status(url, short) == 401
        keys.revoke("ana")
        with pytest.raises(AssertionError, match="401"):
            await client.request("ping")


OPENED: dict[str, tuple[int, int, int]] = {
    # path: status for a key of everything, of the profile `work`, and without one
    "/mcp": (400, 403, 401),
    "/mcp/p/work": (400, 400, 401),
    "/mcp/p/home": (400, 403, 401),
    "/mcp/p/none": (404, 403, 401),
}
READ: dict[str, tuple[int, int, int]] = {
    "/api/v1/tools/hot": (200, 200, 401),
    "/api/v1/servers": (200, 200, 401),
    "/api/v1/calls": (200, 403, 401),
    "/api/v1/stats": (200, 403, 401),
    "/api/v1/stats/tokens": (200, 403, 401),
    "/metrics": (200, 403, 401),
    "/healthz": (200, 200, 200),
}


async def test_a_key_opens_only_its_profiles_on_mcp_rest_and_metrics() -> None:
    keys = Keys()
    whole, narrow = keys.add("whole"), keys.add("narrow", profiles=("work",))
    async with serve(keys) as (_, url):
        root = url.removesuffix("/mcp")
        for path, expected in OPENED.items():
            found = [await post_status(root + path, key) for key in (whole, narrow, "")]
            assert tuple(found) == expected, path
        for path, expected in READ.items():
            found = [await request_status(root + path, key) for key in (whole, narrow, "")]
            assert tuple(found) == expected, path
        restart = f"{root}/api/v1/servers/mail/restart"
        assert await request_status(restart, narrow, "POST") == 403
        assert await request_status(restart, whole, "POST") == 200


async def test_only_a_key_of_everything_is_told_what_readiness_checks() -> None:
    keys = Keys()
    whole, narrow = keys.add("whole"), keys.add("narrow", profiles=("work",))
    async with serve(keys) as (_, url), httpx2.AsyncClient() as http:
        ready = url.removesuffix("/mcp") + "/readyz"
        shown: list[bool] = []
        for key in (whole, narrow):
            reply = await http.get(ready, headers={"authorization": f"Bearer {key}"})
            shown.append("checks" in reply.json())
        assert shown == [True, False]


READ_ONLY_WAYS: dict[str, tuple[str, Message]] = {
    "call_tool": ("call_tool", {"name": "mail.write", "arguments": {}}),
    "script": ("run_code", {"code": "await mail.write()"}),
    "workflow": ("run_workflow", {"steps": [{"id": "a", "tool": "mail.write", "arguments": {}}]}),
    "flat": ("mail__write", {}),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", READ_ONLY_WAYS)
async def test_a_read_only_key_changes_nothing_by_any_way(way: str, era: Era) -> None:
    keys = Keys()
    reader, writer = keys.add("reader", is_read_only=True), keys.add("writer")
    name, arguments = READ_ONLY_WAYS[way]
    exposure = {"exposure": "full"} if way == "flat" else None
    async with serve(keys, extra=exposure) as (gateway, url):
        backend: Any = gateway.upstreams["mail"].backend
        for key, expected in ((reader, 0), (writer, 1)):
            async with raw_http(url, era, token=key) as client:
                answer = await call(client, name, **arguments)
                if not expected:
                    assert "read-only" in str(answer), answer
                written = [
                    params
                    for method, params in backend.requests
                    if method == "tools/call" and params["name"] == "write"
                ]
                assert len(written) == expected, answer


async def test_a_read_only_key_reads_but_calls_no_tool_that_its_server_does_not_list() -> None:
    keys = Keys()
    reader = keys.add("reader", is_read_only=True)
    async with serve(keys) as (_, url), raw_http(url, "legacy", token=reader) as client:
        assert "read done" in str(await call(client, "call_tool", name="mail.read", arguments={}))
        hidden = await call(client, "call_tool", name="mail.hidden", arguments={})
        assert "hidden done" not in str(hidden)


async def test_a_read_only_key_restarts_no_server() -> None:
    keys = Keys()
    reader = keys.add("reader", is_read_only=True)
    async with serve(keys) as (_, url):
        restart = url.removesuffix("/mcp") + "/api/v1/servers/mail/restart"
        assert await request_status(restart, reader, "POST") == 403


async def _post(client: RawHttp, key: str, method: str, params: Message | None = None) -> int:
    """The status of a request in the session of a client, with the key of another."""
    frame = {"jsonrpc": "2.0", "id": 99, "method": method, "params": params or {}}
    headers = {**client._headers, "authorization": f"Bearer {key}"}  # pyright: ignore[reportPrivateUsage]
    return (await client.http.post(client.url, json=frame, headers=headers)).status_code


async def test_a_session_is_of_no_use_to_another_person() -> None:
    keys = Keys()
    ana, bob = keys.add("ana"), keys.add("bob")
    async with serve(keys) as (_, url), raw_http(url, "legacy", token=ana) as client:
        assert await _post(client, ana, "ping") == 200
        assert await _post(client, bob, "ping") == 404
        headers = {**client._headers, "authorization": f"Bearer {bob}"}  # pyright: ignore[reportPrivateUsage]
        assert (await client.http.delete(client.url, headers=headers)).status_code == 404
        assert await _post(client, ana, "ping") == 200, "it was not ended either"


async def test_a_doubled_header_opens_no_session_of_another_person() -> None:
    keys = Keys()
    ana, bob = keys.add("ana"), keys.add("bob")
    async with serve(keys) as (_, url), raw_http(url, "legacy", token=ana) as client:
        session = client._headers["mcp-session-id"]  # pyright: ignore[reportPrivateUsage]
        body = b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {}}'
        common = [
            ("authorization", f"Bearer {bob}"),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
        ]
        doubled = [
            [("mcp-protocol-version", "2025-06-18"), ("mcp-protocol-version", "x")],
            [("mcp-session-id", "made up")],
            [("authorization", f"Bearer {bob}")],
        ]
        for headers in doubled:
            sent = [*common, *headers, ("mcp-session-id", session)]
            async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
                reply = await http.request("POST", url, content=body, headers=sent)
            assert reply.status_code == 400, headers
        assert await _post(client, ana, "ping") == 200


async def test_open_streams_end_with_their_key() -> None:
    keys = Keys()
    for name in ("ana", "bob"):
        keys.add(name)
    has_ended: dict[str, bool] = {}
    async with serve(keys) as (_, url):

        async def listen(name: str) -> None:
            async with raw_http(url, "legacy", token=keys.texts[name]) as client:
                headers = {
                    **client._headers,  # pyright: ignore[reportPrivateUsage]
                    "accept": "text/event-stream",
                }
                async with client.http.stream("GET", url, headers=headers, timeout=None) as reply:
                    assert reply.status_code == 200
                    has_ended[name] = False
                    async for _ in reply.aiter_bytes():
                        pass
                    has_ended[name] = True

        listening = [asyncio.create_task(listen(name)) for name in ("ana", "bob")]
        await wait_until(lambda: len(has_ended) == 2)
        keys.revoke("ana")
        await wait_until(lambda: has_ended["ana"])
        assert not has_ended["bob"]
        for task in listening:
            task.cancel()
        await asyncio.wait(listening)


async def test_a_read_only_key_sends_no_method_that_may_change_something() -> None:
    keys = Keys()
    reader = keys.add("reader", is_read_only=True)
    async with serve(keys, extra={"exposure": "full", "prefix": "never"}) as (gateway, url):
        async with raw_http(url, "legacy", token=reader) as client:
            answer = await client.request("vendor/delete", {"id": "1"})
        assert "error" in answer
        backend: Any = gateway.upstreams["mail"].backend
        assert not [method for method, _ in backend.requests if method == "vendor/delete"]


def _find_result_id(answer: Message) -> str:
    return str(answer).split("portico://result/")[1][:22]


@pytest.mark.parametrize("era", ERAS)
async def test_a_large_result_is_read_by_its_person_only_from_any_session(era: Era) -> None:
    keys = Keys()
    ana, bob = keys.add("ana"), keys.add("bob")
    async with (
        serve(keys) as (_, url),
        raw_http(url, era, token=ana) as first,
        raw_http(url, era, token=ana) as second,
        raw_http(url, era, token=bob) as other,
    ):
        answer = await call(first, "call_tool", name="mail.long", arguments={})
        result_id = _find_result_id(answer)
        assert "line" in str(await call(second, "read_result", result_id=result_id))
        assert "no such result" in str(await call(other, "read_result", result_id=result_id))
        uri = {"uri": f"portico://result/{result_id}"}
        assert "result" in await second.request("resources/read", uri)
        assert "error" in await other.request("resources/read", uri)


async def test_a_state_handle_is_of_no_use_to_another_person() -> None:
    keys = Keys()
    ana, bob = keys.add("ana"), keys.add("bob")
    store: Message = {"code": "store('secret', 1); result('kept')", "language": "lua"}
    load: Message = {"code": "result({found = load('secret') or 0})", "language": "lua"}
    async with (
        serve(keys) as (_, url),
        raw_http(url, "modern", token=ana) as first,
        raw_http(url, "modern", token=bob) as other,
    ):
        kept = await call(first, "run_code", **store)
        handle = kept["result"]["_meta"]["portico/session"]
        mine = await call(first, "run_code", **load, session=handle)
        assert mine["result"]["structuredContent"]["found"] == 1
        theirs = await call(other, "run_code", **load, session=handle)
        assert "no such session" in str(theirs)


async def _wait_for_recorded_call(url: str, key: str) -> Message:
    """The latest call on record, which is written some time after it was answered."""
    async with asyncio.timeout(TIMEOUT_S), httpx2.AsyncClient() as http:
        while True:
            reply = await http.get(url, headers={"authorization": f"Bearer {key}"})
            if calls := reply.json()["calls"]:
                return calls[0]
            await asyncio.sleep(0.1)


async def test_the_audit_log_and_rest_name_the_person_and_the_key(tmp_path: Path) -> None:
    keys = Keys()
    ana = keys.add("ana")
    log = tmp_path / "audit.jsonl"
    audit = {"data_dir": str(tmp_path), "audit": {"file": str(log)}}
    async with serve(keys, extra=audit) as (_, url):
        async with raw_http(url, "modern", token=ana) as client:
            await call(client, "call_tool", name="mail.read", arguments={})
        recorded = await _wait_for_recorded_call(url.removesuffix("/mcp") + "/api/v1/calls", ana)
    [line] = [entry for entry in log.read_text().splitlines() if '"mail.read"' in entry]
    assert '"person":"key ana"' in line
    assert '"credential":"' in line
    assert ana not in log.read_text()
    assert recorded["person"] == "key ana"
