"""Search and browse: what is said, in how many tokens, and that no answer is a dead end."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.entries import build_documents
from portico.catalog.listing import ServerOffers
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import make_tool
from portico.errors import BackendUnavailable, StaleCursor, UnknownName
from portico.meta_tools import browse_tools, search_page
from portico.meta_tools.browse_tools import ServerState
from portico.rendering.server_lines import ServerStates
from portico.rendering.token_budget import count_tokens
from portico.search import Index
from portico.upstream.backend import InitializeInfo, Raw
from portico.usage.tool_tiers import RankedCatalog, Standing
from portico.visibility import Scope
from tests.meta_tools import searching
from tests.meta_tools.search_catalog import search

BUDGET = 2_000


def tool(name: str, description: str, *parameters: str) -> Raw:
    properties = {
        parameter: {"type": "string", "description": f"The {parameter}."}
        for parameter in parameters
    }
    schema = {"type": "object", "properties": properties, "required": list(parameters[:1])}
    return {"name": name, "description": description, "inputSchema": schema}


def entry(server: str, *tools: Raw, instructions: str = "", **more: Any) -> ServerEntry:
    return ServerEntry(
        server,
        initialize_info=InitializeInfo(
            "legacy", "2025-11-25", server_info={"version": "1.2"}, instructions=instructions
        ),
        tools={one["name"]: make_tool(server, one) for one in tools},
        listed_at=1,
        **more,
    )


def snapshot(*entries: ServerEntry) -> Snapshot:
    index = Index.build(document for one in entries for document in build_documents(one))
    return Snapshot({one.name: one for one in entries}, index)


GITHUB = entry(
    "github",
    tool("create_issue", "Create a new issue in a repository.", "owner", "title"),
    tool("list_issues", "List the issues of a repository.", "owner"),
    tool("close_issue", "Close an issue.", "number"),
    description="Code hosting",
    instructions="Say owner and repository.",
)
GITLAB = entry("gitlab", tool("create_issue", "Create a new issue in a project.", "project"))
UNHEARD = ServerEntry("unheard")
CATALOG = snapshot(GITHUB, GITLAB, UNHEARD)
MANY = snapshot(
    entry("many", *(tool(f"do_{n}", f"Does thing number {n}.", "what", "how") for n in range(120)))
)


def overview(
    catalog: Snapshot,
    states: ServerStates,
    budget: int,
    pins: tuple[str, ...] = (),
    cursor: str | None = None,
) -> str:
    return browse_tools.render_overview(RankedCatalog(catalog, pins=pins), states, budget, cursor)


def browse(
    catalog: Snapshot, states: ServerStates, budget: int, server: str | None = None, **how: Any
) -> str:
    return browse_tools.browse(RankedCatalog(catalog), states, budget, server, **how)


def lines(answer: str, server: str) -> list[str]:
    return [
        re.split(r"[( ]", line)[0] for line in answer.splitlines() if line.startswith(f"{server}.")
    ]


def cursor_in(answer: str) -> str | None:
    found = re.search(r'cursor="([\w-]+)"', answer)
    return found[1] if found else None


def pages(ask: Callable[[str | None], str]) -> Iterator[str]:
    """Answers, each continued by the cursor in the one before."""
    cursor: str | None = None
    for _ in range(1_000):
        answer = ask(cursor)
        yield answer
        cursor = cursor_in(answer)
        if cursor is None:
            return
    raise AssertionError("the pages never end")


# Search


def test_matches_come_best_first_one_line_each_with_what_to_do_next():
    answer = searching.search(CATALOG, {}, BUDGET, "close issue")
    assert answer.splitlines()[0] == "Best matches for 'close issue':"
    assert answer.splitlines()[1] == "github.close_issue(number) — Close an issue."
    assert "Next: call_tool(name, arguments), or describe_tools(names) first." in answer


def test_the_schema_detail_shows_parameters():
    answer = searching.search(CATALOG, {}, BUDGET, "close issue", limit=1, detail="schema")
    assert "\n number: string\n" in answer
    assert "Next: call_tool(name, arguments)." in answer


def test_a_search_can_be_kept_to_one_server():
    answer = searching.search(CATALOG, {}, BUDGET, "create issue", server="GitLab")
    assert lines(answer, "gitlab") == ["gitlab.create_issue"]
    assert lines(answer, "github") == []
    assert "on gitlab:" in answer


def test_a_wrong_server_gets_the_nearest_back():
    with pytest.raises(UnknownName) as caught:
        searching.search(CATALOG, {}, BUDGET, "issue", server="gihub")
    assert caught.value.nearest[0] == "github"


def test_nothing_matched_is_said_with_the_nearest_names():
    answer = searching.search(CATALOG, {}, BUDGET, "kreateisue")
    assert answer.startswith("No tool here matches 'kreateisue'.")
    assert "Nearest names:\ngithub.create_issue(" in answer
    assert "browse_tools()" in answer


def test_nothing_matched_and_nothing_near_still_says_what_to_do():
    answer = searching.search(CATALOG, {}, BUDGET, "zzzzzz", server="gitlab")
    assert answer.startswith("No tool on gitlab matches 'zzzzzz'.")
    assert 'Search all servers, or browse_tools(server="gitlab").' in answer


def test_servers_that_were_not_listed_yet_are_named():
    for query in ("issue", "zzzzzz"):
        answer = searching.search(CATALOG, {"unheard": ServerState("starting")}, BUDGET, query)
        assert "Not searched, because not listed yet: unheard (starting)" in answer


def test_many_servers_that_were_not_listed_yet_are_not_all_named():
    silent = Snapshot({f"s{n}": ServerEntry(f"s{n}") for n in range(300)})
    answer = searching.search(silent, {}, BUDGET, "issue")
    assert "s0, s1, s10, s100, s101 …" in answer
    assert count_tokens(answer) < 120


def test_no_next_step_names_a_disabled_meta_tool():
    answers = [
        searching.search(CATALOG, {}, BUDGET, query, there=["search_tools"], detail=detail)
        for query in ("issue", "zzzzzz")
        for detail in ("brief", "schema")
    ]
    assert not any(
        name in answer
        for answer in answers
        for name in ("call_tool", "browse_tools", "describe_tools")
    )
    read_only = searching.search(
        CATALOG, {}, BUDGET, "issue", there=["search_tools", "describe_tools"]
    )
    assert "Next: describe_tools(names)." in read_only


def test_a_scope_finds_nothing_outside_it():
    seen = CATALOG.restrict_to(Scope(servers=("gitlab",)))
    assert "github" not in searching.search(seen, {}, BUDGET, "create issue")
    assert "github" not in searching.search(seen, {}, BUDGET, "closeisue")
    assert "github" not in overview(seen, {}, BUDGET)


@pytest.mark.parametrize("limit", [1, 7, 50])
@pytest.mark.parametrize("detail", ["brief", "schema"])
@pytest.mark.parametrize("budget", [300, BUDGET])
def test_cursors_lead_through_all_matches_exactly_once(limit: int, detail: str, budget: int):
    answers = pages(
        lambda cursor: searching.search(
            MANY, {}, budget, "thing", limit=limit, detail=detail, cursor=cursor
        )
    )
    shown = [name for answer in answers for name in lines(answer, "many")]
    assert len(shown) == 120
    assert len(set(shown)) == 120


# Overview and browse


def test_the_overview_has_every_server_with_its_state():
    states = {
        "github": ServerState("ready"),
        "gitlab": ServerState("down", "it \x1b[31mdied\x1b[0m\nof old age"),
    }
    answer = overview(CATALOG, states, BUDGET)
    assert answer.startswith(
        "4 tools on 3 servers in 1 category.\nSome tools to start with (no use is "
        "known yet: some of each server"
    )
    assert "github: 3 tools — Code hosting\n" in answer
    assert "gitlab: 1 tool [down: it died of old age]\n" in answer
    assert "unheard: not listed yet\n" in answer


def test_pinned_tools_lead_the_overview():
    answer = overview(CATALOG, {}, BUDGET, ("github.close_issue", "no.such"))
    assert answer.splitlines()[1:3] == [
        "Pinned tools, then some of each server:",
        "github.close_issue(number) — Close an issue.",
    ]


def test_an_overview_of_nothing_says_so():
    assert overview(Snapshot(), {}, BUDGET).startswith("0 tools on 0 servers.")


@pytest.mark.parametrize("budget", [300, 700, BUDGET])
def test_cursors_lead_through_all_servers_exactly_once(budget: int):
    catalog = snapshot(
        *(
            entry(f"server{n:03}", tool("t", "Does it."), description="About it. " * 20)
            for n in range(150)
        )
    )
    answers = list(pages(lambda cursor: overview(catalog, {}, budget, cursor=cursor)))
    shown = [
        name for answer in answers for name in re.findall(r"^(server\d+):", answer, re.MULTILINE)
    ]
    assert shown == sorted(catalog.servers)
    assert all(count_tokens(answer) <= budget for answer in answers)


def test_a_server_s_tools_come_with_its_own_notes():
    answer = browse(CATALOG, {}, BUDGET, "git_hub")
    assert answer.splitlines()[:3] == [
        "github: 3 tools — Code hosting",
        "version 1.2; category version-control.",
        "Its own notes: Say owner and repository.",
    ]
    assert lines(answer, "github") == [
        "github.create_issue",
        "github.list_issues",
        "github.close_issue",
    ]


def test_what_else_a_server_offers_is_said_on_the_last_page():
    offers = ServerOffers(resources=({"uri": "a"},), prompts=({"name": "p"}, {"name": "q"}))
    catalog = snapshot(entry("s", *(tool(f"t{n}", "Does it.") for n in range(3)), offers=offers))
    first, last = pages(lambda cursor: browse(catalog, {}, BUDGET, "s", page_size=2, cursor=cursor))
    assert "Also" not in first
    assert "Also offers 1 resource." in last
    assert "Also offers 2 prompts." in last


@pytest.mark.parametrize("page_size", [1, 7, 50, 200])
@pytest.mark.parametrize("budget", [300, BUDGET])
def test_cursors_lead_through_all_tools_of_a_server_exactly_once(page_size: int, budget: int):
    answers = list(
        pages(lambda cursor: browse(MANY, {}, budget, "many", page_size=page_size, cursor=cursor))
    )
    assert [name for answer in answers for name in lines(answer, "many")] == [
        f"many.do_{n}" for n in range(120)
    ]
    assert all(count_tokens(answer) <= budget for answer in answers)


def test_notes_of_a_server_do_not_fill_its_page():
    for notes in (
        "word " * 5_000,
        "将一个高德经纬度坐标转换为行政区划地址信息" * 500,
        "\u200b" * 9_000 + "seen",
    ):
        catalog = snapshot(entry("s", tool("t", "Does it."), instructions=notes))
        answer = browse(catalog, {}, 600, "s")
        assert count_tokens(answer) <= 300
        assert lines(answer, "s") == ["s.t"]


# Categories and use


def kinds(*numbers: int) -> Snapshot:
    """A server for each number, with so many tools, in a category of its own."""
    return snapshot(
        *(
            entry(
                f"s{place}",
                *(tool(f"t{n}", f"Does {n}.") for n in range(number)),
                category=f"kind {place}",
            )
            for place, number in enumerate(numbers)
        )
    )


def test_the_overview_has_the_categories_largest_first():
    answer = overview(kinds(1, 3, 2), {}, BUDGET)
    found = answer.split("Categories:\n")[1].split("\nServers:")[0].splitlines()
    assert found == [
        "kind-1 (3 tools of s1) e.g. s1.t0, s1.t1",
        "kind-2 (2 tools of s2) e.g. s2.t0, s2.t1",
        "kind-0 (1 tool of s0) e.g. s0.t0",
    ]


@pytest.mark.parametrize("budget", [300, 700, BUDGET])
def test_cursors_lead_through_all_categories_and_servers_exactly_once(budget: int):
    catalog = kinds(*([2] * 60))
    answers = list(pages(lambda cursor: overview(catalog, {}, budget, cursor=cursor)))
    text = "\n".join(answers)
    assert sorted(re.findall(r"^(kind-\d+) \(", text, re.MULTILINE)) == sorted(
        f"kind-{n}" for n in range(60)
    )
    assert sorted(re.findall(r"^(s\d+): 2 tools", text, re.MULTILINE)) == sorted(catalog.servers)
    assert all(count_tokens(answer) <= budget for answer in answers)


def used(**months: int) -> RankedCatalog:
    """GitHub's tools, of which these were called so often."""
    names = {f"github.{name}": number for name, number in months.items()}
    return RankedCatalog(
        CATALOG, {name: Standing(0.5, "standard") for name in names}, names, computed_at=7
    )


