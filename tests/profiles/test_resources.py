"""Our own resources: what each says, in how many tokens, and where a wrong URI leads."""

import json
import re
from urllib.parse import quote

import pytest

from portico.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, RemoteError, StaleCursor
from portico.profiles.resources import DEFAULT_BUDGET, RESOURCE_BUDGETS, RESOURCES, TEMPLATES
from portico.rendering.resource_uris import parse_gateway_uri
from portico.rendering.token_budget import count_tokens
from portico.testing import FakeBackend
from portico.upstream.backend import Era
from portico.visibility import MAX_URI_CHARS, Scope
from tests.interaction.fake_servers import tool
from tests.profiles.viewing import ME, Viewing, viewing

OVERVIEW_TOKENS = 500


def large(tools: int = 900) -> dict[str, FakeBackend]:
    many = FakeBackend(
        [tool(f"do_{n}", f"Does the thing of number {n} for those who ask.") for n in range(tools)]
    )
    more = {
        f"server{n:03}": FakeBackend(
            [tool("t")], instructions="Notes. " * 50, capabilities={"tools": {}}
        )
        for n in range(150)
    }
    return {"many": many, **more}


async def every_page(view: Viewing, uri: str, key: str) -> list[object]:
    """All items of a resource, over every page; each page within its budget."""
    found: list[object] = []
    for _ in range(1_000):
        body = await view.read(uri)
        own = parse_gateway_uri(uri)
        assert own is not None
        assert count_tokens(body) <= RESOURCE_BUDGETS.get(own.kind, DEFAULT_BUDGET)
        page = json.loads(body)
        found += page[key]
        if "more" not in page:
            return found
        assert page["more"]["left_out"] > 0
        uri = page["more"]["uri"]
    raise AssertionError("the pages never end")


async def test_the_overview_is_short_and_says_how_to_go_on():
    async with viewing() as view:
        text = await view.read("portico://overview")
        assert text.startswith("# Portico\nOne endpoint in front of 4 tools on 3 servers.")
        assert "search_tools(query)" in text
        assert "version-control 2" in text
        assert "portico://tool/{tool_name}" in text
    async with viewing(large()) as view:
        assert count_tokens(await view.read("portico://overview")) <= OVERVIEW_TOKENS


async def test_the_overview_names_the_servers_that_are_away_and_only_meta_tools_that_are_there():
    async with viewing(meta_tools=frozenset({"search_tools"})) as view:
        view.gateway.upstreams["post"].set_state("down", "the post office is closed")
        text = await view.read("portico://overview")
        assert "Unavailable now: post." in text
        assert "call_tool" not in text


async def test_the_servers_come_with_what_they_are_and_how_they_are():
    async with viewing() as view:
        view.gateway.upstreams["post"].set_state("down", "the post office is closed")
        cards = {
            card["server"]: card for card in (await view.data("portico://backends"))["servers"]
        }
        assert list(cards) == ["bare", "github", "post"]
        assert cards["github"]["tools"] == 2
        assert cards["github"]["category"] == "version-control"
        assert cards["github"]["version"] == "1"
        assert (cards["post"]["state"], cards["post"]["reason"]) == (
            "down",
            "the post office is closed",
        )


async def test_the_index_has_every_tool_in_a_few_words():
    async with viewing() as view:
        body = await view.data("portico://tools")
        assert body["tools_in_all"] == 4
        assert body["tools"][0] == "github.create_issue: Create an issue…"


async def test_a_server_says_everything_of_itself():
    async with viewing() as view:
        card = await view.data("portico://backend/github")
        assert card["instructions"] == "Say the repository."
        assert (card["resources"], card["prompts"]) == (1, 1)
        assert card["tool_names"] == ["create_issue", "close_issue"]
        tools = await view.data("portico://backend/GitHub/tools")
        assert [card["tool"] for card in tools["tools"]] == [
            "github.create_issue",
            "github.close_issue",
        ]


