"""Describe: what is said of tools asked for by name, in how many tokens, and that no part of it is
lost."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.errors import StaleCursor
from portico.meta_tools.describe_tools import CONTINUATION_MARK, MIN_FULL_BUDGET, describe
from portico.rendering.one_line_tool import render_summary
from portico.rendering.server_lines import ServerState
from portico.rendering.token_budget import count_tokens
from portico.rendering.tool import render_full_text, render_schema
from tests.meta_tools.search_catalog import by_words as snapshot
from tests.meta_tools.search_catalog import entry, tool

BUDGET = 2_000


def wide(name: str, parameters: int) -> dict[str, Any]:
    """A tool with many parameters, each of which takes a line of some thirty tokens."""
    about = "Which of the many things there are in this world is meant here, if any of them is"
    properties = {
        f"p{n}": {"type": "string", "description": f"{about} number {n}"} for n in range(parameters)
    }
    schema = {"type": "object", "properties": properties, "required": ["p0"]}
    return {"name": name, "description": f"Does number {parameters}.", "inputSchema": schema}


def cursor_in(answer: str) -> str | None:
    found = re.search(r'cursor="([^"]+)"\)$', answer)
    return found[1] if found else None


def answers(catalog: Snapshot, budget: int, name: str, detail: str) -> Iterator[str]:
    cursor: str | None = None
    while True:
        body, _ = describe(catalog, budget, [name], detail, cursor)
        yield body
        cursor = cursor_in(body)
        if cursor is None:
            return


def joined(parts: Sequence[str]) -> str:
    """What the parts say together, without their first and last lines about going on, and without
    what the gateway says of a finding."""
    whole = ""
    for place, one in enumerate(parts):
        body = one.split("\n", 1)[1].removeprefix(CONTINUATION_MARK) if place else one
        if cursor_in(one):
            body, note = body.rsplit("\n", 1)
            body += "" if "(inside a line)" in note else "\n"
        whole += body
    return whole.split("\n[The gateway warns: ")[0]


GITHUB = entry(
    "github",
    tool("create_issue", "Create a new issue in a repository.", "owner", "title"),
    tool("list_issues", "List the issues of a repository.", "owner"),
    tool("close_issue", "Close an issue.", "number"),
    description="Code hosting",
)
GITLAB = entry("gitlab", tool("create_issue", "Create a new issue in a project.", "project"))
UNHEARD = ServerEntry("unheard")
CATALOG = snapshot(GITHUB, GITLAB, UNHEARD)


def test_each_name_is_described_at_the_level_asked_for():
    brief, found = describe(CATALOG, BUDGET, ["github.close_issue", "gitlab/create_issue"], "brief")
    assert found
    assert brief == (
        "github.close_issue(number) — Close an issue.\ngitlab.create_issue(project) — "
        "Create a new issue in a project."
    )
    full, _ = describe(CATALOG, BUDGET, ["github.close_issue"], "full")
    assert 'inputSchema: {"type":"object",' in full


def test_a_tool_named_twice_is_shown_once():
    body, _ = describe(
        CATALOG, BUDGET, ["github.close_issue", "close_issue", "GITHUB/CLOSE_ISSUE"], "brief"
    )
    assert body.count("github.close_issue(") == 1


def test_a_wrong_name_costs_only_itself():
    body, found = describe(CATALOG, BUDGET, ["github.close_isue", "github.list_issues"], "brief")
    assert found
    assert body.startswith("github.list_issues(owner)")
    assert "there is no tool 'github.close_isue' here. Did you mean github.close_issue" in body


def test_only_wrong_names_are_an_error_with_advice():
    body, found = describe(CATALOG, BUDGET, ["nope.nope", "create_issue"])
    assert not found
    assert "Say which one: github.create_issue, gitlab.create_issue" in body


def test_ten_wrong_names_of_any_length_fit_the_budget():
    for length in (1, 80, 500, 100_000):
        for budget in (300, BUDGET):
            names = [f"github.{n}{'x' * length}" for n in range(10)]
            body, found = describe(CATALOG, budget, names)
            assert not found
            assert count_tokens(body) <= budget
            with_one, found = describe(CATALOG, budget, [*names[:9], "close_issue"], "brief")
            assert found
            assert with_one.startswith("github.close_issue(")
            assert count_tokens(with_one) <= budget


def test_what_does_not_fit_is_named_and_can_be_asked_for():
    catalog = snapshot(entry("s", *(wide(f"t{n}", 12) for n in range(10))))
    asked = [f"s.t{n}" for n in range(10)]
    seen: list[str] = []
    while asked:
        body, _ = describe(catalog, 1_000, asked)
        assert count_tokens(body) <= 1_000
        seen += re.findall(r"^(s\.t\d) — ", body, re.MULTILINE)
        left = re.search(r"^Left out to fit: (.*)\. Ask for them separately\.$", body, re.MULTILINE)
        asked = left[1].split(", ") if left else []
    assert sorted(seen) == [f"s.t{n}" for n in range(10)]


@pytest.mark.parametrize("asked", [["s.a", "s.huge", "s.b"], ["s.huge", "s.a", "s.b"]])
def test_a_tool_that_fits_is_not_left_out_for_one_that_does_not(asked: list[str]):
    catalog = snapshot(entry("s", tool("a", "Short."), wide("huge", 100), tool("b", "Short.")))
    body, _ = describe(catalog, 500, asked)
    assert (
        body
        == "s.a() — Short.\n\ns.b() — Short.\n\nLeft out to fit: s.huge. Ask for them separately."
    )


# Parts


def test_a_tool_too_long_for_one_answer_is_given_in_parts_that_join_to_the_whole():
    catalog = snapshot(entry("s", wide("huge", 100)))
    parts = list(answers(catalog, 500, "s.huge", "schema"))
    assert len(parts) > 3
    assert all(count_tokens(one) <= 500 for one in parts)
    assert parts[0].startswith("s.huge — Does number 100.\n p0: string")
    assert parts[1].startswith("s.huge, continued:\n p")
    assert joined(parts) == render_schema(catalog.tools["s.huge"])
    assert re.search(
        r"^Left to fit, about [\d,]+ tokens from p\d+\? on: describe_tools\(",
        parts[0],
        re.MULTILINE,
    )


def test_one_line_longer_than_the_budget_is_parted_too():
    catalog = snapshot(
        entry("s", {"name": "t", "inputSchema": {"type": "object"}, "x": "lorem ipsum " * 6_000})
    )
    parts = list(answers(catalog, 2_000, "s.t", "full"))
    assert len(parts) > 1
    assert all(count_tokens(one) <= MIN_FULL_BUDGET for one in parts)
    assert "(inside a line) on: describe_tools(" in parts[0]
    assert joined(parts) == render_full_text(catalog.tools["s.t"])


def test_where_no_tool_fits_the_first_is_begun_and_the_others_are_named():
    catalog = snapshot(entry("s", wide("one", 100), wide("two", 100)))
    body, _ = describe(catalog, 500, ["s.two", "s.one"])
    assert body.startswith("s.two — ")
    assert 'describe_tools(names=["s.two"], detail="schema", cursor="' in body
    assert body.endswith("\n\nLeft out to fit: s.one. Ask for them separately.")
    assert count_tokens(body) <= 500


def test_full_may_take_more_than_the_budget_and_never_more_than_its_own():
    catalog = snapshot(entry("s", wide("huge", 100)))
    body, _ = describe(catalog, 500, ["s.huge"], "full")
    assert 500 < count_tokens(body) <= MIN_FULL_BUDGET
    assert "cursor=" not in body


def test_what_is_known_beside_the_definition_is_part_of_full():
    body, _ = describe(
        CATALOG,
        BUDGET,
        ["close_issue"],
        "full",
        get_details=lambda tool: {"usage": {"calls": len(tool.name)}},
    )
    assert '\nusage: {"calls":11}\n' in body


def test_use_between_two_parts_loses_nothing_of_the_definition():
    catalog = snapshot(entry("s", wide("huge", 200)))
    first, _ = describe(
        catalog, 500, ["s.huge"], "full", get_details=lambda _: {"usage": {"calls": 9}}
    )
    assert "usage" in first
    then, _ = describe(
        catalog,
        500,
        ["s.huge"],
        "full",
        cursor_in(first),
        get_details=lambda _: {"usage": {"calls": 1_000}},
    )
    whole = render_full_text(catalog.tools["s.huge"], details={"usage": {"calls": 9}})
    assert joined([first, then]).startswith(whole[: len(joined([first])) + 200])


def test_a_cursor_continues_one_tool_at_one_level_of_one_catalog():
    catalog = snapshot(entry("s", wide("huge", 100), wide("other", 100)))
    cursor = cursor_in(describe(catalog, 500, ["s.huge"])[0])
    for names, detail in ((["s.other"], "schema"), (["s.huge"], "full")):
        with pytest.raises(StaleCursor, match="another question"):
            describe(catalog, 500, names, detail, cursor)
    with pytest.raises(StaleCursor, match="continues one tool"):
        describe(catalog, 500, ["s.huge", "s.other"], "schema", cursor)
    with pytest.raises(StaleCursor, match="the tools changed"):
        describe(snapshot(entry("s", wide("huge", 100)), GITLAB), 500, ["s.huge"], "schema", cursor)
    assert not describe(catalog, 500, ["nobody.knows"], "schema", cursor)[1]


words = st.text(max_size=300)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(words, words), min_size=1, max_size=30),
    st.sampled_from([400, 900, BUDGET]),
    st.sampled_from(["brief", "schema", "full"]),
    st.integers(1, 200),
)
def test_parts_of_anything_fit_and_join_to_the_whole(
    parameters: list[tuple[str, str]], budget: int, detail: str, times: int
):
    properties = {
        name: {"type": "string", "description": text, "enum": [text * times]}
        for name, text in parameters
    }
    definition = {
        "name": "t",
        "description": parameters[0][1],
        "inputSchema": {"properties": properties},
    }
    catalog = snapshot(entry("s", definition))
    parts = list(answers(catalog, budget, "s.t", detail))
    show = {"brief": render_summary, "schema": render_schema, "full": render_full_text}[detail]
    assert joined(parts) == show(catalog.tools["s.t"])
    assert all(
        count_tokens(one) <= (MIN_FULL_BUDGET if detail == "full" else budget) for one in parts
    )


def test_a_tool_of_a_server_that_is_down_and_was_never_listed_is_not_called_unknown():
    states = {"unheard": ServerState("down", "no such command", 1_700_000_000.0)}
    body, found = describe(CATALOG, BUDGET, ["unheard.anything"], states=states)
    assert not found
    assert re.search(
        r"unheard is known but unavailable since \d\d:\d\d:\d\d: no such command", body
    )
