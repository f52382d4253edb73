"""Categories from config, tags and words: independent of order, leniently resolved by name."""

import gzip
import hashlib
import os
import random
from collections import Counter
from dataclasses import replace
from importlib import resources
from pathlib import Path

import orjson
import pytest

from portico.catalog import category_assignment
from portico.catalog.categories import (
    OTHER,
    SYNONYMS,
    TAXONOMY,
    VERSION,
    resolve_category,
    to_category,
)
from portico.catalog.category_assignment import assign_categories
from portico.catalog.entries import build_documents
from portico.catalog.snapshot import ServerEntry, find_most_common
from portico.catalog.tool import make_tool
from portico.errors import UnknownName
from portico.search import Index, SearchFilters
from portico.upstream.backend import InitializeInfo

ROOT = Path(__file__).resolve().parents[2]
FLEET = (
    Path(os.environ.get("PORTICO_SHARED") or ROOT.parent / "shared") / "fleet" / "servers.jsonl.gz"
)
KEYS = [category.key for category in TAXONOMY]

MAIL = {"send_mail": "Send an email.", "list_inbox": "List the messages in the inbox."}
CALENDAR = {
    "create_event": "Create a calendar event.",
    "list_calendars": "List the calendars of the user.",
}
DRIVE = {
    "search_drive_files": "Search files in the drive.",
    "read_sheet": "Read cells of a spreadsheet.",
}
SQL = {
    "run_query": "Run a SQL query against the database.",
    "describe_table": "The columns of a table.",
}


def server(name: str, tools: dict[str, str], **about: object) -> ServerEntry:
    made = {
        tool: make_tool(name, {"name": tool, "description": text}) for tool, text in tools.items()
    }
    return ServerEntry(name, tools=made, listed_at=1, **about)  # pyright: ignore[reportArgumentType]


# The taxonomy


def test_there_are_twelve_to_twenty_four_categories_each_with_a_sentence():
    assert 12 <= len(TAXONOMY) <= 24
    assert len(set(KEYS)) == len(TAXONOMY)
    assert all(category.title and category.description.endswith(".") for category in TAXONOMY)
    assert set(SYNONYMS.values()) <= set(KEYS)


def test_the_version_names_the_weights_so_that_other_weights_are_noticed():
    data = (
        resources.files("portico.catalog").joinpath(category_assignment.WEIGHTS_FILE).read_bytes()
    )
    assert VERSION.endswith(hashlib.blake2b(data, digest_size=4).hexdigest())
    assert orjson.loads(data)["categories"] == KEYS
    assert len(data) <= 150_000


# From config and tags


def test_the_config_s_word_on_a_tool_comes_before_its_word_on_the_server_and_that_before_tags():
    entry = server("pg", SQL, tags=("finance",))
    assert set(assign_categories(entry).values()) == {"finance"}
    entry = replace(entry, category="Security")
    assert set(assign_categories(entry).values()) == {"security"}
    entry = replace(entry, categories={"describe_*": "documents"})
    assert assign_categories(entry) == {"run_query": "security", "describe_table": "documents"}


def test_a_tool_named_exactly_is_not_moved_by_a_pattern_before_it():
    entry = server("pg", SQL, categories={"*": "finance", "run_query": "media"})
    assert assign_categories(entry) == {"run_query": "media", "describe_table": "finance"}


def test_tools_the_config_says_nothing_of_keep_what_their_words_say():
    assert assign_categories(server("pg", SQL, categories={"run_*": "finance"})) == {
        "run_query": "finance",
        "describe_table": "databases",
    }


@pytest.mark.parametrize("name", ["web-search", "Web Search", "WEB_SEARCH", "web search and pages"])
def test_our_categories_are_known_in_any_spelling(name: str):
    assert set(assign_categories(server("x", SQL, category=name)).values()) == {"web-search"}


def test_a_category_of_the_user_s_own_is_kept_with_a_title():
    (key,) = set(assign_categories(server("x", SQL, category="Team Zoo")).values())
    assert key == "team-zoo"
    assert to_category(key).title == "Team zoo"
    assert to_category("databases").title == "Databases and search engines"


def test_the_first_tag_that_means_one_of_ours_wins_else_the_first_tag():
    assert set(assign_categories(server("x", SQL, tags=("prod", "sql", "email"))).values()) == {
        "databases"
    }
    assert set(assign_categories(server("x", SQL, tags=("prod", "E-Mail", "sql"))).values()) == {
        "communication"
    }
    assert set(assign_categories(server("x", SQL, tags=("Team A", "prod"))).values()) == {"team-a"}


def test_tags_and_categories_that_are_no_words_decide_nothing():
    assert set(assign_categories(server("pg", SQL, tags=("!!", ""), category=" - ")).values()) == {
        "databases"
    }


# From words


@pytest.mark.parametrize(
    ("name", "tools", "category"),
    [
        ("postgres", SQL, "databases"),
        ("srv1", SQL, "databases"),
        (
            "stripe",
            {"create_refund": "Refund a payment.", "list_invoices": "List invoices."},
            "finance",
        ),
        ("discord", {"send_message": "Send a message to a channel."}, "communication"),
        ("spotify", {"add_to_playlist": "Add tracks to a playlist."}, "media"),
        ("k8s", {"list_pods": "List pods of a namespace."}, "cloud"),
        ("todoist", {"add_task": "Add a task with a due date."}, "project-management"),
        ("openweather", {"get_forecast": "The weather forecast for a city."}, "maps-and-travel"),
        ("maps", {"maps_geo": "将详细的结构化地址转换为经纬度坐标。"}, "maps-and-travel"),
        ("chess-arena", {"make_move": "Play a move in a chess game."}, OTHER),
        ("zorblax", {"frobnicate": "Frobnicates the quux."}, OTHER),
    ],
)
def test_servers_nobody_labelled_are_sorted_by_their_words(
    name: str, tools: dict[str, str], category: str
):
    assert set(assign_categories(server(name, tools)).values()) == {category}


