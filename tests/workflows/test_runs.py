"""Runs are kept and continued: after a failure, for an approval, by their owner alone, and not for
ever."""

import asyncio
from typing import Any

import pytest

from portico.callers import Caller
from portico.config import WorkflowConfig
from portico.errors import InvalidArguments, UnknownName
from portico.upstream.backend import Raw
from portico.workflows import runs
from tests.workflows.fake_servers import (
    TOOLS,
    WorkflowFixture,
    gateway_workflows,
    states,
    step,
    structured,
    values,
    workflow_fixture,
)

SAY_DESTROYS: list[Raw] = [
    {**one, "annotations": {"destructiveHint": True}} if one["name"] == "say" else one
    for one in TOOLS
]
WIPE = step("wipe", "f.wipe", {"path": "${inputs.path}"})


def fix_step_b(workflows: WorkflowFixture) -> None:
    workflows.answers("fail", lambda arguments: structured({"ok": arguments}))


async def test_resume_runs_what_failed_and_what_waits_for_it_and_nothing_twice():
    async with gateway_workflows() as workflows:
        report = await workflows.run(
            step("a", "f.say", {"value": 1}),
            step("b", "f.fail", {"why": "${a.value}"}),
            step("c", "f.say", {"value": "${b.ok.why}"}),
        )
        assert report.state == "failed"
        fix_step_b(workflows)
        again = await workflows.resume(report)
        assert again.state == "finished"
        assert again.run_id == report.run_id
        assert [name for name, _ in workflows.called] == ["say", "fail", "fail", "say"]
        assert [step_report.is_from_earlier for step_report in again.steps] == [True, False, False]
        assert values(again)["c"] == {"value": 1}


BROKEN = (
    step("a", "f.say", {"value": 1}),
    step("b", "f.fail", {"why": "${a.value}"}),
    step("c", "f.say", {"value": "${b.value}"}),
)


async def test_steps_sent_with_resume_replace_those_of_the_same_id_and_the_others_stay():
    async with workflow_fixture() as workflows:
        report = await workflows.run(*BROKEN)
        again = await workflows.resume(report, step("b", "f.say", {"value": "${a.value}"}))
        assert again.state == "finished"
        assert states(again) == {"a": "done", "b": "done", "c": "done"}
        assert values(again)["c"] == {"value": 1}
        assert [step_report.id for step_report in again.steps] == ["a", "b", "c"]
        assert not again.warnings


async def test_steps_sent_with_resume_may_be_new_and_what_has_run_stands():
    async with workflow_fixture() as workflows:
        report = await workflows.run(*BROKEN)
        again = await workflows.resume(
            report,
            step("d", "f.say", {"value": "${c.value}"}),
            step("a", "f.say", {"value": 99}),
            step("b", "f.say", {"value": "${a.value}"}),
        )
        assert again.state == "finished"
        assert [step_report.id for step_report in again.steps] == ["a", "b", "c", "d"]
        assert values(again)["d"] == {"value": 1}
        assert [str(warning) for warning in again.warnings] == [
            "step a: it has run already; its result stands, whatever is sent for it now"
        ]


async def test_a_step_that_is_no_longer_wanted_is_sent_with_a_condition_that_is_false():
    async with workflow_fixture() as workflows:
        report = await workflows.run(*BROKEN, step("wipe", "f.wipe", {"path": "/x"}))
        dropped = [
            {**one, "if": False} for one in (BROKEN[1], step("wipe", "f.wipe", {"path": "/x"}))
        ]
        again = await workflows.resume(report, *dropped)
        assert again.state == "finished"
        assert states(again) == {"a": "done", "b": "skipped", "c": "skipped", "wipe": "skipped"}
        assert [name for name, _ in workflows.called] == ["say", "fail"]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ([step("b", "f.say"), step("b", "f.say")], "step b id: the id is there twice"),
        ([step("b", "f.say"), {"id": ["b"], "tool": "f.say"}], "step #2 id: an id is a word"),
        ([step("b", "f.say"), "b"], "step #2: a step is an object"),
    ],
)
async def test_steps_with_ambiguous_ids_are_refused_and_the_run_stays(sent: list[Any], why: str):
    async with workflow_fixture() as workflows:
        report = await workflows.run(*BROKEN)
        with pytest.raises(InvalidArguments, match=why) as refused:
            await workflows.resume(report, *sent)
        assert len(refused.value.problems) == 1
        assert (
            await workflows.resume(report, step("b", "f.say", {"value": 2}))
        ).state == "finished"


async def test_inputs_sent_with_resume_are_added():
    async with workflow_fixture() as workflows:
        fix_step_b(workflows)
        report = await workflows.run(
            step("a", "f.strict", {"text": "${inputs.text}"}),
            step("b", "f.say", {"value": "${inputs.other}"}, depends_on=["a"]),
            inputs={"text": {"no": "text"}, "other": 2},
        )
        assert report.state == "failed"
        again = await workflows.resume(report, inputs={"text": "words"})
        assert values(again) == {"a": {"text": "words"}, "b": {"value": 2}}