async def test_a_category_has_its_tools():
    async with viewing() as view:
        kinds = {
            card["category"]: card
            for card in (await view.data("portico://categories"))["categories"]
        }
        assert kinds["version-control"]["tools"] == 2
        body = await view.data("portico://category/Version%20control")
        assert body["tools_in_all"] == 2
        assert {card["tool"] for card in body["tools"]} == {
            "github.create_issue",
            "github.close_issue",
        }


@pytest.mark.parametrize(
    "name", ["github.create_issue", "github%2Ecreate_issue", "github/create_issue", "create_issue"]
)
async def test_a_tool_is_whole_under_every_usual_spelling_of_its_name(name: str):
    async with viewing() as view:
        whole = await view.data(f"portico://tool/{name}")
        assert whole["tool"] == "github.create_issue"
        assert whole["definition"]["inputSchema"]["properties"] == {"title": {"type": "string"}}
        assert whole["category"] == "version-control"
        assert whole["usage"] == {"calls": 0}


async def test_a_name_that_no_uri_can_hold_is_read_percent_encoded():
    async with viewing() as view:
        whole = await view.data(f"portico://tool/{quote('post.odd/name here', safe='')}")
        assert whole["tool"] == "post.odd/name here"


async def test_use_shows_in_the_hot_list_in_the_order_and_in_the_statistics():
    async with viewing() as view:
        before = await view.data("portico://hot")
        assert before["chosen_by"].startswith("no use is known yet")
        assert [card["tool"] for card in before["tools"]][:2] == [
            "github.create_issue",
            "post.send_mail",
        ]
        await view.use("github.close_issue", 3)
        hot = await view.data("portico://hot")
        assert hot["chosen_by"] == "pins and use"
        assert hot["tools"][0]["tool"] == "github.close_issue"
        assert hot["tools"][0]["success_rate"] == 1
        tools = await view.data("portico://backend/github/tools")
        assert tools["tools"][0]["tool"] == "github.close_issue"
        stats = await view.data("portico://stats")
        assert stats["use"]["calls"] == 3
        assert stats["most_used"][0]["tool"] == "github.close_issue"
        assert stats["server_states"] == {"ready": 3}
        assert (await view.data("portico://tool/close_issue"))["usage"]["calls"] == 3


async def test_the_statistics_have_this_sessions_tokens_and_everybodys():
    async with viewing() as view:
        await view.ask("tools/list")
        await view.usage_data.ledger.flush()
        tokens = (await view.data("portico://stats"))["tokens"]
        assert tokens["this_session"]["listing"] == 5_000
        assert tokens["this_session"]["saved"] == 5_000 - tokens["this_session"]["shown"]
        assert tokens["total"]["sessions"] == 1
        assert view.usage_data.ledger.get_session(ME) is not None


@pytest.mark.parametrize(
    ("uri", "key", "number"),
    [
        ("portico://tools", "tools", 1_050),
        ("portico://backends", "servers", 151),
        ("portico://backend/many/tools", "tools", 900),
        ("portico://backend/many", "tool_names", 900),
    ],
)
async def test_what_does_not_fit_is_continued_and_nothing_is_lost(uri: str, key: str, number: int):
    async with viewing(large()) as view:
        found = await every_page(view, uri, key)
        assert len(found) == len({json.dumps(item) for item in found}) == number


async def test_a_tool_too_large_for_one_answer_is_read_in_parts_that_join():
    huge = tool(
        "huge",
        "It takes a lot to say. " * 400,
        **{f"parameter_{n}": "string" for n in range(1_500)},
    )
    async with viewing({"big": FakeBackend([huge])}) as view:
        uri, parts = "portico://tool/big.huge", list[str]()
        while uri:
            contents = (await view.ask("resources/read", {"uri": uri}))["contents"]
            assert count_tokens(contents[0]["text"]) <= RESOURCE_BUDGETS["tool"]
            parts.append(contents[0]["text"])
            uri = re.findall(r"portico://\S+", contents[1]["text"])[0] if len(contents) > 1 else ""
        assert len(parts) > 1
        assert json.loads("".join(parts))["definition"] == huge


