"""Workflows are checked before anything runs, and every problem is reported at once."""

from typing import Any

import pytest

from portico.errors import InvalidArguments
from portico.results.learned_shapes import LearnedShapes
from portico.upstream.backend import Raw
from portico.workflows.steps import MAX_BRACES, complete_steps
from portico.workflows.validation import (
    InvalidWorkflow,
    ValidatedWorkflow,
    is_destructive,
    validate_workflow,
)
from tests.meta_tools.search_catalog import by_words, entry
from tests.workflows.fake_servers import TOOLS, step, tool, workflow_fixture

WEATHER = tool(
    "weather",
    {"city": {"type": "string"}},
    ["city"],
    outputSchema={
        "type": "object",
        "properties": {
            "degrees": {"type": "number"},
            "days": {"type": "array", "items": {"$ref": "#/$defs/day"}},
        },
        "additionalProperties": False,
        "$defs": {
            "day": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "additionalProperties": False,
            }
        },
    },
)
DRAW = tool(
    "draw", {"points": {"type": "object"}, "title": {"type": "string"}, "tags": {"type": "array"}}
)
SNAPSHOT = by_words(entry("f", *TOOLS), entry("sky", WEATHER, DRAW))


def problems(*steps: Any, **inputs: Any) -> list[str]:
    found = validate_workflow(list(steps), inputs, SNAPSHOT)
    return (
        [str(problem) for problem in found.problems] if isinstance(found, InvalidWorkflow) else []
    )


def warnings(*steps: Raw, shapes: LearnedShapes | None = None) -> list[str]:
    found = validate_workflow(list(steps), {}, SNAPSHOT, shapes)
    assert isinstance(found, ValidatedWorkflow)
    return [str(warning) for warning in found.warnings]


def test_a_sound_workflow_has_no_problems_and_keeps_its_order():
    steps = [
        step("b", "f.add", {"a": "${a.value}", "b": 1}, if_="a.value > 0", retry=2),
        step("a", "f::say", {"value": "${inputs.x}"}),
        step("c", "say", {"value": "${item}"}, for_each="${b.list}", depends_on="a"),
    ]
    found = validate_workflow(steps, {"x": 3}, SNAPSHOT)
    assert isinstance(found, ValidatedWorkflow)
    assert [planned.id for planned in found.plan] == ["b", "a", "c"]
    assert [planned.tool.address for planned in found.plan] == ["f.add", "f.say", "f.say"]
    assert [sorted(planned.step.dependencies) for planned in found.plan] == [["a"], [], ["a", "b"]]


def test_every_problem_is_reported_at_once_with_its_step():
    found = problems(
        step("a", "f.ad", {"a": 1, "b": 2}),
        step("b", "f.add", {"a": 1}),
        step("c", "f.strict", {"text": "x", "txt": "y"}),
        step("d", "f.say", {"value": "${nowhere.x}"}, depends_on=["gone"]),
        step("e", "f.say", {"value": "${inputs.x}"}),
        step("g", "f.say", retry=1),
    )
    assert len(found) == 7
    for at, said in {
        "step a tool": "Did you mean f.add",
        "step b arguments.b": "requires it",
        "step c arguments.txt": "did you mean text",
        "step d depends_on": "no step 'gone'",
        "step d ${nowhere.x}": "no step 'nowhere'",
        "step e ${inputs.x}": "no input 'x'",
        "step g retry": "read-only or idempotent",
    }.items():
        assert [line for line in found if line.startswith(at) and said in line], (at, found)


def test_a_circle_is_shown():
    found = problems(
        step("a", "f.say", {"value": "${c}"}),
        step("b", "f.say", {"value": "${a}"}),
        step("c", "f.say", depends_on=["b"]),
        step("z", "f.say", {"value": "${a}"}),
    )
    assert found == ["step a: it waits for itself: a waits for c waits for b waits for a"]
    assert problems(step("a", "f.say", {"value": "${a}"})) == [
        "step a: it waits for itself: a waits for a"
    ]


