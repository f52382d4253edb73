"""The tools that serve a purpose: chosen by meaning once it is known, by words until then, within a
budget."""

import pytest

from portico.catalog.tool import Tool
from portico.config import Config, Profile
from portico.errors import RemoteError
from portico.json_text import json_codec
from portico.profiles.relevant_tools import META_KEY, parse_query, select_relevant_tools
from portico.rendering.strict_definitions import to_strict_tool
from portico.rendering.token_budget import count_tokens
from portico.upstream.backend import Raw
from portico.visibility import Scope
from tests.meta_tools.search_catalog import ALL, MAIL, UNRELATED, by_meaning, by_words

BIG = 100_000


def render(tool: Tool, name: str) -> Raw:
    return to_strict_tool(tool.definition, name)


def test_the_best_come_first_and_no_more_than_asked_for():
    snapshot = by_meaning(*ALL)
    found = select_relevant_tools(
        snapshot, snapshot.tools_by_flat_name, "write a letter to someone", 1, BIG
    )
    assert [*found.tools] == ["mail__send"]
    assert found.meta == {META_KEY: {"listed": 1, "of": len(snapshot.tools)}}
    assert found.render(render)[0] == {**MAIL.tools["send"].definition, "name": "mail__send"}


def test_tools_of_several_servers_that_say_the_same_take_one_place():
    snapshot = by_meaning(*ALL)
    found = select_relevant_tools(snapshot, snapshot.tools_by_flat_name, "translate a text", 3, BIG)
    assert sum(name.endswith("__translate_text") for name in found.tools) == 1


def test_what_does_not_fit_is_left_out_for_what_does():
    snapshot = by_words(*ALL)
    whole = select_relevant_tools(snapshot, snapshot.tools_by_flat_name, "issue", 5, BIG)
    costs = [count_tokens(json_codec.dumps(one).decode()) for one in whole.render(render)]
    found = select_relevant_tools(snapshot, snapshot.tools_by_flat_name, "issue", 5, min(costs))
    assert len(found.tools) == 1
    assert {*found.tools, *found.left_out} == {*whole.tools}
    assert select_relevant_tools(snapshot, snapshot.tools_by_flat_name, "issue", 5, 0).tools == {}


def test_nothing_outside_the_scope_is_chosen():
    snapshot = by_meaning(*ALL, scope=Scope(servers=("tracker",)))
    found = select_relevant_tools(
        snapshot, snapshot.tools_by_flat_name, "send an e-mail to somebody", 5, BIG
    )
    assert all(name.startswith("tracker__") for name in found.tools)
    assert found.candidate_count == 2


def test_where_nothing_fits_a_query_brings_nothing_and_says_so_and_an_intent_the_nearest():
    catalog = by_words(*ALL)
    asked_for = select_relevant_tools(
        catalog, catalog.tools_by_flat_name, UNRELATED, 5, 10_000, require_match=True
    )
    assert (dict(asked_for.tools), asked_for.meta[META_KEY]["why"]) == (
        {},
        "no tool here seems to serve this",
    )
    assert select_relevant_tools(catalog, catalog.tools_by_flat_name, UNRELATED, 5, 10_000).tools


@pytest.mark.parametrize(
    ("params", "query"), [({}, ""), ({"query": None}, ""), ({"query": " a b "}, "a b")]
)
def test_a_query_is_text_or_nothing(params: dict[str, object], query: str):
    assert parse_query(params) == query


def test_any_other_query_is_refused():
    with pytest.raises(RemoteError, match="is text"):
        parse_query({"query": 3})


@pytest.mark.parametrize(
    "config",
    [
        {"exposure": "semantic"},
        {"exposure": "semantic", "intent": "  "},
        {"profiles": {"p": {"exposure": "semantic"}}},
    ],
)
def test_semantic_without_an_intent_is_refused_with_advice(config: dict[str, object]):
    with pytest.raises(ValueError, match="write what the clients want to do"):
        Config.model_validate(config)


def test_a_profile_has_its_own_intent_or_the_gateways():
    config = Config(
        intent="mail",
        top_k=3,
        profiles={
            "a": Profile(exposure="semantic"),
            "b": Profile(exposure="semantic", intent="weather", top_k=7),
        },
    )
    assert [
        (config.resolve_profile(name).intent, config.resolve_profile(name).top_k)
        for name in ("a", "b")
    ] == [
        ("mail", 3),
        ("weather", 7),
    ]