async def test_a_cursor_of_a_resource_does_not_outlive_its_catalog():
    async with viewing(large(400)) as view:
        rest = (await view.data("portico://backend/many/tools"))["more"]["uri"]
        assert (await view.data(rest))["tools"]
        await view.use("many.do_3")
        with pytest.raises(StaleCursor, match="changed"):
            await view.read(rest)
        with pytest.raises(StaleCursor):
            await view.read("portico://tools?cursor=garbage")


@pytest.mark.parametrize(
    ("era", "code"), [("legacy", RESOURCE_NOT_FOUND), ("modern", INVALID_PARAMS)]
)
@pytest.mark.parametrize(
    ("uri", "near"),
    [
        ("portico://overvew", "portico://overview"),
        ("portico://tool/github.create_isue", "portico://tool/github.create_issue"),
        ("portico://backend/gitub", "portico://backend/github"),
        ("portico://backend/gitub/tools", "portico://backend/github/tools"),
        ("portico://category/version-contol", "portico://category/version-control"),
        ("portico://backend/github/resource/note:/1", ""),
        ("portico://backend/gitub/resource/note://1", "portico://backend/github/resource/note://1"),
    ],
)
async def test_a_wrong_uri_gets_the_nearest_back_with_the_code_of_the_era(
    era: Era, code: int, uri: str, near: str
):
    async with viewing() as view:
        if not near:
            view.gateway.upstreams["github"].backend.on("resources/read", _refuse)  # pyright: ignore
        with pytest.raises(RemoteError, match="Resource not found") as caught:
            await view.read(uri, era)
        assert caught.value.code == code
        assert caught.value.data == {"uri": uri}
        assert near in caught.value.message


@pytest.mark.parametrize("scheme", ["portico://result/", "portico://backend/github/resource/", ""])
async def test_only_the_beginning_of_a_uri_that_is_too_long_is_sent_back(scheme: str):
    async with viewing() as view:
        with pytest.raises(RemoteError, match="Resource not found") as caught:
            await view.read(scheme + "%41" * 1_000_000)
        assert caught.value.data["uri"].startswith(f"{scheme}%41")
        assert len(caught.value.data["uri"]) == MAX_URI_CHARS + 1
        assert len(caught.value.message) < 1_000


def _refuse(params: dict[str, str], *_: object) -> dict[str, object]:
    raise RemoteError(
        RESOURCE_NOT_FOUND,
        "Resource not found",
        {"uri": "portico://backend/github/resource/note:/1"},
    )


async def test_a_tool_of_an_unlisted_server_is_not_found_for_that_reason():
    async with viewing() as view:
        silent = view.gateway.catalog.snapshot.servers["bare"]
        object.__setattr__(silent, "listed_at", 0)
        view.gateway.upstreams["bare"].set_state("down", "it has no licence")
        with pytest.raises(RemoteError, match="bare is known but unavailable"):
            await view.read("portico://tool/bare.anything")


async def test_a_profile_reads_only_of_its_own():
    async with viewing(scope=Scope(servers=("post",))) as view:
        for uri in (item["uri"] for item in RESOURCES):
            assert "github" not in await view.read(uri)
        for uri in (
            "portico://tool/github.create_issue",
            "portico://backend/github",
            "portico://category/version-control",
        ):
            with pytest.raises(RemoteError, match="Resource not found"):
                await view.read(uri)


async def test_ours_are_listed_first_and_say_whom_they_are_for():
    async with viewing() as view:
        listed = (await view.ask("resources/list"))["resources"]
        assert listed[: len(RESOURCES)] == list(RESOURCES)
        assert all(0 < item["annotations"]["priority"] < 1 for item in RESOURCES)
        assert (await view.ask("resources/templates/list"))["resourceTemplates"] == list(TEMPLATES)
        for item in RESOURCES:
            (content,) = (await view.ask("resources/read", {"uri": item["uri"]}))["contents"]
            assert content["mimeType"] == item["mimeType"]
            assert content["annotations"]["priority"] == (
                0.3 if len(content["text"]) > 2_000 else 0.7
            )


async def test_a_read_resource_is_published_as_shown():
    async with viewing() as view:
        text = await view.read("portico://hot")
        assert [(event.caller, event.content, event.is_listing) for event in view.shown] == [
            (ME, text, False)
        ]
