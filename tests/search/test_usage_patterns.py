"""Boosts from past use: small, decaying, and never above an exact name."""

import tracemalloc
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.search import Index, Vector
from portico.search.usage_patterns import (
    MAX_FOLLOW_UP_BOOST,
    MAX_PAIR_BOOST,
    MAX_POPULARITY_BOOST,
    TermHashes,
    UsagePatterns,
    extract_query_terms,
    hash_terms,
    pack_terms,
)
from portico.storage.rows import FollowedRow, LearnedRows, PairRow, UsedRow
from tests.search.catalog import CATALOG

DAY = 86_400.0
NOW = 1_800_000_000.0
HALF_LIFE = 30 * DAY


def terms(query: str, key: bytes = b"key") -> TermHashes:
    return hash_terms(extract_query_terms(query), key)


def followed(
    query: str, tool: str, weight: float = 1, at: float = NOW, vector: Vector | None = None
) -> FollowedRow:
    stored = None if vector is None else vector.tobytes()
    return FollowedRow(pack_terms(terms(query)), tool, weight, at, stored)


def patterns(
    *followed: FollowedRow,
    used: Mapping[str, float] | None = None,
    together: Mapping[tuple[str, str], float] | None = None,
    previous: UsagePatterns | None = None,
) -> UsagePatterns:
    rows = LearnedRows(
        followed,
        tuple(PairRow(*pair, weight, NOW) for pair, weight in (together or {}).items()),
        tuple(UsedRow(tool, weight, NOW) for tool, weight in (used or {}).items()),
    )
    return UsagePatterns(HALF_LIFE, rows, previous)


def amounts(
    known: UsagePatterns, query: str, now: float = NOW, recent: tuple[str, ...] = ()
) -> dict[str, float]:
    return {
        tool: boost.amount
        for tool, boost in known.compute_boosts(terms(query), None, recent, now).items()
    }


# Nothing learned, nothing changed


def test_without_patterns_nothing_is_boosted():
    assert (
        patterns().compute_boosts(terms("create an issue"), None, ("github.create_issue",), NOW)
        == {}
    )


@pytest.mark.parametrize(
    "query", ["create an issue", "github.create_issue", "delete", "", "根据城市名称查询"]
)
def test_a_cold_index_is_unchanged(query: str):
    index = Index.build(CATALOG)
    assert index.search(query, 50, boosts=amounts_of_nothing(query)) == index.search(query, 50)


def amounts_of_nothing(query: str):
    return patterns().compute_boosts(terms(query), None, (), NOW)


# What is boosted


def test_a_tool_called_after_a_search_is_boosted_for_it_and_for_no_other():
    known = patterns(followed("open a new ticket", "gitlab.create_issue"))
    assert amounts(known, "open a new ticket") == {
        "gitlab.create_issue": pytest.approx(MAX_FOLLOW_UP_BOOST / 2)
    }
    assert amounts(known, "please open me a NEW ticket!") == amounts(known, "open a new ticket")
    assert amounts(known, "what is the weather") == {}


def test_the_more_alike_two_queries_are_the_more_one_says_of_the_other():
    known = patterns(followed("open a new support ticket", "a.b"))
    same, like, less = (
        amounts(known, query).get("a.b", 0.0)
        for query in (
            "open a new support ticket",
            "open a support ticket",
            "open a new support request now",
        )
    )
    assert same > like > less > 0


def test_a_query_that_shares_one_word_says_nothing():
    assert amounts(patterns(followed("create invoice", "billing.create")), "create issue") == {}


def test_more_calls_boost_more_but_never_over_the_bound():
    once, often, always = (
        amounts(patterns(followed("send mail", "m.send", weight)), "send mail")["m.send"]
        for weight in (1, 5, 1e9)
    )
    assert once < often < always <= MAX_FOLLOW_UP_BOOST


def test_queries_of_one_meaning_boost_though_they_share_no_word():
    known = patterns(followed("raise a bug report", "t.create", vector=vector(1, 1, 0)))
    meant = known.compute_boosts(terms("file an issue"), vector(1, 1, 0.1), (), NOW)
    other = known.compute_boosts(terms("file an issue"), vector(-1, 1, 0), (), NOW)
    assert meant["t.create"].amount > 0.01
    assert other == {}


def test_vectors_of_another_encoder_say_nothing():
    known = patterns(followed("raise a bug report", "t.create", vector=vector(1, 1, 0, 0)))
    assert known.compute_boosts(terms("file an issue"), vector(1, 1, 0), (), NOW) == {}
    assert known.compute_boosts(terms("raise a bug report"), vector(0, 0, 0), (), NOW)


def vector(*parts: float) -> Vector:
    return (np.array(parts) * 100).astype(np.int8)


