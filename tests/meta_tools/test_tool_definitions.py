"""The meta-tools as data: small, true, the same from call to call."""

import subprocess
import sys

import jsonschema_rs
import orjson
import pytest

from portico.catalog.categories import TAXONOMY
from portico.meta_tools import capability_index, tool_definitions
from portico.rendering.token_budget import count_tokens
from portico.upstream.backend import Raw

KINDS = [category.key for category in TAXONOMY]
SERVERS = {f"server-number-{number}": KINDS[number % 23] for number in range(200)}


def definitions(*servers: str) -> list[Raw]:
    return tool_definitions.build_definitions(
        tool_definitions.META_TOOL_NAMES, dict.fromkeys(servers, "databases")
    )


def test_meta_tools_are_listed_in_fixed_order():
    assert [
        tool["name"]
        for tool in tool_definitions.build_definitions(
            reversed(tool_definitions.META_TOOL_NAMES), {}
        )
    ] == list(tool_definitions.META_TOOL_NAMES)
    assert [
        tool["name"]
        for tool in tool_definitions.build_definitions({"call_tool", "search_tools"}, {})
    ] == [
        "search_tools",
        "call_tool",
    ]


def test_they_are_the_same_bytes_whatever_order_the_servers_come_in():
    assert orjson.dumps(definitions("a", "b")) == orjson.dumps(definitions("b", "a"))


def test_only_the_description_of_search_depends_on_the_servers():
    some, others = definitions("a"), definitions("b", "c")
    assert [one["name"] for one, other in zip(some, others, strict=True) if one != other] == [
        "search_tools"
    ]


def test_all_of_them_cost_little():
    assert count_tokens(orjson.dumps(definitions(*SERVERS)).decode()) < 1_400


@pytest.mark.parametrize("tool", definitions("a"), ids=lambda tool: tool["name"])
def test_each_says_truly_what_it_does(tool: Raw):
    runs_tools = tool["name"] in ("call_tool", "run_code", "run_workflow")
    assert tool["annotations"]["readOnlyHint"] is not runs_tools
    assert tool["annotations"]["destructiveHint"] is runs_tools
    assert tool["_meta"] == {"anthropic/alwaysLoad": True}
    jsonschema_rs.validator_for(tool["inputSchema"])
    assert set(tool["inputSchema"].get("required", ())) <= tool["inputSchema"]["properties"].keys()


def test_a_parameter_is_listed_where_it_makes_a_difference():
    def list_parameters(offer: tool_definitions.MetaToolOptions) -> dict[str, set[str]]:
        return {
            tool["name"]: set(tool["inputSchema"]["properties"])
            for tool in tool_definitions.build_definitions(
                tool_definitions.META_TOOL_NAMES, {}, offer
            )
        }

    plain, all_of_it = (
        list_parameters(tool_definitions.MetaToolOptions()),
        list_parameters(tool_definitions.MetaToolOptions(has_tags=True, has_isolated_servers=True)),
    )
    assert all_of_it["search_tools"] - plain["search_tools"] == {"tags"}
    for name in ("call_tool", "run_code", "run_workflow"):
        assert all_of_it[name] - plain[name] == {"session"}


def test_only_the_languages_that_are_run_are_offered():
    offered = tool_definitions.build_definitions(
        ["run_code"], {}, tool_definitions.MetaToolOptions(languages=("lua", "python"))
    )
    language = offered[0]["inputSchema"]["properties"]["language"]
    assert (language["enum"], language["default"]) == (["lua", "python"], "lua")


def test_every_meta_tool_of_this_version_is_one_the_configuration_knows():
    from portico.config import META_TOOLS

    assert set(tool_definitions.META_TOOL_NAMES) <= set(META_TOOLS)


# The capability index


def test_without_servers_the_capability_index_says_so():
    assert capability_index.build_capability_index({}) == "No servers are configured."


def test_few_servers_are_all_named_under_their_category_larger_ones_first():
    servers = {"tavily": "web-search", "redis": "databases", "mongodb": "databases", "new": ""}
    line = (
        "Servers by category: databases (redis, mongodb), web-search (tavily), no tools "
        "known yet (new)."
    )
    assert capability_index.build_capability_index(servers) == line


def test_unlisted_servers_are_named_without_a_category():
    assert capability_index.build_capability_index({"b": "", "a": ""}) == "Servers here: a, b."


def test_of_a_large_category_the_plainest_names_stand_and_the_rest_is_counted():
    servers = {f"aws-service-with-a-long-name-{number}": "cloud" for number in range(60)}
    index = capability_index.build_capability_index(
        {**servers, "gcloud": "cloud", "redis": "databases"}
    )
    assert index.startswith("Servers by category: cloud (gcloud, aws-service-with-a-long-name-0, ")
    named = index.count("aws-service")
    assert f" +{60 - named})" in index
    assert index.endswith("databases (redis).")


def test_with_too_many_servers_every_category_is_still_there_with_examples():
    index = capability_index.build_capability_index(SERVERS)
    assert index.startswith("Categories of the 200 servers here, with examples: ")
    assert all(kind in index for kind in set(SERVERS.values()))
    assert "server-number-0" in index


def test_with_too_many_categories_the_smallest_are_counted():
    index = capability_index.build_capability_index(
        {f"server-{number}": f"category-of-{number}" for number in range(200)}
    )
    shown = index.count("category-of-")
    assert 5 < shown < 200
    assert index.endswith(f", {200 - shown} more.")


@pytest.mark.parametrize("number", [0, 1, 2, 7, 30, 60, 200])
def test_the_capability_index_fits_whatever_the_order(number: int):
    some = dict([*SERVERS.items()][:number])
    index = capability_index.build_capability_index(some)
    assert count_tokens(index) <= capability_index.CAPABILITY_INDEX_TOKENS
    assert index == capability_index.build_capability_index(dict(reversed(some.items())))


def test_servers_of_the_longest_names_fit():
    index = capability_index.build_capability_index(
        {f"{number:03}" + "x" * 37: "" for number in range(100)}
    )
    assert count_tokens(index) <= capability_index.CAPABILITY_INDEX_TOKENS


def test_the_definitions_of_the_meta_tools_load_no_workflows():
    script = (
        "import sys, portico.meta_tools.tool_definitions\n"
        "print(*sorted(name for name in sys.modules if name.startswith('portico.workflows')))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True
    )
    assert not found.stdout.split()
