"""Snapshot: lookups, scopes, versions."""

import threading
from typing import Any

import pytest

from portico.catalog.listing import LARGE_LISTING_ITEMS, ServerOffers
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import make_tool
from portico.errors import UnknownName
from portico.search import Index, SearchDocument
from portico.visibility import Scope


def entry(server: str, *tools: str, **more: Any) -> ServerEntry:
    return ServerEntry(
        server,
        tools={name: make_tool(server, {"name": name}) for name in tools},
        listed_at=1,
        **more,
    )


def snapshot(*entries: ServerEntry) -> Snapshot:
    return Snapshot({entry.name: entry for entry in entries})


SNAPSHOT = snapshot(
    entry("github", "create_issue", "list_issues"),
    entry("data-server", "list-items"),
    entry("a__b", "c"),
)


def test_a_tool_is_found_by_address_flat_name_identifier_and_bare_name():
    for name in (
        "data-server.list-items",
        "data-server__list-items",
        "data_server.list_items",
        "list_items",
    ):
        assert SNAPSHOT.resolve_tool(name).address == "data-server.list-items"


def test_a_tool_is_found_by_a_flat_name_that_had_to_be_cut():
    long = snapshot(entry("s" * 40, "t" * 60))
    (flat,) = long.tools_by_flat_name
    assert len(flat) == 64
    assert long.resolve_tool(flat).name == "t" * 60


def test_tools_whose_flat_names_would_be_one_are_all_there():
    twins = snapshot(entry("a__b", "c"), entry("a", "b__c"))
    assert sorted(tool.address for tool in twins.tools_by_flat_name.values()) == [
        "a.b__c",
        "a__b.c",
    ]
    assert all(twins.resolve_tool(flat) is tool for flat, tool in twins.tools_by_flat_name.items())


def test_prompts_whose_flat_names_would_be_one_are_all_there():
    prompts = ServerOffers(prompts=({"name": "c"}, {"name": "d"}, {"name": "c", "title": "again"}))
    twins = snapshot(
        entry("a__b", offers=prompts), entry("a", offers=ServerOffers(prompts=({"name": "b__c"},)))
    )
    found = [(server, prompt["name"]) for server, prompt in twins.flat_prompts.values()]
    assert found == [("a", "b__c"), ("a__b", "c"), ("a__b", "d")]
    assert "a__b__d" in twins.flat_prompts


@pytest.mark.parametrize(
    "name", ["data-server", "data_server", "Data-Server", "dataServer", " data-server "]
)
def test_a_server_is_found_by_any_usual_spelling(name: str):
    assert SNAPSHOT.resolve_server(name).name == "data-server"


def test_a_wrong_server_gets_the_nearest_back():
    with pytest.raises(UnknownName) as caught:
        SNAPSHOT.resolve_server("githib")
    assert caught.value.nearest == ("github",)
    assert "Did you mean github?" in caught.value.advice


@pytest.mark.parametrize("name", ["", "???", "."])
def test_punctuation_is_no_server_even_where_there_is_only_one(name: str):
    with pytest.raises(UnknownName, match="browse_tools without arguments"):
        snapshot(entry("github")).resolve_server(name)


def test_two_servers_that_differ_in_case_are_distinguished_or_listed():
    both = snapshot(entry("Git"), entry("git"))
    assert both.resolve_server("git").name == "git"
    assert both.resolve_server("Git").name == "Git"
    with pytest.raises(UnknownName) as caught:
        both.resolve_server("GIT")
    assert caught.value.nearest == ("Git", "git")


def test_the_version_changes_exactly_with_the_tools():
    same = snapshot(
        entry("github", "create_issue", "list_issues"),
        entry("a__b", "c"),
        entry("data-server", "list-items"),
    )
    assert same.version == SNAPSHOT.version
    fewer = snapshot(
        entry("github", "create_issue"), entry("data-server", "list-items"), entry("a__b", "c")
    )
    assert fewer.version != SNAPSHOT.version
    older = Snapshot(
        {
            **SNAPSHOT.servers,
            "github": entry("github", "create_issue", "list_issues", warnings=("old",)),
        }
    )
    assert older.version == SNAPSHOT.version


def test_the_version_of_the_offers_changes_with_them_alone():
    def offering(**offers: Any) -> Snapshot:
        return snapshot(entry("s", "t", offers=ServerOffers(**offers)))

    versions = {
        offering().offers_version,
        offering(resources=({"uri": "a"},)).offers_version,
        offering(templates=({"uriTemplate": "a"},)).offers_version,
        offering(prompts=({"name": "a"},)).offers_version,
        offering(prompts=({"name": "a"}, {"name": "b"})).offers_version,
    }
    assert len(versions) == 5
    assert offering().version == offering(prompts=({"name": "a"},)).version
    assert offering().offers_version == snapshot(entry("s", "u")).offers_version


