"""Workflows through the gateway: by every endpoint, stopped and resumed, refused with advice,
planned
and remembered."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import Implementation

from portico.config import BackendConfig, Config, Profile, WorkflowConfig
from portico.gateway import GatewayRuntime
from portico.testing import FakeBackend, Transport, connect, gateway_over
from portico.upstream.backend import Era, Raw
from tests.gateways import open_gateway, run_gateway
from tests.interaction.fake_servers import get_text
from tests.upstream.loopback_server import advance_clock

TIMEOUT_S = 240
READS = {"readOnlyHint": True}


def tool(
    name: str, words: str, hints: Raw | None = None, output: Raw | None = None, **params: str
) -> Raw:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in params.items()}}
    made: Raw = {
        "name": name,
        "description": words,
        "inputSchema": {**schema, "required": [*params]},
    }
    made["annotations"] = hints or {}
    return {**made, "outputSchema": output} if output else made


def value(found: Any) -> Raw:
    return {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found}


PEOPLE = {
    "type": "object",
    "properties": {
        "users": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "mail": {"type": "string"}},
            },
        }
    },
}
TOOLS = [
    tool("list_users", "List the users of the office.", READS, PEOPLE),
    tool("get_user", "Get one user of the office by id.", READS, id="integer"),
    tool("send_mail", "Send a mail to somebody.", to="string", text="string"),
    tool("delete_user", "Delete a user of the office.", {"destructiveHint": True}, id="integer"),
    tool("archive", "Archive everything."),
    tool("flaky", "Answers at the third time.", READS),
    tool("unsure", "Answers at the third time, and does not say what it does."),
    tool("wait", "Waits to be let go."),
    tool("big", "Gives very much.", READS),
]


@dataclass
class Office:
    """A server whose `flaky` works at the third time and whose `wait` waits until it is
    cancelled."""

    backend: FakeBackend = field(default_factory=lambda: FakeBackend(TOOLS))
    tried: int = 0
    broken: bool = False
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled_early: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        on = self.backend.on_call
        users = [{"id": 1, "mail": "a@x.test"}, {"id": 2, "mail": "b@x.test"}]
        on("list_users", lambda _: value({"users": users}))
        on("get_user", self._user)
        on("send_mail", lambda given: value({"sent": given["to"]}))
        on("delete_user", lambda given: value({"deleted": given["id"]}))
        on("archive", lambda _: value({"archived": True}))
        on("flaky", lambda _: self._flaky())
        on("unsure", lambda _: self._flaky())
        on("wait", self._wait)
        on("big", lambda _: value({"rows": [{"n": n, "text": "x" * 50} for n in range(3_000)]}))

    def _user(self, given: Raw) -> Raw:
        if self.broken:
            return {"content": [{"type": "text", "text": "the office is closed"}], "isError": True}
        return value({"id": given["id"], "mail": f"{given['id']}@x.test"})

    def _flaky(self) -> Raw:
        self.tried += 1
        return value({"tried": self.tried}) if self.tried > 2 else {"content": [], "isError": True}

    async def _wait(self, _: Raw) -> Raw:
        self.waiting.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.cancelled_early.set()
            raise
        raise AssertionError

    @property
    def called(self) -> list[str]:
        return [
            params["name"] for method, params in self.backend.requests if method == "tools/call"
        ]


@asynccontextmanager
async def office_gateway(
    transport: Transport = "memory",
    era: Era = "modern",
    profile: str | None = None,
    **settings: Any,
) -> AsyncGenerator[tuple[Client, Office]]:
    office = Office()
    backends = {"office": office.backend}
    async with open_gateway(
        backends, Config(**settings), transport=transport, era=era, profile=profile
    ) as gateway:
        yield gateway.client, office


async def flow(client: Client, *steps: Raw, **more: Any) -> Any:
    given = {**({"steps": [*steps]} if steps else {}), **more}
    return await asyncio.wait_for(client.call_tool("run_workflow", given), TIMEOUT_S)


def handle(result: Any) -> str:
    found = re.search(r'resume="([^"]+)"', get_text(result))
    assert found, get_text(result)
    return found[1]


LIST: Raw = {"id": "all", "tool": "office.list_users"}
MAIL: Raw = {
    "id": "mail",
    "tool": "office.send_mail",
    "for_each": "${all.users}",
    "arguments": {"to": "${item.mail}", "text": "Hello ${item.id}, ${inputs.greeting}"},
}
DELETE: Raw = {
    "id": "drop",
    "tool": "office.delete_user",
    "arguments": {"id": "${all.users[0].id}"},
}
GET: Raw = {"id": "one", "tool": "office.get_user", "arguments": {"id": "${all.users[1].id}"}}
WAIT: Raw = {"id": "wait", "tool": "office.wait", "depends_on": ["all"]}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
async def test_steps_run_through_every_endpoint_and_an_approval_is_a_resume(
    transport: Transport, era: Era
):
    async with office_gateway(transport, era) as (client, office):
        asked = await flow(client, LIST, MAIL, DELETE, inputs={"greeting": "welcome"})
        assert not asked.is_error
        assert 'step drop would call office.delete_user with {"id": 1}' in get_text(asked).replace(
            '"id":1', '"id": 1'
        )
        assert "delete_user" not in office.called
        done = await flow(client, resume=handle(asked))
        assert done.structured_content == {
            "mail": [{"sent": "a@x.test"}, {"sent": "b@x.test"}],
            "drop": {"deleted": 1},
        }
        assert office.called == ["list_users", "send_mail", "send_mail", "delete_user"]


async def test_what_failed_is_tried_again_by_resume_and_what_is_done_is_not():
    async with office_gateway() as (client, office):
        office.broken = True
        failed = await flow(client, LIST, GET)
        assert failed.is_error
        assert "Step one failed: tool_error: the office is closed" in get_text(failed)
        office.broken = False
        done = await flow(client, resume=handle(failed))
        assert done.structured_content == {"id": 2, "mail": "2@x.test"}
        assert office.called == ["list_users", "get_user", "get_user"]


async def test_a_step_corrected_with_resume_is_followed_by_those_that_wait_for_it():
    async with office_gateway() as (client, office):
        wrong: Raw = {
            "id": "one",
            "tool": "office.get_user",
            "arguments": {"id": "${all.users[1].mail}"},
        }
        mail: Raw = {
            "id": "mail",
            "tool": "office.send_mail",
            "arguments": {"to": "${one.mail}", "text": "Hello"},
        }
        failed = await flow(client, LIST, wrong, mail)
        assert failed.is_error
        assert "steps=[…] to replace those of the same id" in get_text(failed)
        done = await flow(client, GET, resume=handle(failed))
        assert done.structured_content == {"sent": "2@x.test"}
        assert office.called == ["list_users", "get_user", "send_mail"]


async def test_a_reference_in_another_tool_s_style_is_noted():
    async with office_gateway() as (client, _):
        mail: Raw = {
            "id": "mail",
            "tool": "office.send_mail",
            "depends_on": ["all"],
            "arguments": {"to": "a@x.test", "text": "$all.users[0].mail"},
        }
        done = await flow(client, LIST, mail)
        note = (
            "Note: step mail arguments.text: $all.users[0].mail looks like a "
            "reference: write ${all.users[0].mail}"
        )
        assert note in get_text(done)
        refused = await flow(client, LIST, {**GET, "arguments": {"id": "$all.users[0].id"}})
        assert refused.is_error
        assert (
            "perhaps because: step one arguments.id: $all.users[0].id looks like a reference"
            in get_text(refused)
        )


async def test_steps_may_leave_out_ids_say_args_and_refer_in_double_braces():
    async with office_gateway() as (client, office):
        done = await flow(
            client,
            {"tool": "office.list_users"},
            {"tool": "office.get_user", "args": {"id": "{{step_1.users[0].id}}"}},
            {"tool": "office.send_mail", "args": {"to": "{{step_2.mail}}", "text": "{{ hello }}"}},
        )
        assert not done.is_error, get_text(done)
        assert office.called == ["list_users", "get_user", "send_mail"]


async def test_two_resumes_at_once_run_a_step_once():
    async with office_gateway() as (client, office):
        asked = await flow(client, LIST, DELETE)
        run = handle(asked)
        both = await asyncio.gather(flow(client, resume=run), flow(client, resume=run))
        assert office.called.count("delete_user") == 1
        assert any(not one.is_error for one in both)


async def test_a_condition_and_a_retry_are_kept():
    async with office_gateway() as (client, office):
        skipped: Raw = {"id": "no", "tool": "office.archive", "if": "length(all.users) > 5"}
        again: Raw = {"id": "again", "tool": "office.flaky", "retry": {"attempts": 3, "delay_s": 0}}
        done = await flow(client, LIST, skipped, again)
        assert done.structured_content == {"tried": 3}
        assert "its condition does not hold" in get_text(done)
        assert "archive" not in office.called


async def test_a_tool_may_be_retried_where_the_configuration_says_that_it_may_run_twice():
    again: Raw = {"id": "again", "tool": "office.unsure", "retry": {"attempts": 3, "delay_s": 0}}
    async with office_gateway() as (client, office):
        refused = await flow(client, again)
        assert refused.is_error
        assert "might do it twice" in get_text(refused)
        assert office.called == []
    server = BackendConfig.model_validate({"command": "x", "retry": {"tools": ["uns*"]}})
    async with office_gateway(servers={"office": server}) as (client, office):
        assert (await flow(client, again)).structured_content == {"tried": 3}


async def test_the_configuration_names_tools_that_wait_for_approval():
    server = BackendConfig.model_validate({"command": "x", "tools": {"destructive": ["arch*"]}})
    async with office_gateway(servers={"office": server}) as (client, office):
        asked = await flow(client, {"id": "a", "tool": "office.archive"})
        assert "Stopped for approval" in get_text(asked)
        assert office.called == []
        assert (await flow(client, resume=handle(asked))).structured_content == {"archived": True}


async def test_a_run_ends_when_its_time_is_over_and_can_be_resumed():
    async with office_gateway(workflow=WorkflowConfig(wall_s=30)) as (client, office):
        running = asyncio.create_task(flow(client, LIST, GET, {**WAIT, "depends_on": ["one"]}))
        await asyncio.wait_for(office.waiting.wait(), TIMEOUT_S)
        advance_clock(30)
        late = await running
        assert late.is_error
        assert "Step wait failed: timeout" in get_text(late)
        await asyncio.wait_for(office.cancelled_early.wait(), TIMEOUT_S)
        assert "one · office.get_user · done" in get_text(late)
        assert handle(late)


async def test_configured_limits_hold():
    async with office_gateway(workflow=WorkflowConfig(steps=2, items=1)) as (client, office):
        refused = await flow(client, LIST, GET, MAIL)
        assert "there are 3 steps; 2 is the most" in get_text(refused)
        failed = await flow(client, LIST, MAIL, inputs={"greeting": "x"})
        assert "for_each found 2 elements; 1 is the most" in get_text(failed)
        assert "send_mail" not in office.called


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_cancelled_run_cancels_its_calls_and_the_next_one_runs(transport: Transport):
    async with office_gateway(transport) as (client, office):
        asked = asyncio.create_task(client.call_tool("run_workflow", {"steps": [LIST, WAIT]}))
        await asyncio.wait_for(office.waiting.wait(), TIMEOUT_S)
        asked.cancel()
        await asyncio.wait([asked], timeout=TIMEOUT_S)
        await asyncio.wait_for(office.cancelled_early.wait(), TIMEOUT_S)
        assert not (await flow(client, LIST)).is_error


async def test_a_client_that_goes_away_cancels_its_run():
    office = Office()
    async with gateway_over({"office": office.backend}) as gateway:
        async with connect(gateway, "http") as client:
            asked = asyncio.create_task(client.call_tool("run_workflow", {"steps": [LIST, WAIT]}))
            await asyncio.wait_for(office.waiting.wait(), TIMEOUT_S)
        await asyncio.wait_for(office.cancelled_early.wait(), TIMEOUT_S)
        asked.cancel()
        await asyncio.wait([asked], timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    ("transport", "era"), [("memory", "legacy"), ("stdio", "modern"), ("http", "modern")]
)
async def test_progress_tells_each_step_and_the_run(transport: Transport, era: Era):
    received: list[tuple[float, float | None, str | None]] = []

    async def reported(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total, message))

    async with office_gateway(transport, era) as (client, _):
        asked = client.call_tool("run_workflow", {"steps": [LIST, GET]}, progress_callback=reported)
        await asyncio.wait_for(asked, TIMEOUT_S)
        assert [(done, total) for done, total, _ in received] == [(0, 2), (1, 2), (2, 2)]
        assert "one done (run " in (received[-1][2] or "")


async def test_a_profile_runs_only_its_own_tools():
    profiles = {"small": Profile(tools=("office.list_users",))}
    async with office_gateway(profile="small", profiles=profiles) as (client, office):
        refused = await flow(client, LIST, GET)
        assert refused.is_error
        assert "get_user" in get_text(refused)
        assert office.called == []


async def test_a_large_value_is_kept_and_read_in_parts():
    async with office_gateway() as (client, _):
        done = await flow(client, {"id": "big", "tool": "office.big"})
        assert len(get_text(done)) < 40_000
        found = re.search(r"portico://result/([\w-]+)", get_text(done) + str(done.content))
        assert found, get_text(done)[:2_000]
        part = await client.call_tool(
            "read_result", {"result_id": found[1], "path": "rows[2999].n"}
        )
        assert "2999" in get_text(part)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([{"id": "a", "tool": "office.get_usr", "arguments": {"id": 1}}], "get_user"),
        ([{"id": "a", "tool": "office.get_user"}], "requires it"),
        (
            [{"id": "a", "tool": "office.get_user", "arguments": {"id": "${b.id}"}}],
            "there is no step",
        ),
        ([{"id": "a", "tool": "office.archive", "depends_on": ["a"]}], "waits for itself"),
        (
            [{"id": "a", "tool": "office.archive", "depends_on": ["b"] * 2_000}],
            "it is a list of step ids",
        ),
        (
            [{"id": "a", "tool": "office.get_user", "arguments": {"id": "${" * 500}}],
            "is not closed",
        ),
        (
            [{"id": "a", "tool": "office.get_user", "arguments": {"id": "${x}" * 10_000}}],
            "10,000 references",
        ),
        (
            [
                {
                    "id": "a",
                    "tool": "office.get_user",
                    "arguments": {"id": f"${{x.{'y' * 900}}}" * 50},
                }
            ],
            "20,000 characters",
        ),
        (
            [{"id": "a", "tool": "office.archive", **{f"k{n}": 1 for n in range(20_000)}}],
            "there is no",
        ),
    ],
)
async def test_what_cannot_run_is_refused_with_advice_before_anything_runs(
    steps: list[Raw], words: str
):
    async with office_gateway() as (client, office):
        refused = await flow(client, *steps)
        assert refused.is_error
        assert words in get_text(refused)
        assert "Nothing was run" in get_text(refused)
        assert office.called == []


async def test_an_expression_that_doubles_its_list_is_stopped():
    bomb = "all.users" + " | [@, @][]" * 40
    async with office_gateway() as (client, office):
        failed = await flow(
            client, LIST, {"id": "a", "tool": "office.archive", "if": f"length({bomb}) > `1`"}
        )
        assert failed.is_error
        assert "archive" not in office.called


async def test_nothing_to_run_says_what_to_pass():
    async with office_gateway() as (client, _):
        assert "Pass steps, or an intent" in get_text(await flow(client, intent=" "))


# Plans


async def test_an_intent_becomes_a_plan_that_can_be_passed_back_and_run():
    async with office_gateway() as (client, office):
        plan = await flow(client, intent="list the users of the office and send a mail to somebody")
        steps = plan.structured_content["steps"]
        assert [one["tool"] for one in steps] == ["office.list_users", "office.send_mail"]
        assert office.called == []
        inputs = dict.fromkeys(plan.structured_content["missing"], "x")
        done = await flow(client, *steps, inputs=inputs)
        assert not done.is_error, get_text(done)
        assert office.called[0] == "list_users"


async def test_a_plan_runs_at_once_only_when_it_is_complete_and_asked_for():
    async with office_gateway() as (client, office):
        await flow(client, intent="list the users of the office")
        assert office.called == []
        done = await flow(client, intent="list the users of the office", run=True)
        assert office.called == ["list_users"]
        assert "Workflow finished" in get_text(done)
        missing = get_text(await flow(client, intent="send a mail to somebody", run=True))
        assert re.search(r"^A plan of 1 step, not run: .* missing\.", missing), missing
        assert office.called == ["list_users"]


async def test_a_planned_step_that_may_change_something_waits_for_approval():
    async with office_gateway() as (client, office):
        inputs = {"to": "a@x.test", "text": "Hello"}
        asked = get_text(await flow(client, intent="send a mail", inputs=inputs, run=True))
        assert "Stopped for approval" in asked
        assert office.called == []
        run = re.search(r'resume="([^"]+)"', asked)
        assert run is not None
        done = await flow(client, resume=run[1])
        assert "Workflow finished" in get_text(done)
        assert office.called == ["send_mail"]


async def test_inputs_passed_with_an_intent_fill_the_plan():
    async with office_gateway() as (client, office):
        intent = "get one user of the office by id"
        assert "not run: get_user.id is missing" in get_text(
            await flow(client, intent=intent, run=True)
        )
        done = await flow(client, intent=intent, inputs={"user_id": 2}, run=True)
        assert done.structured_content == {"id": 2, "mail": "2@x.test"}
        shown = await flow(client, intent=intent, inputs={"id": 2})
        assert shown.structured_content["missing"] == []
        strange = await flow(
            client, intent=intent, inputs={"id": 2, "colours": ["red", "blue"]}, run=True
        )
        assert "No step takes inputs.colours" in get_text(strange)
        assert office.called == ["get_user"]
        await flow(client, intent="get the user of the office with id 2", run=True)
        assert office.called == ["get_user", "get_user"]


@asynccontextmanager
async def open_persistent(folder: Path, **settings: Any) -> AsyncGenerator[GatewayRuntime]:
    config = Config(profiles={"other": Profile()}, **settings)
    backends = {"office": Office().backend}
    async with run_gateway(backends, config, data_dir=folder) as gateway:
        yield gateway


INTENT = "list the users of the office, then send a mail to somebody"


async def run_remembered(client: Client) -> None:
    plan = await flow(client, intent=INTENT)
    inputs = dict.fromkeys(plan.structured_content["missing"], "x")
    done = await flow(client, *plan.structured_content["steps"], inputs=inputs, intent=INTENT)
    assert "Workflow finished" in get_text(done)


async def get_suggestion(client: Client) -> bool:
    return "has worked" in get_text(await flow(client, intent=INTENT))


async def test_a_plan_that_worked_is_offered_again_to_the_same_client_only(tmp_path: Path):
    mine, other = (Implementation(name=name, version="1") for name in ("mine", "another"))
    async with open_persistent(tmp_path) as gateway, connect(gateway, client_info=mine) as client:
        assert not await get_suggestion(client)
        await run_remembered(client)
    # A gateway that has ended has written what it was about to.
    async with open_persistent(tmp_path) as gateway:
        async with connect(gateway, client_info=mine) as client:
            assert await get_suggestion(client)
        async with connect(gateway, client_info=other) as client:
            assert not await get_suggestion(client)
        async with connect(gateway, profile="other", client_info=mine) as client:
            assert not await get_suggestion(client)


async def test_with_learning_off_no_plan_is_remembered(tmp_path: Path):
    async with (
        open_persistent(tmp_path, learning={"scope": "off"}) as gateway,
        connect(gateway) as client,
    ):
        await run_remembered(client)
    async with open_persistent(tmp_path) as gateway, connect(gateway) as client:
        assert not await get_suggestion(client)
