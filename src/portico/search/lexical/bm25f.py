"""BM25F: builds postings, and scores how well each document matches the words of a query.

Pure arithmetic on postings. Scores are shares of a perfect match, so they can be compared between
queries and added to other signals of the same kind.
"""

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from portico.search.document import MatchReason, SearchDocument
from portico.search.document_table import Mask
from portico.search.lexical.postings import MAX_STRENGTH, PostingEntries, Postings
from portico.search.lexical.tokens import (
    ALL_CONCEPTS,
    CONCEPTS,
    QueryTerm,
    extract_word_terms,
    extract_words,
)

SATURATION = 1.2
"""k1: how soon a repeated word stops counting."""
LENGTH_NORMALISATION = 0.6
"""b: how much a long field dilutes each of its words."""

_MAX_TEXT = 40_000
_MAX_SERVER_TEXT = 240
"""A server's text is repeated in each of its tools; more than this would double the index."""
_MAX_SENTENCE = 320
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？\n]")


@dataclass(frozen=True, slots=True)
class IndexField:
    """One field: its name in reasons, its weight, and its typical length in terms."""

    name: str
    weight: float
    typical_length: float


FIELDS = (
    IndexField("name", 3.0, 4),
    IndexField("title", 1.0, 3),
    IndexField("server", 2.0, 2),
    IndexField("server_text", 0.2, 20),
    IndexField("description", 0.7, 30),
    # The first sentence again: it says what a tool does, the rest mostly how.
    IndexField("description", 0.6, 9),
    IndexField("parameters", 0.6, 8),
    IndexField("parameter_text", 0.3, 30),
    IndexField("enums", 0.3, 4),
    IndexField("tags", 1.0, 2),
    IndexField("category", 0.5, 2),
)


def extract_texts(document: SearchDocument) -> tuple[str, ...]:
    """Return the text of each of `FIELDS`, in that order."""
    description = document.description[:_MAX_TEXT]
    return (
        document.name,
        document.title,
        document.server,
        document.server_text[:_MAX_SERVER_TEXT],
        description,
        extract_first_sentence(description),
        " ".join(document.parameters)[:_MAX_TEXT],
        document.parameter_text[:_MAX_TEXT],
        " ".join(document.enums)[:_MAX_TEXT],
        " ".join(document.tags),
        document.category,
    )


def extract_first_sentence(text: str) -> str:
    """Return the first sentence, cut at `_MAX_SENTENCE` characters."""
    text = text.lstrip()
    end = _SENTENCE_END.search(text, 0, _MAX_SENTENCE)
    return text[: end.end() if end else _MAX_SENTENCE]


Scores = NDArray[np.float32]

_MIN_TELLING_WEIGHT = 0.5
"""Weight from which a missing word matters; filler words weigh less."""


@dataclass(frozen=True, slots=True)
class TermLookup:
    query_term: QueryTerm
    postings_range: slice
    weight: float


def look_up_terms(postings: Postings, terms: Sequence[QueryTerm], count: int) -> list[TermLookup]:
    """Look up every term, including unknown ones, which count against completeness."""
    found: list[TermLookup] = []
    for item in terms:
        place = postings.find_list(item.term)
        weight = item.weight * compute_idf(count, postings.count_documents(item.term))
        found.append(TermLookup(item, place, weight))
    return found


def compute_idf(count: int, matching_count: int) -> float:
    """Return the inverse document frequency of a term in `matching_count` documents."""
    return math.log1p((count - matching_count + 0.5) / (matching_count + 0.5))


def compute_scores(
    postings: Postings, lookups: Sequence[TermLookup], size: int, allowed: Mask | None
) -> Scores:
    """Return each slot's share of a perfect match, 0 … 1; 0 where it is not allowed."""
    scores = np.zeros(size, dtype=np.float32)
    unit = _compute_perfect_score(lookups) * MAX_STRENGTH
    for item in lookups:
        place = item.postings_range
        if place.stop > place.start:
            # A slot occurs at most once in a list, so plain indexed addition is correct.
            share = np.float32(item.weight / unit)
            scores[postings.slots[place]] += postings.strengths[place] * share
    if allowed is not None:
        scores[~allowed] = 0
    return scores


