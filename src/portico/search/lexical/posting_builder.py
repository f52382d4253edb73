"""Builds postings from documents.

Works on whole batches: words become term numbers in one pass, the rest is array arithmetic.
"""

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from portico.search.document import SearchDocument
from portico.search.lexical.fields import FIELDS, LENGTH_NORMALISATION, SATURATION, extract_texts
from portico.search.lexical.postings import MAX_STRENGTH, PostingEntries
from portico.search.lexical.synonyms import ALL_CONCEPTS, CONCEPTS
from portico.search.lexical.tokens import extract_word_terms, extract_words

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
