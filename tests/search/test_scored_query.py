"""Hybrid search by words and vectors with the shipped encoder."""

import math
import mmap
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.search import (
    Boost,
    Hit,
    Index,
    SearchDocument,
    SearchFilters,
    UsageFacts,
    Vector,
    compose_document_text,
)
from portico.search.dense.encoder import get_shipped_encoder
from tests.search.catalog import CATALOG, document

QUERIES = (
    "create an issue in a repository",
    "read the contents of a document",
    "what will it be like outside tomorrow",
    "enviar un correo electrónico",
    "github.create_issue",
    "list",
    "天气",
)


def vectors(documents: Iterable[SearchDocument]) -> dict[str, Vector]:
    return {
        it.id: get_shipped_encoder().encode_document(compose_document_text(it)) for it in documents
    }


def built(*documents: SearchDocument) -> Index:
    return Index.build(documents, encoder=get_shipped_encoder()).with_vectors(vectors(documents))


INDEX = built(*CATALOG)
WORDS = Index.build(CATALOG)


def found(query: str, limit: int = 8, index: Index = INDEX, **how: object) -> list[str]:
    return [hit.id for hit in index.search(query, limit, **how).hits]  # pyright: ignore


def everywhere(hits: Iterable[Hit]) -> list[str]:
    """All documents of these hits, those that share a place included."""
    return [id_ for hit in hits for id_ in (hit.id, *hit.duplicates)]


# Finding


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("forecast of rain and temperature", "amap.maps_weather"),
        ("erase an entry of the cache", "redis.delete"),
        ("contact somebody by post", "mail.send"),
        ("google something", "search.search"),
    ],
)
def test_a_paraphrase_without_a_shared_word_finds_its_tool(query: str, tool: str):
    assert tool in found(query, 3)
    hit = next(hit for hit in INDEX.search(query).hits if hit.id == tool)
    assert hit.similarity is not None
    assert INDEX.search(query).uses_embeddings


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("craete a pul requst", "github.create_pull_request"),
        ("serach the wbe", "search.search"),
        ("snd an emial", "mail.send"),
        ("crete isue", "github.create_issue"),
    ],
)
def test_a_typo_finds_its_tool(query: str, tool: str):
    assert tool in everywhere(INDEX.search(query, 3).hits)


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("enviar un correo electrónico", "mail.send"),
        ("eine E-Mail an einen Kunden senden", "mail.send"),
        ("supprimer une clé de redis", "redis.delete"),
        ("buscar en internet", "search.search"),
        ("发送电子邮件", "mail.send"),
        ("ファイルを読む", "files.readTextFile"),
        ("what is the weather in Shanghai", "amap.maps_weather"),
    ],
)
def test_another_language_finds_its_tool(query: str, tool: str):
    assert tool in found(query, 3)


@pytest.mark.parametrize("tool", CATALOG, ids=lambda tool: tool.id)
def test_an_exact_address_always_ranks_first(tool: SearchDocument):
    assert found(tool.id)[0] == tool.id
    assert INDEX.search(tool.id).confidence == 1


def test_meaning_alone_never_ranks_before_an_exact_name():
    for tool in CATALOG:
        first = INDEX.search(tool.name).hits[0]
        assert tool.name in {
            first.id.split(".", 1)[1],
            *(twin.split(".", 1)[1] for twin in first.duplicates),
        }


def test_a_document_without_a_vector_is_found_by_its_words_among_others_that_have_theirs():
    partly = Index.build(CATALOG, encoder=get_shipped_encoder()).with_vectors(
        vectors(it for it in CATALOG if it.id != "mail.send")
    )
    assert partly.list_unencoded("mail") == ["mail.send"]
    ranking = partly.search("send an e-mail")
    assert ranking.uses_embeddings
    assert ranking.hits[0].id == "mail.send"
    assert ranking.hits[0].similarity is None
    assert [hit.similarity for hit in ranking.hits[1:]].count(None) == 0


