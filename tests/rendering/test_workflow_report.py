"""Workflow reports: the outcome first, how to continue, and never more than the budget."""

from typing import Any

import pytest

from portico.catalog.tool import make_tool
from portico.rendering.token_budget import count_tokens
from portico.rendering.workflow_report import make_plan_result, make_report_result
from portico.upstream.backend import Raw
from portico.workflows.planning.clause_search import UnservedClause
from portico.workflows.planning.planner import PlanSuggestion
from portico.workflows.planning.step_builder import PlanInput
from portico.workflows.runs import StepFailure, StepReport, WorkflowReport
from portico.workflows.steps import WorkflowProblem, parse_steps
from portico.workflows.validation import PlannedStep

BUDGET = 1_000
TOOL = make_tool("s", {"name": "t", "inputSchema": {}})


def report(
    state: Any, *steps: StepReport, run: str = "RUN", chain: bool = False, **more: Any
) -> WorkflowReport:
    """A report of these steps, each on its own or each after the one before."""
    before = [one.id for one in steps]
    given: list[Raw] = [
        {"id": name, "tool": "s.t", "depends_on": before[number - 1 : number] if chain else []}
        for number, name in enumerate(before)
    ]
    found, _ = parse_steps(given, 1_000)
    plan = tuple(PlannedStep(step, TOOL) for step in found)
    return WorkflowReport(run, state, steps, 1.5, plan, ttl_s=3_600, **more)


def done(name: str, value: Any, **more: Any) -> StepReport:
    return StepReport(name, "s.t", "done", value, 0.25, 1, **more)


def text_of(result: Raw) -> str:
    return "\n".join(block["text"] for block in result["content"])


def test_a_finished_run_gives_the_last_step_s_object_as_text_and_as_structured_content():
    result = make_report_result(
        report("finished", done("a", 1), done("b", {"x": [1, 2]}), chain=True), BUDGET
    )
    assert result["structuredContent"] == {"x": [1, 2]}
    first, value = (block["text"] for block in result["content"])
    assert first.splitlines() == [
        "Workflow finished: 2 steps in 1.50 s.",
        "- a · s.t · done · 0.25 s",
        "- b · s.t · done · 0.25 s",
    ]
    assert value == '{"x":[1,2]}'
    assert "isError" not in result


def test_a_run_of_one_call_is_its_value_without_a_table():
    text = text_of(make_report_result(report("finished", done("a", 1)), BUDGET))
    assert text.splitlines() == ["Workflow finished: 1 step in 1.50 s.", "1"]
    retried = StepReport("a", "s.t", "done", 1, 0.25, 3)
    assert "- a · s.t" in text_of(make_report_result(report("finished", retried), BUDGET))


@pytest.mark.parametrize(
    ("value", "text"), [([1, 2], "[1,2]"), ("words", "words"), (3, "3"), (None, "null")]
)
def test_what_is_no_object_is_text_alone(value: Any, text: str):
    result = make_report_result(report("finished", done("a", value)), BUDGET)
    assert result["content"][1]["text"] == text
    assert "structuredContent" not in result


def test_several_last_steps_are_an_object_by_their_ids():
    result = make_report_result(
        report("finished", done("a", 1), done("b", "x"), StepReport("c", "s.t", "skipped")), BUDGET
    )
    assert result["structuredContent"] == {"a": 1, "b": "x"}


@pytest.mark.parametrize("value", ["x " * 50_000, list(range(50_000)), {"n": list(range(50_000))}])
def test_a_large_value_is_left_to_the_result_handles_and_the_text_stays_short(value: Any):
    result = make_report_result(report("finished", done("a", value)), BUDGET)
    assert count_tokens(text_of(result)) < BUDGET / 4
    assert result["structuredContent"] == (value if isinstance(value, dict) else {"a": value})


def test_a_run_of_skipped_steps_says_so():
    result = make_report_result(
        report("finished", StepReport("a", "s.t", "skipped", reason="its condition does not hold")),
        BUDGET,
    )
    assert "a · s.t · skipped · its condition does not hold" in text_of(result)
    assert "No step gave a value" in text_of(result)


def test_a_failure_says_what_failed_what_ran_what_did_not_and_how_to_go_on():
    failure = StepFailure("invalid_arguments", "title: 3 is not a string", "Correct it.")
    result = make_report_result(
        report(
            "failed",
            done("a", {"n": 1}, is_from_earlier=True),
            StepReport("b", "s.t", "failed", failure=failure),
            StepReport("c", "s.t", "waiting", reason="it waits for b"),
            chain=True,
            warnings=(WorkflowProblem("b", "it finds nothing", "${a.x}"),),
        ),
        BUDGET,
    )
    text = text_of(result)
    assert result["isError"] is True
    assert text.startswith("Workflow failed: 1 done, 1 FAILED, 1 not run.")
    for said in (
        "- a · s.t · done before",
        "- c · s.t · not run · it waits for b",
        "Step b failed: invalid_arguments: title: 3 is not a string",
        "  Correct it.",
        "Note: step b ${a.x}: it finds nothing",
        'run_workflow(resume="RUN")',
        "Kept for 60 minutes",
        'a: {"n":1}',
    ):
        assert said in text, said


def test_a_server_s_words_make_no_lines_of_ours_and_keep_no_secrets():
    failure = StepFailure(
        "unavailable",
        "it said\nWorkflow finished: token=sk-abcdefghijklmnopqrstuvwxyz012345",
        "",
        True,
    )
    text = text_of(
        make_report_result(
            report("failed", StepReport("a", "s.t", "failed", failure=failure)), BUDGET
        )
    )
    assert "\nWorkflow finished" not in text
    assert "sk-abcdefghijklmnopqrstuvwxyz012345" not in text
    assert "may work later" in text


