"""One tool for each clause: the best together, not the best each."""

from portico.catalog.tool import Tool, make_tool
from portico.workflows.planning.tool_choice import FittedTool, choose_tools


def make(address: str) -> Tool:
    server, _, name = address.partition(".")
    return make_tool(server, {"name": name, "inputSchema": {"type": "object"}})


def choose(*clauses: dict[str, float], worked: tuple[str, ...] = ()) -> list[str]:
    found = [
        ((at, at), [FittedTool(make(address), score) for address, score in candidates.items()])
        for at, candidates in enumerate(clauses)
    ]
    chosen = choose_tools(found, worked)
    assert [choice.clause for choice in chosen] == [clause for clause, _ in found]
    return [choice.tool.address for choice in chosen]


def test_the_best_tool_of_each_clause_is_chosen():
    assert choose({"a.x": 1.0, "a.y": 0.5}, {"b.z": 1.0, "a.y": 0.5}) == ["a.x", "b.z"]


def test_of_equal_tools_that_of_the_same_server_is_chosen():
    assert choose({"a.x": 1.0}, {"b.y": 1.0, "a.y": 0.95}) == ["a.x", "a.y"]
    assert choose({"b.x": 1.0, "a.x": 0.95}, {"a.y": 1.0}) == ["a.x", "a.y"]


def test_a_tool_is_seldom_chosen_twice():
    assert choose({"a.x": 1.0}, {"a.x": 1.0, "a.y": 0.9}) == ["a.x", "a.y"]
    assert choose({"a.x": 1.0}, {"a.x": 1.0, "a.y": 0.2}) == ["a.x", "a.x"]


def test_tools_that_worked_before_are_chosen_if_they_fit_about_as_well():
    clauses = ({"a.x": 1.0, "b.x": 0.95}, {"a.y": 1.0, "c.y": 0.95})
    assert choose(*clauses) == ["a.x", "a.y"]
    assert choose({"a.x": 1.0, "b.x": 0.95}, {"c.y": 1.0}, worked=("b.x", "c.y")) == ["b.x", "c.y"]
    assert choose({"a.x": 1.0, "b.x": 0.5}, {"c.y": 1.0}, worked=("b.x", "c.y")) == ["a.x", "c.y"]


def test_tools_that_worked_for_something_else_are_not_chosen():
    clauses = ({"a.x": 1.0}, {"a.y": 1.0})
    for worked in (("a.x",), ("a.x", "a.z"), ("a.x", "a.y", "a.z")):
        assert choose(*clauses, worked=worked) == ["a.x", "a.y"]


def test_a_tool_that_takes_what_no_other_step_takes_is_chosen():
    first = FittedTool(make("a.x"), 1.0, (1.0, 0.0))
    same = FittedTool(make("b.y"), 1.0, (1.0, 0.0))
    other = FittedTool(make("b.z"), 0.95, (0.0, 1.0))
    chosen = choose_tools([((0, 0), [first]), ((1, 1), [same, other])])
    assert [choice.tool.address for choice in chosen] == ["a.x", "b.z"]


def test_without_clauses_nothing_is_chosen():
    assert choose_tools([]) == []


def test_many_clauses_with_many_tools_are_chosen_from_in_bounded_steps():
    candidates = {f"s{number}.t{number}": 1 - number / 1_000 for number in range(500)}
    assert len(choose(*[candidates] * 8)) == 8
