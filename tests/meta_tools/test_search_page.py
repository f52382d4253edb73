"""What a search answers: that nothing fits and where to look, tools that say the same as one, who
was left out."""

import re
from dataclasses import replace

import pytest

from portico.catalog.entries import build_documents
from portico.catalog.snapshot import Snapshot
from portico.errors import StaleCursor, UnknownName
from portico.meta_tools import search_page
from portico.meta_tools.search_page import MAX_UNLIKELY
from portico.meta_tools.search_request import PreparedSearch
from portico.rendering.server_lines import ServerState
from portico.rendering.token_budget import count_tokens
from portico.search import Encoder, UsageFacts
from portico.search.dense import encoder as encoder_module
from portico.visibility import Scope
from tests.meta_tools.search_catalog import (
    ALL,
    COPIES,
    TRANSLATE,
    UNRELATED,
    by_meaning,
    by_words,
    entry,
    search,
    tool,
)

WORDS, MEANING = by_words(*ALL), by_meaning(*ALL)
BUDGET = 2_000


def render(asked: PreparedSearch, budget: int = BUDGET, **how: list[str]) -> str:
    return search_page.render_search_page(asked, {}, budget, **how).text


def addresses(text: str) -> list[str]:
    return re.findall(r"^(?:\d+\. )?([\w-]+\.\w+)[(: ]", text, re.MULTILINE)


# Nothing fits


def test_that_nothing_fits_is_said_first_with_the_nearest_servers_and_then_the_nearest_tools():
    first, heading, *rest = render(search(WORDS, UNRELATED)).splitlines()
    assert first == f"No tool here seems to do {UNRELATED!r}."
    assert heading == "Nearest server:"
    assert rest[0] == "tracker: 2 tools — What is to be done (tags: code)"
    assert rest[1] == "Unlikely, but the nearest tools:"
    assert sorted(addresses("\n".join(rest))) == ["tracker.close_issue", "tracker.create_issue"]
    assert rest[-1] == (
        'Next: try other words for the same thing, or browse_tools(server="tracker") '
        'or (category="developer-tools"), '
        "or go on without a tool."
    )


def test_what_is_wrong_with_a_nearest_server_is_said_with_it():
    answer = search_page.render_search_page(
        search(WORDS, UNRELATED), {"tracker": ServerState("down", "it died")}, BUDGET
    ).text
    assert "tracker: 2 tools — What is to be done [down: it died] (tags: code)" in answer


def test_of_what_does_not_fit_a_few_are_shown_and_the_rest_can_be_had():
    catalog = by_words(entry("s", *(tool(f"issue_{number}", "An issue.") for number in range(20))))
    first = search_page.render_search_page(search(catalog, UNRELATED), {}, BUDGET)
    assert len(first.addresses) == MAX_UNLIKELY
    seen, text = list(first.addresses), first.text
    while found := re.search(r'cursor="([\w-]+)"', text):
        page = search_page.render_search_page(
            search(catalog, UNRELATED, cursor=found[1]), {}, BUDGET
        )
        assert page.text.startswith("More that is unlikely to do")
        seen += page.addresses
        text = page.text
    assert sorted(seen) == sorted(catalog.tools)


def test_browse_tools_is_not_suggested_where_it_is_disabled():
    assert "browse_tools" not in render(search(WORDS, UNRELATED), meta_tools=["search_tools"])


def test_within_filters_the_way_on_leads_out_of_them():
    answer = render(search(WORDS, UNRELATED, server="tracker"))
    assert answer.startswith(f"No tool on tracker seems to do {UNRELATED!r}.")
    assert "Next: search without the filters" in answer


def test_names_spelt_like_the_query_are_named_though_nothing_fits():
    answer = render(search(MEANING, "translatetxet"))
    assert "translate_text" in answer
    mowing = by_words(entry("garden", tool("mow_lawn", "An issue.")))
    assert "spelt alike" not in render(
        search(mowing, "mow a lawn with some quite unheard of purple issue machine")
    )


def test_a_query_that_fits_is_not_called_a_misfit():
    for catalog in (WORDS, MEANING):
        answer = render(search(catalog, "create a new issue in a repository"))
        assert answer.startswith(
            "Best matches for 'create a new issue in a repository':\ntracker.create"
        )
        assert "Unlikely" not in answer


def test_a_verdict_fits_a_small_budget():
    wordy = [
        entry(
            f"{number}-{'x' * 30}",
            tool("issue", "An issue. " * 40),
            description="Words. " * 100,
            tags=("t" * 40,) * 3,
        )
        for number in range(9)
    ]
    for budget in (400, 900):
        assert count_tokens(render(search(by_words(*wordy), UNRELATED), budget)) <= budget


