"""An intent and inputs become a plan of real tools: in order, joined, with what is not known left
open and nothing made up."""

import functools
import gzip
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool, make_tool
from portico.results.shape import Shape, infer_shape
from portico.upstream.backend import Raw
from portico.visibility import Scope
from portico.workflows.planning.argument_reader import LeafReading
from portico.workflows.planning.offers import StepReading
from portico.workflows.planning.parameters import list_leaves
from portico.workflows.planning.planner import (
    MAX_CLAUSES,
    PlanSuggestion,
    open_reader,
    suggest_plan,
)
from portico.workflows.planning.said_words import SaidWords
from portico.workflows.planning.step_builder import PlanDraft, build_steps
from portico.workflows.planning.tool_choice import ChosenTool, PlanCandidate
from portico.workflows.references import nest_inputs
from portico.workflows.validation import InvalidWorkflow, ValidatedWorkflow, validate_workflow
from tests.meta_tools.search_catalog import by_meaning, by_words, entry
from tests.workflows.index_search import make_index_search

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[4] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"
READ_ONLY: Raw = {"annotations": {"readOnlyHint": True}}
EXAMPLES: Mapping[str, Any] = {
    "integer": 1,
    "number": 1,
    "boolean": True,
    "object": {},
}


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
        "list_issues",
        "List the issues of a repository.",
        "owner",
        "repo",
        optional=STATE,
        **READ_ONLY,
        **answers(issues=list_of(number="integer", title="string", url="string")),
    ),
    tool("close_issue", "Close an issue of a repository.", "owner", "repo", "issue_number"),
    tool("create_issue", "Create a new issue in a repository.", "owner", "repo", "title"),
)
CHAT = entry(
    "chat",
    tool("post_message", "Post a message to a chat channel.", "channel_id", "text"),
    tool(
        "list_channels",
        "List the chat channels.",
        **READ_ONLY,
        **answers(channels=list_of(id="string", name="string")),
    ),
)
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
TRACKER = entry(
    "tracker", tool("transfer_issue", "Transfer an issue to another team.", "issue", "team")
)
WEATHER = entry(
    "weather", tool("forecast", "Get the weather forecast of a city.", "city", **READ_ONLY)
)
SERVERS = (HUB, CHAT, FILES, WEATHER, TRACKER)
SNAPSHOT = by_words(*SERVERS)
"""Searched by words alone."""


@functools.cache
def get_catalog() -> Snapshot:
    """The same, searched by meaning too."""
    return by_meaning(*SERVERS)


def get_example(kind: str) -> Any:
    """A value of a missing input's type."""
    if kind.startswith("one of "):
        return kind[7:].split(", ")[0]
    return [] if kind.endswith("[]") else EXAMPLES.get(kind.split("|")[0], "x")


def check_steps(
    made: PlanSuggestion | PlanDraft, inputs: Mapping[str, Any], snapshot: Snapshot
) -> ValidatedWorkflow | InvalidWorkflow:
    given = {name: get_example(one.type) for name, one in made.inputs.items()} | dict(inputs)
    return validate_workflow([dict(step) for step in made.steps], nest_inputs(given), snapshot)


async def plan(
    intent: str,
    inputs: Mapping[str, Any] | None = None,
    snapshot: Snapshot | None = None,
    **options: Any,
) -> PlanSuggestion:
    snapshot = snapshot or get_catalog()
    find = make_index_search(snapshot)
    made = await suggest_plan(intent, inputs or {}, snapshot, find, **options)
    if made.steps:
        checked = check_steps(made, inputs or {}, snapshot)
        assert not isinstance(checked, InvalidWorkflow), checked
    return made


def arguments(made: PlanSuggestion | PlanDraft, tool: str) -> Any:
    return next(step["arguments"] for step in made.steps if step["tool"] == tool)


def tools(made: PlanSuggestion | PlanDraft) -> list[str]:
    return [step["tool"] for step in made.steps]


def know_nothing(_: Tool) -> Shape | None:
    return None


