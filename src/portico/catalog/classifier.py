"""Which category a server's tools are in by their words. Pure; the weights of words are data of the
package.

A server's tools usually belong together, so a tool is judged by its server (name, introduction, all
its tools), by the tools whose names begin as its own, and by its own words; it stands apart only
where these speak clearly. Each is a softmax over weighted words, made by `training/categories` from
labelled tools and from words chosen by hand. There is no encoder in it, so the answer is the same
whether one is installed, still loading or missing.
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
"""Numbers of words and how much each counts."""
ToolText = tuple[str, str, str]
"""Name, title and description of a tool."""
WeightedTexts = Sequence[tuple[str, int]]
"""Texts, and how many times each counts."""

WEIGHTS_FILE = "taxonomy.json"
MAX_DESCRIPTION = 600
"""What a tool is for stands at the beginning; the rest is arguments and cautions, and speaks for
nothing."""
MAX_INTRODUCTION = 1_000
_NAME_WEIGHT = 2
_SERVER_NAME_WEIGHT = 3
_INTRODUCTION_WEIGHT = 0.7
"""What a server's introduction counts beside the mean of its tools."""
_FAMILY_WEIGHT = 0.8
_TOOL_WEIGHT = 0.4
"""What the words of a tool's family and its own count beside its server's."""
_SERVER_FLOOR = -4.0
_FLOOR = -8.0
"""How much, at most, a server speaks against a category, and a family or tool does: a server that
is all about one thing may still have a few tools for another."""
_MIN_PROBABILITY = 0.3
"""Below this probability nobody should rely on the answer."""
_MIN_FAMILY_SIZE = 3
_CACHE_SIZE = 32_768
_TOOL_VERBS = """
    add archive cancel check clear close configure convert copy count create delete describe disable download edit
    enable execute export fetch find generate get import insert list manage modify move open patch post put query read
    remove rename reset resolve run save search send set show start stop submit update upload validate view write
"""
_VERBS = frozenset(map(stem, _TOOL_VERBS.split()))
"""What tools of every kind begin with: no family's name."""
_KEYS = tuple(category.key for category in TAXONOMY)
_FIRST = 35
_ZERO = 80
"""Weights are printable characters: from `#` (-45) over `P` (0) to `}` (+45), without the two that
JSON escapes."""


@dataclass(frozen=True, eq=False)
class WordWeights:
    """Every word with its rarity and what it says about each category."""

    word_numbers: Mapping[str, int]
    rarity: FloatArray
    weights: FloatArray
    """One row a word, one column a category."""

    def build_vector(self, texts: WeightedTexts) -> SparseVector:
        """Texts as the numbers of their known words and how much each counts, of length 1."""
        counts: Counter[int] = Counter()
        for text, times in texts:
            numbers = chain.from_iterable(map(self._find_numbers, extract_words(text)))
            counts.update(chain.from_iterable(repeat(tuple(numbers), times)))
        at = np.fromiter(counts, dtype=np.intp, count=len(counts))
        worth = (
            np.array([1 + math.log(count) for count in counts.values()], dtype=np.float32)
            * self.rarity[at]
        )
        length = float(np.sqrt(worth @ worth))
        return at, worth / length if length else worth

    @cached_property
    def _find_numbers(self) -> Callable[[str], tuple[int, ...]]:
        """The numbers of a word's terms, as far as they are known; remembered, because catalogs
        repeat themselves."""

        def find_numbers(word: str) -> tuple[int, ...]:
            return tuple(
                self.word_numbers[term]
                for term in extract_word_terms(word)
                if term in self.word_numbers
            )

        return lru_cache(maxsize=_CACHE_SIZE)(find_numbers)

    def score_categories(self, vector: FloatArray) -> FloatArray:
        """The log-probability of each category for a dense vector of words."""
        return log_softmax(vector @ self.weights)


