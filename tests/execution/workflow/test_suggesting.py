"""An intent becomes a plan of real tools: in order, joined, with what is not known left open and
nothing made up."""

import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool, make_tool
from portico.results.shape import Shape, infer_shape
from portico.upstream.backend import Raw
from portico.workflows.planning.clauses import split_clauses
from portico.workflows.planning.literals import find_literals
from portico.workflows.planning.omissions import find_omissions
from portico.workflows.planning.planner import (
    PlanCandidate,
    PlanSuggestion,
    apply_inputs,
    build_plan,
    make_index_search,
    suggest_plan,
)
from portico.workflows.references import parse_value, resolve_references
from portico.workflows.validation import InvalidWorkflow, validate_workflow
from tests.disclosure.house import by_words, entry

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[4] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"
READ_ONLY: Raw = {"annotations": {"readOnlyHint": True}}


def tool(
    name: str, description: str, *required: str, optional: Raw | None = None, **more: Any
) -> Raw:
    properties: Raw = {
        one: {
            "type": "integer" if "number" in one else "string",
            "description": f"The {one} to use.",
        }
        for one in required
    }
    properties |= optional or {}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema, **more}


def answers(**properties: Any) -> Raw:
    return {"outputSchema": {"type": "object", "properties": properties}}


def list_of(**properties: str) -> Raw:
    items = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
    }
    return {"type": "array", "items": items}


STATE: Raw = {"state": {"type": "string", "enum": ["open", "closed"]}, "limit": {"type": "integer"}}
HUB = entry(
    "hub",
    tool(
        "list_issues", "List the issues of a repository.", "owner", "repo", optional=STATE, **READ_ONLY,
        **answers(issues=list_of(number="integer", title="string", url="string")),
    ),
    tool("close_issue", "Close an issue of a repository.", "owner", "repo", "issue_number"),
    tool("create_issue", "Create a new issue in a repository.", "owner", "repo", "title"),
)  # fmt: skip
CHAT = entry(
    "chat",
    tool("post_message", "Post a message to a chat channel.", "channel_id", "text"),
    tool(
        "list_channels", "List the chat channels.", **READ_ONLY,
        **answers(channels=list_of(id="string", name="string")),
    ),
)  # fmt: skip
FILES = entry(
    "files",
    tool(
        "read_file",
        "Read a file from disk.",
        "path",
        **READ_ONLY,
        **answers(content={"type": "string"}),
    ),
    tool("write_file", "Write a file to disk.", "path", "content"),
)
WEATHER = entry(
    "weather", tool("forecast", "Get the weather forecast of a city.", "city", **READ_ONLY)
)
HOUSE = by_words(HUB, CHAT, FILES, WEATHER)


async def plan(intent: str, snapshot: Snapshot = HOUSE, **options: Any) -> PlanSuggestion:
    made = await suggest_plan(intent, snapshot, make_index_search(snapshot), **options)
    example = {name: {"integer": 1}.get(one.type, "x") for name, one in made.inputs.items()}
    if made.steps:
        assert not isinstance(
            checked := validate_workflow([dict(step) for step in made.steps], example, snapshot),
            InvalidWorkflow,
        ), checked
    return made


def arguments(made: PlanSuggestion, tool: str) -> Any:
    return next(step["arguments"] for step in made.steps if step["tool"] == tool)


def tools(made: PlanSuggestion) -> list[str]:
    return [step["tool"] for step in made.steps]


# --- clauses and literals


@pytest.mark.parametrize(
    ("intent", "parts"),
    [
        (
            "find the issues, then post them and close them",
            ["find the issues", "post them", "close them"],
        ),
        ("list title and body of the cards", ["list title and body of the cards"]),
        ("the tables and which columns they have", ["the tables", "which columns they have"]),
        ("the orders, which are open", ["the orders, which are open"]),
        ("say what and how", ["say what and how"]),
        ("after reading the file, send it", ["reading the file", "send it"]),
        ("send it after reading the file", ["reading the file", "send it"]),
        ("before sending it, read the file", ["read the file", "sending it"]),
        ("1. read the file\n2. send it", ["read the file", "send it"]),
        ("post 'read, and then write' to chat", ["post 'read, and then write' to chat"]),
        ("read the file -> send it", ["read the file", "send it"]),
        (
            "Suche offene Tickets und sende eine Nachricht",
            ["Suche offene Tickets", "sende eine Nachricht"],
        ),
        ("", []),
    ],
)
def test_an_intent_falls_into_things_to_do_in_the_order_in_which_to_do_them(
    intent: str, parts: list[str]
):
    assert split_clauses(intent) == parts


