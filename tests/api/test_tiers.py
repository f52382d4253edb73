"""The four tiers over REST: what each shows, that it fits, and that everything can be reached."""

from pathlib import Path
from urllib.parse import quote

import pytest

from portico.api import models
from portico.catalog.categories import TAXONOMY
from portico.config import Config
from portico.rendering.token_budget import get_best_counter
from tests.api.api_client import V1, ApiClient, backend, make_tools, open_api
from tests.interaction.fake_servers import tool

GIT = [
    tool("create_issue", "Create a new issue in a repository.", owner="string", title="string"),
    tool("list_commits"),
]
ODD = ["a/b", "with space", "päth/ü?x=1#y", "a%2Fb", "..x", "call.me", "semi;colon", "emoji🎉"]
COUNT = get_best_counter().count


async def text_of(api: ApiClient, path: str) -> str:
    return (await api.http.get(f"{V1}/{path}")).text


async def test_the_hot_list_names_its_basis():
    async with open_api({"git": backend(*GIT), "disk": backend(*make_tools("read", 3))}) as api:
        body = await api.get("tools/hot")
        models.HotTools.model_validate(body)
        assert body["grounds"] == "some of each server"
        assert [card["tool"] for card in body["tools"]][:2] == ["disk.read_0", "git.create_issue"]
        assert body["tools"][1]["params"] == "owner?, title?"
        api.record_call("git.list_commits", times=3, ms=20)
        await api.usage_data.standings.recompute()
        body = await api.get("tools/hot")
        assert body["grounds"] == "use"
        card, *_ = body["tools"]
        assert card["tool"] == "git.list_commits"
        assert card["success_rate"] == 1.0
        assert card["p50_ms"] == pytest.approx(20, rel=0.06)


async def test_pins_head_the_hot_list():
    config = Config(pins=("git.list_commits",))
    async with open_api({"git": backend(*GIT)}, config) as api:
        body = await api.get("tools/hot")
        assert (body["grounds"], [card["tool"] for card in body["tools"]]) == (
            "pins",
            ["git.list_commits", "git.create_issue"],
        )


async def test_the_hot_list_and_the_categories_fit_their_tokens_however_long_names_are():
    servers = {
        f"server-{at}": backend(*make_tools(f"a_rather_long_name_{at}" * 3, 40, "Wörter " * 60))
        for at in range(30)
    }
    config = Config(
        pins=tuple(
            f"server-{at}.{f'a_rather_long_name_{at}' * 3}_{n}"
            for at in range(30)
            for n in range(5)
        )
    )
    async with open_api(servers, config) as api:
        hot, categories = await text_of(api, "tools/hot"), await text_of(api, "tools/categories")
        assert COUNT(hot) <= 2_000
        assert COUNT(hot) + COUNT(categories) <= 4_000
        body = await api.get("tools/hot")
        assert body["left_out"] == 150 - len(body["tools"])


async def test_categories_say_what_is_in_them():
    async with open_api({"git": backend(*GIT), "disk": backend(*make_tools("read", 3))}) as api:
        body = await api.get("tools/categories")
        models.CategoryList.model_validate(body)
        assert sum(card["tools"] for card in body["categories"]) == 5
        assert {card["category"] for card in body["categories"]} <= {one.key for one in TAXONOMY}
        assert all(card["popular_tools"] and card["largest_servers"] for card in body["categories"])


async def test_many_categories_are_all_reached_page_by_page(tmp_path: Path):
    one = {"functions": "portico.demo.units:TOOLS"}
    servers = {f"s{at}": {**one, "category": f"a kind of its own number {at}"} for at in range(150)}
    async with open_api(
        {}, Config.model_validate({"data_dir": tmp_path, "servers": servers})
    ) as api:
        first = await api.get("tools/categories")
        assert first["total_count"] == 150
        assert first["left_out"] == 150 - len(first["categories"]) > 0
        assert COUNT(await text_of(api, "tools/categories")) <= 2_000
        found = await api.get_all("tools/categories", "categories")
        assert len({card["category"] for card in found}) == len(found) == 150


@pytest.mark.parametrize(
    "query", [{}, {"page_size": 7}, {"max_tokens": 300}, {"max_tokens": 500, "page_size": 100}]
)
async def test_following_next_shows_every_tool_of_a_category_exactly_once(query: dict[str, int]):
    async with open_api(
        {f"git-{at}": backend(*GIT, *make_tools("git_commit", 30)) for at in range(4)}
    ) as api:
        categories = (await api.get("tools/categories"))["categories"]
        seen: list[str] = []
        for card in categories:
            tools = await api.get_all(f"tools/category/{card['category']}", "tools", **query)
            assert len(tools) == card["tools"]
            seen += [one["tool"] for one in tools]
        assert sorted(seen) == sorted(api.gateway.catalog.snapshot.tools)


