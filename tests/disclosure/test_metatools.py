"""The meta-tools as data: small, true, the same from call to call."""

import jsonschema_rs
import orjson
import pytest

from portico.disclosure import metatools
from portico.disclosure.tokens import count
from portico.upstream.backend import Raw

SERVERS = [f"server-number-{number}" for number in range(200)]


def definitions(*servers: str) -> list[Raw]:
    return metatools.definitions(metatools.NAMES, servers)


def test_they_come_in_their_order_whatever_order_is_asked_for():
    assert [tool["name"] for tool in metatools.definitions(reversed(metatools.NAMES), [])] == list(metatools.NAMES)
    assert [tool["name"] for tool in metatools.definitions({"call_tool", "search_tools"}, [])] == [
        "search_tools",
        "call_tool",
    ]


def test_they_are_the_same_bytes_whatever_order_the_servers_come_in():
    assert orjson.dumps(definitions("a", "b")) == orjson.dumps(definitions("b", "a"))


def test_only_the_description_of_search_depends_on_the_servers():
    some, others = definitions("a"), definitions("b", "c")
    assert [one["name"] for one, other in zip(some, others, strict=True) if one != other] == ["search_tools"]


def test_all_of_them_cost_little():
    assert count(orjson.dumps(definitions(*SERVERS)).decode()) < 1_400


@pytest.mark.parametrize("tool", definitions("a"), ids=lambda tool: tool["name"])
def test_each_says_truly_what_it_does(tool: Raw):
    assert tool["annotations"]["readOnlyHint"] is (tool["name"] != "call_tool")
    assert tool["annotations"]["destructiveHint"] is (tool["name"] == "call_tool")
    assert tool["_meta"] == {"anthropic/alwaysLoad": True}
    jsonschema_rs.validator_for(tool["inputSchema"])
    assert set(tool["inputSchema"]["required"]) <= tool["inputSchema"]["properties"].keys()


def test_every_meta_tool_of_this_version_is_one_the_configuration_knows():
    from portico.config import META_TOOLS

    assert set(metatools.NAMES) <= set(META_TOOLS)


@pytest.mark.parametrize("number", [0, 1, 2, 7, 30, 200])
def test_the_capability_index_fits_and_loses_no_server_unsaid(number: int):
    names = SERVERS[:number]
    index = metatools.capability_index(names)
    assert count(index) <= metatools.CAPABILITY_INDEX_TOKENS
    shown = sum(f" {name}" in index for name in names)
    assert number == 0 or shown >= 1
    named = [name for name in sorted(names) if f"{name}," in index or f"{name}." in index or f"{name} and" in index]
    missing = number - len(named)
    assert (f"and {missing} more" in index) == (missing > 0)


def test_servers_of_the_longest_names_fit():
    index = metatools.capability_index([f"{number:03}" + "x" * 37 for number in range(100)])
    assert count(index) <= metatools.CAPABILITY_INDEX_TOKENS