# Meaning is off


def test_that_only_words_were_compared_is_said_where_it_may_matter(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encoder_module, "MODEL_FILE", "missing.onnx")
    catalog = by_meaning(*ALL, encoder=Encoder())
    assert catalog.index.encode_query("anything at all") is None
    for query in (UNRELATED, "xylophone"):
        assert "\nOnly words were compared, because search by meaning is off here." in render(
            search(catalog, query)
        )
    assert "Only words" not in render(search(catalog, "create a new issue in a repository"))


def test_tools_that_are_not_encoded_yet_are_counted_where_it_may_matter():
    new = entry("new", tool("mow", "Mows the lawn."))
    snapshot = Snapshot(
        {**MEANING.servers, "new": new}, MEANING.index.replace({"new": tuple(build_documents(new))})
    )
    answers = [render(search(snapshot, query)) for query in ("...", "issue")]
    assert "Of 1 tool only words were compared: not encoded yet." in answers[0]
    assert "not encoded" not in answers[1]


# Twins


@pytest.mark.parametrize("detail", ["brief", "schema", "explain"])
def test_tools_of_several_servers_that_say_the_same_are_one_entry(detail: str):
    found = search_page.render_search_page(
        search(MEANING, "translate a text into Greek", detail=detail), {}, BUDGET
    )
    copies = [f"{one.name}.translate_text" for one in COPIES]
    assert [address for address in addresses(found.text) if address in copies] == [
        found.addresses[0]
    ]
    also = re.search(r"also: ([^)\n]*)", found.text)
    assert also is not None
    assert sorted([found.addresses[0], *also[1].split(", ")]) == copies
    assert set(copies) <= set(found.addresses)


def test_pages_lead_past_tools_that_share_a_place():
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(50):
        page = search_page.render_search_page(
            search(MEANING, "translate a text", limit=1, cursor=cursor), {}, BUDGET
        )
        assert page.addresses
        seen += page.addresses
        found = re.search(r'cursor="([\w-]+)"', page.text)
        if found is None:
            break
        cursor = found[1]
    assert len(seen) == len(set(seen)) == search(MEANING, "translate a text").rank(1).total
    assert {f"{one.name}.translate_text" for one in COPIES} <= set(seen)


def test_many_twins_do_not_fill_the_page():
    catalog = by_meaning(*(entry(f"lingua{number}", TRANSLATE) for number in range(12)))
    line = next(
        line
        for line in render(search(catalog, "translate a text")).splitlines()
        if "also: " in line
    )
    assert line.count("translate_text") == 6
    assert line.endswith("…+6)")


# Filters


@pytest.mark.parametrize("tag", ["Post", "post", " POST "])
def test_a_tag_keeps_the_search_to_servers_that_have_it(tag: str):
    answer = render(search(WORDS, "find or send an e-mail issue", tags=(tag,)))
    assert " tagged Post:" in answer or answer.startswith("No tool tagged Post ")
    assert {address.split(".")[0] for address in addresses(answer)} == {"mail"}


def test_any_of_several_tags_will_do():
    answer = render(
        search(WORDS, "translate an issue or e-mail", tags=("people", "code"), limit=50)
    )
    assert {address.split(".")[0] for address in addresses(answer)} == {"mail", "tracker"}


def test_a_wrong_tag_gets_the_known_ones_back():
    with pytest.raises(UnknownName) as caught:
        search(WORDS, "anything", tags=("pots",))
    assert caught.value.advice == "Tags here: Post, code, people, words."
    assert caught.value.nearest == ("Post",)


def test_where_no_server_has_tags_that_is_said():
    with pytest.raises(UnknownName, match="no server here has tags") as caught:
        search(by_words(entry("s", tool("t", "Does it."))), "anything", tags=("x",))
    assert caught.value.advice == "Leave the tags out."


def test_tags_outside_the_scope_are_not_shown():
    seen = by_words(*ALL, scope=Scope(servers=("mail",)))
    with pytest.raises(UnknownName) as caught:
        search(seen, "anything", tags=("code",))
    assert caught.value.advice == "Tags here: people, Post."


