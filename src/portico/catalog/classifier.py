"""Classifies a server's tools by their words. Pure; the word weights are package data.

A server's tools usually belong together, so a tool is scored by its server (name, introduction, all
its tools), by the tools with the same name prefix, and by its own words; it differs from its server
only where these are clear. Each score is a softmax over weighted words, trained by
`training/categories` on labelled tools and hand-picked words. No encoder is involved, so the result
is the same whether one is installed, still loading or missing.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import chain, repeat

import numpy as np
import orjson
from numpy.typing import NDArray

from portico.catalog.taxonomy import OTHER, TAXONOMY
from portico.search.lexical.tokens import extract_word_terms, extract_words, split_word, stem

FloatArray = NDArray[np.float32]
SparseVector = tuple[NDArray[np.intp], FloatArray]
"""Word numbers and their weights."""
ToolText = tuple[str, str, str]
"""Name, title and description of a tool."""
WeightedTexts = Sequence[tuple[str, int]]
"""Texts and how many times each counts."""

WEIGHTS_FILE = "taxonomy.json"
MAX_DESCRIPTION = 600
"""A tool's purpose is stated first; the rest is arguments and cautions, which mislead."""
MAX_INTRODUCTION = 1_000
_NAME_WEIGHT = 2
_SERVER_NAME_WEIGHT = 3
_INTRODUCTION_WEIGHT = 0.7
"""Weight of a server's introduction relative to the mean of its tools."""
_FAMILY_WEIGHT = 0.8
_TOOL_WEIGHT = 0.4
"""Weights of a tool's name family and of its own words relative to its server's."""
_SERVER_FLOOR = -4.0
_FLOOR = -8.0
"""Lower bounds of the log-probability of a server's vote, and of a family's or tool's.

A server about one subject may still have a few tools for another.
"""
_MIN_PROBABILITY = 0.3
"""A less probable category is reported as `other`."""
_MIN_FAMILY_SIZE = 3
_CACHE_SIZE = 32_768
_TOOL_VERBS = """
    add archive cancel check clear close configure convert copy count create delete describe
    disable download edit enable execute export fetch find generate get import insert list manage
    modify move open patch post put query read remove rename reset resolve run save search send
    set show start stop submit update upload validate view write
"""
_VERBS = frozenset(map(stem, _TOOL_VERBS.split()))
"""Verbs that tools of every kind begin with; none of them names a family."""
_KEYS = tuple(category.key for category in TAXONOMY)
_FIRST = 35
_ZERO = 80
"""Weights are printable characters, `#` (-45) through `P` (0) to `}` (+45), without the two that
JSON escapes."""


@dataclass(frozen=True, eq=False)
class WordWeights:
    """Rarity of every word and its weight for each category."""

    word_numbers: Mapping[str, int]
    rarity: FloatArray
    weights: FloatArray
    """One row per word, one column per category."""

    def build_vector(self, texts: WeightedTexts) -> SparseVector:
        """Return the known words of texts with their weights, normalized to length 1."""
        counts: Counter[int] = Counter()
        for text, times in texts:
            numbers = chain.from_iterable(map(self._find_numbers, extract_words(text)))
            counts.update(chain.from_iterable(repeat(tuple(numbers), times)))
        numbers_found = np.fromiter(counts, dtype=np.intp, count=len(counts))
        values = (
            np.array([1 + math.log(count) for count in counts.values()], dtype=np.float32)
            * self.rarity[numbers_found]
        )
        length = float(np.sqrt(values @ values))
        if length:
            values = values / length
        return numbers_found, values

    @cached_property
    def _find_numbers(self) -> Callable[[str], tuple[int, ...]]:
        """Find the known numbers of a word's terms; cached, because words repeat."""

        def find_numbers(word: str) -> tuple[int, ...]:
            return tuple(
                self.word_numbers[term]
                for term in extract_word_terms(word)
                if term in self.word_numbers
            )

        return lru_cache(maxsize=_CACHE_SIZE)(find_numbers)

    def score_categories(self, vector: FloatArray) -> FloatArray:
        """Return the log-probability of each category for a dense word vector."""
        return log_softmax(vector @ self.weights)


