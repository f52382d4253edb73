"""Boosts from past use, and the counts of sessions that they come from. Pure.

A tool is boosted that was called after similar searches, that is called often, or that was used
together with this session's recent calls. All weights decay with time. Pure: a snapshot of what was
learnt in one scope; an empty one gives no boosts.

Boosts reorder tools that fit and never decide what fits.
"""

import hashlib
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portico.search.dense.encoder import Vector
from portico.search.document import Boost
from portico.search.lexical.postings import Postings
from portico.search.lexical.tokens import MAX_TEXT, parse_query
from portico.storage.rows import FollowedRow, LearnedRows, PairRow, UsedRow

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
_MIN_TERM_WEIGHT = 0.5
"""Filler words weigh less."""
_MIN_BOOST = 1e-4
"""Smaller boosts are ignored."""

TermHashes = frozenset[int]
Evidence = defaultdict[str, float]
"""Weight of what speaks for each tool."""


WINDOW_S = 15 * 60.0
"""Seconds after a search for which a call is attributed to it."""
_MAX_SEARCHES = 12
_MAX_RECENT_CALLS = 5
_MAX_COUNTS = 2_000
"""Maximum entries per kind: more than arrives between two writes, short of abuse."""
_MAX_RESTORED = 500
"""Maximum entries per kind that are restored after a failed write: a disk may be full for long."""
LONG_QUERY_CHARS = 200
"""Length of a query above which it is read, encoded and ranked in a thread: up to 8 ms each."""
Weight = tuple[float, float]
"""A weight, and the Unix time at which it was valid."""


def extract_query_terms(query: str) -> frozenset[str]:
    """Return the significant terms of a query, without filler words."""
    return _extract_terms(query[:MAX_TEXT])


@lru_cache(maxsize=256)
def _extract_terms(query: str) -> frozenset[str]:
    found = parse_query(query, Postings.empty()).terms
    significant = frozenset(it.term for it in found if it.weight >= _MIN_TERM_WEIGHT)
    return significant or frozenset(it.term for it in found)


@lru_cache(maxsize=8_192)
def _hash_term(term: str, key: bytes) -> int:
    return int.from_bytes(
        hashlib.blake2b(term.encode(errors="surrogatepass"), digest_size=8, key=key).digest()
    )


def pack_terms(terms: TermHashes) -> bytes:
    """Return hashes as `FollowedRow.terms` has them."""
    return np.array(sorted(terms), dtype="<u8").tobytes()


def hash_terms(terms: Iterable[str], key: bytes) -> TermHashes:
    """Hash terms to 64-bit numbers with a key, so that they can be compared but not guessed."""
    return frozenset(_hash_term(term, key) for term in terms)


