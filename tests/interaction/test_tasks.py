"""Calls that a server goes on with as tasks: for clients that know tasks, and for those that do
not.

Where a real server works, the clock is compressed a hundred times: work of ten minutes takes six
seconds, and the minute of a client is six tenths.
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import CallToolResult, ElicitResult

from portico.auth.authenticator import Principal
from portico.callers import Caller
from portico.calls.call import CallContext
from portico.config import Config
from portico.errors import INVALID_PARAMS, BackendUnavailable, PorticoError, RemoteError
from portico.observability.audit import AuditLog
from portico.testing import FakeBackend, Transport, connect, serve_http
from portico.upstream.backend import Era, Raw
from tests.conformance.processes import task_server
from tests.gateways import TIMEOUT_S, join_text, open_gateway, run_gateway, wait_until
from tests.interaction.fake_servers import text, tool
from tests.interaction.raw_clients import RawClient, call, raw_http, raw_lines, result

TASKS = "io.modelcontextprotocol/tasks"
ANSWER_S = 0.5
TEN_MINUTES_S = 6.0
TICKET = re.compile(r"task_[\w-]{22}")


class TaskBackend(FakeBackend):
    """A server that makes a task of each call of `work`; the test says how it goes on."""

    def __init__(self, **options: Any) -> None:
        declared = {"tools": {}, "extensions": {TASKS: {}}}
        super().__init__(
            [tool("work", n="integer"), tool("other")],
            era="modern",
            capabilities=declared,
            **options,
        )
        self.state: Raw = {"status": "working", "ttlMs": None, "pollIntervalMs": 50}
        self.begun: list[Raw] = []
        self.lost: PorticoError | None = None
        self.on("tools/call", lambda params, _: self.begin(params))
        self.on("tasks/get", lambda params, _: self.get(params))
        self.on("tasks/update", lambda params, _: self.update(params))
        self.on("tasks/cancel", lambda params, _: self.cancel())

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.requests]

    def begin(self, params: Raw) -> Raw:
        declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert TASKS in declared["extensions"]
        self.begun.append(params)
        return {"resultType": "task", "taskId": "theirs", **self.state}

    def get(self, params: Raw) -> Raw:
        assert params["taskId"] == "theirs"
        if self.lost is not None:
            raise self.lost
        return {"resultType": "complete", "taskId": "theirs", **self.state}

    def update(self, params: Raw) -> Raw:
        answers = json.dumps(params["inputResponses"], sort_keys=True)
        self.complete(text(f"answered {answers}"))
        return {"resultType": "complete"}

    def cancel(self) -> Raw:
        self.state = {**self.state, "status": "cancelled"}
        return {"resultType": "complete"}

    def complete(self, answer: Raw) -> None:
        self.state = {**self.state, "status": "completed", "result": answer}

    def ask(self) -> None:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        params = {"mode": "form", "message": "Who?", "requestedSchema": schema}
        asked = {"who": {"method": "elicitation/create", "params": params}}
        self.state = {**self.state, "status": "input_required", "inputRequests": asked}


def impatient(**settings: Any) -> Config:
    """A gateway that gives tickets soon."""
    limits = {"task_answer_s": ANSWER_S, **settings.pop("limits", {})}
    return Config.model_validate({"limits": limits, **settings})


def find_ticket(answer: str) -> str:
    found = TICKET.search(answer)
    assert found is not None, answer
    return found[0]


async def call_slowly(client: Client, name: str, **arguments: Any) -> str:
    asked = {"name": name, "arguments": arguments}
    answer: CallToolResult = await asyncio.wait_for(client.call_tool("call_tool", asked), TIMEOUT_S)
    assert not answer.is_error, answer.content
    return join_text(answer)


async def read_to_the_end(client: Client, ticket: str) -> list[str]:
    """Every answer of read_result, up to the first without a ticket."""
    answers: list[str] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not answers or TICKET.search(answers[-1]):
            answers.append(join_text(await client.call_tool("read_result", {"result_id": ticket})))
    return answers


# --- a real server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server with tasks, and the file with the work that it began."""
    folder = tmp_path_factory.mktemp("tasks")
    with task_server(folder, folder / "begun") as url:
        yield url, folder / "begun"


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_ten_minutes_of_work_survive_a_client_of_one_minute_and_a_restart_of_the_gateway(
    server: tuple[str, Path], transport: Transport, tmp_path: Path
) -> None:
    url, begun = server
    begun.write_text("")
    config = impatient(servers={"t": {"url": url}})
    work = {"seconds": TEN_MINUTES_S, "label": "the answer"}
    async with (
        run_gateway(config=config, data_dir=tmp_path) as first,
        connect(first, transport, "legacy") as client,
    ):
        answer = await call_slowly(client, "t.slow_compute", **work)
        ticket = find_ticket(answer)
        assert "% of the answer" in answer
    async with (
        run_gateway(config=config, data_dir=tmp_path) as second,
        connect(second, transport, "legacy") as client,
    ):
        answers = await read_to_the_end(client, ticket)
    assert answers[-1] == "computed the answer"
    assert len(answers) > 1, "it was still at work after the restart"
    assert "computed the answer" not in "".join(answers[:-1])
    assert begun.read_text().split() == ["slow_compute"], "the work was done once"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_quick_task_is_answered_like_any_call(server: tuple[str, Path], era: Era) -> None:
    config = Config.model_validate({"servers": {"t": {"url": server[0]}}})
    async with open_gateway(config=config, era=era) as gateway:
        assert await call_slowly(gateway.client, "t.slow_compute", seconds=0.2, label="it") == (
            "computed it"
        )