def classify_tools(
    weights: WordWeights, server: str, introduction: str, tools: Sequence[ToolText]
) -> list[str]:
    """Return the category of each tool by its words, its family's and its server's."""
    if not tools:
        return []
    server_vector, tool_vectors = build_vectors(weights, server, introduction, tools)
    of_server = weights.score_categories(server_vector)
    of_families = np.zeros((len(tools), len(_KEYS)), dtype=np.float32)
    for members in group_name_families([name for name, _, _ in tools]):
        family_vector = _normalize(
            _add_vectors(
                (tool_vectors[position] for position in members), len(weights.word_numbers)
            )
        )
        of_families[members] = weights.score_categories(family_vector.astype(np.float32))
    of_tools = log_softmax(
        np.stack([weights.weights[position].T @ values for position, values in tool_vectors])
    )
    scores = np.maximum(of_server, _SERVER_FLOOR) + _FAMILY_WEIGHT * np.maximum(of_families, _FLOOR)
    scores = log_softmax((scores + _TOOL_WEIGHT * np.maximum(of_tools, _FLOOR)).astype(np.float32))
    best = scores.argmax(axis=1).tolist()
    sure = scores.max(axis=1) >= np.log(_MIN_PROBABILITY)
    return [
        _KEYS[position] if is_sure else OTHER
        for position, is_sure in zip(best, sure.tolist(), strict=True)
    ]


def group_name_families(names: Sequence[str]) -> list[list[int]]:
    """Group positions of names with the same first word after the prefix common to all.

    For example `jira_…` and `confluence_…` of one server.
    """
    parts = [
        [part for word in extract_words(name) for part in split_word(word).parts] for name in names
    ]
    shared = 0
    while len(parts) > 1 and all(
        len(words) > shared + 1 and words[shared] == parts[0][shared] for words in parts
    ):
        shared += 1
    families: dict[str, list[int]] = {}
    for position, words in enumerate(parts):
        if len(words) > shared and words[shared] not in _VERBS:
            families.setdefault(words[shared], []).append(position)
    return [
        positions
        for positions in families.values()
        if _MIN_FAMILY_SIZE <= len(positions) < len(names)
    ]


def build_vectors(
    weights: WordWeights, server: str, introduction: str, tools: Sequence[ToolText]
) -> tuple[FloatArray, list[SparseVector]]:
    """Return one vector for a server with all its tools, and one for each tool."""
    tool_vectors = [weights.build_vector(_weigh_tool_texts(*tool)) for tool in tools]
    server_vector = _normalize(_add_vectors(tool_vectors, len(weights.word_numbers)))
    numbers, values = weights.build_vector(_weigh_server_texts(server, introduction))
    server_vector[numbers] += _INTRODUCTION_WEIGHT * values
    return _normalize(server_vector).astype(np.float32), tool_vectors


def _add_vectors(vectors: Iterable[SparseVector], width: int) -> NDArray[np.float64]:
    total = np.zeros(width, dtype=np.float64)
    for numbers, values in vectors:
        total[numbers] += values
    return total


def _normalize(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.sqrt(vector @ vector)
    if length:
        return vector / length
    return vector


def count_tool_terms(name: str, title: str, description: str) -> Counter[str]:
    """Count the terms of a tool, those of its name weighted more."""
    return _count_terms(_weigh_tool_texts(name, title, description))


def count_server_terms(name: str, introduction: str) -> Counter[str]:
    """Count the terms a server presents itself with, those of its name weighted more."""
    return _count_terms(_weigh_server_texts(name, introduction))


def _weigh_tool_texts(name: str, title: str, description: str) -> WeightedTexts:
    return (description[:MAX_DESCRIPTION], 1), (title, 1), (name, _NAME_WEIGHT)


def _weigh_server_texts(name: str, introduction: str) -> WeightedTexts:
    return (introduction[:MAX_INTRODUCTION], 1), (name, _SERVER_NAME_WEIGHT)


def _count_terms(texts: WeightedTexts) -> Counter[str]:
    return Counter(
        term
        for text, times in texts
        for word in extract_words(text) * times
        for term in extract_word_terms(word)
    )


def log_softmax(scores: FloatArray) -> FloatArray:
    """Convert scores to log-probabilities."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def pack_weights(weights: FloatArray, scale: float) -> str:
    """Encode one word's weights as one character per category."""
    levels = np.clip(np.rint(weights / scale), -_ZERO + _FIRST + 1, 125 - _ZERO).astype(int)
    return "".join(chr(_ZERO + level).replace("\\", "[") for level in levels.tolist())


@cache
def load_shipped_weights() -> WordWeights:
    """Load the packaged word weights, once, when a text is first classified."""
    from importlib import resources  # slow to import, and rarely needed at a start

    data = orjson.loads(resources.files("portico.catalog").joinpath(WEIGHTS_FILE).read_bytes())
    rows: Mapping[str, list[object]] = data["words"]
    packed = "".join(str(row[1]) for row in rows.values()).encode()
    levels = np.frombuffer(packed, dtype=np.uint8).reshape(len(rows), -1).astype(np.float32) - _ZERO
    return WordWeights(
        {word: number for number, word in enumerate(rows)},
        np.array([row[0] for row in rows.values()], dtype=np.float32),
        levels * np.float32(data["scale"]),
    )