def build(*definitions: Raw, shape: Any = None, **inputs: Any) -> PlanDraft:
    """The steps of these tools where the network says nothing: names and types alone decide."""
    chosen = [make_tool("server", definition) for definition in definitions]
    said = open_reader().read_words("do it", inputs)
    readings = [
        StepReading(
            ChosenTool((0, 1), one),
            [
                LeafReading(leaf, 1.0, (0.0,) * len(said.inputs), (0.0,) * len(leaf.options), ())
                for leaf in list_leaves(one)
            ],
        )
        for one in chosen
    ]

    def shapes(one: Tool) -> Shape | None:
        return infer_shape(shape) if shape is not None and one == chosen[0] else None

    draft = build_steps(readings, said, shapes)
    checked = check_steps(draft, inputs, by_words(entry("server", *definitions)))
    assert not isinstance(checked, InvalidWorkflow), checked
    return draft


# --- tools


async def test_tools_are_found_for_each_clause_and_stand_in_its_order():
    made = await plan("Read the file /tmp/a.md, then post a message to the chat channel")
    assert tools(made) == ["files.read_file", "chat.post_message"]


async def test_tools_are_found_for_each_clause_by_words_alone_too():
    made = await plan(
        "List the chat channels, then get the weather forecast of Paris", {}, SNAPSHOT
    )
    assert tools(made) == ["chat.list_channels", "weather.forecast"]


async def test_a_clause_that_nothing_serves_is_named_with_what_comes_nearest():
    made = await plan("List the issues of the repository, then defrost quantum penguins")
    assert tools(made) == ["hub.list_issues"]
    assert len(made.unserved) == 1
    assert "defrost quantum penguins" in made.unserved[0].clause
    assert set(made.unserved[0].nearest) <= set(SNAPSHOT.tools)
    assert not made.is_complete


@pytest.mark.parametrize("intent", ["zzz qqq", "", "   ", "?!", "\x00"])
async def test_an_intent_that_nothing_serves_makes_no_plan(intent: str):
    made = await plan(intent)
    assert (made.steps, made.is_complete) == ((), False)


async def test_a_tool_that_is_not_seen_is_not_planned_with():
    async def find(_: str, __: int) -> list[PlanCandidate]:
        return [PlanCandidate("secret.tool", 1.0)]

    assert not (await suggest_plan("use the secret tool", {}, SNAPSHOT, find)).steps
    scope = Scope(servers=("files",))
    made = await plan("post a message", {}, by_meaning(CHAT, FILES, scope=scope))
    assert "chat.post_message" not in tools(made)


async def test_the_tools_of_a_plan_that_worked_are_preferred_where_they_fit_as_well():
    copies = [
        entry(name, tool("send", "Send a message to a channel.", "text")) for name in ("one", "two")
    ]
    snapshot = by_meaning(*copies, FILES)
    intent = "Read the file /tmp/a.md, then send a message to a channel"
    for server in ("one", "two"):
        worked = ("files.read_file", f"{server}.send")
        made = await plan(intent, {}, snapshot, worked=worked)
        assert (tools(made), made.has_worked) == (list(worked), True)
    assert not (await plan(intent, {}, snapshot)).has_worked


# --- values that were said


async def test_what_is_said_in_the_words_is_filled_in():
    made = await plan("transfer issue ENG-482 to team Platform")
    assert arguments(made, "tracker.transfer_issue") == {"issue": "ENG-482", "team": "Platform"}
    assert made.is_complete


PLANS = entry(
    "plans",
    tool("create_milestone", "Create a milestone.", "title", "start_date", "due_date"),
    tool("close_milestone", "Close a milestone.", "title"),
)


async def test_two_dates_of_the_words_stand_in_the_order_of_the_parameters():
    words = 'create the milestone "Winter" from 30 November to 11 December 2026'
    (step,) = (await plan(words, snapshot=by_meaning(PLANS))).steps
    assert step["tool"] == "plans.create_milestone"
    assert step["arguments"] == {
        "title": "Winter",
        "start_date": "2026-11-30",
        "due_date": "2026-12-11",
    }


async def test_owner_and_name_of_the_words_go_to_two_parameters():
    (step,) = (await plan('create an issue "Login loop" in acme/web-store')).steps
    assert step["arguments"] == {"owner": "acme", "repo": "web-store", "title": "Login loop"}


async def test_inputs_go_to_the_parameters_of_their_names():
    made = await plan(
        "Create a new issue in the repository",
        {"owner": "octo", "repository": "hello", "issue_title": "Broken"},
    )
    assert arguments(made, "hub.create_issue") == {
        "owner": "${inputs.owner}",
        "repo": "${inputs.repository}",
        "title": "${inputs.issue_title}",
    }
    assert made.is_complete