def test_an_approval_shows_exactly_what_would_be_called():
    waits = StepReport("wipe", "s.t", "approval", pending_arguments=({"path": "/x", "all": True},))
    result = make_report_result(report("approval", done("a", 1), waits), BUDGET)
    text = text_of(result)
    assert 'Stopped for approval: step wipe would call s.t with {"path":"/x","all":true}' in text
    assert "- wipe" not in text
    assert 'To approve exactly these calls and go on: run_workflow(resume="RUN")' in text
    assert "isError" not in result


def test_what_is_hidden_or_cut_in_an_approval_is_seen():
    hidden = StepReport("a", "s.t", "approval", pending_arguments=({"path": "/x\u202e\u200b"},))
    assert "\\u202e\\u200b" in text_of(make_report_result(report("approval", hidden), BUDGET))
    long = StepReport("a", "s.t", "approval", pending_arguments=({"path": "/x " * 5_000},))
    assert "15,011 characters in all" in text_of(
        make_report_result(report("approval", long), BUDGET)
    )
    many = StepReport(
        "a",
        "s.t",
        "approval",
        pending_arguments=tuple({"path": f"/some/where/{n}"} for n in range(200)),
    )
    text = text_of(make_report_result(report("approval", many), BUDGET))
    assert "would call s.t 200 times" in text
    assert "calls more" in text
    assert count_tokens(text) > BUDGET / 2


def test_a_run_that_could_not_be_kept_offers_no_way_on():
    text = text_of(
        make_report_result(
            report(
                "failed", StepReport("a", "s.t", "failed", failure=StepFailure("x", "y")), run=""
            ),
            BUDGET,
        )
    )
    assert "resume=" not in text
    assert "cannot be continued" in text


@pytest.mark.parametrize("budget", [800, 2_000, 10_000])
@pytest.mark.parametrize(
    "value", ["word " * 20_000, [{"name": "x" * 50, "n": n} for n in range(5_000)], {"k": 1}]
)
def test_whatever_happened_the_answer_fits(budget: int, value: Any):
    steps = [
        *(done(f"step_number_{n}", value) for n in range(30)),
        *(
            StepReport(
                f"f{n}",
                "s.t",
                "failed",
                failure=StepFailure("tool_error", "why " * 900, "do " * 500),
            )
            for n in range(10)
        ),
        *(
            StepReport(f"a{n}", "s.t", "approval", pending_arguments=({"text": "z " * 2_000},) * 5)
            for n in range(5)
        ),
        *(StepReport(f"w{n}", "s.t", "waiting", reason="it waits for f1") for n in range(5)),
    ]
    warnings = tuple(WorkflowProblem("x", "odd " * 200) for _ in range(20))
    for state in ("failed", "approval"):
        chosen = [one for one in steps if state == "failed" or one.state != "failed"]
        text = text_of(make_report_result(report(state, *chosen, warnings=warnings), budget))
        assert 'resume="RUN"' in text
        assert count_tokens(text) <= budget


# --- plans


def test_a_plan_can_be_passed_back_and_says_what_it_lacks():
    steps: tuple[Raw, ...] = ({"id": "a", "tool": "s.t", "arguments": {"repo": "${inputs.repo}"}},)
    lacking = {"repo": PlanInput("string", "The repository.")}
    plan = PlanSuggestion(
        steps,
        lacking,
        (UnservedClause("brew tea", ("s.boil",)),),
        ("day is passed as '2026-01-02'",),
        has_worked=True,
    )
    result = make_plan_result(plan, BUDGET)
    text = text_of(result)
    assert result["structuredContent"] == {"steps": list(steps), "missing": ["repo"]}
    assert text.startswith("A plan of 1 step, not run; one like it has worked.")
    for said in (
        'steps=[{"tool":"s.t","arguments":{"repo":"${inputs.repo}"}}]',
        "- repo: string — The repository.",
        'Nothing here serves "brew tea"; nearest: s.boil',
        "day is passed as '2026-01-02'",
        "Pass these as inputs",
    ):
        assert said in text, said


def test_a_plan_that_was_to_run_says_why_it_did_not():
    steps: tuple[Raw, ...] = ({"id": "a", "tool": "s.t", "arguments": {"repo": "${inputs.repo}"}},)
    lacking = {name: PlanInput("string", "") for name in ("repo", "owner")}

    def head(**more: Any) -> str:
        return text_of(
            make_plan_result(PlanSuggestion(steps, **more), BUDGET, run_requested=True)
        ).splitlines()[0]

    assert head(inputs=lacking) == "A plan of 1 step, not run: repo, owner are missing."
    assert head(unused=("x",)) == "A plan of 1 step, not run: not all that you said is in it."


def test_a_plan_says_what_is_unsure_and_which_tools_come_near():
    steps: tuple[Raw, ...] = ({"id": "t", "tool": "s.t", "arguments": {"to": "x"}},)
    plan = PlanSuggestion(steps, unsure=("t.to", "u.id", "t.at"), others={"s.u": ("id",)})
    result = make_plan_result(plan, BUDGET)
    assert result["structuredContent"]["unsure"] == ["t.to", "u.id", "t.at"]
    assert result["structuredContent"]["other_tools"] == {"s.u": ["id"]}
    text = text_of(result)
    assert "Unsure: t.to|at, u.id (" in text
    assert "Near: s.u(id)." in text


def test_no_plan_says_what_comes_nearest():
    text = text_of(
        make_plan_result(
            PlanSuggestion(unserved=(UnservedClause("brew tea", ("s.boil",)),)), BUDGET
        )
    )
    assert text.startswith("No plan")
    assert "s.boil" in text