def classify_tools(
    weights: WordWeights, server: str, introduction: str, tools: Sequence[ToolText]
) -> list[str]:
    """The category of each tool by its words, its family's and its server's."""
    if not tools:
        return []
    whole, own = build_vectors(weights, server, introduction, tools)
    of_server = weights.score_categories(whole)
    of_families = np.zeros((len(tools), len(_KEYS)), dtype=np.float32)
    for members in group_name_families([name for name, _, _ in tools]):
        together = _normalize(_add_vectors((own[at] for at in members), len(weights.word_numbers)))
        of_families[members] = weights.score_categories(together.astype(np.float32))
    of_tools = log_softmax(np.stack([weights.weights[at].T @ worth for at, worth in own]))
    scores = np.maximum(of_server, _SERVER_FLOOR) + _FAMILY_WEIGHT * np.maximum(of_families, _FLOOR)
    scores = log_softmax((scores + _TOOL_WEIGHT * np.maximum(of_tools, _FLOOR)).astype(np.float32))
    best = scores.argmax(axis=1).tolist()
    sure = scores.max(axis=1) >= np.log(_MIN_PROBABILITY)
    return [_KEYS[at] if enough else OTHER for at, enough in zip(best, sure.tolist(), strict=True)]


def group_name_families(names: Sequence[str]) -> list[list[int]]:
    """The places of names that begin alike, after what all begin with: `jira_…` and `confluence_…`
    of one server."""
    parts = [
        [part for word in extract_words(name) for part in split_word(word).parts] for name in names
    ]
    shared = 0
    while len(parts) > 1 and all(
        len(it) > shared + 1 and it[shared] == parts[0][shared] for it in parts
    ):
        shared += 1
    found: dict[str, list[int]] = {}
    for place, it in enumerate(parts):
        if len(it) > shared and it[shared] not in _VERBS:
            found.setdefault(it[shared], []).append(place)
    return [places for places in found.values() if _MIN_FAMILY_SIZE <= len(places) < len(names)]


def build_vectors(
    weights: WordWeights, server: str, introduction: str, tools: Sequence[ToolText]
) -> tuple[FloatArray, list[SparseVector]]:
    """The words of a server with all its tools as one vector, and those of each tool."""
    own = [weights.build_vector(_weigh_tool_texts(*tool)) for tool in tools]
    whole = _normalize(_add_vectors(own, len(weights.word_numbers)))
    at, worth = weights.build_vector(_weigh_server_texts(server, introduction))
    whole[at] += _INTRODUCTION_WEIGHT * worth
    return _normalize(whole).astype(np.float32), own


def _add_vectors(vectors: Iterable[SparseVector], width: int) -> NDArray[np.float64]:
    total = np.zeros(width, dtype=np.float64)
    for at, worth in vectors:
        total[at] += worth
    return total


def _normalize(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.sqrt(vector @ vector)
    if length:
        return vector / length
    return vector


def count_tool_terms(name: str, title: str, description: str) -> Counter[str]:
    """The terms of a tool, those of its name counted more."""
    return _count_terms(_weigh_tool_texts(name, title, description))


def count_server_terms(name: str, introduction: str) -> Counter[str]:
    """The terms a server presents itself with, those of its name counted more."""
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
    """Scores as log-probabilities."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def pack_weights(weights: FloatArray, scale: float) -> str:
    """One word's weights as one character a category."""
    levels = np.clip(np.rint(weights / scale), -_ZERO + _FIRST + 1, 125 - _ZERO).astype(int)
    return "".join(chr(_ZERO + level).replace("\\", "[") for level in levels.tolist())


@cache
def load_shipped_weights() -> WordWeights:
    """The words that come with the package; read when the first text is sorted."""
    from importlib import resources  # slow to import, and most starts know every server already

    data = orjson.loads(resources.files("portico.catalog").joinpath(WEIGHTS_FILE).read_bytes())
    rows: Mapping[str, list[object]] = data["words"]
    packed = "".join(str(row[1]) for row in rows.values()).encode()
    levels = np.frombuffer(packed, dtype=np.uint8).reshape(len(rows), -1).astype(np.float32) - _ZERO
    return WordWeights(
        {word: number for number, word in enumerate(rows)},
        np.array([row[0] for row in rows.values()], dtype=np.float32),
        levels * np.float32(data["scale"]),
    )
