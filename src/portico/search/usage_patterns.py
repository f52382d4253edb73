"""Boosts from past use: they reorder tools that fit and never decide what fits.

A tool is boosted that was called after similar searches, that is called often, or that was used
together with this session's recent calls. All weights decay with time. Pure: a snapshot of what was
learnt in one scope; an empty one gives no boosts.
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
"""Upper bounds of each kind of boost on a score of 0 … 1."""
POPULARITY_REASON = "called often"
_POPULAR_CALLS = 100.0
"""Calls from which a tool has the full popularity boost."""
_MIN_WORD_OVERLAP = 0.4
_MIN_SIMILARITY = 0.5
"""Share of common words, and cosine, from which two queries are related (`create issue` and
`create invoice`: 0.33). Of MetaTool's queries, two pairs in three at this cosine are for the
same tool."""
_MIN_BOOST = 1e-4
"""Smaller boosts are ignored."""

TermHashes = frozenset[int]


def extract_query_terms(query: str) -> frozenset[str]:
    """Return the significant terms of a query, without filler words."""
    return _extract_terms(query[:MAX_TEXT])


@lru_cache(maxsize=256)
def _extract_terms(query: str) -> frozenset[str]:
    query_terms = parse_query(query, Postings.empty()).terms
    significant = frozenset(
        query_term.term for query_term in query_terms if query_term.weight >= 0.5
    )
    return significant or frozenset(query_term.term for query_term in query_terms)


@lru_cache(maxsize=8_192)
def _hash_term(term: str, key: bytes) -> int:
    return int.from_bytes(
        hashlib.blake2b(term.encode(errors="surrogatepass"), digest_size=8, key=key).digest()
    )


def hash_terms(terms: Iterable[str], key: bytes) -> TermHashes:
    """Hash terms to 64-bit numbers with a key, so that they can be compared but not guessed."""
    return frozenset(_hash_term(term, key) for term in terms)


@dataclass(frozen=True, slots=True)
class DecayedWeight:
    """A weight and the Unix time it was valid at."""

    weight: float
    timestamp: float


@dataclass(frozen=True, eq=False, slots=True)
class SearchFollowUp:
    """A tool that was called after a search."""

    terms: TermHashes
    tool: str
    decayed_weight: DecayedWeight
    vector: Vector | None = None
    """The query's vector, if it was computed."""