@pytest.mark.parametrize(
    "name", ["", "1a", "a b", "a.b", "inputs", "item", "index", "x" * 65, None, 3, "é"]
)
def test_ids_are_words_that_mean_nothing_else(name: Any):
    assert len(problems({"id": name, "tool": "f.say"})) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("text", "a step is an object"),
        ({"id": "a", "tool": "f.say", "foreach": []}, "did you mean for_each"),
        ({"id": "a"}, "the name of a tool is missing"),
        (step("a", "f.say", [1]), "they are an object"),
        (step("a", "f.say", "x ${b}"), "they are an object"),
        (step("a", "f.say", {"value": {"x": "${"}}), "value.x"),
        (step("a", "f.say", for_each="items"), "one reference to a list"),
        (step("a", "f.say", for_each=3), "it is a list"),
        (step("a", "f.say", for_each=["${item}"]), "not there yet"),
        (step("a", "f.say", {"value": "${item}"}), "only there with for_each"),
        (step("a", "f.say", depends_on=[1]), "a list of step ids"),
        (step("a", "f.say", if_=3), "an expression"),
        (step("a", "f.say", if_="a b"), "not JMESPath"),
        (step("a", "f.look", retry=6), "0 to 5"),
        (step("a", "f.look", retry=-1), "0 to 5"),
        (step("a", "f.look", retry=True), "0 to 5"),
        (step("a", "f.look", retry={"attempts": 1, "delay_s": 61}), "0 to 60"),
        (step("a", "f.look", retry={"times": 1}), "attempts, delay_s"),
    ],
)
def test_a_step_that_cannot_be_read_says_what_it_should_be(wrong: Any, said: str):
    found = problems(wrong)
    assert found
    assert said in " ".join(found)


@pytest.mark.parametrize(
    "steps", [None, [], {}, "text", [step(f"s{n}", "f.say") for n in range(51)]]
)
def test_steps_are_a_list_of_at_most_fifty(steps: Any):
    found = validate_workflow(steps, {}, SNAPSHOT)
    assert isinstance(found, InvalidWorkflow)
    assert len(found.problems) == 1


def test_a_workflow_has_not_more_references_than_can_be_read_at_once():
    found = problems(
        step("a", "f.say", {"value": ["${inputs.x}"] * 600}),
        step("b", "f.say", {"value": "${a}" * 600}),
    )
    assert found == ["there are 1,200 references; 1,000 is the most"]


def test_an_id_that_is_there_twice_is_reported():
    assert problems(step("a", "f.say"), step("a", "f.look")) == [
        "step a id: the id is there twice; each step needs its own"
    ]


def test_literals_are_held_against_the_schema_and_forgiven_what_the_pipeline_mends():
    assert problems(step("a", "f.add", {"a": "5", "b": 2})) == []
    assert problems(step("a", "sky.draw", {"points": '{"x": 1}', "tags": "one"})) == []
    found = problems(step("a", "f.add", {"a": "five", "b": {"x": 1}}))
    assert [line.split(":")[0] for line in found] == ["step a arguments.a", "step a arguments.b"]


def test_a_text_taken_for_a_name_is_explained():
    found = problems(step("a", "f.say"), step("b", "f.say", if_='a.state == "open"'))
    assert len(found) == 1
    assert "'open'" in found[0]
    assert "single quotation marks" in found[0]


def test_inputs_that_only_a_condition_or_an_alternative_asks_for_may_be_missing():
    assert problems(step("a", "f.say", {"value": "${inputs.x || 'y'}"}, if_="!(inputs.off)")) == []


def test_what_a_declared_output_surely_lacks_is_a_warning_and_no_problem():
    sky = step("sky", "sky.weather", {"city": "Rome"})
    assert warnings(sky, step("b", "f.say", {"value": "${sky.days[0].name}"})) == []
    found = warnings(sky, step("b", "f.say", {"value": "${sky.degree}"}))
    assert found == [
        "step b ${sky.degree}: there is no 'degree' in its output schema, only degrees, days"
    ]
    assert "only name" in warnings(sky, step("b", "f.say", {"value": "${sky.days[0].nam}"}))[0]
    assert "is number" in warnings(sky, step("b", "f.say", {"value": "${sky.degrees.value}"}))[0]


