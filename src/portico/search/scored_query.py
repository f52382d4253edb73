"""Scores one query: every signal as one number per slot, then ranks and reasons.

exact name: is the query its name or address?   lexical: share of the query's words (BM25F)
dense: cosine similarity                        boosts: learned from past use
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from portico.search import ranking
from portico.search.dense.encoder import Encoder, EncoderUnavailable
from portico.search.dense.vectors import Vectors
from portico.search.document import Boost, Hit, MissingAction, Ranking
from portico.search.document_table import DocumentTable, Mask, compute_name_key
from portico.search.lexical import bm25f
from portico.search.lexical.bm25f import Scores
from portico.search.lexical.postings import Postings
from portico.search.lexical.tokens import extract_words, parse_query, squash
from portico.search.missing_action import find_missing_action
from portico.search.ranking import (
    EXACT_SPELLING_SCORE,
    MAX_BOOST,
    PREFERRED_GROUP_SCORE,
    SAME_ADDRESS_SCORE,
    SAME_NAME_SCORE,
    RankingMethod,
    add_spare_places,
    count_required_ranks,
    group_duplicates,
    interleave_needs,
    select_top_slots,
)

_NEARNESS = 14.0
_COVERAGE = 1.4
_CHOICE = -0.56
_OFFSET = -3.1

WEAK = 0.12
"""Below this, nothing fits: true of most queries without a suitable tool, and of few with one."""
UNSURE = 0.35
"""Between the two thresholds most first hits are right but many are not, so the answer says so."""
WEAK_BY_WORDS = 0.2
"""Threshold for search by words alone, where confidence is the first hit's word coverage."""


def estimate_confidence(nearness: float, coverage: float, count: int) -> float:
    """Return a confidence of 0 … 1.

    `nearness` is the best cosine among the first hits, `coverage` the share of the query's words in
    the first, `count` the number of documents searched.
    """
    evidence = (
        _NEARNESS * nearness + _COVERAGE * coverage + _CHOICE * math.log(max(count, 1)) + _OFFSET
    )
    return 1 / (1 + math.exp(-evidence))


NEED_SHARE = 0.5
"""Of a query with several needs, the share of the score for serving one of them best."""
NEED_POOL = 64
"""First ranks that are interleaved between needs; beyond, the total score decides."""
_MIN_ENCODED_SHARE = 0.95
"""Below this share of encoded documents, similarity is not reliable and words decide."""
_JUDGED_HITS = 3
"""First hits whose similarity decides whether anything fits."""
_NEAR_GROUPS = 5


@dataclass(frozen=True, slots=True)
class Placement:
    hit: Hit
    rank: int
    """1 is first; 0 means that it does not match."""
    total: int
    """Number of documents that match."""
    is_filtered: bool = False
    """Hidden by a filter or the caller's scope; `rank` is where it would be."""


