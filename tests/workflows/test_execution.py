"""Workflows as they run: in order, in parallel, skipped, repeated, tried again, cut off."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.calls.pipeline import CallContext
from portico.config import WorkflowConfig
from portico.upstream.backend import Raw
from portico.workflows import execution
from tests.workflows.fake_servers import (
    CALLER,
    gateway_workflows,
    states,
    step,
    structured,
    text,
    tool,
    values,
    workflow_fixture,
)


async def test_steps_run_after_what_they_refer_to_and_get_its_values():
    async with gateway_workflows() as workflows:
        report = await workflows.run(
            step("sum", "f.add", {"a": "${one.value.n}", "b": "${inputs.more}"}),
            step("one", "f.say", {"value": {"n": 3}}),
            step("text", "f.say", {"value": "${inputs.who} has ${sum.sum} of ${one}"}),
            inputs={"more": 4, "who": "she"},
        )
        assert report.state == "finished"
        assert values(report)["sum"] == {"sum": 7}
        assert report.outputs == {"text": {"value": 'she has 7 of {"value":{"n":3}}'}}
        assert [name for name, _ in workflows.called] == ["say", "add", "say"]
        assert [step_report.calls for step_report in report.steps] == [1, 1, 1]


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (text('{"a": [1, 2]}'), {"a": [1, 2]}),
        (text("words"), "words"),
        (structured({"x": None}), {"x": None}),
        ({"content": []}, None),
        (text('{"items": [' + ",".join(['{"n": "' + "x" * 90 + '"}'] * 4_000) + "]}"), None),
    ],
)
async def test_the_value_of_a_step_is_what_its_result_stands_for(result: Raw, value: Any):
    async with workflow_fixture() as workflows:
        workflows.answers("look", lambda arguments: result)
        report = await workflows.run(step("a", "f.look"), step("b", "f.say", {"value": "${a}"}))
        if value is not None or result == {"content": []}:
            assert workflows.called[1] == ("say", {"value": value})
        else:
            assert len(workflows.called[1][1]["value"]["items"]) == 4_000
        assert report.state == "finished"


async def test_independent_steps_run_at_the_same_time_and_no_more_than_the_bound():
    async with workflow_fixture(limits=WorkflowConfig(parallel=3)) as workflows:
        running = asyncio.create_task(
            workflows.run(*(step(f"s{n}", "f.hold", {"value": n}) for n in range(5)))
        )
        first = {await workflows.next_held() for _ in range(3)}
        assert workflows.held.empty()
        for value in first:
            workflows.release(value)
        rest = {await workflows.next_held() for _ in range(2)}
        for value in rest:
            workflows.release(value)
        report = await running
        assert first | rest == set(range(5))
        assert set(states(report).values()) == {"done"}


async def test_a_failed_step_stops_what_depends_on_it_and_nothing_else():
    async with workflow_fixture() as workflows:
        running = asyncio.create_task(
            workflows.run(
                step("bad", "f.fail", {"why": "rain"}),
                step("after", "f.say", {"value": "${bad}"}),
                step("later", "f.say", depends_on=["after"]),
                step("held", "f.hold", {"value": 1}),
                step("beside", "f.say", {"value": "${held.value}"}),
            )
        )
        await workflows.next_held()
        workflows.release(1)
        report = await running
        assert report.state == "failed"
        assert states(report) == {
            "bad": "failed",
            "after": "waiting",
            "later": "waiting",
            "held": "done",
            "beside": "done",
        }
        failure = report.steps[0].failure
        assert failure is not None
        assert (failure.kind, failure.message) == ("tool_error", "no: rain")
        assert report.steps[1].reason == "it waits for bad"
        assert values(report)["beside"] == {"value": 1}


async def test_arguments_that_do_not_fit_say_which_reference_found_nothing():
    async with workflow_fixture() as workflows:
        report = await workflows.run(
            step("a", "f.say"), step("b", "f.strict", {"text": "${a.nothing}"})
        )
        failure = report.steps[1].failure
        assert failure is not None
        assert failure.kind == "invalid_arguments"
        assert "${a.nothing} found nothing" in failure.advice
        assert [name for name, _ in workflows.called] == ["say"]


async def test_a_tool_that_asks_back_fails_its_step():
    async with workflow_fixture() as workflows:
        workflows.answers(
            "look", lambda arguments: {"resultType": "input_required", "inputRequests": {}}
        )
        report = await workflows.run(step("a", "f.look"))
        assert report.steps[0].failure is not None
        assert report.steps[0].failure.kind == "input_required"


async def test_what_the_pipeline_repaired_is_reported():
    async with workflow_fixture() as workflows:
        report = await workflows.run(step("a", "f.add", {"a": "5", "b": 2}))
        assert values(report) == {"a": {"sum": 7}}
        assert report.steps[0].repairs


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        ({"value": "${a.value}" * 60}, {}),
        ({"value": ["${a.value}"] * 60}, {}),
        ({"value": "${item}${a.value}"}, {"for_each": list(range(60))}),
    ],
)
async def test_a_large_value_cannot_be_made_larger_without_end(arguments: Raw, more: Raw):
    async with workflow_fixture() as workflows:
        report = await workflows.run(
            step("a", "f.say", {"value": "x" * 100_000}), step("b", "f.say", arguments, **more)
        )
        failure = report.steps[1].failure
        assert failure is not None
        assert "more than 4 MiB" in failure.message
        assert len(workflows.called) == 1


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (text("words", failed=True), "words"),
        ({"content": [], "structuredContent": {"why": "rain"}, "isError": True}, '{"why":"rain"}'),
        (
            {"content": [{"type": "image", "data": "x"}], "isError": True},
            "the tool says that it failed",
        ),
        (text("x" * 10**6, failed=True), "x" * 2_000 + "…"),
    ],
)
async def test_a_tool_s_own_error_is_reported_in_its_words_but_not_at_any_length(
    result: Raw, said: str
):
    async with workflow_fixture() as workflows:
        workflows.answers("look", lambda arguments: result)
        report = await workflows.run(step("a", "f.look"))
        failure = report.steps[0].failure
        assert failure is not None
        assert failure.message.startswith(said)
        assert len(failure.message) <= 2_001


# --- if


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ("a.value > 2", "done"),
        ("a.value > 3", "skipped"),
        ("${a.value}", "done"),
        ("a.missing", "skipped"),
        ("inputs.on", "done"),
        ("inputs.empty", "skipped"),
        ("inputs.zero", "skipped"),
        (False, "skipped"),
        (True, "done"),
    ],
)
async def test_a_step_whose_condition_is_not_true_is_skipped(condition: Any, state: str):
    async with workflow_fixture() as workflows:
        report = await workflows.run(
            step("a", "f.say", {"value": 3}),
            step("b", "f.say", {"value": 1}, if_=condition),
            inputs={"on": True, "empty": [], "zero": 0},
        )
        assert report.state == "finished"
        assert states(report)["b"] == state


async def test_what_refers_to_a_skipped_step_is_skipped_too_and_says_so():
    async with workflow_fixture() as workflows:
        report = await workflows.run(
            step("off", "f.say", if_=False),
            step("uses", "f.say", {"value": "${off.value}"}),
            step("further", "f.say", {"value": "${uses}"}),
            step("only_after", "f.say", {"value": 1}, depends_on=["off"]),
            step("either", "f.say", {"value": "${off.value || only_after.value}"}),
            step("fallback", "f.say", {"value": "${off.value || 'none'}"}),
            step("asks", "f.say", {"value": 2}, if_="!(off)"),
        )
        assert report.state == "finished"
        assert states(report) == {
            "off": "skipped",
            "uses": "skipped",
            "further": "skipped",
            "only_after": "done",
            "either": "done",
            "fallback": "done",
            "asks": "done",
        }
        assert [step_report.reason for step_report in report.steps[:3]] == [
            "its condition does not hold",
            "it uses off, which was skipped",
            "it uses uses, which was skipped",
        ]
        assert values(report)["either"] == {"value": 1}
        assert values(report)["fallback"] == {"value": "none"}


# --- for_each


async def test_for_each_runs_once_per_element_and_gives_the_values_in_order():
    async with workflow_fixture() as workflows:
        running = asyncio.create_task(
            workflows.run(
                step("list", "f.say", {"value": [{"n": 1}, {"n": 2}, {"n": 3}]}),
                step("each", "f.hold", {"value": "${item.n}"}, for_each="${list.value}"),
                step("all", "f.say", {"value": "${each[*].value}"}),
                step(
                    "numbered",
                    "f.say",
                    {"value": "${index}: ${item}"},
                    for_each=["a", "${inputs.b}"],
                ),
                inputs={"b": "b"},
            )
        )
        held = [await workflows.next_held() for _ in range(3)]
        for value in reversed(held):
            workflows.release(value)
        report = await running
        assert values(report)["all"] == {"value": [1, 2, 3]}
        assert values(report)["numbered"] == [{"value": "0: a"}, {"value": "1: b"}]
        assert report.steps[1].calls == 3


async def test_a_condition_about_the_element_chooses_among_them():
    async with workflow_fixture() as workflows:
        report = await workflows.run(
            step("big", "f.say", {"value": "${item}"}, for_each=[1, 5, 2, 7], if_="item > 2"),
            step("none", "f.say", {"value": "${item}"}, for_each=[]),
        )
        assert values(report) == {"big": [{"value": 5}, {"value": 7}], "none": []}


@pytest.mark.parametrize("found", [{"a": 1}, "text", None, 3, list(range(5))])
async def test_for_each_needs_a_list_that_is_not_too_long(found: Any):
    async with workflow_fixture(limits=WorkflowConfig(items=4)) as workflows:
        report = await workflows.run(
            step("a", "f.say", {"value": found}),
            step("b", "f.say", {"value": "${item}"}, for_each="${a.value}"),
        )
        assert report.state == "failed"
        assert report.steps[1].failure is not None
        assert report.steps[1].failure.message.startswith("for_each found")
        assert len(workflows.called) == 1


async def test_after_a_failed_element_no_other_begins_and_the_finished_are_kept():
    async with workflow_fixture(limits=WorkflowConfig(parallel=1)) as workflows:
        broken = {"c"}

        def say(arguments: Raw) -> Raw:
            return (
                text("broken", failed=True)
                if arguments["value"] in broken
                else structured(arguments)
            )

        workflows.answers("say", say)
        each = step("each", "f.say", {"value": "${item}"}, for_each=["a", "b", "c", "d"])
        report = await workflows.run(each)
        failure = report.steps[0].failure
        assert failure is not None
        assert failure.element == 2
        assert report.steps[0].reason.startswith("2 of 4 elements are done")
        broken.clear()
        report = await workflows.resume(report)
        assert values(report)["each"] == [{"value": one} for one in "abcd"]
        assert [arguments["value"] for _, arguments in workflows.called] == [
            "a",
            "b",
            "c",
            "c",
            "d",
        ]


# --- retry


@pytest.mark.parametrize("retry", [2, {"attempts": 2, "delay_s": 0}])
async def test_a_read_only_step_is_tried_again(retry: Any):
    async with workflow_fixture() as workflows:
        left = [text("busy", failed=True), structured({"seen": 1})]
        workflows.answers("look", lambda arguments: left.pop(0))
        report = await workflows.run(step("a", "f.look", retry=retry))
        assert report.state == "finished"
        assert report.steps[0].calls == 2


async def test_it_is_tried_no_more_often_than_asked_and_not_with_arguments_that_cannot_fit():
    async with workflow_fixture() as workflows:
        workflows.answers("look", lambda arguments: text("busy", failed=True))
        again = {"attempts": 2, "delay_s": 0}
        report = await workflows.run(
            step("a", "f.look", {"at": 1}, retry=again),
            step("nothing", "f.say"),
            step("b", "f.add", {"a": "${nothing.x}", "b": 1}, retry=again),
        )
        assert states(report) == {"a": "failed", "nothing": "done", "b": "failed"}
        assert [name for name, _ in workflows.called].count("look") == 3
        assert [name for name, _ in workflows.called].count("add") == 0


# --- who calls, and progress


class RecordingRelay:
    """A relay that records its notifications."""

    client_key = "me"

    def __init__(self) -> None:
        self.capabilities: Raw = {}
        self.sent: list[tuple[str, Raw]] = []

    async def notify(self, method: str, params: Raw) -> None:
        self.sent.append((method, params))

    async def request(self, method: str, params: Raw) -> Raw:
        raise NotImplementedError

    async def pause(self) -> None: ...


async def test_progress_is_that_of_the_steps_and_calls_keep_their_origin():
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    async with workflow_fixture() as workflows:
        relay = RecordingRelay()
        origin = CallContext(
            CALLER,
            relay,
            {"_meta": {"progressToken": 7, "traceparent": trace}, "requestState": "s"},
        )
        report = await workflows.run(
            step("a", "f.say"), step("b", "f.say", depends_on=["a"]), origin=origin
        )
        assert [params["progress"] for _, params in relay.sent] == [0, 1, 2]
        assert {params["progressToken"] for _, params in relay.sent} == {7}
        assert all(report.run_id in params["message"] for _, params in relay.sent)
        asked = [params for method, params in workflows.fake.requests if method == "tools/call"]
        assert [params.get("_meta") for params in asked] == [{"traceparent": trace}] * 2
        assert not any("requestState" in params for params in asked)


async def test_cancelling_ends_every_call_and_the_run_can_be_continued():
    async with workflow_fixture() as workflows:
        relay = RecordingRelay()
        origin = CallContext(CALLER, relay, {"_meta": {"progressToken": 1}})
        running = asyncio.create_task(
            workflows.run(
                step("first", "f.say", {"value": 1}),
                step("x", "f.hold", {"value": "x"}, depends_on=["first"]),
                step(
                    "each",
                    "f.hold",
                    {"value": "${item}"},
                    for_each=["y", "z"],
                    depends_on=["first"],
                ),
                origin=origin,
            )
        )
        assert {await workflows.next_held() for _ in range(3)} == {"x", "y", "z"}
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert set(workflows.dropped) == {"x", "y", "z"}
        before = len(workflows.called)
        for value in "xyz":
            workflows.release(value)
        name = relay.sent[0][1]["message"].partition("(run ")[2].rstrip(")")
        report = await workflows.run(resume=name)
        assert report.state == "finished"
        assert report.steps[0].is_from_earlier
        assert values(report)["each"] == [{"value": "y"}, {"value": "z"}]
        assert "say" not in [tool_ for tool_, _ in workflows.called[before:]]


async def test_elements_that_were_finished_before_it_was_cut_off_are_not_run_again():
    async with workflow_fixture(limits=WorkflowConfig(parallel=1)) as workflows:
        each = step("each", "f.hold", {"value": "${item}"}, for_each=["y", "z"])
        running = asyncio.create_task(workflows.run(each))
        assert await workflows.next_held() == "y"
        workflows.release("y")
        assert await workflows.next_held() == "z"
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        workflows.release("z")
        report = await workflows.run(resume="last")
        assert values(report)["each"] == [{"value": "y"}, {"value": "z"}]
        assert [arguments["value"] for _, arguments in workflows.called] == ["y", "z", "z"]


async def test_a_run_has_worked_when_it_came_to_its_end_and_only_once():
    async with workflow_fixture() as workflows:
        assert not (await workflows.run(step("a", "f.fail"))).is_newly_finished
        report = await workflows.run(step("a", "f.say", {"value": "${inputs.x}"}), inputs={"x": 1})
        assert report.is_newly_finished
        assert not (await workflows.resume(report)).is_newly_finished
        assert report.plan[0].step.definition["arguments"] == {"value": "${inputs.x}"}
        assert (report.inputs, report.caller) == ({"x": 1}, CALLER)


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[int, list[int], list[int]]]:
    """Steps in any order, each with those it refers to and those it only waits for."""
    size = draw(st.integers(1, 9))
    found = [
        (
            number,
            draw(st.lists(st.integers(0, number - 1), unique=True)) if number else [],
            draw(st.lists(st.integers(0, number - 1), unique=True)) if number else [],
        )
        for number in range(size)
    ]
    return draw(st.permutations(found))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.integers(1, 4))
async def test_every_step_runs_once_and_after_all_that_it_depends_on(
    graph: list[tuple[int, list[int], list[int]]], parallel: int
):
    async with workflow_fixture(
        [tool("say", {"value": {}})], limits=WorkflowConfig(parallel=parallel)
    ) as workflows:
        begun: list[int] = []
        over: list[int] = []
        at_once = [0]

        async def say(arguments: Raw) -> Raw:
            number = arguments["value"]["n"]
            begun.append(number)
            needs = next((uses + after for one, uses, after in graph if one == number), [])
            assert set(needs) <= set(over)
            at_once[0] += 1
            assert at_once[0] <= parallel
            await asyncio.sleep(0)
            at_once[0] -= 1
            over.append(number)
            return structured(arguments)

        workflows.answers("say", say)
        report = await workflows.run(
            *(
                step(
                    f"s{number}",
                    "f.say",
                    {"value": {"n": number, "of": [f"${{s{one}.value.n}}" for one in uses]}},
                    depends_on=[f"s{one}" for one in after],
                )
                for number, uses, after in graph
            )
        )
        assert report.state == "finished"
        assert sorted(begun) == sorted(over) == sorted(number for number, _, _ in graph)
        found = values(report)
        for number, uses, _ in graph:
            assert found[f"s{number}"]["value"]["of"] == uses


async def test_answers_that_come_to_too_much_fail_the_step_that_brought_them(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(execution, "MAX_HELD_BYTES", 1_000)
    async with workflow_fixture() as workflows:
        report = await workflows.run(
            step("a", "f.say", {"value": "x" * 600}), step("b", "f.say", {"value": "${a}"})
        )
        assert states(report) == {"a": "done", "b": "failed"}
        failure = next(one.failure for one in report.steps if one.id == "b")
        assert failure is not None
        assert failure.kind == "too_large"
        assert "the call was made" in failure.message