def test_without_any_vector_or_encoder_words_decide_alone():
    for index in (
        Index.build(CATALOG, encoder=get_shipped_encoder()),
        Index.build(CATALOG).with_vectors(vectors(CATALOG)),
    ):
        for query in QUERIES:
            ranking = index.search(query)
            assert not ranking.uses_embeddings
            assert ranking == WORDS.search(query)


def test_a_request_with_several_needs_gets_a_tool_for_each():
    query = "Send an e-mail to the whole team. Then delete the key in Redis."
    assert {"mail.send", "redis.delete"} <= set(found(query, 4))


def test_scores_fall_and_reasons_name_words_of_the_query():
    for query in QUERIES:
        ranking = INDEX.search(query)
        scores = [hit.score for hit in ranking.hits]
        assert scores == sorted(scores, reverse=True)
        assert all(reason.word in query for hit in ranking.hits for reason in hit.reasons)
        assert ranking.nearest_groups
        assert set(ranking.nearest_groups) <= set(INDEX.groups)


def test_what_nothing_serves_is_less_sure_than_what_something_serves():
    fits = [
        INDEX.search(query).confidence
        for query in ("create an issue", "send an e-mail", "delete a redis key")
    ]
    misses = [
        INDEX.search(query).confidence
        for query in ("book a flight to Helsinki", "mow the lawn", "play some jazz")
    ]
    assert min(fits) > max(misses)


# Filters


def test_a_filter_by_group_hides_the_rest():
    assert {
        id_.split(".")[0]
        for id_ in found("create an issue", filters=SearchFilters(groups={"gitlab", "mail"}))
    } == {
        "gitlab",
        "mail",
    }
    assert INDEX.search("create an issue", filters=SearchFilters(groups=())).total == 0
    assert INDEX.search("create an issue", filters=SearchFilters(groups={"nowhere"})).hits == ()


def test_a_filter_by_category_or_tag_hides_the_rest_whatever_the_case():
    index = built(
        *CATALOG,
        document("post.letter", "Post a letter.", category="Office", tags=("paper",)),
        document("chat.say", "Say something.", category="chat", tags=("Communication", "paper")),
    )
    assert set(found("send", index=index, filters=SearchFilters(categories=["OFFICE"]))) == {
        "mail.send",
        "post.letter",
    }
    assert set(found("send", index=index, filters=SearchFilters(tags=["communication"]))) == {
        "mail.send",
        "chat.say",
    }
    both = SearchFilters(categories=["office", "chat"], tags=["paper"])
    assert set(found("send", index=index, filters=both)) == {"post.letter", "chat.say"}
    assert found("send", index=index, filters=SearchFilters(tags=["none such"])) == []


def test_a_tool_that_is_slow_fails_or_was_never_called_is_filtered():
    facts = {
        "github.create_issue": UsageFacts(calls=10, successes=10, latency_ms=5_000),
        "gitlab.create_issue": UsageFacts(calls=10, successes=2, latency_ms=10),
        "mail.send": UsageFacts(),
        "gone.away": UsageFacts(calls=1, successes=0, latency_ms=9_999),
    }
    quick = found("create an issue", 50, filters=SearchFilters(max_latency_ms=1_000), facts=facts)
    assert quick == ["gitlab.create_issue"]
    sound = found("create an issue", 50, filters=SearchFilters(min_success_rate=0.5), facts=facts)
    assert sound == ["github.create_issue"]
    assert found("create an issue", 50, filters=SearchFilters(min_success_rate=0.0)) == []
    named = found("github.create_issue", filters=SearchFilters(max_latency_ms=1_000), facts=facts)
    assert "github.create_issue" not in named


def test_a_filter_changes_who_is_shown_and_not_in_which_order():
    for query in QUERIES[:4]:
        whole = found(query, 50)
        some = set(whole[::2])
        assert [
            id_ for id_ in found(query, 50, allow=lambda id_, some=some: id_ in some) if id_ in some
        ] == whole[::2]


# Lifts


def test_a_boost_moves_a_tool_up_and_says_why():
    before = found("create an issue", 50)
    low = before[4]
    boost = Boost(0.9, ("called after searches like this",))
    after = INDEX.search("create an issue", 50, boosts={low: boost, "no.such": boost})
    assert [hit.id for hit in after.hits].index(low) < 4
    assert next(hit for hit in after.hits if hit.id == low).boost == boost
    assert all(hit.boost is None for hit in after.hits if hit.id != low)
    assert {hit.id for hit in after.hits} == set(before)


