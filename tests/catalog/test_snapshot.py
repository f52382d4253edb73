"""One moment's knowledge: lookups, scopes, versions."""

import threading
from typing import Any

import pytest

from portico.access import Scope
from portico.catalog.listing import LARGE, Offers
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import make_tool
from portico.errors import UnknownName
from portico.search import Document, Index


def entry(server: str, *tools: str, **more: Any) -> ServerEntry:
    return ServerEntry(server, tools={name: make_tool(server, {"name": name}) for name in tools}, listed_at=1, **more)


def snapshot(*entries: ServerEntry) -> Snapshot:
    return Snapshot({entry.name: entry for entry in entries})


HOUSE = snapshot(entry("github", "create_issue", "list_issues"), entry("data-server", "list-items"), entry("a__b", "c"))


def test_a_tool_is_found_by_address_flat_name_identifier_and_bare_name():
    for name in ("data-server.list-items", "data-server__list-items", "data_server.list_items", "list_items"):
        assert HOUSE.tool(name).address == "data-server.list-items"


def test_a_tool_is_found_by_a_flat_name_that_had_to_be_cut():
    long = snapshot(entry("s" * 40, "t" * 60))
    (flat,) = long.flat
    assert len(flat) == 64
    assert long.tool(flat).name == "t" * 60


def test_tools_whose_flat_names_would_be_one_are_all_there():
    twins = snapshot(entry("a__b", "c"), entry("a", "b__c"))
    assert sorted(tool.address for tool in twins.flat.values()) == ["a.b__c", "a__b.c"]
    assert all(twins.tool(flat) is tool for flat, tool in twins.flat.items())


def test_prompts_whose_flat_names_would_be_one_are_all_there():
    prompts = Offers(prompts=({"name": "c"}, {"name": "d"}, {"name": "c", "title": "again"}))
    twins = snapshot(entry("a__b", offers=prompts), entry("a", offers=Offers(prompts=({"name": "b__c"},))))
    found = [(server, prompt["name"]) for server, prompt in twins.flat_prompts.values()]
    assert found == [("a", "b__c"), ("a__b", "c"), ("a__b", "d")]
    assert "a__b__d" in twins.flat_prompts


@pytest.mark.parametrize("name", ["data-server", "data_server", "Data-Server", "dataServer", " data-server "])
def test_a_server_is_found_by_any_usual_spelling(name: str):
    assert HOUSE.server(name).name == "data-server"


def test_a_wrong_server_gets_the_nearest_back():
    with pytest.raises(UnknownName) as caught:
        HOUSE.server("githib")
    assert caught.value.nearest == ("github",)
    assert "Did you mean github?" in caught.value.advice


@pytest.mark.parametrize("name", ["", "???", "."])
def test_punctuation_is_no_server_even_where_there_is_only_one(name: str):
    with pytest.raises(UnknownName, match="browse_tools without arguments"):
        snapshot(entry("github")).server(name)


def test_two_servers_that_differ_in_case_are_told_apart_or_listed():
    both = snapshot(entry("Git"), entry("git"))
    assert both.server("git").name == "git"
    assert both.server("Git").name == "Git"
    with pytest.raises(UnknownName) as caught:
        both.server("GIT")
    assert caught.value.nearest == ("Git", "git")


def test_the_version_changes_exactly_with_the_tools():
    same = snapshot(
        entry("github", "create_issue", "list_issues"), entry("a__b", "c"), entry("data-server", "list-items")
    )
    assert same.version == HOUSE.version
    fewer = snapshot(entry("github", "create_issue"), entry("data-server", "list-items"), entry("a__b", "c"))
    assert fewer.version != HOUSE.version
    older = Snapshot({**HOUSE.servers, "github": entry("github", "create_issue", "list_issues", warnings=("old",))})
    assert older.version == HOUSE.version


def test_the_version_of_the_offers_changes_with_them_alone():
    def offering(**offers: Any) -> Snapshot:
        return snapshot(entry("s", "t", offers=Offers(**offers)))

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
    seen = HOUSE.within(Scope(servers=("git*", "a__b"), tools=("create_*", "a__b.*")))
    assert list(seen.tools) == ["a__b.c", "github.create_issue"]
    assert "data-server" not in seen.servers
    for hidden in ("github.list_issues", "github__list_issues", "data-server.list-items", "list_issues"):
        with pytest.raises(UnknownName) as caught:
            seen.tool(hidden)
        assert set(caught.value.nearest) <= set(seen.tools)
    with pytest.raises(UnknownName):
        seen.server("data-server")


