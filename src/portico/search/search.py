"""One question to an index: every signal worked out once, as one number per slot, then places and reasons.

exact   is the query its name or address?         lexical   how much of the query's words has it? (BM25F)
dense   how near is its meaning?                   lift      what did use teach?
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from portico.search import fusion
from portico.search.dense.encoder import Encoder, EncoderUnavailable
from portico.search.dense.vectors import Vectors
from portico.search.document import Hit, Lift, Ranking
from portico.search.lexical import bm25f
from portico.search.lexical.bm25f import Scores
from portico.search.lexical.postings import Postings
from portico.search.lexical.query import read_query
from portico.search.lexical.tokens import squash, words
from portico.search.ranking import grouped, in_turn, leaders, ranks_to_know, with_spare
from portico.search.roster import Mask, Roster, name_key
from portico.search.verdict import UNSURE, WEAK, WEAK_BY_WORDS, confidence

_SAME_NAME, _SAME_ADDRESS = 2.0, 4.0
"""Everything else together stays below: whoever types a name gets the tool of that name, then the tools that say it."""
_LETTER_BY_LETTER = 4.0
"""`send_email` and `send-email` are the same name; the one that was typed comes first."""
_MOST_LIFT = 0.5
"""Whatever use taught, a name that was typed counts more."""
NEED_SHARE = 0.5
"""Of a query with several needs, the part that a document earns by serving one of them best."""
POOL = 64
"""First places that the needs of a query take turns for: beyond, everything together decides."""
_ENOUGH_ENCODED = 0.95
"""While fewer documents have their vectors, what is near says nothing of what is not: words judge."""
_JUDGED = 3
"""First hits whose nearness tells whether anything fits."""
_NEAR_GROUPS = 5


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one document stands for a query."""

    hit: Hit
    rank: int
    """1 is first. 0: it does not match at all."""
    of: int
    """How many match."""
    filtered: bool = False
    """A filter or the caller's scope hides it; `rank` is where it would stand."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A query with what every signal says of every slot."""

    text: str
    roster: Roster
    postings: Postings
    vectors: Vectors
    sought: Sequence[bm25f.Sought]
    lexical: Scores
    dense: Scores | None
    scores: Scores
    """Everything together; of a query with several needs, what speaks for its best-served one included."""
    needs: Sequence[Scores]
    """What each need alone would score, where there are several."""
    lifts: Mapping[int, Lift]
    searched: int
    """How many documents could be found …"""
    encoded: int
    """… and how many of them by meaning."""

    @classmethod
    def of(
        cls,
        text: str,
        roster: Roster,
        postings: Postings,
        vectors: Vectors,
        encoder: Encoder | None,
        allowed: Mask | None,
        lifts: Mapping[str, Lift],
    ) -> "Asked":
        """Ask all signals."""
        query = read_query(text, postings)
        size, count = len(roster.ids), roster.count
        sought = bm25f.seek(postings, query.wanted, count)

        def lexical(terms: Sequence[bm25f.Sought]) -> Scores:
            return bm25f.score(postings, terms, size, allowed)

        def fused(words: Scores, meaning: Scores | None) -> Scores:
            return fusion.fuse(words, meaning, None if meaning is None else vectors.known, allowed)

        by_words = lexical(sought)
        meaning = _likeness(query.text, vectors, encoder) if query.wanted else None
        scores = fused(by_words, meaning)
        needs = [
            fused(lexical(bm25f.seek(postings, clause, count)), _likeness(part, vectors, encoder))
            for part, clause in zip(query.clause_texts, query.clauses, strict=True)
        ]
        if needs and (best := float(scores.max(initial=0))):
            scores = scores * (1 - NEED_SHARE) + np.maximum.reduce(needs) * np.float32(NEED_SHARE * best)
        searched = count if allowed is None else int(np.count_nonzero(allowed))
        encoded = int(np.count_nonzero(vectors.known if allowed is None else vectors.known & allowed))
        found: dict[int, Lift] = {}
        for id_, lift in lifts.items():
            slot = roster.slots.get(id_)
            if slot is not None and scores[slot] > 0:
                found[slot] = lift
                scores[slot] += min(lift.amount, _MOST_LIFT)
        scores += _exact(text, roster, allowed)
        return cls(
            query.text, roster, postings, vectors, sought, by_words, meaning, scores, needs, found, searched, encoded
        )

    @cached_property
    def first(self) -> list[int]:
        """The best slots; of a query with several needs, so that each need has its turn."""
        ranked = leaders(self.scores, self.roster.ids, POOL)
        # By words alone a clause says too little of what it needs: taking turns was measured to lose.
        taking_turns = self.needs and self.dense is not None
        return in_turn(ranked, self.scores, self.needs, NEED_SHARE) if taking_turns else ranked

    @cached_property
    def named(self) -> frozenset[str]:
        """The groups that the query names."""
        typed = {squash(word) for word in words(self.text)}
        return frozenset(group for word in typed for group in self.roster.squashed_groups.get(word, ()))

    def leading(self, places: int) -> list[int]:
        """The slots on the first `places`."""
        first = self.first
        if places <= len(first):
            return first[:places]
        taken = set(first)
        return [*first, *(slot for slot in leaders(self.scores, self.roster.ids, places) if slot not in taken)]

    def hits(self, slots: Sequence[int], twins: Mapping[int, Sequence[int]]) -> list[Hit]:
        """The slots as hits, with reasons."""
        reasons = bm25f.explain(self.postings, self.sought, slots)
        return [
            Hit(
                self.roster.ids[slot],
                float(self.scores[slot]),
                why,
                bm25f.lacking(self.sought, why),
                float(self.lexical[slot]),
                float(self.dense[slot]) if self.dense is not None and self.vectors.known[slot] else None,
                self.lifts.get(slot),
                bool(self.scores[slot] >= _SAME_NAME),
                tuple(self.roster.ids[twin] for twin in twins.get(slot, ())),
            )
            for slot, why in zip(slots, reasons, strict=True)
        ]

    def verdict(self, first: Sequence[int]) -> tuple[float, float]:
        """How sure it is that one of the first slots serves the query, and below what nothing fits."""
        if first and self.scores[first[0]] >= _SAME_NAME:
            return 1.0, WEAK
        coverage = bm25f.coverage(self.postings, self.sought, first[0]) if first else 0.0
        if self.dense is None or self.encoded < _ENOUGH_ENCODED * self.searched:
            return coverage, WEAK_BY_WORDS
        nearness = max((float(self.dense[slot]) for slot in first), default=-1.0)
        return confidence(nearness, coverage, self.searched), WEAK