@dataclass(frozen=True, eq=False)
class ScoredQuery:
    text: str
    table: DocumentTable
    postings: Postings
    vectors: Vectors
    term_lookups: Sequence[bm25f.TermLookup]
    lexical_scores: Scores
    similarities: Scores | None
    scores: Scores
    """Total scores; with several needs, including the share of the best-served one."""
    need_scores: Sequence[Scores]
    """Scores of each need alone, if there are several."""
    boosts: Mapping[int, Boost]
    searched_count: int
    """Number of documents that could be found."""
    encoded_count: int
    """Number of those that have a vector."""
    preferred_groups: Collection[str] = ()
    encoder: Encoder | None = None
    allowed: Mask | None = None

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
        method: RankingMethod = "both",
        preferred_groups: Collection[str] = (),
        scope: Mask | None = None,
    ) -> "ScoredQuery":
        """Score a query. `allowed` are the documents that may be found, `scope` those that exist
        for the searcher: others do not change how rare a word is."""
        count = table.count
        if scope is not None:
            postings = postings.restrict(scope)
            count = int(np.count_nonzero(scope))
        query = parse_query(text, postings)
        size = len(table.ids)
        lookups = bm25f.look_up_terms(postings, query.terms, count)

        def score_words(terms: Sequence[bm25f.TermLookup]) -> Scores:
            return bm25f.compute_scores(postings, terms, size, allowed)

        def score(text: str, words: Scores, similarities: Scores | None) -> Scores:
            encoded = vectors.encoded_slots
            return ranking.score(method, text, table, words, similarities, encoded, allowed)

        lexical = score_words(lookups)
        similarities = _compute_similarities(query.text, vectors, encoder) if query.terms else None
        scores = score(query.text, lexical, similarities)
        needs = [
            score(
                part,
                score_words(bm25f.look_up_terms(postings, clause, count)),
                _compute_similarities(part, vectors, encoder),
            )
            for part, clause in zip(query.clause_texts, query.clauses, strict=True)
        ]
        if needs and (best := float(scores.max(initial=0))):
            served = np.maximum.reduce(needs) * np.float32(NEED_SHARE * best)
            scores = scores * (1 - NEED_SHARE) + served
        searched = count if allowed is None else int(np.count_nonzero(allowed))
        encoded = vectors.encoded_slots if allowed is None else vectors.encoded_slots & allowed
        boosts_by_slot: dict[int, Boost] = {}
        for id_, boost in boosts.items():
            slot = table.slot_by_id.get(id_)
            if slot is not None and scores[slot] > 0:
                boosts_by_slot[slot] = boost
                scores[slot] += min(boost.amount, MAX_BOOST)
        if preferred_groups:
            preferred = table.build_group_mask(preferred_groups) & (scores > 0)
            scores[preferred] += np.float32(PREFERRED_GROUP_SCORE)
        scores += _score_exact_names(text, table, allowed)
        return cls(
            query.text,
            table,
            postings,
            vectors,
            lookups,
            lexical,
            similarities,
            scores,
            needs,
            boosts_by_slot,
            searched,
            int(np.count_nonzero(encoded)),
            preferred_groups,
            encoder,
            allowed,
        )

    @cached_property
    def first_slots(self) -> list[int]:
        """The best slots; with several needs, interleaved between them."""
        ranked = select_top_slots(self.scores, self.table.ids, NEED_POOL)
        # By words alone a clause is too unspecific: interleaving was measured to be worse.
        if self.need_scores and self.similarities is not None:
            return interleave_needs(ranked, self.scores, self.need_scores, NEED_SHARE)
        return ranked

    @cached_property
    def named_groups(self) -> frozenset[str]:
        typed = {squash(word) for word in extract_words(self.text)}
        return frozenset(
            group for word in typed for group in self.table.squashed_groups.get(word, ())
        )

    def select_leading(self, places: int) -> list[int]:
        first = self.first_slots
        if places <= len(first):
            return first[:places]
        taken = set(first)
        ranked = select_top_slots(self.scores, self.table.ids, places)
        return [*first, *(slot for slot in ranked if slot not in taken)]

    def build_hits(
        self, slots: Sequence[int], duplicates: Mapping[int, Sequence[int]]
    ) -> list[Hit]:
        members = [self._order_duplicates(slot, duplicates.get(slot, ())) for slot in slots]
        slots = [first for first, *_ in members]
        reasons = bm25f.explain_matches(self.postings, self.term_lookups, slots)
        return [
            Hit(
                self.table.ids[slot],
                float(self.scores[slot]),
                matches,
                bm25f.list_missing_words(self.term_lookups, matches),
                float(self.lexical_scores[slot]),
                float(self.similarities[slot])
                if self.similarities is not None and self.vectors.encoded_slots[slot]
                else None,
                self.boosts.get(slot),
                bool(self.scores[slot] >= SAME_NAME_SCORE),
                tuple(self.table.ids[duplicate] for duplicate in others),
            )
            for (slot, *others), matches in zip(members, reasons, strict=True)
        ]

    def _order_duplicates(self, slot: int, duplicates: Sequence[int]) -> list[int]:
        """Return the slots that share a place, those of preferred groups first."""
        groups = self.table.groups
        return sorted((slot, *duplicates), key=lambda it: groups[it] not in self.preferred_groups)

    def assess_fit(self, slots: Sequence[int]) -> tuple[float, float]:
        """Return the confidence that one of these slots fits, and the weak threshold."""
        if slots and self.scores[slots[0]] >= SAME_NAME_SCORE:
            return 1.0, WEAK
        coverage = 0.0
        if slots:
            coverage = bm25f.compute_coverage(self.postings, self.term_lookups, slots[0])
        are_most_encoded = self.encoded_count >= _MIN_ENCODED_SHARE * self.searched_count
        if self.similarities is None or not are_most_encoded:
            return coverage, WEAK_BY_WORDS
        nearness = max((float(self.similarities[slot]) for slot in slots), default=-1.0)
        return estimate_confidence(nearness, coverage, self.searched_count), WEAK

    def find_missing_action(self, slots: Sequence[int]) -> MissingAction | None:
        """Return what the product named here lacks, given the first hits."""
        if not slots or self.need_scores or self.scores[slots[0]] >= SAME_NAME_SCORE:
            return None
        return find_missing_action(
            self.text,
            self.table,
            self.postings,
            lambda text: _compute_similarities(text, self.vectors, self.encoder),
            self.allowed,
            slots,
        )