def test_a_scope_sees_no_more_than_it_names():
    seen = SNAPSHOT.restrict_to(Scope(servers=("git*", "a__b"), tools=("create_*", "a__b.*")))
    assert list(seen.tools) == ["a__b.c", "github.create_issue"]
    assert "data-server" not in seen.servers
    for hidden in (
        "github.list_issues",
        "github__list_issues",
        "data-server.list-items",
        "list_issues",
    ):
        with pytest.raises(UnknownName) as caught:
            seen.resolve_tool(hidden)
        assert set(caught.value.nearest) <= set(seen.tools)
    with pytest.raises(UnknownName):
        seen.resolve_server("data-server")


def test_a_scope_of_everything_is_the_same_snapshot():
    assert SNAPSHOT.restrict_to(Scope()) is SNAPSHOT


def test_another_index_keeps_what_was_worked_out_about_the_servers():
    def worked_out(it: Snapshot) -> list[Any]:
        return [
            it.version,
            it.offers_version,
            it.tools,
            it.tool_names,
            it.tools_by_flat_name,
            it.flat_prompts,
        ]

    before = snapshot(entry("github", "create_issue"), entry("data-server", "list-items"))
    known, resolver = worked_out(before), before.resolver
    index = Index.build([SearchDocument("github.create_issue", "h", "github", "create_issue")])
    after = before.with_index(index)
    assert after.index is index
    assert before.index is not index
    assert all(kept is mine for kept, mine in zip(worked_out(after), known, strict=True))
    assert after.resolver is resolver
    assert worked_out(Snapshot(before.servers, index)) == known


def test_another_index_before_anything_was_worked_out_is_no_trouble():
    index = Index.build(())
    assert snapshot(entry("github", "create_issue")).with_index(index).tools.keys() == {
        "github.create_issue"
    }


def test_names_are_addresses_and_flat_names_and_nothing_else():
    long = "x" * 80
    known = snapshot(entry("github", "create_issue", long), entry("s" * 70, "tool"))
    flat = tuple(known.tools_by_flat_name)
    assert all(name in known.tool_names for name in (*known.tools, *flat))
    assert all(known.resolve_tool(name) is known.tools_by_flat_name[name] for name in flat)
    assert all(
        name not in known.tool_names
        for name in ("", "create_issue", "github.nope", "github__nope", "y" * 64)
    )


def test_the_addresses_that_a_name_can_mean_are_found_and_none_is_guessed():
    known = snapshot(entry("a", "create_issue"), entry("b", "create_issue"))
    assert known.find_addresses("create_issue") == ("a.create_issue", "b.create_issue")
    assert (
        known.find_addresses("a__create_issue")
        == known.find_addresses("A.Create-Issue")
        == ("a.create_issue",)
    )
    assert known.find_addresses("a.create_isue") == ()


# Large catalogs


LARGE_SNAPSHOT = snapshot(
    entry("large", *(f"list_records_{number}" for number in range(LARGE_LISTING_ITEMS + 1)))
)


async def test_only_a_large_catalog_is_looked_through_in_a_thread():
    here = threading.current_thread()
    assert await SNAPSHOT.run_scan(threading.current_thread) is here
    assert await LARGE_SNAPSHOT.run_scan(threading.current_thread) is not here
    offers = ServerOffers(
        tuple({"uri": f"r:{number}"} for number in range(LARGE_LISTING_ITEMS + 1))
    )
    assert await snapshot(entry("s", offers=offers)).run_scan(threading.current_thread) is not here


@pytest.mark.parametrize("known", [SNAPSHOT, LARGE_SNAPSHOT])
async def test_a_tool_is_found_off_the_event_loop_as_on_it(known: Snapshot):
    for tool in [*known.tools.values()][:3]:
        for name in (tool.address, f"{tool.server}__{tool.name}", tool.address.upper()):
            assert await known.find_tool(name) is known.resolve_tool(name) is tool
        assert await known.find_by_flat_name(f"{tool.server}__{tool.name}") is tool
    assert await known.find_by_flat_name("nobody") is None
    with pytest.raises(UnknownName) as found:
        await known.find_tool("large.list_recrods_7")
    with pytest.raises(UnknownName) as expected:
        known.resolve_tool("large.list_recrods_7")
    assert found.value.nearest == expected.value.nearest


def test_a_snapshot_is_prepared_for_what_was_asked_of_the_one_before():
    before, quiet, asked = (snapshot(entry("s", "t")) for _ in range(3))
    quiet.prepare(before)
    assert {"tools", "version", "main_categories"} <= vars(quiet).keys()
    assert "tools_by_flat_name" not in vars(quiet.tool_names)
    assert "flat_prompts" not in vars(quiet)
    assert (before.tools_by_flat_name, before.flat_prompts) != ({}, None)
    asked.prepare(before)
    assert "tools_by_flat_name" in vars(asked.tool_names)
    assert "flat_prompts" in vars(asked)