def compute_coverage(postings: Postings, lookups: Sequence[TermLookup], slot: int) -> float:
    """Return the share of the query's words that a document has, weighted by rarity."""
    needed = [item for item in lookups if not item.query_term.is_bonus]
    total = sum(item.weight for item in needed)
    matched = sum(
        item.weight
        for item in needed
        if _find_positions(postings, item.postings_range, (slot,))[0] >= 0
    )
    return matched / total if total else 0.0


def explain_matches(
    postings: Postings, lookups: Sequence[TermLookup], slots: Sequence[int]
) -> list[tuple[MatchReason, ...]]:
    """Return for each slot the query words found, their fields and scores, highest first."""
    total = _compute_perfect_score(lookups)
    found: list[dict[str, MatchReason]] = [{} for _ in slots]
    for item in lookups:
        wanted = item.query_term
        for words, position in zip(
            found, _find_positions(postings, item.postings_range, slots), strict=True
        ):
            if position >= 0:
                gain = item.weight * int(postings.strengths[position]) / MAX_STRENGTH / total
                before = words.get(wanted.word, MatchReason(wanted.word, (), 0.0, True))
                fields = (*before.fields, *_decode_field_names(int(postings.fields[position])))
                words[wanted.word] = MatchReason(
                    wanted.word,
                    tuple(dict.fromkeys(fields)),
                    before.score + gain,
                    before.is_synonym and wanted.is_synonym,
                    before.correction or wanted.correction,
                )
    return [
        tuple(sorted(words.values(), key=lambda reason: (-reason.score, reason.word)))
        for words in found
    ]


def list_missing_words(
    lookups: Sequence[TermLookup], reasons: Sequence[MatchReason]
) -> tuple[str, ...]:
    """Return the significant query words that a document with these reasons lacks."""
    matched = {reason.word for reason in reasons}
    significant = (
        lookup.query_term.word
        for lookup in lookups
        if not lookup.query_term.is_bonus and lookup.query_term.weight >= _MIN_TELLING_WEIGHT
    )
    return tuple(word for word in dict.fromkeys(significant) if word not in matched)


def _compute_perfect_score(lookups: Sequence[TermLookup]) -> float:
    return sum(item.weight for item in lookups) or 1.0


def _find_positions(postings: Postings, postings_range: slice, slots: Sequence[int]) -> list[int]:
    """Return the position of each slot in a list, -1 where it is missing."""
    listed = postings.slots[postings_range]
    if not len(listed):
        return [-1] * len(slots)
    positions = np.minimum(
        np.searchsorted(listed, np.asarray(slots, dtype=np.uint32)), len(listed) - 1
    )
    return np.where(listed[positions] == slots, positions + postings_range.start, -1).tolist()


def _decode_field_names(fields: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.name for at, field in enumerate(FIELDS) if fields >> at & 1))


IntArray = NDArray[np.int64]

_BATCH = 2_048
"""Documents per batch: bounds the working memory of a large build."""
_BATCH_TERMS = 100_000
"""Terms that end a batch: arithmetic on millions holds the GIL for 100 ms."""

_TEXT_CACHE_SIZE = 256
_NUMBER_BYTES = array("q").itemsize

_WEIGHTS = np.array([field.weight for field in FIELDS])
_TYPICAL = np.array([field.typical_length for field in FIELDS])
_BITS = np.array([1 << at for at in range(len(FIELDS))], dtype=np.uint16)