async def test_what_is_wrong_with_new_steps_is_reported_before_anything_runs_and_the_run_stays():
    async with workflow_fixture() as workflows:
        report = await workflows.run(step("a", "f.say"), step("b", "f.fail"))
        with pytest.raises(InvalidArguments, match="step b tool") as refused:
            await workflows.resume(report, step("b", "f.nix"))
        assert report.run_id in refused.value.advice
        fix_step_b(workflows)
        assert (await workflows.resume(report)).state == "finished"


async def test_resuming_a_finished_run_gives_its_answer_again_and_new_steps_may_use_it():
    async with workflow_fixture() as workflows:
        report = await workflows.run(step("a", "f.say", {"value": 1}))
        again = await workflows.resume(report)
        assert (again.state, again.outputs) == ("finished", report.outputs)
        more = await workflows.resume(report, step("b", "f.say", {"value": "${a.value}"}))
        assert more.outputs == {"b": {"value": 1}}
        assert len(workflows.called) == 2


@pytest.mark.parametrize(
    "stranger",
    [Caller(session="you"), Caller(session="me", profile="other"), Caller(name="client")],
)
async def test_a_run_is_its_owner_s_alone(stranger: Caller):
    async with workflow_fixture() as workflows:
        report = await workflows.run(step("a", "f.fail"))
        with pytest.raises(UnknownName, match="no such run") as refused:
            await workflows.run(resume=report.run_id, caller=stranger)
        assert "60 minutes" in refused.value.advice
        with pytest.raises(UnknownName):
            await workflows.run(resume="last", caller=stranger)
        assert (await workflows.run(resume="last")).run_id == report.run_id


async def test_the_last_run_is_only_found_for_a_caller_with_a_session_or_handle():
    async with workflow_fixture() as workflows:
        nameless = Caller(name="client")
        report = await workflows.run(step("a", "f.say"), caller=nameless)
        with pytest.raises(UnknownName):
            await workflows.run(resume="last", caller=nameless)
        assert (await workflows.run(resume=report.run_id, caller=nameless)).state == "finished"


async def test_only_one_request_at_a_time_continues_a_run():
    async with workflow_fixture() as workflows:
        report = await workflows.run(step("a", "f.fail"))
        first = asyncio.create_task(workflows.resume(report, step("a", "f.hold", {"value": 1})))
        await workflows.next_held()
        with pytest.raises(InvalidArguments, match="at work already"):
            await workflows.resume(report)
        workflows.release(1)
        assert (await first).state == "finished"
        assert (await workflows.resume(report)).state == "finished"


async def test_runs_are_kept_for_their_time():
    now = [0.0]
    async with workflow_fixture(
        clock=lambda: now[0], limits=WorkflowConfig(ttl_s=100)
    ) as workflows:
        report = await workflows.run(step("a", "f.say"))
        now[0] = 90
        await workflows.resume(report)
        now[0] = 180
        await workflows.resume(report)
        now[0] = 281
        workflows.workflows.expire()
        assert len(workflows.workflows) == 0
        with pytest.raises(UnknownName):
            await workflows.resume(report)


async def test_so_many_runs_are_kept_and_first_go_the_oldest_of_the_owner_with_most(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(runs, "MAX_RUNS", 3)
    async with workflow_fixture() as workflows:
        other = await workflows.run(step("a", "f.say"), caller=Caller(session="you"))
        mine = [await workflows.run(step("a", "f.say")) for _ in range(4)]
        assert len(workflows.workflows) == 3
        with pytest.raises(UnknownName):
            await workflows.resume(mine[0])
        await workflows.resume(mine[3])
        await workflows.run(resume=other.run_id, caller=Caller(session="you"))


async def test_so_much_is_kept_and_a_run_that_is_larger_cannot_be_continued(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(runs, "MAX_TOTAL_BYTES", 20_000)
    async with workflow_fixture() as workflows:
        workflows.answers("look", lambda arguments: structured({"text": "x" * arguments["at"]}))
        small = [await workflows.run(step("a", "f.look", {"at": 8_000})) for _ in range(4)]
        assert 0 < workflows.workflows.held_bytes <= 20_000
        assert len(workflows.workflows) == 2
        huge = await workflows.run(step("a", "f.look", {"at": 30_000}))
        assert huge.run_id == ""
        assert huge.state == "finished"
        assert (await workflows.resume(small[3])).state == "finished"


# --- approval


async def test_a_destructive_step_stops_for_approval_while_all_else_runs_and_resume_approves_it():
    async with gateway_workflows() as workflows:
        report = await workflows.run(
            WIPE,
            step("after", "f.say", {"value": "${wipe.gone}"}),
            step("beside", "f.say", {"value": 1}),
            inputs={"path": "/x"},
        )
        assert report.state == "approval"
        assert states(report) == {"wipe": "approval", "after": "waiting", "beside": "done"}
        assert report.steps[0].pending_arguments == ({"path": "/x"},)
        assert [name for name, _ in workflows.called] == ["say"]
        again = await workflows.resume(report)
        assert again.state == "finished"
        assert values(again)["after"] == {"value": "/x"}
        assert [name for name, _ in workflows.called] == ["say", "wipe", "say"]


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": {"path": "/y"}},
        {"steps": [step("wipe", "f.wipe", {"path": "/y"})]},
    ],
)
async def test_what_would_do_something_else_by_then_is_asked_again(change: dict[str, Any]):
    async with workflow_fixture() as workflows:
        report = await workflows.run(WIPE, inputs={"path": "/x"})
        again = await workflows.resume(report, *change.pop("steps", ()), **change)
        assert again.state == "approval"
        assert again.steps[0].pending_arguments == ({"path": "/y"},)
        assert workflows.called == []
        assert (await workflows.resume(again)).state == "finished"
        assert workflows.called == [("wipe", {"path": "/y"})]