def test_what_is_used_most_comes_first_everywhere():
    shelves = used(close_issue=9, list_issues=2)
    answer = browse_tools.render_overview(shelves, {}, BUDGET)
    head = answer.split("\nCategories:")[0].splitlines()
    assert head[1] == "Most used tools, then some of each server:"
    assert [line.split("(")[0] for line in head[2:4]] == [
        "github.close_issue",
        "github.list_issues",
    ]
    pinned = replace(shelves, pins=("gitlab.create_issue",))
    assert browse_tools.render_overview(pinned, {}, BUDGET).splitlines()[1:3] == [
        "Pinned, then most used tools, then some of each server:",
        "gitlab.create_issue(project) — Create a new issue in a project.",
    ]
    expected = ["github.close_issue", "github.list_issues", "github.create_issue"]
    assert lines(browse_tools.browse(shelves, {}, BUDGET, "github"), "github") == expected
    assert (
        lines(browse_tools.browse(shelves, {}, BUDGET, category="version-control"), "github")
        == expected
    )


def test_the_hot_list_takes_at_most_a_third_of_the_budget():
    catalog = snapshot(
        *(
            entry(f"s{n}", tool("t", "Does a thing that takes a good many words to say."))
            for n in range(50)
        )
    )
    for budget in (300, 900, BUDGET):
        hot = overview(catalog, {}, budget).split("\nCategories:")[0]
        assert count_tokens(hot) <= budget // 3 + 30


