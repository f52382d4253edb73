"""Search results for typical queries."""

import pytest

from portico.search import Index, SearchDocument, SearchFilters
from tests.search.catalog import CATALOG, document

INDEX = Index.build(CATALOG)


def found(query: str, limit: int = 8, index: Index = INDEX) -> list[str]:
    return [hit.id for hit in index.search(query, limit).hits]


@pytest.mark.parametrize("tool", CATALOG, ids=lambda tool: tool.id)
def test_an_exact_address_always_ranks_first(tool: SearchDocument):
    for spelling in (
        tool.id,
        tool.id.replace(".", "::"),
        tool.id.replace(".", "__"),
        tool.id.upper(),
    ):
        assert found(spelling)[0] == tool.id
    assert INDEX.search(tool.id).confidence == 1.0


def test_an_exact_name_ranks_before_any_number_of_words_that_match():
    loud = document(
        "loud.noise", "search " * 50 + "the web", title="search search", tags=("search",)
    )
    assert found("search", index=Index.build([*CATALOG, loud]))[0] == "search.search"


def test_a_bare_name_finds_all_tools_of_that_name_first():
    assert set(found("create_issue", 2)) == {"github.create_issue", "gitlab.create_issue"}


def test_of_names_that_differ_in_separators_only_the_one_typed_ranks_first():
    index = Index.build(
        [
            document("a.send-email", "Send an email."),
            document("b.send_email", "Send. And more text."),
        ]
    )
    assert found("send-email", index=index) == ["a.send-email", "b.send_email"]
    assert found("send_email", index=index) == ["b.send_email", "a.send-email"]


def test_words_in_any_order_and_inflection_find_a_tool():
    assert found("creating pull requests")[0] == "github.create_pull_request"
    assert found("text of a file")[0] == "files.readTextFile"


def test_a_word_used_for_another_finds_its_tool():
    hit = INDEX.search("erase a redis key").hits[0]
    assert hit.id == "redis.delete"
    assert any(reason.word == "erase" and reason.is_synonym for reason in hit.reasons)


def test_two_words_that_are_one_in_the_catalog_are_found():
    index = Index.build(
        [
            document("word.add_footnote", "Adds a footnote."),
            document("word.add_page", "Adds a page."),
        ]
    )
    assert found("put in a foot note", index=index) == ["word.add_footnote"]


def test_chinese_descriptions_are_searchable():
    assert found("查询天气") == ["amap.maps_weather"]


def test_accents_do_not_matter():
    assert found("cafe a jour")[0] == found("café à jour")[0] == "cafe.menu"


def test_a_request_with_several_needs_gets_a_tool_for_each():
    query = (
        "List all open issues of the repository. Then append the newest value to the end "
        "of the list in Redis."
    )
    assert {"github.list_issues", "redis.rpush"} <= set(found(query, 3))


def test_every_field_is_searched():
    index = Index.build(
        [
            document("one.alpha", title="Zebra"),
            document("one.beta", parameters=("zebraCount",)),
            document("one.gamma", parameter_text="How many zebras"),
            document("one.delta", enums=("zebra",)),
            document("one.epsilon", tags=("zebra",)),
            document("one.zeta", category="zebra"),
            document("one.eta", server_text="The zebra server"),
            document("one.theta", "Counts. And zebras."),
            document("one.iota", "Nothing of the kind."),
        ]
    )
    assert sorted(found("zebra", index=index)) == sorted(
        it for it in index_ids(index) if it != "one.iota"
    )


def index_ids(index: Index) -> list[str]:
    seen: list[str] = []
    index.build_mask(lambda id_: not seen.append(id_))
    return seen


def test_a_very_long_description_does_not_dominate():
    encyclopedia = " ".join(f"{it.description} {it.name.replace('_', ' ')}" for it in CATALOG) * 30
    index = Index.build([*CATALOG, document("book.encyclopedia", encyclopedia)])
    assert len(encyclopedia) > 10_000
    for query in ("create an issue", "read a file", "delete a redis key", "send e-mail"):
        assert found(query, index=index)[0] == found(query)[0]


def test_reasons_name_the_words_and_fields_that_were_hit():
    hit = INDEX.search("list of closed issues").hits[0]
    assert hit.id == "github.list_issues"
    fields = {reason.word: reason.fields for reason in hit.reasons}
    assert set(fields["issues"]) == {"name", "description"}
    assert fields["closed"] == ("enums",)
    assert sum(reason.score for reason in hit.reasons) == pytest.approx(hit.score, rel=1e-3)