async def test_another_tool_under_an_approved_step_s_name_is_asked_again():
    async with workflow_fixture(SAY_DESTROYS) as workflows:
        report = await workflows.run(step("a", "f.wipe", {"path": "/x"}))
        again = await workflows.resume(report, step("a", "f.say", {"path": "/x"}))
        assert again.state == "approval"
        assert workflows.called == []


async def test_steps_that_get_to_their_turn_later_are_asked_for_themselves():
    async with workflow_fixture() as workflows:
        report = await workflows.run(
            step("one", "f.wipe", {"path": "/1"}), step("two", "f.wipe", {"path": "${one.gone}/2"})
        )
        assert states(report) == {"one": "approval", "two": "waiting"}
        report = await workflows.resume(report)
        assert states(report) == {"one": "done", "two": "approval"}
        assert report.steps[1].pending_arguments == ({"path": "/1/2"},)
        report = await workflows.resume(report)
        assert report.state == "finished"
        assert len(workflows.called) == 2


async def test_all_calls_of_a_destructive_for_each_are_approved_together():
    async with workflow_fixture() as workflows:
        report = await workflows.run(
            step("wipe", "f.wipe", {"path": "${item}"}, for_each=["/a", "/b"]),
            step("none", "f.wipe", {"path": "${item}"}, for_each=[]),
        )
        assert report.steps[0].pending_arguments == ({"path": "/a"}, {"path": "/b"})
        assert states(report)["none"] == "done"
        assert workflows.called == []
        assert (await workflows.resume(report)).state == "finished"
        assert sorted(arguments["path"] for _, arguments in workflows.called) == ["/a", "/b"]


async def test_no_more_steps_are_asked_for_at_once_than_an_answer_can_show():
    async with workflow_fixture() as workflows:
        report = await workflows.run(
            *(step(f"s{n}", "f.wipe", {"path": f"/{n}"}) for n in range(10))
        )
        assert sorted(states(report).values()) == ["approval"] * 8 + ["waiting"] * 2
        report = await workflows.resume(report)
        assert sorted(states(report).values()) == ["approval"] * 2 + ["done"] * 8
        assert (await workflows.resume(report)).state == "finished"
        assert len(workflows.called) == 10


async def test_what_is_marked_as_destructive_stops_and_nothing_else():
    async with workflow_fixture(SAY_DESTROYS) as workflows:
        report = await workflows.run(step("a", "f.say"), step("b", "f.look"))
        assert states(report) == {"a": "approval", "b": "done"}


async def test_an_approval_that_was_never_shown_approves_nothing():
    async with workflow_fixture() as workflows:
        running = asyncio.create_task(
            workflows.run(
                step("wipe", "f.wipe", {"path": "/x"}), step("held", "f.hold", {"value": 1})
            )
        )
        await workflows.next_held()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        workflows.release(1)
        report = await workflows.run(resume="last")
        assert states(report) == {"wipe": "approval", "held": "done"}
        assert "wipe" not in [name for name, _ in workflows.called]


async def test_a_skipped_destructive_step_asks_for_nothing():
    async with workflow_fixture() as workflows:
        report = await workflows.run(step("wipe", "f.wipe", {"path": "/x"}, if_="inputs.really"))
        assert report.state == "finished"
        assert workflows.called == []


async def test_a_failure_and_an_approval_are_reported_together():
    async with workflow_fixture() as workflows:
        steps: list[Raw] = [step("wipe", "f.wipe", {"path": "/x"}), step("bad", "f.fail")]
        report = await workflows.run(*steps)
        assert report.state == "failed"
        assert states(report) == {"wipe": "approval", "bad": "failed"}