def test_a_category_s_tools_are_browsed_and_kept_to_a_server():
    whole = browse(CATALOG, {}, BUDGET, category="Version Control")
    assert whole.startswith("version-control: 4 tools on 2 servers. Version control. Repositories")
    assert len(lines(whole, "github")) + len(lines(whole, "gitlab")) == 4
    kept = browse(CATALOG, {}, BUDGET, "gitlab", category="git")
    assert lines(kept, "gitlab") == ["gitlab.create_issue"]
    assert not lines(kept, "github")


def test_a_server_without_a_tool_of_a_category_says_where_its_tools_are():
    answer = browse(kinds(1, 1), {}, BUDGET, "s0", category="kind-1")
    assert "None of its tools is in kind-1; they are in kind-0." in answer


def test_a_wrong_category_gets_the_nearest_back():
    for ask in (
        lambda: browse(CATALOG, {}, BUDGET, category="version-contol"),
        lambda: search(CATALOG, "issue", category="version-contol"),
    ):
        with pytest.raises(UnknownName, match="no category 'version-contol'") as caught:
            ask()
        assert caught.value.nearest == ("version-control",)


def test_a_search_can_be_kept_to_a_category():
    catalog = snapshot(
        GITHUB, entry("news", tool("post_issue", "Post an issue of the paper."), category="press")
    )
    found = search_page.render_search_page(search(catalog, "issue", category="Press"), {}, BUDGET)
    assert found.addresses == ("news.post_issue",)
    assert "in press:" in found.text
    nothing = search_page.render_search_page(
        search(catalog, "zzzzzz", category="press"), {}, BUDGET
    ).text
    assert nothing.startswith("No tool in press matches 'zzzzzz'.")
    assert "Categories, for browse_tools(category=…): press, version-control." in nothing


