"""Runs are kept and continued: after a failure, for an approval, by their owner alone, and not for
ever."""

import asyncio
from typing import Any

import pytest

from portico.access import Caller
from portico.errors import InvalidArguments, UnknownName
from portico.upstream.backend import Raw
from portico.workflows.limits import WorkflowLimits
from tests.execution.workflow.offices import (
    Office,
    office,
    states,
    step,
    structured,
    values,
    whole_house,
)

WIPE = step("wipe", "f.wipe", {"path": "${inputs.path}"})


def mended(house: Office) -> None:
    house.answers("fail", lambda arguments: structured({"ok": arguments}))


async def test_resume_runs_what_failed_and_what_waits_for_it_and_nothing_twice():
    async with whole_house() as house:
        report = await house.run(
            step("a", "f.say", {"value": 1}),
            step("b", "f.fail", {"why": "${a.value}"}),
            step("c", "f.say", {"value": "${b.ok.why}"}),
        )
        assert report.state == "failed"
        mended(house)
        again = await house.resume(report)
        assert again.state == "finished"
        assert again.run_id == report.run_id
        assert [name for name, _ in house.called] == ["say", "fail", "fail", "say"]
        assert [told.is_from_earlier for told in again.steps] == [True, False, False]
        assert values(again)["c"] == {"value": 1}


BROKEN = (
    step("a", "f.say", {"value": 1}),
    step("b", "f.fail", {"why": "${a.value}"}),
    step("c", "f.say", {"value": "${b.value}"}),
)


async def test_steps_sent_with_resume_replace_those_of_the_same_id_and_the_others_stay():
    async with office() as house:
        report = await house.run(*BROKEN)
        again = await house.resume(report, step("b", "f.say", {"value": "${a.value}"}))
        assert again.state == "finished"
        assert states(again) == {"a": "done", "b": "done", "c": "done"}
        assert values(again)["c"] == {"value": 1}
        assert [told.id for told in again.steps] == ["a", "b", "c"]
        assert not again.warnings


async def test_steps_sent_with_resume_may_be_new_and_what_has_run_stands():
    async with office() as house:
        report = await house.run(*BROKEN)
        again = await house.resume(
            report,
            step("d", "f.say", {"value": "${c.value}"}),
            step("a", "f.say", {"value": 99}),
            step("b", "f.say", {"value": "${a.value}"}),
        )
        assert again.state == "finished"
        assert [told.id for told in again.steps] == ["a", "b", "c", "d"]
        assert values(again)["d"] == {"value": 1}
        assert [str(warning) for warning in again.warnings] == [
            "step a: it has run already; its result stands, whatever is sent for it now"
        ]


async def test_a_step_that_is_no_longer_wanted_is_sent_with_a_condition_that_is_false():
    async with office() as house:
        report = await house.run(*BROKEN, step("wipe", "f.wipe", {"path": "/x"}))
        dropped = [
            {**one, "if": False} for one in (BROKEN[1], step("wipe", "f.wipe", {"path": "/x"}))
        ]
        again = await house.resume(report, *dropped)
        assert again.state == "finished"
        assert states(again) == {"a": "done", "b": "skipped", "c": "skipped", "wipe": "skipped"}
        assert [name for name, _ in house.called] == ["say", "fail"]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ([step("b", "f.say"), step("b", "f.say")], "step b id: the id is there twice"),
        ([step("b", "f.say"), {"id": ["b"], "tool": "f.say"}], "step #2 id: an id is a word"),
        ([step("b", "f.say"), "b"], "step #2: a step is an object"),
    ],
)
async def test_steps_that_cannot_be_told_apart_are_refused_and_the_run_stays(
    sent: list[Any], why: str
):
    async with office() as house:
        report = await house.run(*BROKEN)
        with pytest.raises(InvalidArguments, match=why) as refused:
            await house.resume(report, *sent)
        assert len(refused.value.problems) == 1
        assert (await house.resume(report, step("b", "f.say", {"value": 2}))).state == "finished"


async def test_inputs_sent_with_resume_are_added():
    async with office() as house:
        mended(house)
        report = await house.run(
            step("a", "f.strict", {"text": "${inputs.text}"}),
            step("b", "f.say", {"value": "${inputs.other}"}, depends_on=["a"]),
            inputs={"text": {"no": "text"}, "other": 2},
        )
        assert report.state == "failed"
        again = await house.resume(report, inputs={"text": "words"})
        assert values(again) == {"a": {"text": "words"}, "b": {"value": 2}}


