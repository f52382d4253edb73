"""What use has taught: small lifts, for what was meant, that fade and never beat a name."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.search import Index, Vector
from portico.search.usage_patterns import (
    MAX_FOLLOW_UP_BOOST,
    MAX_PAIR_BOOST,
    MAX_POPULARITY_BOOST,
    DecayedWeight,
    SearchFollowUp,
    TermHashes,
    UsagePatterns,
    extract_query_terms,
    hash_terms,
)
from tests.search.catalog import CATALOG

DAY = 86_400.0
NOW = 1_800_000_000.0
HALF_LIFE = 30 * DAY


def terms(query: str, key: bytes = b"key") -> TermHashes:
    return hash_terms(extract_query_terms(query), key)


def followed(
    query: str, tool: str, weight: float = 1, at: float = NOW, vector: Vector | None = None
) -> SearchFollowUp:
    return SearchFollowUp(terms(query), tool, DecayedWeight(weight, at), vector)


def habits(*rows: SearchFollowUp, **more: object) -> UsagePatterns:
    return UsagePatterns(HALF_LIFE, rows, **more)  # pyright: ignore[reportArgumentType]


def amounts(
    known: UsagePatterns, query: str, now: float = NOW, recent: tuple[str, ...] = ()
) -> dict[str, float]:
    return {
        tool: lift.amount
        for tool, lift in known.compute_boosts(terms(query), None, recent, now).items()
    }


# Nothing learnt, nothing changed


def test_habits_of_nobody_lift_nothing():
    assert (
        habits().compute_boosts(terms("create an issue"), None, ("github.create_issue",), NOW) == {}
    )


@pytest.mark.parametrize(
    "query", ["create an issue", "github.create_issue", "delete", "", "根据城市名称查询"]
)
def test_a_cold_index_is_unchanged(query: str):
    index = Index.build(CATALOG)
    assert index.search(query, 50, boosts=amounts_of_nothing(query)) == index.search(query, 50)


def amounts_of_nothing(query: str):
    return habits().compute_boosts(terms(query), None, (), NOW)


# What is lifted


def test_a_tool_called_after_a_search_is_lifted_for_it_and_for_no_other():
    known = habits(followed("open a new ticket", "gitlab.create_issue"))
    assert amounts(known, "open a new ticket") == {
        "gitlab.create_issue": pytest.approx(MAX_FOLLOW_UP_BOOST / 2)
    }
    assert amounts(known, "please open me a NEW ticket!") == amounts(known, "open a new ticket")
    assert amounts(known, "what is the weather") == {}


def test_the_more_alike_two_queries_are_the_more_one_says_of_the_other():
    known = habits(followed("open a new support ticket", "a.b"))
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
    assert amounts(habits(followed("create invoice", "billing.create")), "create issue") == {}


def test_more_calls_lift_more_but_never_over_the_bound():
    once, often, always = (
        amounts(habits(followed("send mail", "m.send", weight)), "send mail")["m.send"]
        for weight in (1, 5, 1e9)
    )
    assert once < often < always <= MAX_FOLLOW_UP_BOOST


def test_queries_of_one_meaning_lift_though_they_share_no_word():
    known = habits(followed("raise a bug report", "t.create", vector=vector(1, 1, 0)))
    meant = known.compute_boosts(terms("file an issue"), vector(1, 1, 0.1), (), NOW)
    other = known.compute_boosts(terms("file an issue"), vector(-1, 1, 0), (), NOW)
    assert meant["t.create"].amount > 0.01
    assert other == {}


def test_vectors_of_another_encoder_say_nothing():
    known = habits(followed("raise a bug report", "t.create", vector=vector(1, 1, 0, 0)))
    assert known.compute_boosts(terms("file an issue"), vector(1, 1, 0), (), NOW) == {}
    assert known.compute_boosts(terms("raise a bug report"), vector(0, 0, 0), (), NOW)


def vector(*parts: float) -> Vector:
    return (np.array(parts) * 100).astype(np.int8)


def test_a_tool_that_is_called_often_is_lifted_a_little_for_any_query():
    known = habits(
        call_weights={
            "a.once": DecayedWeight(1, NOW),
            "a.rare": DecayedWeight(2, NOW),
            "a.daily": DecayedWeight(1_000, NOW),
        }
    )
    lifted = amounts(known, "anything at all")
    assert 0 < lifted["a.rare"] < lifted["a.daily"] == pytest.approx(MAX_POPULARITY_BOOST)
    assert "a.once" not in lifted


def test_what_was_used_together_with_the_latest_calls_is_lifted_whichever_came_first():
    known = habits(pair_weights={("a.fetch", "a.parse"): DecayedWeight(3, NOW)})
    assert amounts(known, "x") == {}
    for recent, other in (("a.fetch", "a.parse"), ("a.parse", "a.fetch")):
        assert amounts(known, "x", recent=(recent,)) == {
            other: pytest.approx(MAX_PAIR_BOOST * 3 / 4)
        }


def test_what_was_heard_since_adds_to_what_was_known():
    before = habits(followed("send mail", "m.send"), call_weights={"m.send": DecayedWeight(1, NOW)})
    after = habits(
        followed("send mail", "m.send"),
        call_weights={"m.send": DecayedWeight(1, NOW)},
        previous=before,
    )
    together = habits(
        followed("send mail", "m.send", 2), call_weights={"m.send": DecayedWeight(2, NOW)}
    )
    assert amounts(after, "send mail") == pytest.approx(amounts(together, "send mail"))


def test_a_lift_says_why():
    known = habits(
        followed("send mail", "m.send"),
        call_weights={"m.send": DecayedWeight(9, NOW)},
        pair_weights={("m.find", "m.send"): DecayedWeight(1, NOW)},
    )
    (lift,) = known.compute_boosts(terms("send mail"), None, ("m.find",), NOW).values()
    assert lift.reasons == (
        "called after searches like this (+0.075)",
        "called often (+0.014)",
        "used together with what was just called (+0.015)",
    )


# Fading


def test_what_was_learnt_counts_half_after_a_half_life():
    known = habits(followed("send mail", "m.send", weight=2))
    evidence = [
        amount / (MAX_FOLLOW_UP_BOOST - amount)
        for amount in (
            amounts(known, "send mail", NOW + days * DAY)["m.send"] for days in (0, 30, 60)
        )
    ]
    assert evidence == pytest.approx([2, 1, 0.5])


def test_what_was_learnt_long_ago_is_gone():
    known = habits(
        followed("send mail", "m.send"),
        call_weights={"m.send": DecayedWeight(5, NOW)},
        pair_weights={("m.find", "m.send"): DecayedWeight(5, NOW)},
    )
    assert amounts(known, "send mail", NOW + 1_000 * DAY, ("m.find",)) == {}


def test_a_clock_that_was_set_back_makes_nothing_stronger():
    known = habits(followed("send mail", "m.send", at=NOW))
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
def test_an_exact_name_wins_whatever_was_learnt(
    query: str,
    rows: list[tuple[str, float]],
    used: dict[str, float],
    pairs: dict[tuple[str, str], float],
    recent: list[str],
):
    known = habits(
        *(followed(query, tool, weight) for tool, weight in rows),
        call_weights={tool: DecayedWeight(weight, NOW) for tool, weight in used.items()},
        pair_weights={pair: DecayedWeight(weight, NOW) for pair, weight in pairs.items()},
    )
    lifts = known.compute_boosts(terms(query), None, recent, NOW)
    assert all(
        0 < lift.amount <= MAX_FOLLOW_UP_BOOST + MAX_POPULARITY_BOOST + MAX_PAIR_BOOST + 1e-9
        for lift in lifts.values()
    )
    index = Index.build(CATALOG)
    named = {
        id_ for id_ in IDS if query in (id_, id_.partition(".")[2]) or query == "createIssue" in id_
    }
    cold, warm = (index.search(query, 50, boosts=given).hits for given in (None, lifts))
    exact = [hit.id for hit in cold if hit.score >= 2]
    assert named <= set(exact)
    assert {hit.id for hit in warm[: len(exact)]} == set(exact)
    assert {hit.id for hit in warm} == {hit.id for hit in cold}


@given(st.text(max_size=300))
def test_any_text_has_terms_that_can_be_compared(text: str):
    known = habits(followed(text, "a.b"))
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