async def test_an_input_that_no_step_takes_is_named():
    made = await plan("Get the weather forecast", {"city": "Paris", "colour": {"deep": [1]}})
    assert arguments(made, "weather.forecast") == {"city": "${inputs.city}"}
    assert "inputs.colour" in made.unused
    assert not made.is_complete


async def test_what_was_missing_is_answered_by_its_address_and_the_plan_stays_the_same():
    first = await plan("post a message", {"text": "Hi"})
    answers = {"text": "Hi", "post_message.channel_id": "C1"}
    second = await plan("post a message", answers)
    assert list(first.inputs) == ["post_message.channel_id"]
    assert (second.steps, second.is_complete) == (first.steps, True)


async def test_a_value_by_the_address_of_its_parameter_stands_above_all_that_was_read():
    inputs = {"channel_id": "C1", "text": "Hi"}
    made = await plan("post a message", {**inputs, "post_message.channel_id": "C2"})
    assert arguments(made, "chat.post_message")["channel_id"] == (
        "${inputs.post_message.channel_id}"
    )
    again = await plan("post a message", {**inputs, "post_message.channel_id": None})
    assert list(again.inputs) == ["post_message.channel_id"]


async def test_null_by_the_address_of_a_parameter_leaves_it_out():
    inputs = {"owner": "o", "repo": "r", "state": "open"}
    made = await plan("list the issues", inputs)
    assert arguments(made, "hub.list_issues")["state"] == "${inputs.state}"
    made = await plan("list the issues", {**inputs, "list_issues.state": None})
    assert "state" not in arguments(made, "hub.list_issues")


async def test_a_name_with_a_full_stop_that_is_no_address_is_read_as_any_other():
    made = await plan("Get the weather forecast", {"the.city": "Paris"})
    assert arguments(made, "weather.forecast") == {"city": "Paris"}


async def test_tools_that_are_named_are_planned_with_in_their_order():
    named = ["chat.post_message", "weather.forecast"]
    made = await plan("Get the weather forecast", {"city": "Rome", "text": "Hi", "tools": named})
    assert tools(made) == named
    assert arguments(made, "weather.forecast") == {"city": "${inputs.city}"}
    assert arguments(made, "chat.post_message")["text"] == "${inputs.text}"


async def test_tools_of_other_names_are_an_input_like_any_other():
    made = await plan("Get the weather forecast", {"city": "Rome", "tools": ["no.such"]})
    assert tools(made) == ["weather.forecast"]
    assert made.unused == ("inputs.tools",)


async def test_tools_that_come_near_are_named_with_what_they_need():
    inputs = {"owner": "o", "repo": "r", "issue_number": "7"}
    made = await plan("close or transfer the issue", inputs)
    assert tools(made) == ["hub.close_issue"]
    assert made.others["tracker.transfer_issue"] == ("issue", "team")
    assert "hub.close_issue" not in made.others


async def test_what_nobody_said_is_an_input_with_its_type_and_description():
    made = await plan("post a message")
    assert arguments(made, "chat.post_message") == {
        "channel_id": "${inputs.post_message.channel_id}",
        "text": "${inputs.post_message.text}",
    }
    missing = made.inputs["post_message.channel_id"]
    assert (missing.type, missing.description) == ("string", "The channel_id to use.")
    assert not made.is_complete


@pytest.mark.parametrize("names", [("due_date", "start_date"), ("start_date", "due_date")])
async def test_of_two_dates_the_later_one_is_the_end_whatever_the_order(names: tuple[str, ...]):
    definition = tool("create_milestone", "Create a milestone.", "title", *names)
    snapshot = by_words(entry("hub", definition))
    intent = "create the milestone v3 from 4 to 29 January 2027"
    made = await plan(intent, {"tools": ["hub.create_milestone"]}, snapshot)
    said = arguments(made, "hub.create_milestone")
    assert (said["start_date"], said["due_date"]) == ("2027-01-04", "2027-01-29")