async def test_what_is_wrong_with_new_steps_is_told_before_anything_runs_and_the_run_stays():
    async with office() as house:
        report = await house.run(step("a", "f.say"), step("b", "f.fail"))
        with pytest.raises(InvalidArguments, match="step b tool") as refused:
            await house.resume(report, step("b", "f.nix"))
        assert report.run_id in refused.value.advice
        mended(house)
        assert (await house.resume(report)).state == "finished"


async def test_resuming_a_finished_run_gives_its_answer_again_and_new_steps_may_use_it():
    async with office() as house:
        report = await house.run(step("a", "f.say", {"value": 1}))
        again = await house.resume(report)
        assert (again.state, again.outputs) == ("finished", report.outputs)
        more = await house.resume(report, step("b", "f.say", {"value": "${a.value}"}))
        assert more.outputs == {"b": {"value": 1}}
        assert len(house.called) == 2


@pytest.mark.parametrize(
    "stranger",
    [Caller(session="you"), Caller(session="me", profile="other"), Caller(name="client")],
)
async def test_a_run_is_its_owner_s_alone(stranger: Caller):
    async with office() as house:
        report = await house.run(step("a", "f.fail"))
        with pytest.raises(UnknownName, match="no such run") as refused:
            await house.run(resume=report.run_id, caller=stranger)
        assert "60 minutes" in refused.value.advice
        with pytest.raises(UnknownName):
            await house.run(resume="last", caller=stranger)
        assert (await house.run(resume="last")).run_id == report.run_id


async def test_the_last_run_is_only_found_for_whoever_can_be_told_from_others():
    async with office() as house:
        nameless = Caller(name="client")
        report = await house.run(step("a", "f.say"), caller=nameless)
        with pytest.raises(UnknownName):
            await house.run(resume="last", caller=nameless)
        assert (await house.run(resume=report.run_id, caller=nameless)).state == "finished"


async def test_only_one_request_at_a_time_continues_a_run():
    async with office() as house:
        report = await house.run(step("a", "f.fail"))
        first = asyncio.create_task(house.resume(report, step("a", "f.hold", {"value": 1})))
        await house.one_held()
        with pytest.raises(InvalidArguments, match="at work already"):
            await house.resume(report)
        house.let_go(1)
        assert (await first).state == "finished"
        assert (await house.resume(report)).state == "finished"


async def test_runs_are_kept_for_their_time():
    now = [0.0]
    async with office(clock=lambda: now[0], limits=WorkflowLimits(ttl_s=100)) as house:
        report = await house.run(step("a", "f.say"))
        now[0] = 90
        await house.resume(report)
        now[0] = 180
        await house.resume(report)
        now[0] = 281
        house.workflows.expire()
        assert len(house.workflows) == 0
        with pytest.raises(UnknownName):
            await house.resume(report)


async def test_so_many_runs_are_kept_and_first_go_the_oldest_of_whoever_has_most():
    async with office(limits=WorkflowLimits(runs=3)) as house:
        other = await house.run(step("a", "f.say"), caller=Caller(session="you"))
        mine = [await house.run(step("a", "f.say")) for _ in range(4)]
        assert len(house.workflows) == 3
        with pytest.raises(UnknownName):
            await house.resume(mine[0])
        await house.resume(mine[3])
        await house.run(resume=other.run_id, caller=Caller(session="you"))


async def test_so_much_is_kept_and_a_run_that_is_larger_cannot_be_continued():
    async with office(limits=WorkflowLimits(total_bytes=20_000)) as house:
        house.answers("look", lambda arguments: structured({"text": "x" * arguments["at"]}))
        small = [await house.run(step("a", "f.look", {"at": 8_000})) for _ in range(4)]
        assert 0 < house.workflows.held_bytes <= 20_000
        assert len(house.workflows) == 2
        huge = await house.run(step("a", "f.look", {"at": 30_000}))
        assert huge.run_id == ""
        assert huge.state == "finished"
        assert (await house.resume(small[3])).state == "finished"


# --- approval