@pytest.mark.parametrize("amount", [0.1, 0.3, 0.9])
def test_no_boost_ranks_a_tool_above_an_exact_name(amount: float):
    boosts = {
        it.id: Boost(amount) for it in CATALOG if it.id not in ("redis.delete", "search.search")
    }
    for spelling in ("redis.delete", "redis_delete", "REDIS.DELETE", "delete", "Delete"):
        assert found(spelling, boosts=boosts)[0] == "redis.delete"
    for spelling in ("search", "SEARCH", "search.search"):
        assert found(spelling, boosts=boosts)[0] == "search.search"


def test_a_tool_that_matches_nothing_is_not_boosted():
    assert found("xylophone qwertz", index=WORDS, boosts={"mail.send": Boost(0.5)}) == []


def test_no_boosts_change_nothing():
    for query in QUERIES:
        assert INDEX.search(query, boosts={}) == INDEX.search(query)


# Twins


def copies(count: int, *tools: tuple[str, str]) -> list[SearchDocument]:
    """The same tools on several servers."""
    return [
        document(f"s{number}.{name}", text, server=f"server {number}")
        for number in range(count)
        for name, text in tools
    ]


def test_tools_of_several_servers_that_say_the_same_share_one_place():
    index = built(
        *CATALOG, *copies(5, ("translate_text", "Translate a text into another language."))
    )
    ranking = index.search("translate a text into Greek")
    first = ranking.hits[0]
    assert sorted([first.id, *first.duplicates]) == [
        f"s{number}.translate_text" for number in range(5)
    ]
    assert not any("translate" in hit.id for hit in ranking.hits[1:])


def test_the_same_tool_of_servers_with_names_of_their_own_shares_one_place():
    servers = ("slack", "discord", "gmail", "notion", "brave")
    text = "Translate a text into another language."
    index = built(*CATALOG, *(document(f"{server}.translate_text", text) for server in servers))
    first = index.search("translate a text into Greek").hits[0]
    assert sorted([first.id, *first.duplicates]) == sorted(
        f"{server}.translate_text" for server in servers
    )


def test_tools_of_one_server_never_share_a_place():
    index = built(*(document(f"s.translate_{number}", "Translate a text.") for number in range(5)))
    assert len(index.search("translate a text").hits) == 5


_MANY = [
    ("translate_text", "Translate a text into another language."),
    ("resize_image", "Resize a picture to a width and a height."),
    ("book_table", "Book a table in a restaurant."),
    ("convert_currency", "Convert an amount of money to another currency."),
    ("start_timer", "Start a timer that rings."),
    ("play_song", "Play a song by its name."),
    ("lock_door", "Lock the front door."),
    ("plan_route", "Plan a route between two places."),
    ("scan_virus", "Scan a folder for viruses."),
    ("mix_paint", "Mix paint of two colours."),
]


def test_a_page_has_as_many_places_as_were_asked_for_however_many_twins_there_are():
    index = built(*copies(12, *_MANY))
    ranking = index.search("do something", 8)
    assert len(ranking.hits) == 8


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_pages_show_every_tool_once_and_none_is_lost(limit: int):
    documents = [*CATALOG, *copies(4, *_MANY)]
    index = built(*documents)
    for query in ("translate a text", "a picture of a restaurant", "list issues"):
        whole = index.search(query, 200)
        pages: list[Hit] = []
        for offset in range(0, 200, limit):
            page = index.search(query, limit, offset=offset)
            pages += page.hits
            assert page.total == whole.total
            assert page.confidence == whole.confidence
            if len(page.hits) < limit:
                break
        assert [hit.id for hit in pages] == [hit.id for hit in whole.hits]
        shown = everywhere(pages)
        assert len(shown) == len(set(shown)) == whole.total


# Changing