# Cursors


def test_the_cursor_of_one_question_does_not_answer_another():
    cursor = cursor_in(searching.search(MANY, {}, BUDGET, "thing", limit=2))
    assert cursor is not None
    for ask in (
        lambda: searching.search(MANY, {}, BUDGET, "other thing", limit=2, cursor=cursor),
        lambda: browse(MANY, {}, BUDGET, "many", cursor=cursor),
        lambda: overview(MANY, {}, BUDGET, cursor=cursor),
    ):
        with pytest.raises(StaleCursor, match="another question"):
            ask()


def test_a_search_continues_with_another_limit_and_another_detail():
    cursor = cursor_in(searching.search(MANY, {}, BUDGET, "thing", limit=2))
    more = searching.search(MANY, {}, BUDGET, "thing", limit=3, detail="schema", cursor=cursor)
    first = searching.search(MANY, {}, BUDGET, "thing", limit=5, detail="schema")
    tools = [re.findall(r"^many\.\w+", answer, re.MULTILINE) for answer in (first, more)]
    assert tools[0][2:] == tools[1] != []


def test_the_cursor_of_a_search_does_not_outlive_the_standings():
    def answered(computed: str, cursor: str | None = None) -> str:
        asked = replace(search(MANY, "thing", limit=2, cursor=cursor), standings_version=computed)
        return search_page.render_search_page(asked, {}, BUDGET).text

    cursor = cursor_in(answered("1"))
    assert answered("1", cursor)
    with pytest.raises(StaleCursor, match="their order"):
        answered("2", cursor)