def test_slow_failing_and_untried_tools_are_left_out():
    facts = {"mail.send": UsageFacts(10, 10, 900.0), "mail.find": UsageFacts(10, 2, 5.0)}
    quick = render(search(WORDS, "e-mail", max_latency_ms=100, facts=facts))
    assert addresses(quick) == ["mail.find"]
    assert "[5 ms, 20.0% of 10 calls succeeded]" in quick
    assert "within 100 ms" in quick
    sound = render(search(WORDS, "e-mail", min_success_rate=0.9, facts=facts))
    assert addresses(sound) == ["mail.send"]
    assert "succeeding 90% of the time or more" in sound
    untried = render(search(WORDS, "e-mail", min_success_rate=0.9, max_latency_ms=1))
    assert untried.startswith("No tool within 1 ms, succeeding 90% of the time or more matches")
    assert "Search without the filters" in untried
    assert search_page.UNMEASURED_NOTE in untried
    assert search_page.UNMEASURED_NOTE in quick


def test_nothing_within_the_filters_is_no_dead_end():
    answer = render(search(WORDS, "xylophone", tags=("code",)))
    assert answer.startswith("No tool tagged code matches 'xylophone'.")
    assert "Search without the filters, or browse_tools()" in answer


def test_a_cursor_belongs_to_its_filters():
    page = search_page.render_search_page(
        search(MEANING, "an issue or an e-mail", limit=1), {}, BUDGET
    ).text
    cursor = re.search(r'cursor="([\w-]+)"', page)
    assert cursor is not None
    with pytest.raises(StaleCursor, match="another question"):
        render(search(MEANING, "an issue or an e-mail", limit=1, tags=("code",), cursor=cursor[1]))


# Parameters


def typed(text: str) -> list[str]:
    return re.findall(r"^([\w-]+\.\w+)(?:\(\))? .*\n (?=\w)", text, re.MULTILINE)


def test_parameters_are_shown_of_the_sure_ones_and_the_others_are_a_line_each():
    answer = render(search(MEANING, "create a new issue in a repository", detail="schema"))
    assert typed(answer) == ["tracker.create_issue"]
    assert "\ntracker.close_issue(number) — Close an issue.\n" in answer
    assert answer.endswith("Next: call_tool(name, arguments), or describe_tools(names) of others.")


def test_of_equals_at_most_three_are_shown_with_parameters():
    told = "Send a letter to somebody by post."
    catalog = by_words(
        entry("post", *(tool(f"send_letter_{number}", told, "to") for number in "abcdef"))
    )
    answer = render(search(catalog, "send a letter", detail="schema"))
    assert len(typed(answer)) == 3
    assert len(addresses(answer.partition("\n")[2])) == 6


def test_a_long_one_is_shown_with_its_parameters_only_if_it_is_the_first():
    many = [f"parameter_number_{number}" for number in range(80)]
    short = tool("send_letter", "Send a letter to somebody.", "to")
    long = tool("send_letters", "Send a letter to somebody.", *many)
    catalog = by_words(entry("post", short, long))
    both = render(search(catalog, "send a letter to somebody", detail="schema"))
    assert typed(both) == ["post.send_letter"]
    assert "\npost.send_letters(parameter_number_0, " in both
    assert typed(render(search(catalog, "post.send_letters", detail="schema"))) == [
        "post.send_letters"
    ]


def test_what_does_not_fit_is_shown_without_parameters():
    assert not typed(render(search(WORDS, UNRELATED, detail="schema")))


def test_long_descriptions_of_later_hits_are_cut():
    told = "Send a letter to somebody who lives at the other end of the country, by post."
    catalog = by_words(
        entry("post", *(tool(f"send_letter_{number}", told, "to") for number in range(6)))
    )
    lines = re.findall(r"^post\..*", render(search(catalog, "send a letter")), re.MULTILINE)
    assert [line.endswith("by post.") for line in lines] == [True] * 3 + [False] * 3
    assert all(line.endswith("…") for line in lines[3:])


# Servers used before


def test_of_equals_the_server_that_was_used_before_comes_first_and_that_is_said():
    plain = search(MEANING, "translate a text into Greek")
    first = plain.rank(1).hits[0]
    other = first.duplicates[-1].partition(".")[0]
    asked = replace(plain, used_servers=frozenset((other,)))
    assert asked.rank(1).hits[0].id == f"{other}.translate_text"
    assert f"\nPreferred, as used before: {other}." in render(asked)
    assert "used before" not in render(plain)


def test_a_server_that_was_used_before_does_not_come_before_a_better_tool():
    plain = search(MEANING, "create a new issue in a repository")
    asked = replace(plain, used_servers=frozenset(("mail", "lingua0")))
    assert asked.rank(1).hits[0].id == "tracker.create_issue"