def test_unchanged_documents_keep_their_vectors_and_changed_ones_lose_theirs():
    changed = document("github.list_issues", "Something else entirely.")
    same = [it for it in CATALOG if it.group == "github" and it.id != changed.id]
    after = INDEX.replace({"github": [changed, *reversed(same)]})
    assert after.list_unencoded("github") == ["github.list_issues"]
    assert all(after.list_unencoded(group) == [] for group in after.groups if group != "github")
    again = after.with_vectors(vectors([changed]))
    assert again.list_unencoded("github") == []
    kept = next(
        hit
        for hit in again.search("open a pull request").hits
        if hit.id == "github.create_pull_request"
    )
    assert kept.similarity == pytest.approx(
        next(
            hit.similarity for hit in INDEX.search("open a pull request").hits if hit.id == kept.id
        )
    )


def test_a_group_that_goes_and_comes_again_has_to_be_encoded_again():
    back = INDEX.replace({"mail": []}).replace(
        {"mail": [it for it in CATALOG if it.group == "mail"]}
    )
    assert back.list_unencoded("mail") == ["mail.send"]


def test_a_slot_that_another_takes_over_has_nothing_of_the_one_before():
    after = INDEX.replace({"mail": [], "new": [document("new.tool", "Mows the lawn.")]})
    assert after.list_unencoded("new") == ["new.tool"]


def test_vectors_of_unknown_documents_are_passed_over():
    same = INDEX.with_vectors({"no.such": get_shipped_encoder().encode_document("x")})
    assert [same.search(query) for query in QUERIES] == [INDEX.search(query) for query in QUERIES]


def test_an_index_that_followed_every_change_answers_like_a_fresh_one():
    steps = Index.build((), encoder=get_shipped_encoder())
    for group in dict.fromkeys(it.group for it in reversed(CATALOG)):
        members = [it for it in CATALOG if it.group == group]
        steps = steps.replace({group: [replace(members[0], hash="old", description="old")]})
        steps = steps.with_vectors({members[0].id: get_shipped_encoder().encode_document("old")})
        steps = steps.replace({group: members}).with_vectors(vectors(members))
    for query in QUERIES:
        assert steps.search(query, 50) == INDEX.search(query, 50)


@pytest.mark.parametrize("kind", ["bytes", "memoryview", "mmap"])
def test_a_dumped_index_is_the_same_index(kind: str, tmp_path: Path):
    body: bytes | memoryview = INDEX.dump()
    if kind == "memoryview":
        body = memoryview(bytearray(body))
    elif kind == "mmap":
        (tmp_path / "index").write_bytes(body)
        with (tmp_path / "index").open("rb") as file:
            body = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    loaded = Index.load(body, encoder=get_shipped_encoder())
    assert loaded.dump() == INDEX.dump()
    for query in QUERIES:
        assert loaded.search(query, 50) == INDEX.search(query, 50)
    grown = loaded.replace({"new": [document("new.tool", "Mows the lawn.")]})
    assert grown.list_unencoded("new") == ["new.tool"]
    assert grown.list_unencoded("github") == []


def test_an_index_without_vectors_is_dumped_and_loaded():
    for index in (
        Index.build((), encoder=get_shipped_encoder()),
        Index.build(CATALOG, encoder=get_shipped_encoder()),
    ):
        loaded = Index.load(index.dump(), encoder=get_shipped_encoder())
        assert loaded.search("create an issue") == index.search("create an issue")
        assert sum(len(loaded.list_unencoded(group)) for group in loaded.groups) == len(index)


# Where one stands


@pytest.mark.parametrize("query", QUERIES)
def test_a_placement_agrees_with_the_ranking(query: str):
    ranking = INDEX.search(query, 50)
    assert not any(hit.duplicates for hit in ranking.hits)
    for rank, hit in enumerate(ranking.hits, 1):
        placement = INDEX.find_placement(query, hit.id)
        assert placement is not None
        assert (placement.rank, placement.total, placement.is_filtered) == (
            rank,
            ranking.total,
            False,
        )
        assert replace(placement.hit, duplicates=()) == hit
    for it in CATALOG:
        if it.id not in found(query, 50):
            missed = INDEX.find_placement(query, it.id)
            assert missed is not None
            assert missed.rank == 0


