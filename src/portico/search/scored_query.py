"""One question to an index: every signal worked out once, as one number per slot, then places and
reasons.

exact   is the query its name or address?         lexical   how much of the query's words has it? (BM25F)
dense   how near is its meaning?                   lift      what did use teach?
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from portico.search import fusion
from portico.search.confidence import UNSURE, WEAK, WEAK_BY_WORDS, estimate_confidence
from portico.search.dense.encoder import Encoder, EncoderUnavailable
from portico.search.dense.vectors import Vectors
from portico.search.document import Boost, Hit, Ranking
from portico.search.document_table import DocumentTable, Mask, compute_name_key
from portico.search.lexical import bm25f
from portico.search.lexical.bm25f import Scores
from portico.search.lexical.postings import Postings
from portico.search.lexical.query import parse_query
from portico.search.lexical.tokens import extract_words, squash
from portico.search.ranking import (
    add_spare_places,
    count_required_ranks,
    group_duplicates,
    interleave_needs,
    select_top_slots,
)

_SAME_NAME_SCORE = 2.0
_SAME_ADDRESS_SCORE = 4.0
"""Everything else together stays below: whoever types a name gets the tool of that name, then the
tools that say it."""
_EXACT_SPELLING_SCORE = 4.0
"""`send_email` and `send-email` are the same name; the one that was typed comes first."""
_MAX_BOOST = 0.5
"""Whatever use taught, a name that was typed counts more."""
NEED_SHARE = 0.5
"""Of a query with several needs, the part that a document earns by serving one of them best."""
NEED_POOL = 64
"""First places that the needs of a query take turns for: beyond, everything together decides."""
_MIN_ENCODED_SHARE = 0.95
"""While fewer documents have their vectors, what is near says nothing of what is not: words judge.
"""
_JUDGED_HITS = 3
"""First hits whose nearness tells whether anything fits."""
_NEAR_GROUPS = 5


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one document stands for a query."""

    hit: Hit
    rank: int
    """1 is first. 0: it does not match at all."""
    total: int
    """How many match."""
    is_filtered: bool = False
    """A filter or the caller's scope hides it; `rank` is where it would stand."""


@dataclass(frozen=True, eq=False)
class ScoredQuery:
    """A query with what every signal says of every slot."""

    text: str
    table: DocumentTable
    postings: Postings
    vectors: Vectors
    term_lookups: Sequence[bm25f.TermLookup]
    lexical_scores: Scores
    similarities: Scores | None
    scores: Scores
    """Everything together; of a query with several needs, what speaks for its best-served one
    included."""
    need_scores: Sequence[Scores]
    """What each need alone would score, where there are several."""
    boosts: Mapping[int, Boost]
    searched_count: int
    """How many documents could be found …"""
    encoded_count: int
    """… and how many of them by meaning."""

    @classmethod
    def from_text(
        cls,
        text: str,
        table: DocumentTable,
        postings: Postings,
        vectors: Vectors,
        encoder: Encoder | None,
        allowed: Mask | None,
        boosts: Mapping[str, Boost],
    ) -> "ScoredQuery":
        """Ask all signals."""
        query = parse_query(text, postings)
        size = len(table.ids)
        count = table.count
        sought = bm25f.look_up_terms(postings, query.terms, count)

        def score_words(terms: Sequence[bm25f.TermLookup]) -> Scores:
            return bm25f.compute_scores(postings, terms, size, allowed)

        def fuse_scores(words: Scores, meaning: Scores | None) -> Scores:
            return fusion.fuse(
                words, meaning, None if meaning is None else vectors.encoded_slots, allowed
            )

        by_words = score_words(sought)
        if query.terms:
            meaning = _compute_similarities(query.text, vectors, encoder)
        else:
            meaning = None
        scores = fuse_scores(by_words, meaning)
        needs = [
            fuse_scores(
                score_words(bm25f.look_up_terms(postings, clause, count)),
                _compute_similarities(part, vectors, encoder),
            )
            for part, clause in zip(query.clause_texts, query.clauses, strict=True)
        ]
        if needs and (best := float(scores.max(initial=0))):
            scores = scores * (1 - NEED_SHARE) + np.maximum.reduce(needs) * np.float32(
                NEED_SHARE * best
            )
        if allowed is None:
            searched = count
        else:
            searched = int(np.count_nonzero(allowed))
        encoded = int(
            np.count_nonzero(
                vectors.encoded_slots if allowed is None else vectors.encoded_slots & allowed
            )
        )
        found: dict[int, Boost] = {}
        for id_, lift in boosts.items():
            slot = table.slot_by_id.get(id_)
            if slot is not None and scores[slot] > 0:
                found[slot] = lift
                scores[slot] += min(lift.amount, _MAX_BOOST)
        scores += _score_exact_names(text, table, allowed)
        return cls(
            query.text,
            table,
            postings,
            vectors,
            sought,
            by_words,
            meaning,
            scores,
            needs,
            found,
            searched,
            encoded,
        )

    @cached_property
    def first_slots(self) -> list[int]:
        """The best slots; of a query with several needs, so that each need has its turn."""
        ranked = select_top_slots(self.scores, self.table.ids, NEED_POOL)
        # By words alone a clause says too little of what it needs: taking turns was measured to
        # lose.
        taking_turns = self.need_scores and self.similarities is not None
        if taking_turns:
            return interleave_needs(ranked, self.scores, self.need_scores, NEED_SHARE)
        return ranked

    @cached_property
    def named_groups(self) -> frozenset[str]:
        """The groups that the query names."""
        typed = {squash(word) for word in extract_words(self.text)}
        return frozenset(
            group for word in typed for group in self.table.squashed_groups.get(word, ())
        )

    def select_leading(self, places: int) -> list[int]:
        """The slots on the first `places`."""
        first = self.first_slots
        if places <= len(first):
            return first[:places]
        taken = set(first)
        return [
            *first,
            *(
                slot
                for slot in select_top_slots(self.scores, self.table.ids, places)
                if slot not in taken
            ),
        ]

    def build_hits(
        self, slots: Sequence[int], duplicates: Mapping[int, Sequence[int]]
    ) -> list[Hit]:
        """The slots as hits, with reasons."""
        reasons = bm25f.explain_matches(self.postings, self.term_lookups, slots)
        return [
            Hit(
                self.table.ids[slot],
                float(self.scores[slot]),
                why,
                bm25f.list_missing_words(self.term_lookups, why),
                float(self.lexical_scores[slot]),
                float(self.similarities[slot])
                if self.similarities is not None and self.vectors.encoded_slots[slot]
                else None,
                self.boosts.get(slot),
                bool(self.scores[slot] >= _SAME_NAME_SCORE),
                tuple(self.table.ids[twin] for twin in duplicates.get(slot, ())),
            )
            for slot, why in zip(slots, reasons, strict=True)
        ]

    def assess_fit(self, slots: Sequence[int]) -> tuple[float, float]:
        """How sure it is that one of the first slots serves the query, and below what nothing fits."""
        if slots and self.scores[slots[0]] >= _SAME_NAME_SCORE:
            return 1.0, WEAK
        if slots:
            coverage = bm25f.compute_coverage(self.postings, self.term_lookups, slots[0])
        else:
            coverage = 0.0
        if (
            self.similarities is None
            or self.encoded_count < _MIN_ENCODED_SHARE * self.searched_count
        ):
            return coverage, WEAK_BY_WORDS
        nearness = max((float(self.similarities[slot]) for slot in slots), default=-1.0)
        return estimate_confidence(nearness, coverage, self.searched_count), WEAK