async def test_a_process_that_ended_with_the_gateway_is_said_to_have_ended(tmp_path: Path) -> None:
    command = {"command": sys.executable, "args": ["-m", "tests.fixtures.task_server"]}
    config = impatient(servers={"t": command})
    async with (
        run_gateway(config=config, data_dir=tmp_path) as first,
        connect(first, "http", "legacy") as client,
    ):
        ticket = find_ticket(await call_slowly(client, "t.slow_compute", seconds=600))
    async with (
        run_gateway(config=config, data_dir=tmp_path) as second,
        connect(second, "http", "legacy") as client,
    ):
        lost = (await read_to_the_end(client, ticket))[-1]
    assert "the process of t that worked at this task has ended" in lost
    assert "find out before you call it again" in lost


async def test_a_script_and_a_workflow_wait_for_a_task(server: tuple[str, Path]) -> None:
    config = Config.model_validate({"servers": {"t": {"url": server[0]}}})
    async with open_gateway(config=config) as gateway:
        code = "r = await t.slow_compute(seconds=0.5, label='script')\nprint(r)"
        assert "computed script" in await gateway.call_text("run_code", code=code)
        step = {"tool": "t.slow_compute", "arguments": {"seconds": 0.5, "label": "workflow"}}
        done = await gateway.call_text("run_workflow", steps=[{"id": "one", **step}])
        assert "computed workflow" in done


# --- clients that do not know tasks


async def test_a_ticket_is_followed_by_read_result_and_as_a_resource() -> None:
    backend = TaskBackend()
    async with open_gateway({"s": backend}, impatient(), era="legacy") as gateway:
        answer = await gateway.call("call_tool", name="s.work", arguments={"n": 1})
        ticket = find_ticket(join_text(answer))
        assert answer.meta is not None
        assert answer.meta["portico/task"] == ticket
        assert answer.content[-1].type == "resource_link"
        backend.complete(text("done"))
        assert await gateway.call_text("read_result", result_id=ticket) == "done"
        assert await gateway.call_text("read_result", result_id=f"portico://result/{ticket}") == (
            "done"
        )
        found = await gateway.client.read_resource(f"portico://result/{ticket}")
        assert '"done"' in str(found.contents[0])
        assert len(backend.begun) == 1
        assert [one.ok for one in gateway.tool_calls] == [True]