def test_a_placement_says_that_a_filter_hides_a_tool_and_where_it_would_stand():
    placement = INDEX.find_placement(
        "send an e-mail", "mail.send", filters=SearchFilters(groups={"github"})
    )
    assert placement is not None
    assert placement.is_filtered
    assert placement.rank == 1
    allowed = INDEX.find_placement(
        "send an e-mail", "mail.send", allow=lambda id_: id_ == "mail.send"
    )
    assert allowed is not None
    assert not allowed.is_filtered


def test_a_placement_counts_boosts_and_an_unknown_tool_has_none():
    before = INDEX.find_placement("create an issue", "cafe.menu")
    after = INDEX.find_placement("create an issue", "cafe.menu", boosts={"cafe.menu": Boost(0.9)})
    assert before is not None
    assert after is not None
    assert 0 < after.rank < before.rank
    assert INDEX.find_placement("create an issue", "no.such") is None


# Whatever may come


@pytest.mark.parametrize(
    "query",
    [
        '"a" AND (b OR c) -d *',
        "'; DROP TABLE tools; --",
        "SELECT * FROM issues WHERE state = 'open' AND NOT closed",
        '{"query": {"match": {"name": "issue"}}, "size": 10}',
        r"^create_(issue|pull)\b.*$ (?=x)[[:alpha:]]{1,",
        "name:create~2^4 +issue -closed ?*",
        "<script>alert('issue')</script>",
        "../../etc/passwd",
        "%00%0a${jndi:ldap://x}",
        "issue\x00\x1b[31m",
        "\ud800 issue",
        bytes(range(256)).decode("latin-1"),
        "create issue " * 800,
        "x" * 10_000,
        "天" * 10_000,
        "🙂" * 50,
        "Ποιος είναι ο καιρός",
        "อากาศเป็นอย่างไร",
        "ما هو الطقس",
    ],
)
def test_operators_code_and_noise_are_answered_like_words(query: str):
    ranking = INDEX.search(query)
    assert len(ranking.hits) <= 8
    assert all(math.isfinite(hit.score) and hit.score > 0 for hit in ranking.hits)
    assert 0 <= ranking.confidence <= 1
    assert ranking == INDEX.search(query)


@pytest.mark.parametrize("query", ["", "   ", "\n\t", "\x00", "…", "the of and"])
def test_a_query_that_asks_for_nothing_finds_nothing(query: str):
    ranking = INDEX.search(query)
    assert (ranking.hits, ranking.total, ranking.confidence) == ((), 0, 0)


def test_operators_around_words_do_not_hide_what_the_words_ask_for():
    for query in (
        '"create" AND ("issue")',
        "create -- issue;",
        '{"create": ["issue"]}',
        "create.*issue$",
    ):
        assert "github.create_issue" in found(query, 3)


def test_a_very_long_query_finds_what_it_begins_with():
    assert (
        found("Send an e-mail to my colleague. " + "lorem ipsum dolor sit amet " * 400, 3)[0]
        == "mail.send"
    )


def test_tools_with_empty_or_endless_descriptions_are_found():
    endless = (
        "Convert a video to another format. "
        + "More about containers, codecs and bit rates. " * 400
    )
    odd = (
        SearchDocument("v.convert", "1", "v", "convert_video", server="v", description=endless),
        SearchDocument("e.ping", "2", "e", "ping", server="e"),
        SearchDocument("n.", "3", "n", "", server=""),
        document("b.binary", "\x00\x01\ud800" * 100),
    )
    assert len(endless) > 18_000
    index = built(*CATALOG, *odd)
    assert all(index.list_unencoded(group) == [] for group in index.groups)
    assert found("turn a movie into an mp4 file", 3, index)[0] == "v.convert"
    assert found("ping", index=index)[0] == "e.ping"
    for query in ("create an issue", "send an e-mail", "delete a redis key"):
        assert found(query, index=index)[0] == found(query)[0]


def test_an_empty_index_with_an_encoder_answers():
    index = Index.build((), encoder=get_shipped_encoder())
    assert index.search("anything").hits == ()
    assert index.find_placement("anything", "a.b") is None