async def test_a_destructive_step_stops_for_approval_while_all_else_runs_and_resume_approves_it():
    async with whole_house() as house:
        report = await house.run(
            WIPE,
            step("after", "f.say", {"value": "${wipe.gone}"}),
            step("beside", "f.say", {"value": 1}),
            inputs={"path": "/x"},
        )
        assert report.state == "approval"
        assert states(report) == {"wipe": "approval", "after": "waiting", "beside": "done"}
        assert report.steps[0].pending_arguments == ({"path": "/x"},)
        assert [name for name, _ in house.called] == ["say"]
        again = await house.resume(report)
        assert again.state == "finished"
        assert values(again)["after"] == {"value": "/x"}
        assert [name for name, _ in house.called] == ["say", "wipe", "say"]


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": {"path": "/y"}},
        {"steps": [step("wipe", "f.wipe", {"path": "/y"})]},
    ],
)
async def test_what_would_do_something_else_by_then_is_asked_again(change: dict[str, Any]):
    async with office() as house:
        report = await house.run(WIPE, inputs={"path": "/x"})
        again = await house.resume(report, *change.pop("steps", ()), **change)
        assert again.state == "approval"
        assert again.steps[0].pending_arguments == ({"path": "/y"},)
        assert house.called == []
        assert (await house.resume(again)).state == "finished"
        assert house.called == [("wipe", {"path": "/y"})]


async def test_another_tool_under_an_approved_step_s_name_is_asked_again():
    async with office(needs_approval=lambda tool: tool.name == "say") as house:
        report = await house.run(step("a", "f.wipe", {"path": "/x"}))
        again = await house.resume(report, step("a", "f.say", {"path": "/x"}))
        assert again.state == "approval"
        assert house.called == []


async def test_steps_that_get_to_their_turn_later_are_asked_for_themselves():
    async with office() as house:
        report = await house.run(
            step("one", "f.wipe", {"path": "/1"}), step("two", "f.wipe", {"path": "${one.gone}/2"})
        )
        assert states(report) == {"one": "approval", "two": "waiting"}
        report = await house.resume(report)
        assert states(report) == {"one": "done", "two": "approval"}
        assert report.steps[1].pending_arguments == ({"path": "/1/2"},)
        report = await house.resume(report)
        assert report.state == "finished"
        assert len(house.called) == 2


async def test_all_calls_of_a_destructive_for_each_are_approved_together():
    async with office() as house:
        report = await house.run(
            step("wipe", "f.wipe", {"path": "${item}"}, for_each=["/a", "/b"]),
            step("none", "f.wipe", {"path": "${item}"}, for_each=[]),
        )
        assert report.steps[0].pending_arguments == ({"path": "/a"}, {"path": "/b"})
        assert states(report)["none"] == "done"
        assert house.called == []
        assert (await house.resume(report)).state == "finished"
        assert sorted(arguments["path"] for _, arguments in house.called) == ["/a", "/b"]


async def test_no_more_steps_are_asked_for_at_once_than_an_answer_can_show():
    async with office() as house:
        report = await house.run(*(step(f"s{n}", "f.wipe", {"path": f"/{n}"}) for n in range(10)))
        assert sorted(states(report).values()) == ["approval"] * 8 + ["waiting"] * 2
        report = await house.resume(report)
        assert sorted(states(report).values()) == ["approval"] * 2 + ["done"] * 8
        assert (await house.resume(report)).state == "finished"
        assert len(house.called) == 10


async def test_a_policy_may_ask_for_approval_too():
    async with office(needs_approval=lambda tool: tool.name == "say") as house:
        report = await house.run(step("a", "f.say"), step("b", "f.look"))
        assert states(report) == {"a": "approval", "b": "done"}


async def test_an_approval_that_was_never_shown_approves_nothing():
    async with office() as house:
        running = asyncio.create_task(
            house.run(step("wipe", "f.wipe", {"path": "/x"}), step("held", "f.hold", {"value": 1}))
        )
        await house.one_held()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        house.let_go(1)
        report = await house.run(resume="last")
        assert states(report) == {"wipe": "approval", "held": "done"}
        assert "wipe" not in [name for name, _ in house.called]


async def test_a_skipped_destructive_step_asks_for_nothing():
    async with office() as house:
        report = await house.run(step("wipe", "f.wipe", {"path": "/x"}, if_="inputs.really"))
        assert report.state == "finished"
        assert house.called == []


async def test_a_failure_and_an_approval_are_told_together():
    async with office() as house:
        steps: list[Raw] = [step("wipe", "f.wipe", {"path": "/x"}), step("bad", "f.fail")]
        report = await house.run(*steps)
        assert report.state == "failed"
        assert states(report) == {"wipe": "approval", "bad": "failed"}