@dataclass(frozen=True, eq=False)
class UsagePatterns:
    """Usage learnt in one scope. `previous` is extended without being copied."""

    half_life_s: float
    follow_ups: tuple[SearchFollowUp, ...] = ()
    call_weights: Mapping[str, DecayedWeight] = field(default_factory=dict)
    pair_weights: Mapping[tuple[str, str], DecayedWeight] = field(default_factory=dict)
    previous: "UsagePatterns | None" = None

    def compute_boosts(
        self, terms: TermHashes, vector: Vector | None, recent: Sequence[str], now: float
    ) -> Mapping[str, Boost]:
        """Return the boosts for a query of these terms and vector after these `recent` calls."""
        followed: defaultdict[str, float] = defaultdict(float)
        used: defaultdict[str, float] = defaultdict(float)
        paired: defaultdict[str, float] = defaultdict(float)
        layer: UsagePatterns | None = self
        while layer is not None:
            layer._add_follow_ups(followed, terms, vector, now)
            for tool, weight in layer.call_weights.items():
                used[tool] += self._decay(weight, now)
            for tool in dict.fromkeys(recent):
                for other, weight in layer._neighbour_weights.get(tool, ()):
                    paired[other] += self._decay(weight, now)
            layer = layer.previous
        return {
            tool: boost
            for tool in (followed.keys() | used.keys() | paired.keys())
            if (
                boost := _build_boost(
                    followed.get(tool, 0.0), used.get(tool, 0.0), paired.get(tool, 0.0)
                )
            ).amount
            > _MIN_BOOST
        }

    def compute_pair_weights(self, now: float) -> Mapping[tuple[str, str], float]:
        """Return the decayed weight of each pair of tools used together, in alphabetical order."""
        found: defaultdict[tuple[str, str], float] = defaultdict(float)
        layer: UsagePatterns | None = self
        while layer is not None:
            for pair, weight in layer.pair_weights.items():
                found[pair] += self._decay(weight, now)
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
            follow_up = self.follow_ups[row]
            evidence[follow_up.tool] += float(strength[row]) * self._decay(
                follow_up.decayed_weight, now
            )

    def _compute_overlap(self, terms: TermHashes) -> NDArray[np.float64]:
        """Return the Jaccard overlap of terms with each remembered query."""
        shared = np.zeros(len(self.follow_ups))
        for term in terms:
            if (rows := self._rows_by_term.get(term)) is not None:
                shared[rows] += 1
        return shared / np.maximum(self._term_counts + len(terms) - shared, 1)

    def _compute_similarity(self, vector: Vector) -> NDArray[np.float64]:
        """Return the cosine to each remembered query; 0 without a vector of this width."""
        similarity = np.zeros(len(self.follow_ups))
        matrix, rows = self._vectors_by_width.get(len(vector), (None, None))
        query = vector.astype(np.float32)
        length = float(np.linalg.norm(query))
        if matrix is not None and length:
            # Not `@`: on a busy machine its threads cost more than they save.
            similarity[rows] = np.einsum("ij,j->i", matrix, query / np.float32(length))
        return similarity

    @cached_property
    def _rows_by_term(self) -> Mapping[int, NDArray[np.intp]]:
        found: defaultdict[int, list[int]] = defaultdict(list)
        for row, follow_up in enumerate(self.follow_ups):
            for term in follow_up.terms:
                found[term].append(row)
        return {term: np.array(rows, dtype=np.intp) for term, rows in found.items()}

    @cached_property
    def _term_counts(self) -> NDArray[np.float64]:
        return np.array([len(follow_up.terms) for follow_up in self.follow_ups], dtype=np.float64)

    @cached_property
    def _vectors_by_width(self) -> Mapping[int, tuple[NDArray[np.float32], NDArray[np.intp]]]:
        """Unit vectors and their rows by width; vectors of another encoder are not comparable."""
        by_width: defaultdict[int, list[tuple[int, Vector]]] = defaultdict(list)
        for row, follow_up in enumerate(self.follow_ups):
            if follow_up.vector is not None:
                by_width[len(follow_up.vector)].append((row, follow_up.vector))
        found: dict[int, tuple[NDArray[np.float32], NDArray[np.intp]]] = {}
        for size, entries in by_width.items():
            matrix = np.stack([vector for _, vector in entries]).astype(np.float32)
            norms = np.linalg.norm(matrix, axis=1, keepdims=True).astype(np.float32)
            rows = np.array([row for row, _ in entries], dtype=np.intp)
            found[size] = (matrix / np.maximum(norms, np.float32(1)), rows)
        return found

    @cached_property
    def _neighbour_weights(self) -> Mapping[str, tuple[tuple[str, DecayedWeight], ...]]:
        found: defaultdict[str, list[tuple[str, DecayedWeight]]] = defaultdict(list)
        for (first, second), weight in self.pair_weights.items():
            found[first].append((second, weight))
            found[second].append((first, weight))
        return {tool: tuple(others) for tool, others in found.items()}

    def warm_up(self) -> "UsagePatterns":
        """Compute all cached lookups, so that no search has to."""
        _ = self._rows_by_term, self._term_counts, self._vectors_by_width, self._neighbour_weights
        return self


def _scale_above(threshold: float, alike: NDArray[np.float64]) -> NDArray[np.float64]:
    # Steeper than linear: a weak similarity displaces the right tool as often as it finds it.
    return np.clip((alike - threshold) / (1 - threshold), 0, 1) ** 1.5


def _build_boost(follow_up_evidence: float, call_evidence: float, pair_evidence: float) -> Boost:
    """Convert evidence to a boost; the first call counts most, and each part is bounded."""
    # One call does not make a tool popular; it would only displace others.
    popularity = MAX_POPULARITY_BOOST * min(
        1.0, math.log(max(1.0, call_evidence)) / math.log(_POPULAR_CALLS)
    )
    parts = (
        (
            MAX_FOLLOW_UP_BOOST * follow_up_evidence / (follow_up_evidence + 1),
            "called after searches like this",
        ),
        (popularity, POPULARITY_REASON),
        (
            MAX_PAIR_BOOST * pair_evidence / (pair_evidence + 1),
            "used together with what was just called",
        ),
    )
    reasons = tuple(f"{reason} (+{amount:.3f})" for amount, reason in parts if amount > _MIN_BOOST)
    return Boost(sum(amount for amount, _ in parts), reasons, popularity)
