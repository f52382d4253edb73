"""What use has taught, as small lifts: a nudge among tools that fit, never a verdict on what fits.

A tool is lifted that was called after searches like this one, that is called often, or that was
used together with what this session has just called. Everything fades with time. Pure: a snapshot
of what was learnt in one scope answers, and one that has learnt nothing lifts nothing.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from portico.search.dense.encoder import Vector
from portico.search.document import Boost
from portico.search.lexical.postings import Postings
from portico.search.lexical.query import MAX_TEXT, parse_query

MAX_FOLLOW_UP_BOOST = 0.15
MAX_POPULARITY_BOOST = 0.03
MAX_PAIR_BOOST = 0.03
"""The most that each kind of habit adds to a score of 0 … 1: a tool that fits half as well as
another stays behind."""
POPULARITY_REASON = "called often"
_POPULAR_CALLS = 100.0
"""Calls after which a tool is as popular as any."""
_MIN_WORD_OVERLAP = 0.4
_MIN_SIMILARITY = 0.5
"""The share of words in common, and the cosine, from which two queries have something to say about
each other (`create issue` and `create invoice`: 0.33). Of MetaTool's queries, two pairs in three at
this cosine are for the same tool."""
_MIN_BOOST = 1e-4
"""Smaller lifts are not worth a reason."""

TermHashes = frozenset[int]


def extract_query_terms(query: str) -> frozenset[str]:
    """The terms that tell one query from another: those of a search, without the words of asking."""
    return _extract_terms(query[:MAX_TEXT])


@lru_cache(maxsize=256)
def _extract_terms(query: str) -> frozenset[str]:
    wanted = parse_query(query, Postings.empty()).terms
    telling = frozenset(one.term for one in wanted if one.weight >= 0.5)
    return telling or frozenset(one.term for one in wanted)


@lru_cache(maxsize=8_192)
def _hash_term(term: str, key: bytes) -> int:
    return int.from_bytes(
        hashlib.blake2b(term.encode(errors="surrogatepass"), digest_size=8, key=key).digest()
    )


def hash_terms(terms: Iterable[str], key: bytes) -> TermHashes:
    """Terms as 64-bit numbers: as good for comparing, and nothing that can be guessed at without
    the key."""
    return frozenset(_hash_term(term, key) for term in terms)


@dataclass(frozen=True, slots=True)
class DecayedWeight:
    """How much of something there was, at a moment (seconds since 1970)."""

    weight: float
    timestamp: float


@dataclass(frozen=True, eq=False, slots=True)
class SearchFollowUp:
    """A tool that was called after a search."""

    terms: TermHashes
    tool: str
    decayed_weight: DecayedWeight
    vector: Vector | None = None
    """What the query meant, where that was worked out."""


@dataclass(frozen=True, eq=False)
class UsagePatterns:
    """What was learnt in one scope. `earlier` is what this adds to, so that one more call copies
    nothing."""

    half_life_s: float
    follow_ups: tuple[SearchFollowUp, ...] = ()
    call_weights: Mapping[str, DecayedWeight] = field(default_factory=dict)
    pair_weights: Mapping[tuple[str, str], DecayedWeight] = field(default_factory=dict)
    previous: "UsagePatterns | None" = None

    def compute_boosts(
        self, terms: TermHashes, vector: Vector | None, recent: Sequence[str], now: float
    ) -> Mapping[str, Boost]:
        """What each tool earns for a query of these terms and vector after these `recent` calls;
        others nothing."""
        followed: defaultdict[str, float] = defaultdict(float)
        used: defaultdict[str, float] = defaultdict(float)
        beside: defaultdict[str, float] = defaultdict(float)
        layer: UsagePatterns | None = self
        while layer is not None:
            layer._add_follow_ups(followed, terms, vector, now)
            for tool, worn in layer.call_weights.items():
                used[tool] += self._decay(worn, now)
            for tool in dict.fromkeys(recent):
                for other, worn in layer._neighbour_weights.get(tool, ()):
                    beside[other] += self._decay(worn, now)
            layer = layer.previous
        return {
            tool: lift
            for tool in (followed.keys() | used.keys() | beside.keys())
            if (
                lift := _build_boost(
                    followed.get(tool, 0.0), used.get(tool, 0.0), beside.get(tool, 0.0)
                )
            ).amount
            > _MIN_BOOST
        }

    def compute_pair_weights(self, now: float) -> Mapping[tuple[str, str], float]:
        """How often tools were used together, each pair in the order of the alphabet; long ago
        counts less."""
        found: defaultdict[tuple[str, str], float] = defaultdict(float)
        layer: UsagePatterns | None = self
        while layer is not None:
            for pair, worn in layer.pair_weights.items():
                found[pair] += self._decay(worn, now)
            layer = layer.previous
        return found

    def _decay(self, decayed_weight: DecayedWeight, now: float) -> float:
        return decayed_weight.weight * 0.5 ** (
            max(0.0, now - decayed_weight.timestamp) / self.half_life_s
        )

    def _add_follow_ups(
        self,
        evidence: defaultdict[str, float],
        terms: TermHashes,
        vector: Vector | None,
        now: float,
    ) -> None:
        if not self.follow_ups:
            return
        strength = _scale_above(_MIN_WORD_OVERLAP, self._compute_overlap(terms))
        if vector is not None:
            strength = np.maximum(
                strength, _scale_above(_MIN_SIMILARITY, self._compute_similarity(vector))
            )
        for row in np.flatnonzero(strength).tolist():
            one = self.follow_ups[row]
            evidence[one.tool] += float(strength[row]) * self._decay(one.decayed_weight, now)

    def _compute_overlap(self, terms: TermHashes) -> NDArray[np.float64]:
        """The share of terms that each remembered query and this one have in common."""
        shared = np.zeros(len(self.follow_ups))
        for term in terms:
            if (rows := self._rows_by_term.get(term)) is not None:
                shared[rows] += 1
        return shared / np.maximum(self._term_counts + len(terms) - shared, 1)

    def _compute_similarity(self, vector: Vector) -> NDArray[np.float64]:
        """How near in meaning each remembered query is, as a cosine; 0 where it has no vector of
        this kind."""
        near = np.zeros(len(self.follow_ups))
        matrix, rows = self._vectors_by_width.get(len(vector), (None, None))
        asked = vector.astype(np.float32)
        length = float(np.linalg.norm(asked))
        if matrix is not None and length:
            # Not by `@`: its threads wait for one another on a busy machine, and cost more than
            # they save.
            near[rows] = np.einsum("ij,j->i", matrix, asked / np.float32(length))
        return near

    @cached_property
    def _rows_by_term(self) -> Mapping[int, NDArray[np.intp]]:
        found: defaultdict[int, list[int]] = defaultdict(list)
        for row, one in enumerate(self.follow_ups):
            for term in one.terms:
                found[term].append(row)
        return {term: np.array(rows, dtype=np.intp) for term, rows in found.items()}

    @cached_property
    def _term_counts(self) -> NDArray[np.float64]:
        return np.array([len(one.terms) for one in self.follow_ups], dtype=np.float64)

    @cached_property
    def _vectors_by_width(self) -> Mapping[int, tuple[NDArray[np.float32], NDArray[np.intp]]]:
        """Unit vectors and their rows by length: another encoder's vectors have nothing to say."""
        alike: defaultdict[int, list[tuple[int, Vector]]] = defaultdict(list)
        for row, one in enumerate(self.follow_ups):
            if one.vector is not None:
                alike[len(one.vector)].append((row, one.vector))
        found: dict[int, tuple[NDArray[np.float32], NDArray[np.intp]]] = {}
        for size, those in alike.items():
            matrix = np.stack([vector for _, vector in those]).astype(np.float32)
            norms = np.linalg.norm(matrix, axis=1, keepdims=True).astype(np.float32)
            rows = np.array([row for row, _ in those], dtype=np.intp)
            found[size] = (matrix / np.maximum(norms, np.float32(1)), rows)
        return found

    @cached_property
    def _neighbour_weights(self) -> Mapping[str, tuple[tuple[str, DecayedWeight], ...]]:
        found: defaultdict[str, list[tuple[str, DecayedWeight]]] = defaultdict(list)
        for (one, other), worn in self.pair_weights.items():
            found[one].append((other, worn))
            found[other].append((one, worn))
        return {tool: tuple(others) for tool, others in found.items()}

    def warm_up(self) -> "UsagePatterns":
        """The same with its lookups made, so that no search pays for them."""
        _ = self._rows_by_term, self._term_counts, self._vectors_by_width, self._neighbour_weights
        return self


def _scale_above(threshold: float, alike: NDArray[np.float64]) -> NDArray[np.float64]:
    # More than in proportion: what is only somewhat alike pushes aside the right tool as often as
    # it finds it.
    return np.clip((alike - threshold) / (1 - threshold), 0, 1) ** 1.5


def _build_boost(follow_up_evidence: float, call_evidence: float, pair_evidence: float) -> Boost:
    """Evidence as a lift: the first call says most, and no amount of it exceeds the bound."""
    # One call makes nothing popular: it would only push aside what was never needed before.
    popular = MAX_POPULARITY_BOOST * min(
        1.0, math.log(max(1.0, call_evidence)) / math.log(_POPULAR_CALLS)
    )
    parts = (
        (
            MAX_FOLLOW_UP_BOOST * follow_up_evidence / (follow_up_evidence + 1),
            "called after searches like this",
        ),
        (popular, POPULARITY_REASON),
        (
            MAX_PAIR_BOOST * pair_evidence / (pair_evidence + 1),
            "used together with what was just called",
        ),
    )
    told = tuple(f"{reason} (+{amount:.3f})" for amount, reason in parts if amount > _MIN_BOOST)
    return Boost(sum(amount for amount, _ in parts), told, popular)