def build_ranking(query: ScoredQuery, limit: int, offset: int) -> Ranking:
    """The page of `limit` places after `offset`."""
    roster = query.table
    wanted = max(1, offset + limit)
    looked = add_spare_places(wanted)
    while True:
        ranked = query.select_leading(looked)
        twins = group_duplicates(ranked, query.vectors, roster, query.named_groups)
        places = list(twins)
        page = places[offset : offset + max(0, limit)]
        if len(places) >= wanted:
            enough = count_required_ranks(ranked, twins, page)
        else:
            enough = 2 * looked
        if len(ranked) < looked or enough <= looked:
            break
        looked = enough
    best, cut = query.assess_fit(places[:_JUDGED_HITS])
    return Ranking(
        tuple(query.build_hits(page, twins)),
        int(np.count_nonzero(query.scores)),
        best,
        best < cut,
        cut <= best < UNSURE and cut == WEAK,
        cut,
        tuple(dict.fromkeys(roster.groups[slot] for slot in ranked))[:_NEAR_GROUPS],
        query.similarities is not None,
        len(places) > offset + limit,
    )


def find_placement(query: ScoredQuery, slot: int, *, is_filtered: bool = False) -> Placement:
    """Where a slot stands."""
    hit = query.build_hits([slot], {})[0]
    of = int(np.count_nonzero(query.scores))
    first = query.first_slots
    score = query.scores[slot]
    if slot in first:
        return Placement(hit, first.index(slot) + 1, of, is_filtered)
    before = int(np.count_nonzero(query.scores > score))
    ties = sum(
        query.table.ids[at] < query.table.ids[slot]
        for at in np.flatnonzero(query.scores == score).tolist()
    )
    return Placement(hit, before + ties + 1 if score > 0 else 0, of, is_filtered)


def _compute_similarities(text: str, vectors: Vectors, encoder: Encoder | None) -> Scores | None:
    """How near every slot's meaning is to a text's; None where meaning cannot be searched."""
    if encoder is None or encoder.problem or not vectors.encoded_slots.any():
        return None
    try:
        return vectors.compute_similarity(encoder.encode_query(text))
    except EncoderUnavailable:
        return None


def _score_exact_names(text: str, table: DocumentTable, allowed: Mask | None) -> Scores:
    """What a document earns for having the query as its name or address."""
    typed = text.strip()
    earned = np.zeros(len(table.ids), dtype=np.float32)
    key = np.uint64(compute_name_key(typed))
    if not key:
        return earned
    for slot in _select_one_per_group(
        np.flatnonzero(table.name_keys == key).tolist(), typed, table
    ):
        earned[slot] = _SAME_NAME_SCORE
    earned[table.id_keys == key] = _SAME_ADDRESS_SCORE
    for slot in np.flatnonzero(earned).tolist():
        if typed in (table.names[slot], table.ids[slot]):
            earned[slot] += _EXACT_SPELLING_SCORE
    if allowed is None:
        return earned
    return earned * allowed


def _select_one_per_group(slots: Sequence[int], typed: str, table: DocumentTable) -> Sequence[int]:
    """Of the spellings of one name on one server the one that was typed, else the first: no server
    gets two places."""
    found: dict[str, int] = {}
    for slot in sorted(slots, key=lambda slot: (table.names[slot] != typed, table.ids[slot])):
        found.setdefault(table.groups[slot], slot)
    return list(found.values())