def test_a_cursor_does_not_outlive_its_catalog():
    cursor = cursor_in(browse(MANY, {}, BUDGET, "many", page_size=5))
    changed = snapshot(*MANY.servers.values(), GITLAB)
    newly_used = RankedCatalog(
        MANY, {"many.do_7": Standing(0.5, "standard")}, {"many.do_7": 3}, computed_at=9
    )
    with pytest.raises(StaleCursor, match="the tools changed"):
        browse_tools.browse(newly_used, {}, BUDGET, "many", page_size=5, cursor=cursor)
    with pytest.raises(StaleCursor, match="the tools changed"):
        browse(changed, {}, BUDGET, "many", page_size=5, cursor=cursor)


# Wrong names


def test_a_tool_of_a_server_that_was_never_listed_is_not_called_unknown():
    error = browse_tools.explain_unknown_name(
        UnknownName("x"), "UNHEARD__thing", CATALOG, {"unheard": ServerState("starting")}
    )
    assert isinstance(error, BackendUnavailable)
    assert "its tools are not listed yet" in error.message
    unknown, states = (
        UnknownName("x"),
        {"unheard": ServerState("down", "no such command", 1_700_000_000.0)},
    )
    assert browse_tools.explain_unknown_name(unknown, "github.nope", CATALOG, states) is unknown


def test_a_schema_hint_is_the_typed_form_where_it_fits():
    assert browse_tools.render_schema_hint(GITHUB.tools["create_issue"], BUDGET).count("\n") == 2
    assert browse_tools.render_schema_hint(GITHUB.tools["create_issue"], 5).count("\n") == 0


# Budgets, whatever the servers and the callers say

words = st.text(max_size=300)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text("abc-_", min_size=1, max_size=40),
        st.lists(st.tuples(words, words), max_size=30),
        max_size=8,
    ),
    st.text(max_size=400),
    st.sampled_from([400, 900, BUDGET]),
    words,
)
def test_no_answer_of_more_than_one_entry_is_over_its_budget(
    offers: dict[str, list[tuple[str, str]]], query: str, budget: int, reason: str
):
    catalog = snapshot(
        *(
            entry(
                server,
                *(tool(f"{name[:60]}{n}", text) for n, (name, text) in enumerate(tools)),
                instructions=query * 5,
            )
            for server, tools in offers.items()
        )
    )
    states = {server: ServerState("down", reason * 9) for server in offers}
    answers = [
        searching.search(catalog, states, budget, query),
        searching.search(catalog, states, budget, query, limit=50),
    ]
    answers += pages(lambda cursor: overview(catalog, states, budget, cursor=cursor))
    for server in offers:
        answers += pages(
            lambda cursor, server=server: browse(catalog, states, budget, server, cursor=cursor)
        )
    assert all(count_tokens(answer) <= budget for answer in answers)