def test_a_query_that_matches_nothing_says_so():
    ranking = INDEX.search("xylophone qwertz")
    assert (ranking.hits, ranking.total, ranking.confidence) == ((), 0, 0.0)
    assert ranking.is_weak


def test_a_query_of_which_little_matches_is_weak_and_one_that_matches_is_not():
    assert INDEX.search("book a flight on Lufthansa to Helsinki and send the boarding pass").is_weak
    assert not INDEX.search("create an issue").is_weak


def test_scores_of_words_are_shares_of_a_perfect_match():
    for hit in INDEX.search("create new issue in a project").hits:
        assert 0 < hit.score < 1


def test_a_filter_by_group_or_by_id_or_by_mask_hides_the_rest():
    assert {
        hit.id
        for hit in INDEX.search("create issue", filters=SearchFilters(groups={"gitlab"})).hits
    } == {"gitlab.create_issue"}
    hidden = INDEX.search("github.create_issue", allow=lambda id_: not id_.startswith("github."))
    assert hidden.hits[0].id == "gitlab.create_issue"
    assert not any(hit.id.startswith("github.") for hit in hidden.hits)
    mask = INDEX.build_mask(lambda id_: id_.startswith("github."))
    both = INDEX.search(
        "create issue", filters=SearchFilters(groups=["github", "gitlab"]), allow=mask
    )
    assert {hit.id.split(".")[0] for hit in both.hits} == {"github"}
    assert INDEX.search("create issue", filters=SearchFilters(groups=())).total == 0
    assert INDEX.search("create issue", filters=SearchFilters(groups={"nowhere"})).total == 0


def test_pages_join_to_the_whole_ranking():
    whole = found("create list read issue file", 100)
    ranking = INDEX.search("create list read issue file", 2)
    assert ranking.total == len(whole)
    assert [
        hit.id
        for at in range(0, len(whole), 2)
        for hit in INDEX.search("create list read issue file", 2, offset=at).hits
    ] == whole
    assert INDEX.search("create list read issue file", 2, offset=4).confidence == ranking.confidence


def test_equals_are_ordered_by_id_whatever_the_order_they_came_in():
    twins = [document(f"s{at}.twin", "Identical.", server="twins") for at in range(30)]
    expected = sorted(twin.id for twin in twins)
    assert found("identical", 30, Index.build(twins)) == expected
    assert found("identical", 30, Index.build(reversed(twins))) == expected
    assert found("identical", 7, Index.build(reversed(twins))) == expected[:7]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        "the of and",
        "\x00\x1b[2J",
        "🙂",
        "AND OR NOT (a:b) ~^*?[",
        "\ud800",
        "'; drop table tools; --",
        "x" * 10_000,
    ],
)
def test_strange_queries_are_answered(query: str):
    assert INDEX.search(query).total >= 0


def test_a_query_of_ten_thousand_characters_finds_what_it_begins_with():
    assert (
        found("create a pull request from my branch. " + "blah blah blah blah. " * 500)[0]
        == "github.create_pull_request"
    )


def test_an_empty_index_answers():
    index = Index.build([])
    assert (len(index), index.search("anything").total, index.find_nearest_names("anything")) == (
        0,
        0,
        [],
    )


def test_tools_without_any_text_are_indexed_by_name():
    index = Index.build(
        [
            SearchDocument(id="a.b", hash="1", group="a", name="b"),
            SearchDocument(id="a.", hash="2", group="a", name=""),
        ]
    )
    assert len(index) == 2
    assert found("a.b", index=index) == ["a.b"]


def test_no_limit_means_no_hits_but_the_total_stands():
    ranking = INDEX.search("create issue", 0)
    assert ranking.hits == ()
    assert ranking.total > 0
    assert ranking.confidence > 0


def test_a_wrong_name_gets_the_nearest_names_back():
    assert INDEX.find_nearest_names("github.create_isue")[0] == "github.create_issue"
    assert INDEX.find_nearest_names("creat_pull_reqest", 1) == ["github.create_pull_request"]
    assert INDEX.find_nearest_names("zzzzzzzz") == []
    assert INDEX.find_nearest_names("") == []