async def test_a_page_cut_by_its_budget_continues_at_the_next_one():
    async with open_api({"git": backend(*make_tools("git_commit", 50))}) as api:
        (card,) = (await api.get("tools/categories"))["categories"]
        path = f"tools/category/{card['category']}"
        body = await api.get(path, max_tokens=600, page_size=50)
        models.CategoryTools.model_validate(body)
        shown = len(body["tools"])
        assert 0 < shown < 50
        assert body["left_out"] == 50 - shown
        assert f"offset={shown}&" in body["next"]
        assert COUNT(await text_of(api, f"{path}?max_tokens=600&page_size=50")) <= 600
        assert body["pagination"] == {
            "page": 1,
            "page_size": 50,
            "total_count": 50,
            "total_pages": 1,
        }
        following = await api.get(body["next"])
        assert following["tools"][0]["tool"] == f"git.git_commit_{shown}"


async def test_a_page_beyond_the_end_is_empty():
    async with open_api({"git": backend(*GIT)}) as api:
        (card, *_) = (await api.get("tools/categories"))["categories"]
        body = await api.get(f"tools/category/{card['category']}", page=900)
        assert body["tools"] == []
        assert "next" not in body
        assert body["pagination"]["page"] == 900


async def test_a_category_is_known_by_other_names_and_a_wrong_one_gets_the_nearest():
    async with open_api(
        {"git": backend(tool("git_commit", "Commit to the git repository."))}
    ) as api:
        (card,) = (await api.get("tools/categories"))["categories"]
        key = card["category"]
        assert (await api.get(f"tools/category/{quote(card['title'], safe='')}"))["category"] == key
        assert (await api.get(f"tools/category/{key.upper()}"))["category"] == key
        problem = await api.get(f"tools/category/{key}x", status=404)
        assert problem["nearest"] == [key]


async def test_the_next_page_of_a_list_that_changed_is_refused_with_advice():
    git = backend(*make_tools("git_commit", 50))
    async with open_api({"git": git}) as api:
        first = await api.get("tools", limit=5)
        api.record_call("git.git_commit_9")
        await api.usage_data.standings.recompute()
        problem = await api.get(first["next"], status=409)
        assert problem["kind"] == "stale_cursor"
        assert problem["advice"] == "Begin again: GET /api/v1/tools?limit=5"
        again = await api.get("tools", limit=5)
        assert again["tools"][0]["tool"] == "git.git_commit_9"


async def test_a_tool_is_shown_with_all_its_parts():
    definition = {
        **tool("create_issue", "Create an issue.\n\nMore words.", owner="string"),
        "outputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}},
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
        "_meta": {"x": 1},
    }
    async with open_api({"git": backend(definition)}) as api:
        api.record_call("git.create_issue", times=2)
        body = await api.get("tools/git/create_issue")
        models.ToolDetails.model_validate(body)
        assert body["input_schema"] == definition["inputSchema"]
        assert body["output_schema"] == definition["outputSchema"]
        assert body["annotations"] == definition["annotations"]
        assert body["more"] == {"_meta": {"x": 1}}
        assert body["usage"]["calls"] == 2
        assert "owner" in body["schema"]
        assert body["description"].startswith("Create an issue.")
        assert body["state"] == "ready"
        assert "left_out" not in body


async def test_a_tool_that_does_not_fit_names_what_is_missing_and_where_it_is():
    properties = {
        f"field_{at}": {"type": "string", "description": "Words about it. " * 9}
        for at in range(150)
    }
    big = {
        "name": "big",
        "description": "Long. " * 2_000,
        "inputSchema": {"type": "object", "properties": properties},
    }
    async with open_api({"s": backend(big)}) as api:
        for tokens in (300, 1_000, 4_000, 20_000):
            body = await api.get("tools/s/big", max_tokens=tokens)
            models.ToolDetails.model_validate(body)
            assert COUNT(await text_of(api, f"tools/s/big?max_tokens={tokens}")) <= tokens
            if tokens <= 4_000:
                assert "input_schema" in body["left_out"]
                whole = await api.get(body["whole"])
                assert whole["input_schema"]["properties"] == properties
                assert "left_out" not in whole
        assert (await api.get("tools/s/big", max_tokens=300))["params"].startswith("field_0?")


@pytest.mark.parametrize("name", ODD)
async def test_tools_with_odd_names_have_addresses_that_work(name: str):
    async with open_api(
        {"category": backend(*(tool(one) for one in ODD)), "s": backend(tool(name))}
    ) as api:
        body = await api.get(f"{V1}/tools/s/{quote(name, safe='')}")
        assert body["name"] == name
        body = await api.get(f"{V1}/tools/Category/{quote(name, safe='')}", max_tokens=300)
        assert body["tool"] == f"category.{name}"


async def test_other_spellings_are_accepted_and_wrong_names_get_the_nearest():
    async with open_api({"my-git": backend(*GIT)}) as api:
        for path in (
            "tools/my_git/createIssue",
            "tools/MyGit/create-issue",
            "tools/my-git/create_issue",
        ):
            assert (await api.get(path))["tool"] == "my-git.create_issue"
        problem = await api.get("tools/my-git/create_isue", status=404)
        assert problem["nearest"][0] == "my-git.create_issue"
        assert "Did you mean my-git.create_issue?" in problem["advice"]
        problem = await api.get("tools/nothing/like-it-at-all", status=404)
        assert "tools?query" in problem["advice"]