def test_tools_of_a_server_of_many_trades_stand_apart():
    suite = server(
        "google-workspace", {**MAIL, **CALENDAR, **DRIVE}, description="Gmail, Calendar and Drive"
    )
    kinds = assign_categories(suite)
    assert {kinds[name] for name in MAIL} == {"communication"}
    assert {kinds[name] for name in CALENDAR} == {"project-management"}
    assert {kinds[name] for name in DRIVE} == {"documents"}


def test_tools_whose_names_begin_alike_are_judged_together():
    names = [
        "jira_get_issue",
        "jira_get_board",
        "jira_add_worklog",
        "wiki_get_page",
        "wiki_add_label",
        "wiki_search",
    ]
    assert category_assignment.group_name_families(names) == [[0, 1, 2], [3, 4, 5]]
    assert category_assignment.group_name_families([f"acme_{name}" for name in names]) == [
        [0, 1, 2],
        [3, 4, 5],
    ]
    assert category_assignment.group_name_families(["get_a", "get_b", "get_c", "list_a"]) == []


def test_the_order_of_tools_does_not_matter():
    tools = [*{**MAIL, **CALENDAR, **DRIVE, **SQL}.items()]
    first = assign_categories(server("suite", dict(tools)))
    for seed in range(5):
        random.Random(seed).shuffle(tools)
        assert assign_categories(server("suite", dict(tools))) == first


def test_one_more_tool_does_not_move_the_others():
    before = assign_categories(server("pg", SQL))
    after = assign_categories(
        server("pg", {**SQL, "send_report": "Mail the report of a query to somebody."})
    )
    assert {name: after[name] for name in before} == dict(before)


def test_tools_without_a_word_and_servers_without_tools_do_no_harm():
    assert assign_categories(server("x", {})) == {}
    assert find_most_common({}) == ""
    odd = server("x", {"\ud800": "\ud800", "": "", "ok": "\x00" * 10_000})
    assert set(assign_categories(odd)) == set(odd.tools)


def test_what_a_server_says_of_itself_counts():
    tools = {"run": "Run it.", "status": "The status."}
    said = InitializeInfo(
        "legacy",
        "2025-11-25",
        server_info={"name": "kafka", "title": 7},
        instructions="Manage Kafka clusters.",
    )
    assert set(assign_categories(server("x", tools, initialize_info=said)).values()) == {"cloud"}


def test_the_main_category_is_that_of_most_tools_and_does_not_waver_between_two():
    assert find_most_common(Counter({"b": len(SQL), "a": len(MAIL)})) == "a"
    assert find_most_common({"b": len(SQL) + len(MAIL) - 1, "a": 1}) == "b"


# Names of categories


def test_a_category_is_found_by_key_title_or_synonym_among_those_known():
    known = ["databases", "project-management", "team-zoo"]
    for name in ("databases", "Data Bases", "databases and search engines", "SQL"):
        assert resolve_category(name, known) == "databases"
    assert resolve_category("calendar", known) == "project-management"
    assert resolve_category("Team zoo", known) == "team-zoo"


def test_a_wrong_category_gets_the_nearest_back():
    with pytest.raises(UnknownName, match="there is no category 'databses' here") as caught:
        resolve_category("databses", ["databases", "finance"])
    assert caught.value.nearest == ("databases",)
    with pytest.raises(UnknownName, match="Categories here: databases"):
        resolve_category("", ["databases"])


# In search


def test_a_category_filter_finds_its_tools_only():
    entries = [
        server("pg", SQL),
        server("post", MAIL),
        server("both", {**SQL, **MAIL}, category="finance"),
    ]
    index = Index.build([document for entry in entries for document in build_documents(entry)])

    def found(*categories: str) -> set[str]:
        ranking = index.search(
            "list the inbox, send a mail, run a query", filters=SearchFilters(categories=categories)
        )
        return {id_.partition(".")[0] for hit in ranking.hits for id_ in (hit.id, *hit.duplicates)}

    assert found() == {"pg", "post", "both"}
    assert found("databases") == {"pg"}
    assert found("communication") == {"post"}
    assert found("Finance", "communication") == {"post", "both"}
    assert found("media") == set()


# The recorded fleet


@pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}")
def test_the_fleet_is_sorted_as_its_readers_did():
    labels = dict(
        line.split("\t")
        for line in (ROOT / "training/categories/servers.tsv").read_text().splitlines()
    )
    mains: Counter[str] = Counter()
    wrong: list[str] = []
    others = 0
    with gzip.open(FLEET) as lines:
        for record in map(orjson.loads, lines):
            hello = record["initialize"]
            said = InitializeInfo(
                "legacy",
                "",
                server_info=hello["serverInfo"],
                instructions=hello.get("instructions") or "",
            )
            tools = {tool["name"]: make_tool(record["slug"], tool) for tool in record["tools"]}
            entry = ServerEntry(record["slug"], initialize_info=said, tools=tools, listed_at=1)
            kinds = assign_categories(entry)
            others += sum(kind == OTHER for kind in kinds.values())
            if main := find_most_common(Counter(kinds.values())):
                mains[main] += 1
                if main not in labels[entry.name].split("|"):
                    wrong.append(f"{entry.name}: {main}")
    assert len(wrong) <= 5, wrong
    assert others < 20
    assert max(mains.values()) <= mains.total() / 5