def build_ranking(query: ScoredQuery, limit: int, offset: int) -> Ranking:
    table = query.table
    wanted = max(1, offset + limit)
    rank_count = add_spare_places(wanted)
    while True:
        ranked = query.select_leading(rank_count)
        duplicates = group_duplicates(ranked, query.vectors, table, query.named_groups)
        places = list(duplicates)
        page = places[offset : offset + max(0, limit)]
        required = 2 * rank_count
        if len(places) >= wanted:
            required = count_required_ranks(ranked, duplicates, page)
        if len(ranked) < rank_count or required <= rank_count:
            break
        rank_count = required
    confidence, threshold = query.assess_fit(places[:_JUDGED_HITS])
    missing_action = query.find_missing_action(places[:_JUDGED_HITS])
    return Ranking(
        tuple(query.build_hits(page, duplicates)),
        int(np.count_nonzero(query.scores)),
        confidence,
        confidence < threshold or missing_action is not None,
        threshold <= confidence < UNSURE and threshold == WEAK,
        threshold,
        tuple(dict.fromkeys(table.groups[slot] for slot in ranked))[:_NEAR_GROUPS],
        query.similarities is not None,
        len(places) > offset + limit,
        missing_action,
    )


def find_placement(query: ScoredQuery, slot: int, *, is_filtered: bool = False) -> Placement:
    hit = query.build_hits([slot], {})[0]
    total = int(np.count_nonzero(query.scores))
    first = query.first_slots
    score = query.scores[slot]
    if slot in first:
        return Placement(hit, first.index(slot) + 1, total, is_filtered)
    before = int(np.count_nonzero(query.scores > score))
    ties = sum(
        query.table.ids[at] < query.table.ids[slot]
        for at in np.flatnonzero(query.scores == score).tolist()
    )
    return Placement(hit, before + ties + 1 if score > 0 else 0, total, is_filtered)


def _compute_similarities(text: str, vectors: Vectors, encoder: Encoder | None) -> Scores | None:
    """Return every slot's similarity to a text; None if vectors cannot be searched."""
    if encoder is None or encoder.problem or not vectors.encoded_slots.any():
        return None
    try:
        return vectors.compute_similarity(encoder.encode_query(text))
    except EncoderUnavailable:
        return None


def _score_exact_names(text: str, table: DocumentTable, allowed: Mask | None) -> Scores:
    typed = text.strip()
    scores = np.zeros(len(table.ids), dtype=np.float32)
    key = np.uint64(compute_name_key(typed))
    if not key:
        return scores
    same_name = np.flatnonzero(table.name_keys == key).tolist()
    for slot in _select_one_per_group(same_name, typed, table):
        scores[slot] = SAME_NAME_SCORE
    scores[table.id_keys == key] = SAME_ADDRESS_SCORE
    for slot in np.flatnonzero(scores).tolist():
        if typed in (table.names[slot], table.ids[slot]):
            scores[slot] += EXACT_SPELLING_SCORE
    return scores if allowed is None else scores * allowed


def _select_one_per_group(slots: Sequence[int], typed: str, table: DocumentTable) -> Sequence[int]:
    """Keep one slot per server: the spelling that was typed, else the first."""
    found: dict[str, int] = {}
    for slot in sorted(slots, key=lambda slot: (table.names[slot] != typed, table.ids[slot])):
        found.setdefault(table.groups[slot], slot)
    return list(found.values())