def test_what_is_plainly_said_is_seen_as_what_it_is():
    said = 'mail "a, b" to bob@x.org about octo/hello #42, see https://x.org/a. and /tmp/a.md since 2025-01-31 in #ops'
    found = {one.kind: one.text for one in find_literals(said)}
    assert found == {
        "quoted": "a, b", "email": "bob@x.org", "repo": "octo/hello", "number": "42", "url": "https://x.org/a",
        "path": "/tmp/a.md", "date": "2025-01-31", "channel": "ops",
    }  # fmt: skip


def test_and_or_is_no_repository_and_a_site_no_file():
    assert not [
        one
        for one in find_literals("read and/or write e.g. on example.com")
        if one.kind in ("repo", "file")
    ]


# --- plans


async def test_tools_are_found_for_each_clause_and_stand_in_its_order():
    made = await plan("read the file /tmp/a.md, then post a message to the chat channel")
    assert tools(made) == ["files.read_file", "chat.post_message"]


async def test_words_that_are_plainly_meant_for_a_parameter_are_filled_in():
    made = await plan("list the open issues of the repository octo/hello")
    assert arguments(made, "hub.list_issues") == {"owner": "octo", "repo": "hello", "state": "open"}


async def test_a_plan_without_gaps_that_only_reads_is_ready():
    made = await plan(
        "list the issues of the repository octo/hello, then get the weather forecast in Paris"
    )
    assert (made.is_ready, made.changing_tools, made.missing_inputs) == (True, (), ())


async def test_a_plan_that_changes_something_is_not_ready_though_nothing_is_missing():
    made = await plan('create an issue in the repository octo/hello titled "Broken"')
    assert not made.missing_inputs
    assert (made.is_ready, made.changing_tools) == (False, ("hub.create_issue",))


async def test_an_earlier_answer_fills_what_a_later_step_must_have():
    made = await plan("list the issues of the repository octo/hello and close one issue")
    assert arguments(made, "hub.close_issue")["issue_number"] == "${list_issues.issues[0].number}"


async def test_each_of_a_list_becomes_a_loop():
    made = await plan("list the issues of the repository octo/hello and close each issue")
    step = made.steps[1]
    assert (step["for_each"], step["arguments"]["issue_number"]) == (
        "${list_issues.issues}",
        "${item.number}",
    )


async def test_a_tool_comes_after_the_one_that_offers_what_it_must_have():
    made = await plan("close an issue of the repository octo/hello and list the issues")
    assert tools(made) == ["hub.list_issues", "hub.close_issue"]


async def test_a_text_that_is_what_was_found_is_the_answer_written_out():
    made = await plan("read the file /tmp/a.md and write it to the file /tmp/b.md")
    assert arguments(made, "files.write_file") == {
        "path": "/tmp/b.md",
        "content": "${read_file.content}",
    }


async def test_what_nobody_said_is_an_input_with_its_type_and_description():
    made = await plan("post a message to the chat channel")
    assert arguments(made, "chat.post_message") == {
        "channel_id": "${inputs.channel_id}",
        "text": "${inputs.text}",
    }
    missing = made.inputs["channel_id"]
    assert (missing.type, missing.description) == ("string", "The channel_id to use.")
    assert missing.needed_by == ("post_message.channel_id",)


async def test_an_input_names_the_tools_that_may_tell_it():
    made = await plan("post a message to the chat channel")
    assert made.inputs["channel_id"].source_tools == ("chat.list_channels",)


async def test_a_name_is_looked_up_by_a_step_put_in_front():
    made = await plan("post a message to the chat channel #general")
    assert tools(made) == ["chat.list_channels", "chat.post_message"]
    wanted = "${list_channels.channels[?name=='general'].id | [0]}"
    assert arguments(made, "chat.post_message")["channel_id"] == wanted


async def test_what_a_plan_refers_to_is_found_when_it_runs():
    made = await plan(
        "list the issues of the repository octo/hello, then post a message to the chat channel #general"
    )
    answer = {"channels": [{"id": "C1", "name": "random"}, {"id": "C2", "name": "general"}]}
    text = parse_value(arguments(made, "chat.post_message")["channel_id"])
    assert resolve_references(text, {"list_channels": answer}) == "C2"


async def test_a_learned_shape_joins_what_no_schema_tells():
    lists = entry(
        "shop",
        tool("list_orders", "List the orders of the shop."),
        tool("ship_order", "Ship an order.", "order_id"),
    )
    snapshot = by_words(lists)
    intent = "list the orders of the shop, then ship the order"
    before = await plan(intent, snapshot)
    assert arguments(before, "shop.ship_order")["order_id"] == "${inputs.order_id}"
    assert before.inputs["order_id"].source_tools == ("shop.list_orders",)
    assert before.steps[1]["depends_on"] == ["list_orders"]

    def seen(one: Tool) -> Shape | None:
        return (
            infer_shape({"orders": [{"id": "o1", "customer_id": "c1"}]})
            if one.name == "list_orders"
            else None
        )

    after = await plan(intent, snapshot, shapes=seen)
    assert arguments(after, "shop.ship_order")["order_id"] == "${list_orders.orders[0].id}"