def rank(asked: Asked, limit: int, offset: int) -> Ranking:
    """The page of `limit` places after `offset`."""
    roster = asked.roster
    wanted = max(1, offset + limit)
    looked = with_spare(wanted)
    while True:
        ranked = asked.leading(looked)
        twins = grouped(ranked, asked.vectors, roster, asked.named)
        places = list(twins)
        page = places[offset : offset + max(0, limit)]
        enough = ranks_to_know(ranked, twins, page) if len(places) >= wanted else 2 * looked
        if len(ranked) < looked or enough <= looked:
            break
        looked = enough
    best, cut = asked.verdict(places[:_JUDGED])
    return Ranking(
        tuple(asked.hits(page, twins)),
        int(np.count_nonzero(asked.scores)),
        best,
        best < cut,
        cut <= best < UNSURE and cut == WEAK,
        cut,
        tuple(dict.fromkeys(roster.groups[slot] for slot in ranked))[:_NEAR_GROUPS],
        asked.dense is not None,
        len(places) > offset + limit,
    )


def place(asked: Asked, slot: int, *, filtered: bool = False) -> Placement:
    """Where a slot stands."""
    hit, of = asked.hits([slot], {})[0], int(np.count_nonzero(asked.scores))
    first, score = asked.first, asked.scores[slot]
    if slot in first:
        return Placement(hit, first.index(slot) + 1, of, filtered)
    before = int(np.count_nonzero(asked.scores > score))
    ties = sum(asked.roster.ids[at] < asked.roster.ids[slot] for at in np.flatnonzero(asked.scores == score).tolist())
    return Placement(hit, before + ties + 1 if score > 0 else 0, of, filtered)


def _likeness(text: str, vectors: Vectors, encoder: Encoder | None) -> Scores | None:
    """How near every slot's meaning is to a text's; None where meaning cannot be searched."""
    if encoder is None or encoder.problem or not vectors.known.any():
        return None
    try:
        return vectors.likeness(encoder.query(text))
    except EncoderUnavailable:
        return None


def _exact(text: str, roster: Roster, allowed: Mask | None) -> Scores:
    """What a document earns for having the query as its name or address."""
    typed = text.strip()
    earned = np.zeros(len(roster.ids), dtype=np.float32)
    key = np.uint64(name_key(typed))
    if not key:
        return earned
    for slot in _one_of_each_group(np.flatnonzero(roster.name_keys == key).tolist(), typed, roster):
        earned[slot] = _SAME_NAME
    earned[roster.id_keys == key] = _SAME_ADDRESS
    for slot in np.flatnonzero(earned).tolist():
        if typed in (roster.names[slot], roster.ids[slot]):
            earned[slot] += _LETTER_BY_LETTER
    return earned if allowed is None else earned * allowed


def _one_of_each_group(slots: Sequence[int], typed: str, roster: Roster) -> Sequence[int]:
    """Of the spellings of one name on one server the one that was typed, else the first: no server gets two places."""
    found: dict[str, int] = {}
    for slot in sorted(slots, key=lambda slot: (roster.names[slot] != typed, roster.ids[slot])):
        found.setdefault(roster.groups[slot], slot)
    return list(found.values())
