"""The audit log: whatever a client has a server do is in it, nobody floods it away soon, and
changes to it show."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference

from portico.api.app import make_api
from portico.api.gateway_services import GatewayServices
from portico.callers import Caller
from portico.config import AuditConfig as Settings
from portico.config import Config
from portico.gateway import GatewayRuntime
from portico.observability.audit import AuditEntry, AuditLog
from portico.server.http.app import make_app
from portico.testing import FakeBackend, connect
from portico.upstream.backend import Raw
from tests.cli.conftest import Home
from tests.gateways import run_gateway

TIMEOUT_S = 240
ME = Caller("session", "claude")


@pytest.fixture
def home(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Home:
    found = Home(tmp_path, capfd)
    found.write({"servers": {}})
    return found


def library() -> FakeBackend:
    backend = FakeBackend(
        [
            {
                "name": "burn",
                "inputSchema": {"type": "object"},
                "annotations": {"destructiveHint": True},
            }
        ],
        resources=[{"uri": "book://one", "name": "one"}],
        templates=[{"uriTemplate": "book://{name}", "name": "any"}],
        prompts=[{"name": "review"}],
        capabilities={
            "tools": {},
            "resources": {"subscribe": True},
            "prompts": {},
            "completions": {},
        },
    )
    read = {"contents": [{"uri": "book://one", "text": "read"}]}
    answers: dict[str, Raw] = {
        "resources/read": read,
        "resources/subscribe": {},
        "resources/unsubscribe": {},
        "prompts/get": {"messages": []},
        "completion/complete": {"completion": {"values": []}},
    }
    for method, answer in answers.items():
        backend.on(method, lambda params, ask, answer=answer: answer)
    backend.on_call("burn", lambda arguments: {"content": []})
    return backend


@asynccontextmanager
async def running(folder: Path) -> AsyncGenerator[GatewayRuntime]:
    config = Config.model_validate(
        {"data_dir": str(folder), "audit": {"file": str(folder / "audit.jsonl")}}
    )
    async with run_gateway({"library": library()}, config) as gateway:
        yield gateway


def lines(folder: Path) -> list[Raw]:
    path = folder / "audit.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


async def test_resources_prompts_and_completions_are_written_down_before_their_answer(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as gateway, connect(gateway) as client:
        [uri] = [
            one.uri for one in (await client.list_resources()).resources if "book" in str(one.uri)
        ]
        [prompt] = [
            one.name for one in (await client.list_prompts()).prompts if "review" in one.name
        ]
        templates = (await client.list_resource_templates()).resource_templates
        [template] = [one.uri_template for one in templates if "book" in one.uri_template]
        steps: list[tuple[str, Any]] = [
            ("resources/read", lambda: client.read_resource(uri)),
            ("prompts/get", lambda: client.get_prompt(prompt)),
            (
                "completion/complete",
                lambda: client.complete(
                    ResourceTemplateReference(type="ref/resource", uri=template),
                    {"name": "name", "value": "o"},
                ),
            ),
        ]
        for method, step in steps:
            await step()
            last = lines(tmp_path)[-1]
            assert (last["method"], last["server"], last["outcome"]) == (method, "library", "ok")
            assert last["arguments"]
        assert [line["target"] for line in lines(tmp_path)] == [
            "book://one",
            "review",
            "book://{name}",
        ]


async def test_subscriptions_that_reach_a_server_are_written_down(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway, connect(gateway, era="legacy") as client:
        [uri] = [
            one.uri for one in (await client.list_resources()).resources if "book" in str(one.uri)
        ]
        await client.session.subscribe_resource(uri)  # pyright: ignore[reportDeprecated]
        await client.session.unsubscribe_resource(uri)  # pyright: ignore[reportDeprecated]
        reported = [(line.get("method"), line.get("target")) for line in lines(tmp_path)]
        assert reported == [
            ("resources/subscribe", "book://one"),
            ("resources/unsubscribe", "book://one"),
        ]


async def test_a_request_that_fails_is_written_down_too(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway, connect(gateway) as client:
        backend: Any = gateway.upstreams["library"].backend
        backend.on("prompts/get", lambda params, ask: _refuse())
        [prompt] = [
            one.name for one in (await client.list_prompts()).prompts if "review" in one.name
        ]
        with pytest.raises(MCPError):
            await client.get_prompt(prompt)
        assert lines(tmp_path)[-1]["outcome"] == "remote"


def _refuse() -> Raw:
    from portico.errors import RemoteError

    raise RemoteError(-32000, "no")


async def test_a_call_of_a_tool_that_destroys_is_marked(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway, connect(gateway) as client:
        await client.call_tool("call_tool", {"name": "library.burn", "arguments": {}})
        assert lines(tmp_path)[-1]["destructive"] is True


async def test_a_restart_over_rest_is_written_down(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        view = gateway.get_view()
        api = make_api(
            view.profile_state,
            view.search_service,
            gateway.store,
            services=GatewayServices(
                upstreams=gateway.upstreams, get_audit=lambda: gateway.calls.recorder.audit
            ),
        )
        app = make_app(gateway.get_endpoints(), api=api)
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8420"
        ) as client:
            answer = await client.post("/api/v1/servers/library/restart", json={})
        assert answer.status_code == 200
        last = lines(tmp_path)[-1]
        assert (last["method"], last["server"], last["way"], last["outcome"]) == (
            "restart",
            "library",
            "rest",
            "ok",
        )


def test_there_is_space_for_two_million_calls() -> None:
    settings = Settings()
    assert int(settings.max_bytes) * settings.files / 520 > 2_000_000


def write(folder: Path, number: int, **settings: Any) -> Path:
    audit = AuditLog.from_settings(Settings.model_validate(settings), folder)
    assert audit is not None
    for at in range(number):
        audit.write(AuditEntry("git.push", "hash", {"n": at}, "ok", ME, "call_tool", 0.01))
    audit.close()
    return folder / "audit.jsonl"


def test_what_is_dropped_for_a_new_file_is_said_in_it(tmp_path: Path) -> None:
    path = write(tmp_path, 40, max_bytes=2_048, files=2)
    kept = [
        json.loads(line)
        for name in ("audit.jsonl.1", "audit.jsonl")
        for line in (tmp_path / name).open()
    ]
    gone = [line["dropped"] for line in kept if "dropped" in line]
    assert path.exists()
    assert gone
    assert gone[-1]["n"] == kept[0]["n"] - 1
    assert gone[-1]["from"] <= gone[-1]["to"] <= kept[0]["at"]


def verify_log(home: Home) -> tuple[int, Raw]:
    ran = home.run("audit", "--verify", "--json")
    assert ran.out, ran.err
    return ran.code, ran.data


def test_a_log_that_nobody_touched_is_intact_over_restarts_rotation_and_a_crash(home: Home) -> None:
    data = home.folder / "data"
    home.write({"servers": {}, "audit": {"max_bytes": 4_096, "files": 3}})
    write(data, 5, max_bytes=4_096, files=3)
    path = write(data, 30, max_bytes=4_096, files=3)
    with path.open("ab") as file:
        file.write(b'{"at":"2026-01-01T00:00:00.000Z","id":"cut sho')
    write(data, 2, max_bytes=4_096, files=3)
    code, found = verify_log(home)
    assert (code, found["intact"], found["torn"], found["problems"]) == (0, True, 1, [])
    assert found["sealed"] > 10


def test_gateways_that_share_a_log_each_keep_their_chain(home: Home) -> None:
    data = home.folder / "data"
    both = [AuditLog.from_settings(Settings(), data) for _ in range(2)]
    for at in range(10):
        for audit in both:
            assert audit is not None
            audit.write(AuditEntry("git.push", "hash", {"n": at}, "ok", ME))
    assert verify_log(home)[1]["problems"] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda kept: [*kept[:3], kept[3].replace(b'"ok"', b'"no"'), *kept[4:]], "was changed"),
        (lambda kept: [*kept[:3], *kept[4:]], "taken out"),
        (lambda kept: [*kept[:3], kept[4], kept[3], *kept[5:]], "another order"),
        (lambda kept: kept[2:], "missing"),
        (lambda kept: [*kept[:3], b'{"at":"x","tool":"forged"}\n', *kept[3:]], "without a MAC"),
        (lambda kept: [*kept[:4], *kept[6:]], "missing"),
        (lambda kept: kept[6:], "missing"),
    ],
    ids=[
        "changed",
        "taken out",
        "swapped",
        "beheaded",
        "forged",
        "the end of a run",
        "the oldest run",
    ],
)
def test_a_line_that_was_changed_taken_out_or_put_in_is_found(
    home: Home, change: Any, said: str
) -> None:
    write(home.folder / "data", 6)
    path = write(home.folder / "data", 6)
    assert verify_log(home)[0] == 0
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(kept)))
    code, found = verify_log(home)
    assert code == 1
    assert any(said in problem for problem in found["problems"]), found["problems"]


def test_without_its_key_a_log_proves_nothing(home: Home) -> None:
    write(home.folder / "data", 2)
    (home.folder / "data" / "audit.key").unlink()
    ran = home.run("audit", "--verify")
    assert ran.code == 1
    assert "audit.key" in ran.err