async def test_a_client_is_asked_what_a_task_asks_while_it_waits_and_later() -> None:
    asked: list[str] = []

    async def answer(_: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ada"})

    for later in (False, True):
        backend = TaskBackend()
        config = impatient() if later else Config()
        async with open_gateway(
            {"s": backend}, config, era="legacy", transport="http", elicitation_callback=answer
        ) as gateway:
            if later:
                ticket = find_ticket(await gateway.call_text("call_tool", name="s.work"))
                backend.ask()
                said = await read_to_the_end(gateway.client, ticket)
                assert "Ada" in said[-1]
            else:
                backend.ask()
                assert "Ada" in await gateway.call_text("call_tool", name="s.work")
    assert len(asked) == 2
    assert all(message.startswith("s asks:") for message in asked)


async def test_what_a_client_that_gives_up_waited_for_is_cancelled_at_the_server() -> None:
    backend = TaskBackend()
    async with open_gateway({"s": backend}, Config(), era="legacy", transport="stdio") as gateway:
        calling = asyncio.create_task(gateway.call("call_tool", name="s.work"))
        await wait_until(lambda: "tasks/get" in backend.methods)
        calling.cancel()
        await wait_until(lambda: "tasks/cancel" in backend.methods)
        with suppress(asyncio.CancelledError):
            await calling


async def test_a_server_that_cannot_be_reached_for_a_while_is_asked_again() -> None:
    backend = TaskBackend()
    async with open_gateway({"s": backend}, impatient(), era="legacy") as gateway:
        backend.lost = BackendUnavailable("away")
        ticket = find_ticket(await gateway.call_text("call_tool", name="s.work"))
        backend.lost = None
        backend.complete(text("back"))
        assert (await read_to_the_end(gateway.client, ticket))[-1] == "back"


async def test_a_task_that_its_server_forgot_is_an_error_that_says_so() -> None:
    backend = TaskBackend()
    async with open_gateway({"s": backend}, impatient(), era="legacy") as gateway:
        backend.lost = RemoteError(INVALID_PARAMS, "Task not found")
        said = await gateway.call_error("call_tool", name="s.work")
        assert "s no longer knows this task (Task not found)" in said


async def test_a_task_without_a_result_is_given_up_after_its_lifetime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("portico.calls.running_task.GRACE_S", 0.0)
    backend = TaskBackend()
    backend.state = {**backend.state, "ttlMs": 0}
    async with open_gateway({"s": backend}, era="legacy") as gateway:
        said = await gateway.call_error("call_tool", name="s.work")
        assert "has not ended within" in said


async def test_a_full_view_answers_with_a_link_that_is_read_as_a_resource() -> None:
    backend = TaskBackend()
    config = impatient(exposure="full")
    async with open_gateway({"s": backend}, config, era="legacy") as gateway:
        ticket = find_ticket(await gateway.call_text("s_work"))
        backend.complete(text("done"))
        found = await gateway.client.read_resource(f"portico://result/{ticket}")
        assert '"done"' in str(found.contents[0])


async def test_two_that_ask_at_once_after_a_restart_do_not_cancel_the_task(tmp_path: Path) -> None:
    backend = TaskBackend()
    async with open_gateway({"s": backend}, impatient(), era="legacy", data_dir=tmp_path) as first:
        ticket = find_ticket(await first.call_text("call_tool", name="s.work"))
    async with open_gateway({"s": backend}, impatient(), era="legacy", data_dir=tmp_path) as second:
        reads = [second.call_text("read_result", result_id=ticket) for _ in range(3)]
        assert all(ticket in answer for answer in await asyncio.gather(*reads))
        backend.complete(text("done"))
        assert await second.call_text("read_result", result_id=ticket) == "done"
    assert "tasks/cancel" not in backend.methods
    assert len(backend.begun) == 1


# --- clients that know tasks


async def wait_for_state(client: RawClient, ticket: str, status: str) -> Raw:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            state = await result(client, "tasks/get", {"taskId": ticket})
            if state["status"] == status:
                return state


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_client_that_knows_tasks_gets_a_task_of_its_own(transport: str) -> None:
    backend = TaskBackend()
    async with run_gateway({"s": backend}) as gateway, serve_http(gateway) as url:
        clients = {
            "stdio": lambda: raw_lines(
                gateway.get_endpoint(), "modern", elicitation={}, extensions={TASKS: {}}
            ),
            "http": lambda: raw_http(url, "modern", elicitation={}, extensions={TASKS: {}}),
        }
        async with clients[transport]() as client:
            discovered = await result(client, "server/discover")
            assert discovered["capabilities"]["extensions"] == {TASKS: {}}
            made = await call(client, "call_tool", name="s.work", arguments={})
            made = made["result"]
            ticket = made["taskId"]
            assert made["resultType"] == "task"
            assert ticket != "theirs"
            backend.ask()
            state = await wait_for_state(client, ticket, "input_required")
            asked = state["inputRequests"]["who"]["params"]["message"]
            assert asked.startswith("s asks:")
            answers = {"who": {"action": "accept", "content": {"name": "Ada"}}}
            done = await result(
                client, "tasks/update", {"taskId": ticket, "inputResponses": answers}
            )
            assert done["resultType"] == "complete"
            state = await wait_for_state(client, ticket, "completed")
            assert "Ada" in state["result"]["content"][0]["text"]
            assert len(backend.begun) == 1


async def test_a_client_that_knows_tasks_can_cancel_one() -> None:
    backend = TaskBackend()
    async with (
        run_gateway({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", extensions={TASKS: {}}) as client,
    ):
        made = await call(client, "call_tool", name="s.work", arguments={})
        ticket = made["result"]["taskId"]
        await result(client, "tasks/cancel", {"taskId": ticket})
        await wait_for_state(client, ticket, "cancelled")
        await result(client, "tasks/cancel", {"taskId": ticket})
        assert backend.methods.count("tasks/cancel") == 1


async def test_a_client_that_knows_tasks_goes_on_after_a_restart(
    server: tuple[str, Path], tmp_path: Path
) -> None:
    config = Config.model_validate({"servers": {"t": {"url": server[0]}}})
    asked = {"name": "t.slow_compute", "arguments": {"seconds": 2, "label": "it"}}
    known = {"extensions": {TASKS: {}}}
    async with (
        run_gateway(config=config, data_dir=tmp_path) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", **known) as client,
    ):
        ticket = (await call(client, "call_tool", **asked))["result"]["taskId"]
    async with (
        run_gateway(config=config, data_dir=tmp_path) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", **known) as client,
    ):
        state = await wait_for_state(client, ticket, "completed")
        assert state["result"]["content"][0]["text"] == "computed it"


async def test_asking_about_tasks_without_declaring_them_is_refused() -> None:
    async with (
        run_gateway({"s": TaskBackend()}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern") as client,
    ):
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            refused = await client.request(method, {"taskId": "x", "inputResponses": {}})
            assert refused["error"]["code"] == -32021
            assert TASKS in refused["error"]["data"]["requiredCapabilities"]["extensions"]


# --- who may have a task, and what it answers


def read_all(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*.*")) if file.is_file())


def make_context(principal: Principal) -> CallContext:
    return CallContext(Caller("", "test", "", principal), task_mode="await")


async def test_another_callers_ticket_is_not_found(tmp_path: Path) -> None:
    backend = TaskBackend()
    ada = Principal("idp", "ada")
    eve = Principal("idp", "eve")
    async with run_gateway({"s": backend}, impatient(), data_dir=tmp_path) as gateway:
        view = gateway.get_view()
        given = await view.run_tool("s.work", {}, make_context(ada))
        ticket = find_ticket(json.dumps(given))
        backend.complete(text("secret"))
        asking = {"name": "read_result", "arguments": {"result_id": ticket}}
        others = await view.handle("tools/call", asking, make_context(eve), "legacy")
        assert others["isError"]
        assert "there is no such task" in json.dumps(others)
        forged = {**asking, "arguments": {"result_id": ticket[:-1] + "A"}}
        if forged != asking:
            refused = await view.handle("tools/call", forged, make_context(ada), "legacy")
            assert refused["isError"]
        own = await view.handle("tools/call", asking, make_context(ada), "legacy")
        assert "secret" in json.dumps(own)
    stored = read_all(tmp_path)
    assert ticket.encode() not in stored, "who reads the files has no ticket"


async def test_rules_hold_for_what_a_task_answers(tmp_path: Path) -> None:
    backend = TaskBackend()
    config = impatient(rules=[{"tools": "s.*", "mask": ["email"]}])
    async with run_gateway({"s": backend}, config, data_dir=tmp_path) as gateway:
        view = gateway.get_view()
        context = make_context(Principal("idp", "ada"))
        backend.state = {**backend.state, "statusMessage": "writing to eve@example.org"}
        given = json.dumps(await view.run_tool("s.work", {}, context))
        ticket = find_ticket(given)
        assert "eve@example.org" not in given
        backend.complete(text("ask ada@example.org"))
        asking = {"name": "read_result", "arguments": {"result_id": ticket}}
        answer = json.dumps(await view.handle("tools/call", asking, context, "legacy"))
        assert "ask " in answer
        assert "ada@example.org" not in answer
    # After a restart the mask is still that of the rule that decided, and a new rule is asked.
    async with run_gateway({"s": backend}, config, data_dir=tmp_path) as gateway:
        view = gateway.get_view()
        answer = json.dumps(await view.handle("tools/call", asking, context, "legacy"))
        assert "ask " in answer
        assert "ada@example.org" not in answer
    denying = impatient(rules=[{"tools": "s.work", "may": "deny"}])
    async with run_gateway({"s": backend}, denying, data_dir=tmp_path) as gateway:
        refused = await gateway.get_view().handle("tools/call", asking, context, "legacy")
        assert refused["isError"]
        assert "ask " not in json.dumps(refused)


async def test_the_audit_log_has_one_line_for_a_call_and_its_task(tmp_path: Path) -> None:
    backend = TaskBackend()
    async with open_gateway({"s": backend}, impatient(), era="legacy") as gateway:
        audit = AuditLog.from_settings(gateway.runtime.config.audit, tmp_path, ())
        gateway.runtime.calls.recorder.audit = audit
        ticket = find_ticket(await gateway.call_text("call_tool", name="s.work"))
        backend.complete(text("done"))
        await gateway.call_text("read_result", result_id=ticket)
        await gateway.call_text("read_result", result_id=ticket)
        lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        assert [(line["tool"], line["outcome"]) for line in lines] == [("s.work", "ok")]


async def test_calls_that_go_on_are_bounded_for_each_caller() -> None:
    backend = TaskBackend()
    config = impatient(limits={"tasks": 4})
    async with run_gateway({"s": backend}, config) as gateway:
        view = gateway.get_view()
        ada = make_context(Principal("idp", "ada"))
        find_ticket(json.dumps(await view.run_tool("s.work", {}, ada)))
        with pytest.raises(PorticoError, match="too many calls go on"):
            await view.run_tool("s.work", {}, ada)
        await wait_until(lambda: "tasks/cancel" in backend.methods)
        backend.state = {**backend.state, "status": "working"}
        eve = make_context(Principal("idp", "eve"))
        find_ticket(json.dumps(await view.run_tool("s.work", {}, eve)))