async def test_names_with_numbers_are_a_list_of_objects():
    item = list_of(category="string", value="number")
    item["items"]["required"] = ["category", "value"]
    definition = tool("make_pie_chart", "Make a pie chart.", optional={"data": item})
    snapshot = by_words(entry("chart", definition))
    intent = "make a pie chart: Rent 3000, Salaries 21000 and Food 800.5"
    made = await plan(intent, {"tools": ["chart.make_pie_chart"]}, snapshot)
    assert arguments(made, "chart.make_pie_chart")["data"] == [
        {"category": "Rent", "value": 3000},
        {"category": "Salaries", "value": 21000},
        {"category": "Food", "value": 800.5},
    ]


# --- steps, whatever the network says


@pytest.mark.parametrize(
    ("schema", "given", "value"),
    [
        ({"type": "integer"}, "42", 42),
        ({"type": "string"}, 42, "42"),
        ({"type": "string", "format": "date"}, "31 January 2025", "2025-01-31"),
        ({"type": "string", "enum": ["IN_PROGRESS", "DONE"]}, "in progress", "IN_PROGRESS"),
        ({"type": "array", "items": {"type": "string"}}, "a, b", ["a", "b"]),
    ],
)
def test_an_input_of_another_form_is_converted_and_that_is_noted(
    schema: Raw, given: Any, value: Any
):
    draft = build(tool("do_it", "Do it.", optional={"worth": schema}), worth=given)
    assert draft.steps[0]["arguments"] == {"worth": value}
    assert draft.notes == [f"worth is passed as {value!r}"]


def test_an_input_that_cannot_be_converted_is_named_and_its_parameter_is_unsure():
    draft = build(tool("do_it", "Do it.", optional={"worth": {"type": "integer"}}), worth="much")
    assert draft.steps[0]["arguments"] == {}
    assert (draft.unused, draft.unsure) == (["worth"], ["do_it.worth"])


def test_a_guess_is_unsure_and_a_value_of_the_same_name_is_not():
    move = tool("move", "Move it.", "path", "size")
    assert build(move, path="/a", size="b").unsure == []
    assert "move.path" in build(move, file_path_to_move="/a").unsure


def test_what_may_become_of_a_thing_is_unsure_where_only_the_thing_is_said():
    state = {"type": "string", "enum": ["open", "resolved"]}
    update = tool("update_incident", "Update it.", "incident_id", optional={"state": state})
    assert build(update, incident_id="i1").unsure == ["update_incident.state"]


def test_the_likeliest_option_of_a_required_parameter_is_taken_and_named_as_unsure():
    operation = {"type": "string", "enum": ["create", "drain"]}
    definition = tool("manage", "Manage nodes.", optional={"operation": operation})
    for required in (["operation"], []):
        definition["inputSchema"]["required"] = required
        one = make_tool("server", definition)
        leaf = list_leaves(one)[0]
        read = LeafReading(leaf, 0.6, (), (0.1, 0.3), ())
        said = open_reader().read_words("move everything away", {})
        draft = build_steps([StepReading(ChosenTool((0, 1), one), [read])], said, know_nothing)
        assert draft.steps[0]["arguments"] == ({"operation": "drain"} if required else {})
        assert draft.unsure == ["manage.operation"]


def test_a_step_is_done_for_each_item_of_a_list_where_its_tool_takes_one():
    archive = tool("archive", "Archive a card.", "card_id")
    draft = build(archive, card_ids=["a", "b"])
    assert draft.steps[0]["for_each"] == "${inputs.card_ids}"
    assert draft.steps[0]["arguments"] == {"card_id": "${item}"}


def test_objects_of_a_list_get_the_keys_that_the_parameter_takes():
    point = {
        "type": "object",
        "properties": {"category": {"type": "string"}, "value": {"type": "number"}},
        "required": ["category", "value"],
    }
    draw = tool("draw", "Draw it.", optional={"data": {"type": "array", "items": point}})
    draft = build(draw, data=[{"stage": "Visits", "count": 4}])
    assert draft.steps[0]["arguments"] == {"data": [{"category": "Visits", "value": 4}]}


def test_owner_and_name_in_one_input_go_to_two_parameters():
    draft = build(tool("get", "Get it.", "owner", "repo"), repository="acme/web")
    assert draft.steps[0]["arguments"] == {"owner": "acme", "repo": "web"}


async def test_words_that_only_say_where_are_no_step_of_their_own():
    made = await plan("In the chat channel, post a message", {"channel": "C1", "text": "Hi"})
    assert tools(made) == ["chat.post_message"]


