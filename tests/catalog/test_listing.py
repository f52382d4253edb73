"""Listing a server page by page; a malformed entry never affects another."""

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from portico.catalog.listing import (
    LARGE_LISTING_ITEMS,
    MAX_WARNINGS,
    ListedTool,
    ServerListing,
    ServerOffers,
    fetch_listing,
    salvage_tools,
)
from portico.errors import METHOD_NOT_FOUND, RemoteError
from portico.testing import FakeBackend
from portico.upstream.backend import InitializeInfo, Raw, RequestOptions


class Deaf:
    """A listener with nothing to do."""

    def on_notification(self, method: str, params: Raw) -> None: ...

    def on_lost(self, reason: str) -> None: ...


async def listed(backend: FakeBackend) -> ServerListing:
    return await fetch_listing(await backend.connect(Deaf()), 5)


def names(listing: ServerListing) -> list[str]:
    return [entry.name for entry in listing.tools]


def definition(entry: ListedTool) -> Raw:
    return json.loads(entry.blob)


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"properties": {"a": value}}
    return value


def schema(**properties: Any) -> Raw:
    return {"type": "object", "properties": properties}


# Salvage


@pytest.mark.parametrize(
    "item", [None, 3, "tool", [], {}, {"name": None}, {"name": ""}, {"name": "  "}, {"name": 4}]
)
def test_what_has_no_name_is_left_out_with_a_warning(item: Any):
    kept, warnings = salvage_tools([{"name": "good"}, item])
    assert [entry.name for entry in kept] == ["good"]
    assert warnings == ("tool 2 has no name and was left out",)


def test_of_two_tools_of_one_name_the_first_is_kept():
    kept, warnings = salvage_tools(
        [{"name": "t", "description": "first"}, {"name": "t", "description": "second"}]
    )
    assert [definition(entry)["description"] for entry in kept] == ["first"]
    assert "'t'" in warnings[0]


def test_a_tool_without_a_schema_is_kept_and_says_so():
    kept, warnings = salvage_tools([{"name": "t"}, {"name": "u", "inputSchema": {}}])
    assert not warnings
    assert [entry.warnings for entry in kept] == [
        ("no input schema: arguments are passed unchecked",),
        ("the input schema does not say `type: object`",),
    ]


def test_a_definition_is_kept_as_it_came():
    given = {"x-vendor": [1], "name": "t", "inputSchema": schema(), "icons": [{"src": "data:"}]}
    ((entry,), _) = salvage_tools([given])
    assert list(definition(entry).items()) == list(given.items())
    assert entry.warnings == ()


@pytest.mark.parametrize(
    "value",
    [nested(60), nested(300), nested(3_000), {"default": "\ud83d"}, {"default": object()}],
    ids=["deep", "beyond orjson", "beyond Python", "half a character", "no JSON"],
)
def test_a_part_that_cannot_be_kept_costs_only_itself(value: Any):
    bad = {"name": "bad", "description": "Still found.", "inputSchema": value}
    kept, warnings = salvage_tools([{"name": "before"}, bad, {"name": "after"}])
    assert [entry.name for entry in kept] == ["before", "bad", "after"]
    assert definition(kept[1]) == {"name": "bad", "description": "Still found."}
    assert "'inputSchema' was left out" in kept[1].warnings[0]
    assert not warnings


def test_a_name_that_is_no_text_is_left_out():
    kept, warnings = salvage_tools([{"name": "half \ud83d"}, {"name": "whole"}])
    assert [entry.name for entry in kept] == ["whole"]
    assert "tool 1" in warnings[0]


@pytest.mark.parametrize(
    ("tools", "offers", "large"),
    [
        ([{"name": "t"}], ServerOffers(), False),
        (
            [{"name": f"t{number}"} for number in range(LARGE_LISTING_ITEMS + 1)],
            ServerOffers(),
            True,
        ),
        (
            [{"name": f"t{number}", "description": "x" * 30_000} for number in range(10)],
            ServerOffers(),
            True,
        ),
        (
            [],
            ServerOffers(
                prompts=tuple({"name": f"p{number}"} for number in range(LARGE_LISTING_ITEMS + 1))
            ),
            True,
        ),
    ],
    ids=["one tool", "many tools", "long ones", "many prompts"],
)
def test_a_listing_is_large_by_its_entries_or_its_bytes(
    tools: list[Raw], offers: ServerOffers, large: bool
):
    assert (
        ServerListing(
            InitializeInfo("legacy", "2025-11-25"), salvage_tools(tools)[0], offers
        ).is_large
        is large
    )


