"""Search and filters over REST."""

from typing import Any

import pytest

from portico.api import models
from portico.config import Config
from portico.events import Event, ToolsFound
from portico.rendering.token_budget import get_best_counter
from tests.api.api_client import V1, backend, make_tools, open_api
from tests.interaction.fake_servers import tool

SERVERS = {
    "git": [
        tool("create_issue", "Create a new issue in a repository."),
        tool("list_commits", "List commits."),
    ],
    "mail": [
        tool("send_mail", "Send an e-mail to somebody."),
        tool("read_inbox", "Read the inbox."),
    ],
    "lint": [
        tool("check_types", "Static analysis of the types."),
        tool("find_bugs", "Static analysis for bugs."),
    ],
}


def servers():
    return {name: backend(*tools) for name, tools in SERVERS.items()}


async def test_a_query_gets_the_best_tools_first():
    async with open_api(servers()) as api:
        heard: list[Event] = []
        api.gateway.bus.subscribe(heard.append, ToolsFound)
        body = await api.get("tools", query="open an issue in my repository")
        models.ToolList.model_validate(body)
        assert body["tools"][0]["tool"] == "git.create_issue"
        assert body["fit"] in ("good", "unsure")
        (event,) = heard
        assert isinstance(event, ToolsFound)
        assert (event.caller.name, event.shown[0]) == ("rest", "git.create_issue")


async def test_a_search_without_a_match_has_a_verdict():
    async with open_api(servers()) as api:
        body = await api.get("tools", query="zqxjkv")
        models.ToolList.model_validate(body)
        assert body["fit"] == "none"
        assert "No tool" in body["verdict"]
        # By meaning, everything is a little like it: only the nearest are shown, whether tools are
        # encoded yet or not.
        assert len(body["tools"]) <= 3


async def test_a_search_can_be_followed_to_its_end_without_a_tool_shown_twice():
    async with open_api(
        {f"s{at}": backend(*make_tools(f"read_{at}", 40, "Reads a file")) for at in range(3)}
    ) as api:
        await api.wait_until_encoded()  # vectors that arrive between two pages change the order
        found = await api.get_all("tools", "tools", query="read a file", limit=9, max_tokens=600)
        names = [one["tool"] for one in found]
        assert len(names) == len(set(names)) > 20


@pytest.mark.parametrize("query", ["analysis", None])
async def test_filters_narrow_what_is_found_and_what_is_listed(query: str | None):
    async with open_api(servers()) as api:
        api.record_call("lint.check_types", ms=40)
        api.record_call("lint.find_bugs", ms=900)
        quick = await api.get("tools", query=query, server="lint", max_latency_ms=100)
        assert [card["tool"] for card in quick["tools"]] == ["lint.check_types"]
        assert quick["tools"][0]["p50_ms"] < 100
        api.record_call("lint.check_types", ok=False, times=3)
        sound = await api.get("tools", query=query, server="Lint", min_success_rate=0.9)
        assert [card["tool"] for card in sound["tools"]] == ["lint.find_bugs"]


async def test_tools_are_filtered_by_category_and_tag():
    config = Config.model_validate({"servers": {}})
    async with open_api(servers(), config) as api:
        for card in (await api.get("tools/categories"))["categories"]:
            listed = await api.get("tools", category=card["category"])
            assert listed["pagination"]["total_count"] == card["tools"]
            found = await api.get(
                "tools", category=card["category"], query="a mail about an issue and its commits"
            )
            names = {one["tool"] for one in listed["tools"]}
            assert {one["tool"] for one in found["tools"]} <= names
        problem = await api.get("tools", status=422, tags=["web"])
        assert problem["kind"] == "unknown_name"
        for wrong in ("server=gitt", "category=nothing-like-this"):
            problem = await api.get(f"tools?{wrong}", status=422)
            assert problem["kind"] == "unknown_name"
        assert (await api.get("tools", status=422, server="gitt"))["nearest"] == ["git"]


async def test_all_tools_are_listed_hottest_first_each_once():
    async with open_api({**servers(), "more": backend(*make_tools("m", 70))}) as api:
        api.record_call("more.m_33", times=5)
        api.record_call("git.list_commits", times=2)
        await api.usage_data.standings.recompute()
        found = [
            one["tool"] for one in await api.get_all("tools", "tools", limit=30, max_tokens=700)
        ]
        assert found[:2] == ["more.m_33", "git.list_commits"]
        assert sorted(found) == sorted(api.gateway.catalog.snapshot.tools)


async def test_a_filter_on_unmeasured_tools_adds_a_note():
    async with open_api(servers()) as api:
        queries: list[dict[str, Any]] = [{}, {"query": "mail"}]
        for query in queries:
            body = await api.get("tools", max_latency_ms=5, **query)
            assert body["tools"] == []
            assert "never called" in body["note"]


async def test_answers_fit_the_requested_budget():
    long = {
        f"server-{at}": backend(*make_tools(f"read_{at}" * 6, 30, "Reads the file " * 20))
        for at in range(4)
    }
    async with open_api(long) as api:
        for tokens in (300, 900, 4_000):
            for query in ("", "query=read+a+file&"):
                reply = await api.http.get(f"{V1}/tools?{query}limit=100&max_tokens={tokens}")
                assert get_best_counter().count(reply.text) <= tokens, (tokens, query)


FILTERS: list[dict[str, Any]] = [
    {**where, **how}
    for where in (
        {},
        {"server": "git"},
        {"category": "{category}"},
        {"server": "lint", "category": "{category}"},
    )
    for how in (
        {},
        {"max_latency_ms": 50},
        {"min_success_rate": 0.5},
        {"max_latency_ms": 50, "min_success_rate": 0.5},
    )
]


@pytest.mark.parametrize("sizes", [(1, 300), (3, 20_000), (100, 300), (100, 20_000)], ids=str)
async def test_what_passes_the_filters_is_what_a_plain_reading_of_them_lets_pass(
    sizes: tuple[int, int],
):
    limit, tokens = sizes
    async with open_api({**servers(), "more": backend(*make_tools("m", 30))}) as api:
        for address, ms, ok in (
            ("git.create_issue", 10, True), ("git.list_commits", 90, True), ("lint.check_types", 20,
                False),
            ("lint.find_bugs", 500, True), ("more.m_3", 40, True), ("more.m_4", 40, False),
        ):  # fmt: skip
            api.record_call(address, ms=ms, ok=ok, times=2)
        await api.usage_data.standings.recompute()
        snapshot, used = api.gateway.catalog.snapshot, api.usage_data.tool_usage.statistics_by_tool
        category = snapshot.get_category("lint.check_types")

        def passes(address: str, given: dict[str, Any]) -> bool:
            use = used.get(address)
            return (
                given.get("server") in (None, address.partition(".")[0])
                and given.get("category") in (None, snapshot.get_category(address))
                and (
                    "max_latency_ms" not in given
                    or (use is not None and 0 < use.p50_ms <= given["max_latency_ms"])
                )
                and (
                    "min_success_rate" not in given
                    or (use is not None and use.success_rate >= given["min_success_rate"])
                )
            )

        for filters in FILTERS:
            given = {
                key: category if key == "category" else value for key, value in filters.items()
            }
            found = await api.get_all("tools", "tools", limit=limit, max_tokens=tokens, **given)
            expected = sorted(address for address in snapshot.tools if passes(address, given))
            assert sorted(card["tool"] for card in found) == expected, given