@dataclass(frozen=True, eq=False)
class UsagePatterns:
    """Usage learnt in one scope. `previous` is extended without being copied."""

    half_life_s: float
    rows: LearnedRows = field(default_factory=LearnedRows)
    previous: "UsagePatterns | None" = None

    def compute_boosts(
        self, terms: TermHashes, vector: Vector | None, recent: Sequence[str], now: float
    ) -> Mapping[str, Boost]:
        """Return the boosts for a query of these terms and vector after these `recent` calls."""
        followed: Evidence = defaultdict(float)
        used: Evidence = defaultdict(float)
        paired: Evidence = defaultdict(float)
        for layer in self._layers:
            layer._add_follow_ups(followed, terms, vector, now)
            for row in layer.rows.used:
                used[row.tool] += self._decay(row, now)
            for tool in dict.fromkeys(recent):
                for other, row in layer._neighbours.get(tool, ()):
                    paired[other] += self._decay(row, now)
        boosts = {
            tool: _build_boost(followed[tool], used[tool], paired[tool])
            for tool in followed.keys() | used.keys() | paired.keys()
        }
        return {tool: boost for tool, boost in boosts.items() if boost.amount > _MIN_BOOST}

    def list_used_groups(self) -> frozenset[str]:
        """Return the groups (servers) of the tools that were called in this scope."""
        return frozenset().union(*(layer._used_groups for layer in self._layers))

    @property
    def _layers(self) -> Iterator["UsagePatterns"]:
        layer: UsagePatterns | None = self
        while layer is not None:
            yield layer
            layer = layer.previous

    def _decay(self, row: FollowedRow | PairRow | UsedRow, now: float) -> float:
        return row.weight * 0.5 ** (max(0.0, now - row.at) / self.half_life_s)

    def _add_follow_ups(
        self, evidence: Evidence, terms: TermHashes, vector: Vector | None, now: float
    ) -> None:
        if not self.rows.followed:
            return
        strength = _scale_above(_MIN_WORD_OVERLAP, self._compute_overlap(terms))
        if vector is not None:
            similarity = self._compute_similarity(vector)
            strength = np.maximum(strength, _scale_above(_MIN_SIMILARITY, similarity))
        for row in np.flatnonzero(strength).tolist():
            known = self.rows.followed[row]
            evidence[known.tool] += float(strength[row]) * self._decay(known, now)

    def _compute_overlap(self, terms: TermHashes) -> NDArray[np.float64]:
        """Return the Jaccard overlap of terms with each remembered query."""
        shared = np.zeros(len(self.rows.followed))
        for term in terms:
            if (rows := self._rows_by_term.get(term)) is not None:
                shared[rows] += 1
        return shared / np.maximum(self._term_counts + len(terms) - shared, 1)

    def _compute_similarity(self, vector: Vector) -> NDArray[np.float64]:
        """Return the cosine to each remembered query; 0 without a vector of this width."""
        similarity = np.zeros(len(self.rows.followed))
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
        for row, followed in enumerate(self.rows.followed):
            for term in np.frombuffer(followed.terms, dtype="<u8").tolist():
                found[term].append(row)
        return {term: np.array(rows, dtype=np.intp) for term, rows in found.items()}

    @cached_property
    def _term_counts(self) -> NDArray[np.float64]:
        return np.array([len(row.terms) // 8 for row in self.rows.followed], dtype=np.float64)

    @cached_property
    def _vectors_by_width(self) -> Mapping[int, tuple[NDArray[np.float32], NDArray[np.intp]]]:
        """Unit vectors and their rows by width; vectors of another encoder are not comparable."""
        by_width: defaultdict[int, list[tuple[int, Vector]]] = defaultdict(list)
        for row, followed in enumerate(self.rows.followed):
            if followed.vector:
                vector = np.frombuffer(followed.vector, dtype=np.int8)
                by_width[len(vector)].append((row, vector))
        found: dict[int, tuple[NDArray[np.float32], NDArray[np.intp]]] = {}
        for size, entries in by_width.items():
            matrix = np.stack([vector for _, vector in entries]).astype(np.float32)
            norms = np.linalg.norm(matrix, axis=1, keepdims=True).astype(np.float32)
            rows = np.array([row for row, _ in entries], dtype=np.intp)
            found[size] = (matrix / np.maximum(norms, np.float32(1)), rows)
        return found

    @cached_property
    def _used_groups(self) -> frozenset[str]:
        return frozenset(row.tool.partition(".")[0] for row in self.rows.used)

    @cached_property
    def _neighbours(self) -> Mapping[str, Sequence[tuple[str, PairRow]]]:
        found: defaultdict[str, list[tuple[str, PairRow]]] = defaultdict(list)
        for row in self.rows.together:
            found[row.one].append((row.other, row))
            found[row.other].append((row.one, row))
        return dict(found)

    def warm_up(self) -> "UsagePatterns":
        """Compute all cached lookups, so that no search has to."""
        _ = self._rows_by_term, self._term_counts, self._vectors_by_width, self._neighbours
        _ = self._used_groups
        return self


def _scale_above(threshold: float, alike: NDArray[np.float64]) -> NDArray[np.float64]:
    # Steeper than linear: a weak similarity displaces the right tool as often as it finds it.
    return np.clip((alike - threshold) / (1 - threshold), 0, 1) ** 1.5


def _build_boost(followed: float, used: float, paired: float) -> Boost:
    """Convert evidence to a boost; the first call counts most, and each part is bounded."""
    # One call does not make a tool popular; it would only displace others.
    frequency = min(1.0, math.log(max(1.0, used)) / math.log(_POPULAR_CALLS))
    popularity = MAX_POPULARITY_BOOST * frequency
    parts = (
        (MAX_FOLLOW_UP_BOOST * followed / (followed + 1), "called after searches like this"),
        (popularity, POPULARITY_REASON),
        (MAX_PAIR_BOOST * paired / (paired + 1), "used together with what was just called"),
    )
    reasons = tuple(f"{reason} (+{amount:.3f})" for amount, reason in parts if amount > _MIN_BOOST)
    return Boost(sum(amount for amount, _ in parts), reasons, popularity)


@dataclass(frozen=True, eq=False)
class SearchRecord:
    terms: frozenset[str]
    shown_tools: frozenset[str]
    at: float
    vector: Vector | None = None
    called_tools: set[str] = field(default_factory=set[str])
    """Shown tools whose call was attributed to this search; each counts once."""


class SessionActivity:
    def __init__(self) -> None:
        self._searches: deque[SearchRecord] = deque(maxlen=_MAX_SEARCHES)
        self._calls: deque[tuple[str, float]] = deque(maxlen=_MAX_RECENT_CALLS)

    def add_search(self, search: SearchRecord) -> None:
        self._searches.append(search)

    def add_call(self, tool: str, at: float) -> tuple[SearchRecord | None, Sequence[str]]:
        """Record a successful call; return the search it followed and the tools it pairs with.

        That search is the latest that showed the tool, and is returned only for the first call that
        follows it.
        """
        followed = None
        for search in reversed(self._searches):
            if tool in search.shown_tools and abs(at - search.at) <= WINDOW_S:
                if tool not in search.called_tools:
                    search.called_tools.add(tool)
                    followed = search
                break
        recent = self.list_recent_tools(at)
        # A recent tool was already paired with each of the others, at its own call or at theirs.
        paired = [] if tool in recent else recent
        others = [entry for entry in self._calls if entry[0] != tool]
        self._calls = deque([*others, (tool, at)], maxlen=_MAX_RECENT_CALLS)
        return followed, paired

    def list_recent_tools(self, at: float) -> list[str]:
        """Return the tools called within the window, the latest last."""
        # In both directions: a clock that was set back must not extend the window.
        return [tool for tool, called_at in self._calls if abs(at - called_at) <= WINDOW_S]


class PendingCounts:
    """Unwritten counts of one scope. Repetitions are summed, so a busy scope is no larger."""

    def __init__(self) -> None:
        self._followed: dict[tuple[frozenset[str], str], Weight] = {}
        self._pairs: dict[tuple[str, str], Weight] = {}
        self._calls: dict[str, Weight] = {}
        self._vectors: dict[frozenset[str], Vector] = {}

    @property
    def is_empty(self) -> bool:
        return not self._calls

    @property
    def call_count(self) -> float:
        return sum(weight for weight, _ in self._calls.values())

    def add_call(
        self, tool: str, followed: SearchRecord | None, paired: Sequence[str], at: float
    ) -> None:
        once = (1.0, at)
        _add(self._calls, tool, once, _MAX_COUNTS)
        for other in paired:
            _add(self._pairs, (min(tool, other), max(tool, other)), once, _MAX_COUNTS)
        if followed is not None:
            is_added = _add(self._followed, (followed.terms, tool), once, _MAX_COUNTS)
            if is_added and followed.vector is not None:
                self._vectors[followed.terms] = followed.vector

    def restore(self, unwritten: "PendingCounts") -> None:
        """Merge counts that could not be written, within limits."""
        for mine, theirs in (
            (self._followed, unwritten._followed),
            (self._pairs, unwritten._pairs),
            (self._calls, unwritten._calls),
        ):
            for key, weight in theirs.items():
                _add(mine, key, weight, _MAX_RESTORED)
        queries = {query for query, _ in self._followed}
        for query in queries & unwritten._vectors.keys():
            self._vectors.setdefault(query, unwritten._vectors[query])

    def to_rows(self, key: bytes) -> LearnedRows:
        """Return rows to store; query words are hashed from here on."""
        vectors = {query: vector.tobytes() for query, vector in self._vectors.items()}
        followed = (
            FollowedRow(pack_terms(hash_terms(query, key)), tool, *weight, vectors.get(query))
            for (query, tool), weight in self._followed.items()
        )
        return LearnedRows(
            tuple(followed),
            tuple(PairRow(*pair, *weight) for pair, weight in self._pairs.items()),
            tuple(UsedRow(tool, *weight) for tool, weight in self._calls.items()),
        )


def _add(counts: dict[Any, Weight], key: Any, added: Weight, limit: int) -> bool:
    if key not in counts and len(counts) >= limit:
        return False
    weight, at = counts.get(key, (0.0, 0.0))
    counts[key] = (weight + added[0], max(at, added[1]))
    return True