def test_a_scope_of_everything_is_the_same_snapshot():
    assert HOUSE.within(Scope()) is HOUSE


def test_another_index_keeps_what_was_worked_out_about_the_servers():
    def worked_out(it: Snapshot) -> list[Any]:
        return [it.version, it.offers_version, it.tools, it.names, it.flat, it.flat_prompts]

    before = snapshot(entry("github", "create_issue"), entry("data-server", "list-items"))
    known, resolver = worked_out(before), before.resolver
    index = Index.build([Document("github.create_issue", "h", "github", "create_issue")])
    after = before.with_index(index)
    assert after.index is index
    assert before.index is not index
    assert all(kept is mine for kept, mine in zip(worked_out(after), known, strict=True))
    assert after.resolver is resolver
    assert worked_out(Snapshot(before.servers, index)) == known


def test_another_index_before_anything_was_worked_out_is_no_trouble():
    index = Index.build(())
    assert snapshot(entry("github", "create_issue")).with_index(index).tools.keys() == {"github.create_issue"}


def test_names_are_addresses_and_flat_names_and_nothing_else():
    long = "x" * 80
    house = snapshot(entry("github", "create_issue", long), entry("s" * 70, "tool"))
    flat = tuple(house.flat)
    assert all(name in house.names for name in (*house.tools, *flat))
    assert all(house.tool(name) is house.flat[name] for name in flat)
    assert all(name not in house.names for name in ("", "create_issue", "github.nope", "github__nope", "y" * 64))


def test_the_addresses_that_a_name_can_mean_are_found_and_none_is_guessed():
    house = snapshot(entry("a", "create_issue"), entry("b", "create_issue"))
    assert house.find_addresses("create_issue") == ("a.create_issue", "b.create_issue")
    assert house.find_addresses("a__create_issue") == house.find_addresses("A.Create-Issue") == ("a.create_issue",)
    assert house.find_addresses("a.create_isue") == ()


# Large catalogs


LARGE_HOUSE = snapshot(entry("large", *(f"list_records_{number}" for number in range(LARGE + 1))))


async def test_only_a_large_catalog_is_looked_through_in_a_thread():
    here = threading.current_thread()
    assert await HOUSE.look_through(threading.current_thread) is here
    assert await LARGE_HOUSE.look_through(threading.current_thread) is not here
    offers = Offers(tuple({"uri": f"r:{number}"} for number in range(LARGE + 1)))
    assert await snapshot(entry("s", offers=offers)).look_through(threading.current_thread) is not here


@pytest.mark.parametrize("house", [HOUSE, LARGE_HOUSE])
async def test_a_tool_is_found_off_the_event_loop_as_on_it(house: Snapshot):
    for tool in [*house.tools.values()][:3]:
        for name in (tool.address, f"{tool.server}__{tool.name}", tool.address.upper()):
            assert await house.find_tool(name) is house.tool(name) is tool
        assert await house.find_flat(f"{tool.server}__{tool.name}") is tool
    assert await house.find_flat("nobody") is None
    with pytest.raises(UnknownName) as found:
        await house.find_tool("large.list_recrods_7")
    with pytest.raises(UnknownName) as expected:
        house.tool("large.list_recrods_7")
    assert found.value.nearest == expected.value.nearest


def test_a_snapshot_is_prepared_for_what_was_asked_of_the_one_before():
    before, quiet, asked = (snapshot(entry("s", "t")) for _ in range(3))
    quiet.prepare(before)
    assert {"tools", "version", "main_categories"} <= vars(quiet).keys()
    assert "flat" not in vars(quiet.names)
    assert "flat_prompts" not in vars(quiet)
    assert (before.flat, before.flat_prompts) != ({}, None)
    asked.prepare(before)
    assert "flat" in vars(asked.names)
    assert "flat_prompts" in vars(asked)
