"""What models pass to the meta-tools: forgiven where it is clear, answered with advice where it is
not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.errors import InvalidArguments
from portico.meta_tools import tool_definitions
from portico.meta_tools.arguments import check_meta_tool_arguments
from portico.upstream.backend import Raw

DEFINITIONS = tool_definitions.build_definitions(tool_definitions.META_TOOL_NAMES, {"s": ""})


def checked(name: str, /, **arguments: Any) -> Raw:
    return check_meta_tool_arguments(name, arguments)


def refused(name: str, /, **arguments: Any) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        checked(name, **arguments)
    return caught.value


@pytest.mark.parametrize(
    ("name", "given_", "meant"),
    [
        ("search_tools", {"query": "x"}, {"query": "x"}),
        ("search_tools", {"query": "x", "limit": "5"}, {"query": "x", "limit": 5}),
        ("search_tools", {"query": "x", "limit": 5.0}, {"query": "x", "limit": 5}),
        ("search_tools", {"query": "x", "limit": 0}, {"query": "x", "limit": 1}),
        (
            "search_tools",
            {"query": "x", "limit": 10_000},
            {"query": "x", "limit": tool_definitions.MAX_RESULTS},
        ),
        ("search_tools", {"query": "x", "server": None, "cursor": None}, {"query": "x"}),
        ("search_tools", {"query": "5"}, {"query": "5"}),
        ("search_tools", {"query": "x", "tags": "mail"}, {"query": "x", "tags": ["mail"]}),
        ("search_tools", {"query": "x", "tags": '["a", "b"]'}, {"query": "x", "tags": ["a", "b"]}),
        (
            "search_tools",
            {"query": "x", "max_latency_ms": "250"},
            {"query": "x", "max_latency_ms": 250},
        ),
        (
            "search_tools",
            {"query": "x", "min_success_rate": 0.9},
            {"query": "x", "min_success_rate": 0.9},
        ),
        ("search_tools", {"query": "x", "detail": "explain"}, {"query": "x", "detail": "explain"}),
        ("browse_tools", {"page_size": 9_999}, {"page_size": tool_definitions.MAX_PAGE}),
        ("describe_tools", {"names": "s.t"}, {"names": ["s.t"]}),
        ("describe_tools", {"names": '["s.t", "s.u"]'}, {"names": ["s.t", "s.u"]}),
        ("describe_tools", {"names": "123"}, {"names": ["123"]}),
        ("describe_tools", {"names": "true"}, {"names": ["true"]}),
        ("call_tool", {"name": "t", "arguments": '{"a": 1}'}, {"name": "t", "arguments": {"a": 1}}),
        ("call_tool", {"name": "t", "arguments": None}, {"name": "t"}),
        (
            "call_tool",
            {"name": "t", "arguments": {"a": None}},
            {"name": "t", "arguments": {"a": None}},
        ),
    ],
)
def test_what_is_clear_is_understood(name: str, given_: Raw, meant: Raw):
    assert checked(name, **given_) == meant


@pytest.mark.parametrize(
    ("name", "given_", "problem"),
    [
        ("search_tools", {}, "query is missing"),
        ("search_tools", {"query": None}, "query is missing"),
        ("search_tools", {"query": 5}, "query must be text"),
        ("search_tools", {"query": "x", "limit": "many"}, "limit must be a whole number"),
        ("search_tools", {"query": "x", "limit": True}, "limit must be a whole number"),
        ("search_tools", {"query": "x", "limit": 2.5}, "limit must be a whole number"),
        ("search_tools", {"query": "x", "limit": float("inf")}, "limit must be a whole number"),
        ("search_tools", {"query": "x", "detail": "full"}, "detail must be one of brief, schema"),
        (
            "search_tools",
            {"query": "x", "min_success_rate": 95},
            "min_success_rate must be between 0 and 1",
        ),
        (
            "search_tools",
            {"query": "x", "min_success_rate": float("nan")},
            "min_success_rate must be between 0 and 1",
        ),
        (
            "search_tools",
            {"query": "x", "max_latency_ms": -1},
            "max_latency_ms must be between 0 and",
        ),
        (
            "search_tools",
            {"query": "x", "max_latency_ms": float("inf")},
            "max_latency_ms must be between 0 and",
        ),
        (
            "search_tools",
            {"query": "x", "max_latency_ms": 10**400},
            "max_latency_ms must be between 0 and",
        ),
        ("search_tools", {"query": "x", "max_latency_ms": True}, "max_latency_ms must be a number"),
        (
            "search_tools",
            {"query": "x", "max_latency_ms": "fast"},
            "max_latency_ms must be a number",
        ),
        ("search_tools", {"query": "x", "tags": []}, "tags must have 1 to 10 entries"),
        ("search_tools", {"query": "x", "max": 3}, "'max' is not a parameter"),
        ("describe_tools", {"names": []}, "names must have 1 to 10 entries"),
        ("describe_tools", {"names": ["t"] * 11}, "names must have 1 to 10 entries"),
        ("describe_tools", {"names": [3]}, "names must hold only text"),
        ("describe_tools", {"names": {"a": 1}}, "names must hold only text"),
        ("call_tool", {"name": "t", "arguments": "a=1"}, "arguments must be an object"),
        ("call_tool", {"name": "t", "arguments": "[1]"}, "arguments must be an object"),
        ("call_tool", {"arguments": {}}, "name is missing"),
    ],
)
def test_what_is_not_is_answered_with_advice(name: str, given_: Raw, problem: str):
    error = refused(name, **given_)
    assert problem in error.message
    assert error.message.startswith(f"{name}: ")
    assert error.advice.startswith("It takes: ")


def test_the_advice_says_what_is_needed_and_what_may_be():
    assert refused("search_tools").advice == (
        "It takes: query, server?, category?, tags?, max_latency_ms?, "
        "min_success_rate?, limit?, detail?, cursor?."
    )


def test_all_problems_are_reported_at_once():
    message = refused("search_tools", limit="x", extra=1).message
    assert "query is missing" in message
    assert "limit must be" in message
    assert "'extra' is not" in message


def test_a_thousand_wrong_parameters_are_reported_in_a_few_lines():
    message = refused("search_tools", query="x", **{f"p{n}" * 100: n for n in range(1_000)}).message
    assert "nor are 995 more" in message
    assert len(message) < 1_500


@pytest.mark.parametrize("arguments", [None, [], "x", 3])
def test_arguments_that_are_no_object_are_refused(arguments: Any):
    with pytest.raises(InvalidArguments, match="must be an object"):
        check_meta_tool_arguments("search_tools", arguments)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
parameters = st.sampled_from(
    sorted({key for tool in DEFINITIONS for key in tool["inputSchema"]["properties"]})
)


@given(
    st.sampled_from(tool_definitions.META_TOOL_NAMES),
    st.dictionaries(parameters | st.text(max_size=5), anything, max_size=5),
)
def test_any_arguments_are_checked_or_refused(name: str, arguments: Raw):
    before = repr(arguments)
    try:
        meant = check_meta_tool_arguments(name, arguments)
    except InvalidArguments:
        meant = {}
    definition = next(tool for tool in DEFINITIONS if tool["name"] == name)
    assert meant.keys() <= definition["inputSchema"]["properties"].keys()
    assert repr(arguments) == before