def test_parts_of_an_object_go_into_the_objects_of_a_parameter():
    where = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
        "required": ["city"],
    }
    ship = tool("ship", "Ship it.", optional={"address": where})
    assert build(ship, address={"city": "Rome", "zip": 123}).steps[0]["arguments"] == {
        "address": {"city": "${inputs.address.city}", "zip": "123"}
    }
    assert build(ship, city="Rome").steps[0]["arguments"] == {"address": {"city": "${inputs.city}"}}


def test_a_value_that_the_schema_refuses_is_not_filled_in():
    fetch = tool("fetch_page", "Fetch a page.", "url")
    fetch["inputSchema"]["properties"]["url"]["pattern"] = "^https://intranet/"
    draft = build(fetch, the_url=7)
    assert draft.steps[0]["arguments"] == {"url": "${inputs.fetch_page.url}"}
    assert "fetch_page.url" in draft.inputs


def test_an_input_of_another_name_is_not_put_where_nothing_speaks_for_it():
    draft = build(tool("post_message", "Post it.", "channel_id"), colour="red")
    assert draft.steps[0]["arguments"] == {"channel_id": "${inputs.post_message.channel_id}"}
    assert draft.unused == ["colour"]


def test_an_optional_object_of_which_a_part_is_said_has_all_that_it_requires():
    line = {
        "type": "object",
        "properties": {"sku": {"type": "string"}, "amount": {"type": "integer"}},
        "required": ["sku"],
    }
    draft = build(tool("order", "Order it.", optional={"line": line}), amount=2)
    arguments = draft.steps[0]["arguments"]
    line = {"sku": "${inputs.order.line_sku}", "amount": "${inputs.amount}"}
    assert arguments in ({}, {"line": line})


def test_a_list_of_objects_is_passed_as_a_whole_and_nothing_of_it_is_missing():
    item = {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}
    order = tool("order", "Order it.", optional={"lines": {"type": "array", "items": item}})
    order["inputSchema"]["required"] = ["lines"]
    draft = build(order, lines=[{"sku": "a"}, {"sku": "b"}])
    assert draft.steps[0]["arguments"] == {"lines": "${inputs.lines}"}
    assert draft.inputs == {}


def test_a_name_that_cannot_be_written_in_a_reference_passes_the_value_itself():
    given = {"the-text": "hello"}
    draft = build(tool("say", "Say it.", "the_text"), **given)
    assert draft.steps[0]["arguments"] == {"the_text": "hello"}
    dotted = {"ship.city": "Rome"}
    draft = build(tool("go", "Go there.", "city"), **dotted)
    assert draft.steps[0]["arguments"] == {"city": "Rome"}


def test_a_value_that_looks_like_a_reference_is_no_reference():
    given = {"the-text": "costs ${step.x}"}
    (step,) = build(tool("say", "Say it.", "the_text"), **given).steps
    assert "${step.x}" not in str(step["arguments"]).replace("$${step.x}", "")


def test_a_default_and_an_only_option_fill_what_was_not_said():
    only = {"mode": {"enum": ["fast"]}, "size": {"type": "integer", "default": 3}}
    run = tool("run", "Run it.", optional=only)
    run["inputSchema"]["required"] = ["mode", "size"]
    assert build(run).steps[0]["arguments"] == {"mode": "fast", "size": 3}


def test_an_earlier_result_fills_what_a_later_step_must_have():
    find = tool("find_issues", "Find.", **answers(issues=list_of(number="integer", url="string")))
    close = tool("close_issue", "Close.", "issue_number")
    draft = build(find, close)
    assert draft.steps[1]["arguments"] == {"issue_number": "${find_issues.issues[0].number}"}
    assert draft.inputs == {}


def test_a_learned_shape_joins_what_no_schema_tells():
    orders = tool("list_orders", "List the orders.")
    ship = tool("ship_order", "Ship an order.", "order_id")
    before = build(orders, ship)
    assert before.steps[1]["arguments"] == {"order_id": "${inputs.ship_order.order_id}"}
    after = build(orders, ship, shape={"orders": [{"id": "o1", "customer_id": "c1"}]})
    assert after.steps[1]["arguments"] == {"order_id": "${list_orders.orders[0].id}"}