def test_a_tool_that_is_called_often_is_boosted_a_little_for_any_query():
    known = patterns(
        used={
            "a.once": 1,
            "a.rare": 2,
            "a.daily": 1_000,
        }
    )
    boosted = amounts(known, "anything at all")
    assert 0 < boosted["a.rare"] < boosted["a.daily"] == pytest.approx(MAX_POPULARITY_BOOST)
    assert "a.once" not in boosted


def test_what_was_used_together_with_the_latest_calls_is_boosted_whichever_came_first():
    known = patterns(together={("a.fetch", "a.parse"): 3})
    assert amounts(known, "x") == {}
    for recent, other in (("a.fetch", "a.parse"), ("a.parse", "a.fetch")):
        assert amounts(known, "x", recent=(recent,)) == {
            other: pytest.approx(MAX_PAIR_BOOST * 3 / 4)
        }


def test_what_was_received_since_adds_to_what_was_known():
    before = patterns(followed("send mail", "m.send"), used={"m.send": 1})
    after = patterns(
        followed("send mail", "m.send"),
        used={"m.send": 1},
        previous=before,
    )
    together = patterns(followed("send mail", "m.send", 2), used={"m.send": 2})
    assert amounts(after, "send mail") == pytest.approx(amounts(together, "send mail"))


def test_a_boost_says_why():
    known = patterns(
        followed("send mail", "m.send"),
        used={"m.send": 9},
        together={("m.find", "m.send"): 1},
    )
    (boost,) = known.compute_boosts(terms("send mail"), None, ("m.find",), NOW).values()
    assert boost.reasons == (
        "called after searches like this (+0.075)",
        "called often (+0.014)",
        "used together with what was just called (+0.015)",
    )


# Fading


def test_what_was_learned_counts_half_after_a_half_life():
    known = patterns(followed("send mail", "m.send", weight=2))
    evidence = [
        amount / (MAX_FOLLOW_UP_BOOST - amount)
        for amount in (
            amounts(known, "send mail", NOW + days * DAY)["m.send"] for days in (0, 30, 60)
        )
    ]
    assert evidence == pytest.approx([2, 1, 0.5])


def test_what_was_learned_long_ago_is_gone():
    known = patterns(
        followed("send mail", "m.send"),
        used={"m.send": 5},
        together={("m.find", "m.send"): 5},
    )
    assert amounts(known, "send mail", NOW + 1_000 * DAY, ("m.find",)) == {}


def test_a_clock_that_was_set_back_makes_nothing_stronger():
    known = patterns(followed("send mail", "m.send", at=NOW))
    assert amounts(known, "send mail", NOW - 300 * DAY) == amounts(known, "send mail", NOW)


# Proven not to hurt

IDS = [document.id for document in CATALOG]
WEIGHTS = st.floats(0.01, 1e12)


@given(
    query=st.sampled_from([*IDS, "create_issue", "createIssue", "search", "redis.delete"]),
    rows=st.lists(st.tuples(st.sampled_from(IDS), WEIGHTS), max_size=30),
    used=st.dictionaries(st.sampled_from(IDS), WEIGHTS),
    pairs=st.dictionaries(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), WEIGHTS),
    recent=st.lists(st.sampled_from(IDS), max_size=5),
)
def test_an_exact_name_wins_whatever_was_learned(
    query: str,
    rows: list[tuple[str, float]],
    used: dict[str, float],
    pairs: dict[tuple[str, str], float],
    recent: list[str],
):
    known = patterns(
        *(followed(query, tool, weight) for tool, weight in rows),
        used=used,
        together=pairs,
    )
    boosts = known.compute_boosts(terms(query), None, recent, NOW)
    assert all(
        0 < boost.amount <= MAX_FOLLOW_UP_BOOST + MAX_POPULARITY_BOOST + MAX_PAIR_BOOST + 1e-9
        for boost in boosts.values()
    )
    index = Index.build(CATALOG)
    named = {
        id_ for id_ in IDS if query in (id_, id_.partition(".")[2]) or query == "createIssue" in id_
    }
    cold, warm = (index.search(query, 50, boosts=given).hits for given in (None, boosts))
    exact = [hit.id for hit in cold if hit.score >= 2]
    assert named <= set(exact)
    assert {hit.id for hit in warm[: len(exact)]} == set(exact)
    assert {hit.id for hit in warm} == {hit.id for hit in cold}


@given(st.text(max_size=300))
def test_any_text_has_terms_that_can_be_compared(text: str):
    known = patterns(followed(text, "a.b"))
    assert ("a.b" in amounts(known, text)) == bool(extract_query_terms(text))
    assert all(0 <= number < 2**64 for number in terms(text))


# Small in memory, and nothing to guess at


def test_what_is_remembered_of_a_query_is_no_longer_than_what_is_read_of_it():
    tracemalloc.start()
    for number in range(100):
        extract_query_terms(f"send mail {number} " + "x" * 200_000)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 5_000_000


def test_under_another_key_the_same_words_have_nothing_in_common():
    assert not terms("terminate an employee") & terms("terminate an employee", b"another")
    assert terms("terminate an employee") == terms("terminate the employee")