def build_entries(
    documents: Sequence[SearchDocument], slots: Sequence[int], vocabulary: dict[str, int]
) -> PostingEntries:
    """Build the postings of `documents` in their slots; new terms are added to `vocabulary`."""
    term_numbers = _WordTermNumbers(vocabulary)
    pending = iter(documents)
    batches: list[PostingRows] = []
    at = 0
    while not batches or at < len(documents):
        tokens, counts = term_numbers.number_terms(pending)
        end = at + len(counts) // len(FIELDS)
        into = np.asarray(slots[at:end], dtype=np.uint32)
        batches.append(_build_batch(tokens, counts, into, vocabulary))
        at = end
    rows = [np.concatenate(column) for column in zip(*batches, strict=True)]
    order = np.lexsort((rows[1], rows[0]))
    terms, at, strengths, fields = (row[order] for row in rows)
    return PostingEntries(terms, at, strengths, fields)


PostingRows = tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint16], NDArray[np.uint16]]


def _build_batch(
    tokens: IntArray, counts: IntArray, slots: NDArray[np.uint32], vocabulary: dict[str, int]
) -> PostingRows:
    cells = np.repeat(np.arange(len(counts)), counts)
    weights = _compute_weights(tokens, cells, len(counts), vocabulary)
    positions, fields = np.divmod(cells, len(FIELDS))
    keys = positions * len(vocabulary) + tokens
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    if not len(firsts):
        empty = np.empty(0, dtype=np.uint32)
        return empty, empty, empty.astype(np.uint16), empty.astype(np.uint16)
    weight = np.add.reduceat(weights[order], firsts)
    strengths = np.rint(weight / (SATURATION + weight) * MAX_STRENGTH).astype(np.uint16)
    positions, terms = np.divmod(keys[firsts], len(vocabulary))
    field_bits = np.bitwise_or.reduceat(_BITS[fields[order]], firsts)
    return terms.astype(np.uint32), slots[positions], strengths, field_bits


class _WordTermNumbers(dict[str, bytes]):
    """Maps a word to the numbers of its terms and their concepts, computed on first use.

    Numbers are stored as array bytes, so that those of a whole text are one join.
    """

    def __init__(self, vocabulary: dict[str, int]) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        # A server's tools share their introduction, tags and most parameters.
        self._number_text = lru_cache(maxsize=_TEXT_CACHE_SIZE)(self._join_numbers)

    def __missing__(self, word: str) -> bytes:
        numbers = array("q")
        vocabulary = self.vocabulary
        for term in extract_word_terms(word):
            numbers.append(vocabulary.setdefault(term, len(vocabulary)))
            numbers.extend(
                vocabulary.setdefault(concept, len(vocabulary))
                for concept in CONCEPTS.get(term, ())
            )
        self[word] = encoded = numbers.tobytes()
        return encoded

    def number_terms(self, documents: Iterator[SearchDocument]) -> tuple[IntArray, IntArray]:
        """Number the terms of the next batch of documents, and count those of each field."""
        tokens: list[bytes] = []
        size = 0
        for document in islice(documents, _BATCH):
            fields = [self._number_text(text) for text in extract_texts(document)]
            tokens += fields
            size += sum(map(len, fields))
            if size >= _BATCH_TERMS * _NUMBER_BYTES:
                break
        counts = np.fromiter(map(len, tokens), dtype=np.int64, count=len(tokens)) // _NUMBER_BYTES
        return np.frombuffer(b"".join(tokens), dtype=np.int64), counts

    def _join_numbers(self, text: str) -> bytes:
        return b"".join(map(self.__getitem__, extract_words(text)))


def _compute_weights(
    tokens: IntArray, cells: IntArray, size: int, vocabulary: dict[str, int]
) -> NDArray[np.float64]:
    """Return the weight of each token: its field's, diluted by the field's length."""
    is_term = np.ones(len(vocabulary), dtype=bool)
    is_term[[vocabulary[concept] for concept in ALL_CONCEPTS if concept in vocabulary]] = False
    # Concepts repeat existing words and do not make a text longer.
    lengths = np.bincount(cells, weights=is_term[tokens], minlength=size).reshape(-1, len(FIELDS))
    weights = _WEIGHTS / (1 - LENGTH_NORMALISATION + LENGTH_NORMALISATION * lengths / _TYPICAL)
    return weights.ravel()[cells]