def test_a_type_that_surely_does_not_fit_is_a_warning():
    sky = step("sky", "sky.weather", {"city": "Rome"})
    found = warnings(sky, step("b", "sky.draw", {"points": "${sky.degrees}"}))
    assert found == ["step b arguments.points: it is number, and sky.draw takes object"]
    assert warnings(sky, step("b", "sky.draw", {"tags": "${sky.degrees}"})) == []
    assert (
        warnings(sky, step("b", "f.add", {"a": "${sky.degrees}", "b": "${sky.days[0].name}"})) == []
    )
    assert (
        warnings(sky, step("b", "sky.draw", {"points": "${sky}", "title": "about ${sky.degrees}"}))
        == []
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("{{steps.a.value[0].x}}", "${a.value[0].x}"),
        ("{{$a.value}}", "${a.value}"),
        ("$a.value", "${a.value}"),
        ("$a", "${a}"),
        ("See $steps.a.list[*].", "${a.list[*]}"),
        ("${a.value} and $inputs.x", "${inputs.x}"),
        (["$.a.value"], "${a.value}"),
    ],
)
def test_a_reference_in_another_style_is_a_warning(text: Any, meant: str):
    (warning,) = warnings(step("a", "f.say", {"value": 1}), step("b", "f.say", {"value": text}))
    assert warning.startswith("step b arguments.value: ")
    assert warning.endswith(f" looks like a reference: write {meant}")


@pytest.mark.parametrize(
    "text",
    [
        "{{name}}",
        "it costs $a lot",
        "$HOME/x",
        "$$a.b",
        "US$a.b",
        "{a.b}",
        "$${a.value}",
        "{{item.x}}",
    ],
)
def test_a_text_that_names_no_step_is_a_text(text: str):
    assert warnings(step("a", "f.say", {"value": 1}), step("b", "f.say", {"value": text})) == []


def test_a_learned_shape_is_known_too():
    shapes, say = LearnedShapes(), SNAPSHOT.resolve_tool("f.say")
    a = step("a", "f.say", {"value": 1})
    assert warnings(a, step("b", "f.say", {"value": "${a.titel}"}), shapes=shapes) == []
    shapes.learn(say, {"content": [], "structuredContent": {"title": "x", "n": 1}})
    found = warnings(a, step("b", "f.say", {"value": "${a.titel}"}), shapes=shapes)
    assert found == [
        "step b ${a.titel}: there is no 'titel' in any result seen so far, only title, n"
    ]
    assert (
        "takes object" in warnings(a, step("b", "sky.draw", {"points": "${a.n}"}), shapes=shapes)[0]
    )


def test_the_value_of_a_step_that_runs_for_each_is_a_list():
    many = step("many", "sky.weather", {"city": "${item}"}, for_each=["Rome", "Oslo"])
    assert warnings(many, step("b", "f.say", {"value": "${many[0].degrees}"})) == []
    assert "[*].degrees" in warnings(many, step("b", "f.say", {"value": "${many.degrees}"}))[0]


@pytest.mark.parametrize(
    ("annotations", "destroys"),
    [
        ({}, False),
        ({"readOnlyHint": False}, False),
        ({"destructiveHint": True}, True),
        ({"destructiveHint": True, "readOnlyHint": True}, False),
        ({"destructiveHint": False}, False),
    ],
)
def test_only_a_tool_that_says_so_destroys(annotations: Raw, destroys: bool):
    snapshot = by_words(entry("s", tool("t", annotations=annotations)))
    assert is_destructive(snapshot.resolve_tool("s.t")) is destroys


async def test_nothing_runs_when_anything_is_wrong():
    async with workflow_fixture() as workflows:
        with pytest.raises(InvalidArguments, match="2 problems") as refused:
            await workflows.run(
                step("a", "f.say"), step("b", "f.nix"), step("c", "f.add", {"a": 1, "b": "${d}"})
            )
        assert [line.split(":")[0] for line in refused.value.problems] == [
            "step b tool",
            "step c ${d}",
        ]
        assert "Nothing was run" in refused.value.advice
        assert workflows.called == []
        assert len(workflows.workflows) == 0


async def test_many_problems_are_counted_and_not_all_reported():
    async with workflow_fixture() as workflows:
        with pytest.raises(InvalidArguments, match="and 20 more") as refused:
            await workflows.run(*(step(f"s{n}", "f.nix") for n in range(40)))
        assert len(refused.value.problems) == 40


def test_a_flood_of_braces_is_left_as_it_is() -> None:
    few, flood = "{{inputs.x}}", "{{inputs.x}} " * MAX_BRACES
    (step,) = complete_steps([{"tool": "s.t", "arguments": {"few": few, "flood": flood}}])
    assert step["arguments"] == {"few": "${inputs.x}", "flood": flood}
