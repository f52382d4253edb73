"""Search, browse and describe: what is said, in how many tokens, and that no answer is a dead end."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.access import Scope
from portico.catalog.documents import documents
from portico.catalog.listing import Offers
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import make_tool
from portico.disclosure import discovery
from portico.disclosure.discovery import ServerState
from portico.disclosure.tokens import count
from portico.errors import BackendUnavailable, StaleCursor, UnknownName
from portico.search import Index
from portico.upstream.backend import Hello, Raw
from tests.disclosure import asking

BUDGET = 2_000


def tool(name: str, description: str, *parameters: str) -> Raw:
    properties = {parameter: {"type": "string", "description": f"The {parameter}."} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters[:1])}
    return {"name": name, "description": description, "inputSchema": schema}


def entry(server: str, *tools: Raw, instructions: str = "", **more: Any) -> ServerEntry:
    return ServerEntry(
        server,
        hello=Hello("legacy", "2025-11-25", instructions=instructions),
        tools={one["name"]: make_tool(server, one) for one in tools},
        listed_at=1,
        **more,
    )


def snapshot(*entries: ServerEntry) -> Snapshot:
    index = Index.build(document for one in entries for document in documents(one))
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
HOUSE = snapshot(GITHUB, GITLAB, UNHEARD)
MANY = snapshot(entry("many", *(tool(f"do_{n}", f"Does thing number {n}.", "what", "how") for n in range(120))))


def lines(answer: str, server: str) -> list[str]:
    return [re.split(r"[( ]", line)[0] for line in answer.splitlines() if line.startswith(f"{server}.")]


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
    answer = asking.search(HOUSE, {}, BUDGET, "close issue")
    assert answer.splitlines()[0] == "Best matches for 'close issue':"
    assert answer.splitlines()[1] == "github.close_issue(number) — Close an issue."
    assert "Next: call_tool(name, arguments), or describe_tools(names) first." in answer


def test_the_schema_detail_shows_parameters():
    answer = asking.search(HOUSE, {}, BUDGET, "close issue", limit=1, detail="schema")
    assert " number: string — The number." in answer
    assert "Next: call_tool(name, arguments)." in answer


def test_a_search_can_be_kept_to_one_server():
    answer = asking.search(HOUSE, {}, BUDGET, "create issue", server="GitLab")
    assert lines(answer, "gitlab") == ["gitlab.create_issue"]
    assert lines(answer, "github") == []
    assert "on gitlab:" in answer


def test_a_wrong_server_gets_the_nearest_back():
    with pytest.raises(UnknownName) as caught:
        asking.search(HOUSE, {}, BUDGET, "issue", server="gihub")
    assert caught.value.nearest[0] == "github"


def test_nothing_matched_is_said_with_the_nearest_names():
    answer = asking.search(HOUSE, {}, BUDGET, "kreateisue")
    assert answer.startswith("No tool here matches 'kreateisue'.")
    assert "Nearest names:\ngithub.create_issue(" in answer
    assert "browse_tools()" in answer


def test_nothing_matched_and_nothing_near_still_says_what_to_do():
    answer = asking.search(HOUSE, {}, BUDGET, "zzzzzz", server="gitlab")
    assert answer.startswith("No tool on gitlab matches 'zzzzzz'.")
    assert 'Search all servers, or browse_tools(server="gitlab").' in answer


def test_servers_that_were_not_listed_yet_are_named():
    for query in ("issue", "zzzzzz"):
        answer = asking.search(HOUSE, {"unheard": ServerState("starting")}, BUDGET, query)
        assert "Not searched, because not listed yet: unheard (starting)" in answer


def test_many_servers_that_were_not_listed_yet_are_not_all_named():
    silent = Snapshot({f"s{n}": ServerEntry(f"s{n}") for n in range(300)})
    answer = asking.search(silent, {}, BUDGET, "issue")
    assert "s0, s1, s10, s100, s101 …" in answer
    assert count(answer) < 120


def test_nobody_is_sent_to_a_meta_tool_that_is_not_there():
    answers = [
        asking.search(HOUSE, {}, BUDGET, query, there=["search_tools"], detail=detail)
        for query in ("issue", "zzzzzz")
        for detail in ("brief", "schema")
    ]
    assert not any(name in answer for answer in answers for name in ("call_tool", "browse_tools", "describe_tools"))
    read_only = asking.search(HOUSE, {}, BUDGET, "issue", there=["search_tools", "describe_tools"])
    assert "Next: describe_tools(names)." in read_only


def test_a_scope_finds_nothing_outside_it():
    seen = HOUSE.within(Scope(servers=("gitlab",)))
    assert "github" not in asking.search(seen, {}, BUDGET, "create issue")
    assert "github" not in asking.search(seen, {}, BUDGET, "closeisue")
    assert "github" not in discovery.overview(seen, {}, BUDGET)


@pytest.mark.parametrize("limit", [1, 7, 50])
@pytest.mark.parametrize("detail", ["brief", "schema"])
@pytest.mark.parametrize("budget", [300, BUDGET])
def test_cursors_lead_through_all_matches_exactly_once(limit: int, detail: str, budget: int):
    answers = pages(lambda cursor: asking.search(MANY, {}, budget, "thing", limit=limit, detail=detail, cursor=cursor))
    shown = [name for answer in answers for name in lines(answer, "many")]
    assert len(shown) == 120
    assert len(set(shown)) == 120


# Overview and browse


def test_the_overview_has_every_server_with_its_state():
    states = {"github": ServerState("ready"), "gitlab": ServerState("down", "it \x1b[31mdied\x1b[0m\nof old age")}
    answer = discovery.overview(HOUSE, states, BUDGET)
    assert answer.startswith("4 tools on 3 servers.\nSome tools to start with")
    assert "github: 3 tools — Code hosting\n" in answer
    assert "gitlab: 1 tool [down: it died of old age]\n" in answer
    assert "unheard: not listed yet\n" in answer


def test_pinned_tools_lead_the_overview():
    answer = discovery.overview(HOUSE, {}, BUDGET, ["github.close_issue", "no.such"])
    assert answer.splitlines()[1:3] == ["Pinned tools:", "github.close_issue(number) — Close an issue."]


def test_an_overview_of_nothing_says_so():
    assert discovery.overview(Snapshot(), {}, BUDGET).startswith("0 tools on 0 servers.")


@pytest.mark.parametrize("budget", [300, 700, BUDGET])
def test_cursors_lead_through_all_servers_exactly_once(budget: int):
    house = snapshot(
        *(entry(f"server{n:03}", tool("t", "Does it."), description="About it. " * 20) for n in range(150))
    )
    answers = list(pages(lambda cursor: discovery.overview(house, {}, budget, cursor=cursor)))
    shown = [name for answer in answers for name in re.findall(r"^(server\d+):", answer, re.MULTILINE)]
    assert shown == sorted(house.servers)
    assert all(count(answer) <= budget for answer in answers)


def test_a_server_s_tools_come_with_its_own_notes():
    answer = discovery.browse(HOUSE, {}, BUDGET, "git_hub")
    assert answer.splitlines()[:2] == ["github: 3 tools — Code hosting", "Its own notes: Say owner and repository."]
    assert lines(answer, "github") == ["github.create_issue", "github.list_issues", "github.close_issue"]


def test_what_else_a_server_offers_is_said_on_the_last_page():
    offers = Offers(resources=({"uri": "a"},), prompts=({"name": "p"}, {"name": "q"}))
    house = snapshot(entry("s", *(tool(f"t{n}", "Does it.") for n in range(3)), offers=offers))
    first, last = pages(lambda cursor: discovery.browse(house, {}, BUDGET, "s", page_size=2, cursor=cursor))
    assert "Also" not in first
    assert "Also offers 1 resource." in last
    assert "Also offers 2 prompts." in last


@pytest.mark.parametrize("page_size", [1, 7, 50, 200])
@pytest.mark.parametrize("budget", [300, BUDGET])
def test_cursors_lead_through_all_tools_of_a_server_exactly_once(page_size: int, budget: int):
    answers = list(pages(lambda cursor: discovery.browse(MANY, {}, budget, "many", page_size, cursor)))
    assert [name for answer in answers for name in lines(answer, "many")] == [f"many.do_{n}" for n in range(120)]
    assert all(count(answer) <= budget for answer in answers)


def test_notes_of_a_server_do_not_fill_its_page():
    for notes in ("word " * 5_000, "将一个高德经纬度坐标转换为行政区划地址信息" * 500, "\u200b" * 9_000 + "seen"):
        house = snapshot(entry("s", tool("t", "Does it."), instructions=notes))
        answer = discovery.browse(house, {}, 600, "s")
        assert count(answer) <= 300
        assert lines(answer, "s") == ["s.t"]


# Cursors


def test_the_cursor_of_one_question_does_not_answer_another():
    cursor = cursor_in(asking.search(MANY, {}, BUDGET, "thing", limit=2))
    assert cursor is not None
    for ask in (
        lambda: asking.search(MANY, {}, BUDGET, "other thing", limit=2, cursor=cursor),
        lambda: asking.search(MANY, {}, BUDGET, "thing", limit=3, cursor=cursor),
        lambda: asking.search(MANY, {}, BUDGET, "thing", limit=2, detail="schema", cursor=cursor),
        lambda: discovery.browse(MANY, {}, BUDGET, "many", cursor=cursor),
        lambda: discovery.overview(MANY, {}, BUDGET, cursor=cursor),
    ):
        with pytest.raises(StaleCursor, match="another question"):
            ask()


def test_a_cursor_does_not_outlive_its_catalog():
    cursor = cursor_in(discovery.browse(MANY, {}, BUDGET, "many", page_size=5))
    changed = snapshot(*MANY.servers.values(), GITLAB)
    with pytest.raises(StaleCursor, match="the tools changed"):
        discovery.browse(changed, {}, BUDGET, "many", page_size=5, cursor=cursor)


# Describe


def test_each_name_is_described_at_the_level_asked_for():
    brief, found = discovery.describe(HOUSE, BUDGET, ["github.close_issue", "gitlab/create_issue"], "brief")
    assert found
    assert brief == (
        "github.close_issue(number) — Close an issue.\ngitlab.create_issue(project) — Create a new issue in a project."
    )
    full, _ = discovery.describe(HOUSE, BUDGET, ["github.close_issue"], "full")
    assert 'inputSchema: {"type":"object",' in full


def test_a_tool_named_twice_is_shown_once():
    body, _ = discovery.describe(HOUSE, BUDGET, ["github.close_issue", "close_issue", "GITHUB/CLOSE_ISSUE"], "brief")
    assert body.count("github.close_issue(") == 1


def test_a_wrong_name_costs_only_itself():
    body, found = discovery.describe(HOUSE, BUDGET, ["github.close_isue", "github.list_issues"], "brief")
    assert found
    assert body.startswith("github.list_issues(owner)")
    assert "there is no tool 'github.close_isue' here. Did you mean github.close_issue" in body


def test_only_wrong_names_are_an_error_with_advice():
    body, found = discovery.describe(HOUSE, BUDGET, ["nope.nope", "create_issue"])
    assert not found
    assert "Say which one: github.create_issue, gitlab.create_issue" in body


def test_ten_wrong_names_of_any_length_fit_the_budget():
    for length in (1, 80, 500, 100_000):
        for budget in (300, BUDGET):
            names = [f"github.{n}{'x' * length}" for n in range(10)]
            body, found = discovery.describe(HOUSE, budget, names)
            assert not found
            assert count(body) <= budget
            with_one, found = discovery.describe(HOUSE, budget, [*names[:9], "close_issue"], "brief")
            assert found
            assert with_one.startswith("github.close_issue(")
            assert count(with_one) <= budget


def test_what_does_not_fit_is_named_and_can_be_asked_for():
    wordy = [tool(f"t{n}", "Words. " * 150, *"abc") for n in range(10)]
    house = snapshot(entry("s", *wordy))
    asked = [f"s.t{n}" for n in range(10)]
    seen: list[str] = []
    while asked:
        body, _ = discovery.describe(house, 1_000, asked)
        assert count(body) <= 1_000
        seen += re.findall(r"^(s\.t\d) — ", body, re.MULTILINE)
        left = re.search(r"^Left out to fit: (.*)\. Ask for them separately\.$", body, re.MULTILINE)
        asked = left[1].split(", ") if left else []
    assert sorted(seen) == [f"s.t{n}" for n in range(10)]


def test_a_tool_that_fits_is_not_left_out_for_one_that_does_not():
    house = snapshot(entry("s", tool("a", "Short."), tool("huge", "Words. " * 2_000), tool("b", "Short.")))
    body, _ = discovery.describe(house, 500, ["s.a", "s.huge", "s.b"])
    assert body == "s.a() — Short.\n\ns.b() — Short.\n\nLeft out to fit: s.huge. Ask for them separately."


def test_one_tool_alone_is_always_shown_whole():
    house = snapshot(entry("s", tool("huge", "Words. " * 2_000)))
    body, _ = discovery.describe(house, 200, ["s.huge"])
    assert body.count("Words.") == 2_000


def test_a_tool_of_a_server_that_is_down_and_was_never_listed_is_not_called_unknown():
    states = {"unheard": ServerState("down", "no such command", 1_700_000_000.0)}
    body, found = discovery.describe(HOUSE, BUDGET, ["unheard.anything"], states=states)
    assert not found
    assert re.search(r"unheard is known but unavailable since \d\d:\d\d:\d\d: no such command", body)
    error = discovery.explained(UnknownName("x"), "UNHEARD__thing", HOUSE, {"unheard": ServerState("starting")})
    assert isinstance(error, BackendUnavailable)
    assert "its tools are not listed yet" in error.message
    unknown = UnknownName("x")
    assert discovery.explained(unknown, "github.nope", HOUSE, states) is unknown


def test_a_schema_hint_is_the_typed_form_where_it_fits():
    assert discovery.schema_hint(GITHUB.tools["create_issue"], BUDGET).count("\n") == 2
    assert discovery.schema_hint(GITHUB.tools["create_issue"], 5).count("\n") == 0


# Budgets, whatever the servers and the callers say

words = st.text(max_size=300)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text("abc-_", min_size=1, max_size=40), st.lists(st.tuples(words, words), max_size=30), max_size=8
    ),
    st.text(max_size=400),
    st.sampled_from([400, 900, BUDGET]),
    words,
)
def test_no_answer_of_more_than_one_entry_is_over_its_budget(
    offers: dict[str, list[tuple[str, str]]], query: str, budget: int, reason: str
):
    house = snapshot(
        *(
            entry(
                server, *(tool(f"{name[:60]}{n}", text) for n, (name, text) in enumerate(tools)), instructions=query * 5
            )
            for server, tools in offers.items()
        )
    )
    states = {server: ServerState("down", reason * 9) for server in offers}
    tools = list(house.tools)
    answers = [asking.search(house, states, budget, query), asking.search(house, states, budget, query, limit=50)]
    answers += pages(lambda cursor: discovery.overview(house, states, budget, cursor=cursor))
    for server in offers:
        answers += pages(lambda cursor, server=server: discovery.browse(house, states, budget, server, 50, cursor))
    answers.append(discovery.describe(house, budget, [*tools[:5], query], "brief", states)[0])
    assert all(count(answer) <= budget for answer in answers)
