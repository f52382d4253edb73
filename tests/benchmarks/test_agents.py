"""The benchmark of agents: its tasks, and how calls are compared with gold."""

import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks.agents.tasks import (
    FOLDER,
    AgentTask,
    GoldStep,
    ToolCall,
    compare_calls,
    find_problems,
    load_tasks,
    matches_any,
    resolve_references,
)
from benchmarks.fleet import recordings
from benchmarks.processes import REPOSITORY

SHARED = Path(os.environ.get("PORTICO_SHARED") or REPOSITORY.parent / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"
needs_fleet = pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}")

MOVE = GoldStep(
    ("board.move", "cards.put"),
    {"board.move": {"card": "c1", "list": ["l1", "l2"]}, "cards.put": {"id": "c1"}},
)
TELL = GoldStep(("chat.post",), {"chat.post": {"text": "done"}})


def test_every_task_has_an_intent_and_at_least_150_have_gold():
    tasks = load_tasks(FOLDER / "tasks.jsonl", FOLDER / "inputs.jsonl")
    assert len({task.id for task in tasks}) == len(tasks)
    assert all(task.intent and task.inputs for task in tasks)
    assert sum(bool(task.steps) for task in tasks) >= 150


@needs_fleet
@pytest.mark.parametrize("name", ["tasks", "joins", "drawn_tasks"])
def test_gold_names_tools_and_parameters_that_exist(name: str):
    schemas: dict[str, Any] = {
        f"{recording['slug']}.{tool['name']}": tool["inputSchema"]
        for recording in recordings(SHARED)
        for tool in recording["tools"]
    }
    assert not list(find_problems(load_tasks(FOLDER / f"{name}.jsonl"), schemas))


def test_gold_that_names_what_does_not_exist_is_reported():
    schema = {"properties": {"card": {"type": "string"}, "list": {"enum": ["l3"]}}}
    task = AgentTask("t", "", "none", (MOVE,))
    assert set(find_problems([task], {"board.move": schema})) == {
        "t: kind none with 1 steps",
        "t: there is no tool cards.put",
        "t: board.move takes no such list: ['l1', 'l2']",
    }
    missing = {"board.move": {"properties": {"list": {}}}, "cards.put": {"properties": {"id": {}}}}
    assert list(find_problems([AgentTask("t", "", "single", (MOVE,))], missing)) == [
        "t: board.move has no parameter card"
    ]


@pytest.mark.parametrize(
    ("expected", "value", "is_right"),
    [
        (4471, "4471", True),
        ("40", 40.0, True),
        (True, "true", True),
        (["a", "b"], "b", True),
        (["a", "b"], ["a", "b"], False),
        ([["a", "b"]], ["a", "b"], True),
        ([["a", "b"]], ["b", "a"], False),
        ({"id": ["x", "y"]}, {"id": "y", "more": 1}, True),
        ({"id": "x"}, {"other": "x"}, False),
        ({"id": "x"}, "x", False),
        ([[{"from": "a"}]], [{"from": "a", "to": "b"}], True),
        ("a", ["a"], False),
        ("Done", "done", False),
    ],
)
def test_a_value_is_right_as_gold_says(expected: Any, value: Any, is_right: bool):
    assert matches_any(expected, value) is is_right


def test_a_plan_is_usable_with_every_step_every_argument_and_nothing_more():
    right = [ToolCall("board.move", {"card": "c1", "list": "l2"}), ToolCall("chat.post", {})]
    assert not compare_calls((MOVE, TELL), right).is_usable
    right[1] = ToolCall("chat.post", {"text": "done"})
    assert compare_calls((MOVE, TELL), right).is_usable
    more = compare_calls((MOVE, TELL), [*right, ToolCall("chat.post", {"text": "again"})])
    assert more.extra_count == 1
    assert not more.has_right_tools
    assert more.right_argument_count == more.argument_count == 3


def test_a_step_takes_the_call_that_fits_it_best():
    again = GoldStep(("chat.post",), {"chat.post": {"text": "again"}})
    calls = [ToolCall("chat.post", {"text": "again"}), ToolCall("chat.post", {"text": "done"})]
    assert compare_calls((TELL, again), calls).is_usable


def test_arguments_are_counted_of_the_steps_that_were_found():
    found = compare_calls((MOVE, TELL), [ToolCall("chat.post", {"text": "done"})])
    assert (found.found_count, found.argument_count, found.right_argument_count) == (1, 1, 1)
    assert not found.is_usable


def test_a_reference_to_an_input_counts_as_its_value():
    arguments = {"a": "${inputs.x}", "b": ["<${inputs.y}>"], "c": "${inputs.none}", "d": 4}
    assert resolve_references(arguments, {"x": [1], "y": 2}) == {
        "a": [1],
        "b": ["<2>"],
        "c": "${inputs.none}",
        "d": 4,
    }