@given(st.text(st.characters(), max_size=120), st.integers(0, 20), st.integers(0, 20))
@settings(max_examples=80, deadline=None)
def test_any_text_is_answered_with_finite_scores(query: str, limit: int, offset: int):
    ranking = INDEX.search(query, limit, offset=offset)
    assert len(ranking.hits) <= limit
    assert ranking.total <= len(INDEX)
    assert 0 <= ranking.confidence <= 1
    assert all(math.isfinite(hit.score) and hit.score > 0 for hit in ranking.hits)
    assert all(hit.similarity is None or -1.1 < hit.similarity < 1.1 for hit in ranking.hits)
    assert len({hit.id for hit in ranking.hits}) == len(ranking.hits)


@given(
    st.dictionaries(st.sampled_from([it.id for it in CATALOG]), st.booleans()),
    st.sampled_from(QUERIES),
)
@settings(max_examples=40, deadline=None)
def test_whichever_vectors_are_known_yet_every_answer_is_sound(known: dict[str, bool], query: str):
    have = {id_ for id_, is_known in known.items() if is_known}
    index = Index.build(CATALOG, encoder=get_shipped_encoder()).with_vectors(
        vectors(it for it in CATALOG if it.id in have)
    )
    ranking = index.search(query, 50)
    assert ranking.uses_embeddings == bool(have)
    assert {hit.id for hit in ranking.hits if hit.similarity is not None} <= have
    by_words = {hit.id for hit in WORDS.search(query, 50).hits}
    assert by_words <= set(everywhere(ranking.hits))
    assert all(math.isfinite(hit.score) for hit in ranking.hits)


def test_vectors_do_not_change_when_they_are_searched():
    body = INDEX.dump()
    for query in QUERIES:
        INDEX.search(query)
    assert INDEX.dump() == body
    assert all(
        np.array_equal(row, get_shipped_encoder().encode_document(compose_document_text(it)))
        for it, row in _rows()
    )


def _rows() -> list[tuple[SearchDocument, Vector]]:
    found = vectors(CATALOG)
    return [(it, found[it.id]) for it in CATALOG]


def test_a_server_that_spells_one_name_in_many_ways_gets_one_place_for_it():
    spellings = [
        document(f"loud.{name}", "Create a new issue.")
        for name in ("create_is_sue", "createIssue", "c_reateissue")
    ]
    hits = built(*CATALOG, *spellings).search("create issue", 8).hits
    assert sum(hit.is_name_match for hit in hits if hit.id.startswith("loud.")) <= 1
    assert "github.create_issue" in [hit.id for hit in hits[:3]]


def test_a_copy_on_another_server_does_not_take_the_place_of_the_server_that_was_named():
    copy = document(
        "aaa.create_issue",
        "Create a new issue in a repository.",
        parameters=("owner", "repo", "title"),
    )
    hits = built(*CATALOG, copy).search("create an issue on github", 8).hits
    assert "github.create_issue" in [hit.id for hit in hits]


def test_far_down_a_list_every_tool_has_a_place_and_none_has_two():
    many = [document(f"s{n % 7}.tool_{n}", f"Does thing number {n} with care.") for n in range(700)]
    index = built(*many)
    seen = [
        id_
        for at in range(0, 720, 40)
        for hit in index.search("do a thing", 40, offset=at).hits
        for id_ in (hit.id, *hit.duplicates)
    ]
    assert len(seen) == len(set(seen))


def test_a_misspelt_word_is_reported_as_what_it_was_taken_for():
    hit = INDEX.search("delte a redis key").hits[0]
    assert hit.id == "redis.delete"
    assert ("delte", "delet") in [(reason.word, reason.correction) for reason in hit.reasons]


def test_an_index_full_of_invented_words_offers_few_of_them_as_spellings():
    invented = " ".join(
        f"b{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676)}zz" for n in range(3_000)
    )
    index = built(document("a.flood", invented), document("b.brand", "The brand bazzz."))
    assert max(map(len, index._postings.spelling_candidates.values())) <= 400  # pyright: ignore[reportPrivateUsage]