async def test_one_servers_ids_are_not_anothers():
    other = entry("other", tool("archive_issue", "Archive an issue in the vault.", "issue_number"))
    made = await plan(
        "list the issues of the repository octo/hello, then archive an issue in the vault",
        by_words(HUB, other),
    )
    assert arguments(made, "other.archive_issue")["issue_number"] == "${inputs.issue_number}"


async def test_the_id_of_something_else_is_not_taken():
    house = entry(
        "cloud",
        tool("list_projects", "List the projects.", **answers(orgId={"type": "string"})),
        tool("list_clusters", "List the clusters of a project.", "projectId"),
    )
    made = await plan("list the projects, then list the clusters of a project", by_words(house))
    assert arguments(made, "cloud.list_clusters")["projectId"] == "${inputs.projectId}"


async def test_tools_that_were_used_together_win_over_what_fits_about_as_well():
    async def find(words: str, _: int) -> list[PlanCandidate]:
        if words == "get the weather":
            return [PlanCandidate("weather.forecast", 1.0)]
        return [PlanCandidate("files.write_file", 0.9), PlanCandidate("chat.post_message", 0.88)]

    def together(one: str, other: str) -> float:
        return 1.0 if {one, other} == {"weather.forecast", "chat.post_message"} else 0.0

    intent = "get the weather, then put it somewhere"
    assert tools(await suggest_plan(intent, HOUSE, find)) == [
        "weather.forecast",
        "files.write_file",
    ]
    assert tools(await suggest_plan(intent, HOUSE, find, together=together)) == [
        "weather.forecast",
        "chat.post_message",
    ]


async def test_a_clause_that_nothing_serves_is_named_with_what_comes_nearest():
    made = await plan("list the issues of the repository octo/hello, then defrost quantum penguins")
    assert tools(made) == ["hub.list_issues"]
    assert [one.clause for one in made.unserved] == ["defrost quantum penguins"]
    assert not made.is_ready


async def test_an_intent_that_nothing_serves_makes_no_plan():
    made = await plan("zzz qqq")
    assert (made.steps, made.is_ready) == ((), False)


async def test_a_tool_that_is_not_seen_is_not_planned_with():
    async def find(_: str, __: int) -> list[PlanCandidate]:
        return [PlanCandidate("secret.tool", 1.0)]

    assert not (await suggest_plan("use the secret tool", HOUSE, find)).steps


async def test_a_tool_twice_is_one_step_unless_each_clause_says_for_what():
    same = await plan("read the file /tmp/a.md, then read the file")
    assert tools(same) == ["files.read_file"]
    two = await plan("read the file /tmp/a.md, then read the file /tmp/b.md")
    assert [step["arguments"]["path"] for step in two.steps] == ["/tmp/a.md", "/tmp/b.md"]


async def test_a_plan_has_at_most_eight_steps():
    made = await plan(", then ".join(f"read the file /tmp/{n}.md" for n in range(20)))
    assert len(made.steps) == 8


async def test_the_same_unknown_of_one_server_is_asked_for_once_and_texts_each_for_themselves():
    made = await plan("list the issues of a repository, then create an issue, then close an issue")
    assert [one for one in made.missing_inputs if one.startswith("owner")] == ["owner"]
    assert len(made.inputs["owner"].needed_by) == 3


async def test_a_value_that_the_schema_refuses_is_not_filled_in():
    strict = tool("fetch_page", "Fetch a web page by its url.", "url")
    strict["inputSchema"]["properties"]["url"]["pattern"] = "^https://intranet/"
    made = await plan("fetch the web page https://example.com/a", by_words(entry("web", strict)))
    assert made.missing_inputs == ("url",)


async def test_odd_names_and_quotes_make_no_reference_that_cannot_be_read():
    odd = entry(
        "odd",
        tool(
            "list_things",
            "List the odd things.",
            **answers(**{"odd things": list_of(**{"thing-id": "string", "name": "string"})}),
        ),
        tool("paint_thing", "Paint an odd thing.", "thing-id"),
    )
    made = await plan('list the odd things, then paint the odd thing "it\'s"', by_words(odd))
    assert '"odd things"' in arguments(made, "odd.paint_thing")["thing-id"]


@pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}")
def test_any_two_real_tools_make_steps_that_can_be_run():
    with gzip.open(FLEET) as file:
        servers = [orjson.loads(line) for line in file]
    entries = {
        server["slug"]: ServerEntry(
            server["slug"],
            tools={one["name"]: make_tool(server["slug"], one) for one in server["tools"]},
        )
        for server in servers
    }
    snapshot = Snapshot(entries)
    every = list(snapshot.tools.values())
    some = every[::9]
    example: dict[str, Any] = {
        "integer": 1,
        "number": 1,
        "boolean": True,
        "object": {},
        "array": [],
    }
    for one, other in zip(some, [*some[1:], some[0]], strict=True):
        intent = "get each of them for 'foo', then post it"
        made = build_plan(
            intent,
            snapshot,
            [("get each of them for 'foo'", [(one, 1.0)]), ("post it", [(other, 1.0)])],
            (),
        )
        given = {
            name: one_.type[7:].split(", ")[0] if one_.type.startswith("one of ") else [] if one_.type.endswith("[]")
            else example.get(one_.type, "x")
            for name, one_ in made.inputs.items()
        }  # fmt: skip
        checked = validate_workflow([dict(step) for step in made.steps], given, snapshot)
        assert not isinstance(checked, InvalidWorkflow), (one.address, other.address, checked)


# --- what was said and is used nowhere


def test_a_plan_that_leaves_out_what_was_said_does_not_run_at_once():
    step = {"id": "a", "tool": "web.screenshot", "arguments": {}}
    assert find_omissions("take a screenshot of https://x.test/a", [step], {}) == (
        "https://x.test/a",
    )
    steps = [{"tool": "s.t", "arguments": {"owner": "octo", "repo": "hello", "path": 'a "b"'}}]
    assert find_omissions("of octo/hello", steps, {}) == ()
    assert PlanSuggestion((step,)).is_ready
    assert not PlanSuggestion((step,), unused=("https://x.test/a",)).is_ready


@pytest.mark.parametrize(
    ("intent", "lost"),
    [
        ("list the issues of octo/hello and their authors' birthdays", "their authors' birthdays"),
        ("list the issues of octo/hello that mention pandas", "that mention pandas"),
        ("list the issues of octo/hello, sorted by votes", "sorted by votes"),
        ("list the chat channels, and the colours", "the colours"),
        ("list the issues of octo/hello and titles of the issues", ""),
        ("list the open issues of octo/hello, with number and url", ""),
        ("list the issues of octo/hello" + ", then list the channels" * 8, "list the channels"),
    ],
)
async def test_words_that_no_tool_of_the_plan_speaks_of_are_left_out_of_it(intent: str, lost: str):
    made = await plan(intent)
    assert made.unused == ((lost,) if lost else ())
    assert made.is_ready is not bool(lost)


async def test_what_is_passed_for_an_input_is_said_with_it():
    made = await plan("get the weather forecast for the Alps")
    passed = apply_inputs(
        replace(made, unused=("Alps",)), {"city": "Chamonix, Alps", "mood": 1}, HOUSE
    )
    assert (passed.missing_inputs, passed.given_inputs, passed.unused) == (
        (),
        ("city",),
        ("inputs.mood",),
    )
    assert apply_inputs(made, {"city": "Chamonix"}, HOUSE).is_ready


async def test_what_is_passed_for_a_parameter_that_is_left_out_is_taken_by_the_step_that_has_it():
    made = await plan("list the issues of octo/hello")
    passed = apply_inputs(made, {"limit": 5}, HOUSE)
    assert arguments(passed, "hub.list_issues") == {
        "owner": "octo",
        "repo": "hello",
        "limit": "${inputs.limit}",
    }
    assert (passed.is_ready, passed.given_inputs) == (True, ("limit",))
    assert apply_inputs(made, {"owner": "other"}, HOUSE).unused == ("inputs.owner",)
    twice = await plan("list the issues of octo/hello, then list the issues of a/b")
    assert apply_inputs(twice, {"limit": 5}, HOUSE).unused == ("inputs.limit",)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("save it as a note called wifi", "wifi"),
        ("open a board named Road Map for the team", "Road Map"),
        ("make a list titled groceries", "groceries"),
    ],
)
def test_a_bare_word_after_called_is_a_name(words: str, found: str):
    assert [one.text for one in find_literals(words) if one.kind == "quoted"] == [found]


@pytest.mark.parametrize(
    "words", ["whatever it is called by the team", "a child named after the queen"]
)
def test_a_word_that_only_goes_on_is_no_name(words: str):
    assert not [one for one in find_literals(words) if one.kind == "quoted"]


async def test_two_paths_are_where_it_comes_from_and_where_it_goes():
    moves = make_tool("disk", tool("move_file", "Move a file.", "source", "destination"))
    found = [("move /a/b.txt to /c/d.txt", [(moves, 1.0)])]
    made = build_plan(
        "move /a/b.txt to /c/d.txt",
        by_words(entry("disk", tool("move_file", "Move a file.", "source", "destination"))),
        found,
        (),
    )
    assert made.steps[0]["arguments"] == {"source": "/a/b.txt", "destination": "/c/d.txt"}