def test_what_was_said_for_one_step_holds_for_the_next_of_its_server():
    draft = build(
        tool("open_issue", "Open.", "repo", "title"), tool("list_pulls", "List.", "repo"), repo="x"
    )
    assert [step["arguments"]["repo"] for step in draft.steps] == ["${inputs.repo}"] * 2


def test_the_same_unknown_of_one_server_is_asked_for_once_and_texts_each_for_themselves():
    draft = build(
        tool("open_issue", "Open.", "repo_id", "text"), tool("comment", "Say.", "repo_id", "text")
    )
    assert [name for name in draft.inputs if "repo_id" in name] == ["open_issue.repo_id"]
    assert [name for name in draft.inputs if "text" in name] == ["open_issue.text"]
    assert all(step["arguments"].keys() == {"repo_id", "text"} for step in draft.steps)


def test_a_step_that_repeats_another_is_dropped():
    read = tool("read_file", "Read.", "path")
    assert len(build(read, read, path="/a").steps) == 1
    assert len(build(read, read).steps) == 1


def test_ids_of_steps_and_names_of_inputs_can_be_referred_to():
    odd = tool("1st thing/ünï", "Odd.", "päth-name", "inputs")
    draft = build(odd, tool("inputs", "Reserved.", "x"), tool("item", "Reserved.", "y"))
    assert len(draft.steps) == 3
    assert all(
        part.isascii() and part.isidentifier() for name in draft.inputs for part in name.split(".")
    )


@pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}")
@pytest.mark.parametrize(
    "inputs", [{}, {"name": "bar", "ids": [1, "2"], "query": {"text": "x", "limit": "3"}}]
)
def test_any_two_real_tools_make_steps_that_can_be_run(inputs: dict[str, Any]):
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
    some = list(snapshot.tools.values())[::9]
    said = open_reader().read_words("get the 12 open ones for 'foo' since 3 May 2025", inputs)
    clause = (0, len(said.spans) - 1)
    problems: list[Any] = []
    for pair in zip(some, [*some[1:], some[0]], strict=True):
        readings = [
            StepReading(ChosenTool(clause, one), list(guess(one, said, sure=bool(inputs))))
            for one in pair
        ]
        draft = build_steps(readings, said, know_nothing)
        checked = check_steps(draft, inputs, snapshot)
        if isinstance(checked, InvalidWorkflow):
            problems.append(checked.problems)
    assert problems == []


def guess(tool: Tool, said: SaidWords, *, sure: bool) -> Iterator[LeafReading]:
    """Readings that are sure of every second parameter, some words or an option; or of nothing."""
    for at, leaf in enumerate(list_leaves(tool)):
        likely = 0.9 * (at % 2) * sure
        word = at % len(said.spans)
        yield LeafReading(
            leaf,
            1 - likely,
            (0.0,) * len(said.inputs),
            tuple(likely * (number == 0) for number in range(len(leaf.options))),
            ((likely, word, word),),
            (0.0,) * len(said.values),
        )


# --- sizes


async def test_long_intents_are_cut_and_make_at_most_so_many_steps():
    # At a network's pass for each word they would exceed the time limit of a test.
    long = "read the file /tmp/a.md, then " * 4_000
    made = await plan(long)
    assert len(made.steps) <= MAX_CLAUSES
    await plan("x" * 100_000)
    await plan("read the file " + " " * 100_000)
    await plan("天" * 100_000)


async def test_a_thousand_inputs_and_deep_ones_are_read_in_bounded_steps():
    deep: Any = "x"
    for _ in range(100):
        deep = {"a": [deep]}
    inputs = {"city": "Paris", "deep": deep} | {f"i{number}": number for number in range(1_000)}
    made = await plan("Get the weather forecast", inputs)
    assert arguments(made, "weather.forecast") == {"city": "${inputs.city}"}
    assert not made.is_complete


async def test_a_tool_of_thousands_of_parameters_is_planned_in_bounded_steps():
    many: Raw = {
        f"p{number}": {"type": "string", "description": "x" * 500} for number in range(3_000)
    }
    many["kind"] = {"enum": [f"option {number}" for number in range(3_000)]}
    wide = entry("wide", tool("paint", "Paint the fence.", "colour", optional=many))
    made = await plan("paint the fence", {"colour": "red"}, by_words(wide))
    assert arguments(made, "wide.paint")["colour"] == "${inputs.colour}"