# Fetching


async def test_everything_a_server_offers_is_fetched():
    listing = await listed(
        FakeBackend(
            [{"name": "t", "inputSchema": schema()}],
            resources=[{"uri": "r:1", "name": "r"}],
            templates=[{"uriTemplate": "r:{x}", "name": "x"}],
            prompts=[{"name": "p"}],
            instructions="Be kind.",
        )
    )
    assert names(listing) == ["t"]
    assert listing.offers.resources[0]["uri"] == "r:1"
    assert listing.offers.templates[0]["uriTemplate"] == "r:{x}"
    assert listing.offers.prompts[0]["name"] == "p"
    assert listing.initialize_info.instructions == "Be kind."
    assert listing.warnings == ()


def paged(pages: Mapping[str | None, Raw]) -> FakeBackend:
    backend = FakeBackend(capabilities={"tools": {}})
    backend.on("tools/list", lambda params, ask: pages[params.get("cursor")])
    return backend


async def test_pages_are_followed_to_the_end():
    backend = paged(
        {
            None: {"tools": [{"name": "a"}], "nextCursor": "1"},
            "1": {"tools": [{"name": "b"}], "nextCursor": "2"},
            "2": {"tools": [{"name": "c"}]},
        }
    )
    assert names(await listed(backend)) == ["a", "b", "c"]


async def test_cursors_that_go_round_end_the_listing():
    backend = paged(
        {
            None: {"tools": [{"name": "a"}], "nextCursor": "1"},
            "1": {"tools": [{"name": "b"}], "nextCursor": "2"},
            "2": {"tools": [{"name": "c"}], "nextCursor": "1"},
        }
    )
    assert names(await listed(backend)) == ["a", "b", "c"]
    assert len(backend.requests) == 3


@pytest.mark.parametrize("cursor", ["", None, 7, {}])
async def test_a_cursor_that_is_none_ends_the_listing(cursor: Any):
    assert names(await listed(paged({None: {"tools": [{"name": "a"}], "nextCursor": cursor}}))) == [
        "a"
    ]


@pytest.mark.parametrize("tools", [None, {}, "tools", 3])
async def test_a_listing_that_is_no_list_is_empty(tools: Any):
    assert names(await listed(paged({None: {"tools": tools}}))) == []


def refusing(method: str, **offers: Any) -> FakeBackend:
    def refuse(params: Raw, ask: RequestOptions) -> Raw:
        raise RemoteError(METHOD_NOT_FOUND, "no such method")

    backend = FakeBackend(**offers)
    backend.on(method, refuse)
    return backend


async def test_a_server_that_declares_tools_and_cannot_list_them_has_failed():
    with pytest.raises(RemoteError):
        await listed(refusing("tools/list"))


async def test_a_server_that_declares_no_tools_is_asked_and_may_refuse():
    assert (await listed(refusing("tools/list", capabilities={}))).tools == ()
    undeclared = FakeBackend([{"name": "t"}], capabilities={})
    assert names(await listed(undeclared)) == ["t"]


async def test_a_lesser_list_that_fails_leaves_a_warning_and_the_tools():
    listing = await listed(refusing("resources/list", tools=[{"name": "t"}]))
    assert names(listing) == ["t"]
    assert "declares resources but answers resources/list with: no such method" in listing.warnings


async def test_missing_resource_templates_are_nothing_to_warn_of():
    assert (await listed(refusing("resources/templates/list"))).warnings == ()


async def test_bad_entries_of_the_lesser_lists_cost_only_themselves():
    listing = await listed(
        FakeBackend(
            resources=[{"uri": 3}, {"uri": "r:1"}, {"uri": "r:2", "x": nested(300)}],
            prompts=cast("list[Raw]", ["no", {"name": "p"}, {"name": "q\ud83d"}]),
        )
    )
    assert [resource["uri"] for resource in listing.offers.resources] == ["r:1"]
    assert [prompt["name"] for prompt in listing.offers.prompts] == ["p"]
    assert len(listing.warnings) == 4


async def test_warnings_do_not_grow_without_end():
    listing = await listed(FakeBackend([{}] * 1_000))
    assert len(listing.warnings) == MAX_WARNINGS + 1
    assert listing.warnings[-1] == "and 950 more"
