"""Assigns a category to each tool: from the config, else from server tags, else by its words. Pure.

Depends neither on the order of tools nor on anything outside the server, except the names of other
servers with the same tools.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property, lru_cache
from itertools import chain, repeat
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from portico.catalog.address import fold
from portico.catalog.categories import (
    BY_SYNONYM,
    OTHER,
    TAXONOMY,
    VERSION,
    normalize_category,
    to_slug,
)
from portico.catalog.snapshot import ServerEntry
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
ZERO_WEIGHT = 80
"""Weights are printable characters, `#` (-45) through `P` (0) to `}` (+45), without the two that
JSON escapes."""


@dataclass(frozen=True, eq=False)
class WordWeights:
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
    tool_vectors = [weights.build_vector(weigh_tool_texts(*tool)) for tool in tools]
    server_vector = _normalize(_add_vectors(tool_vectors, len(weights.word_numbers)))
    numbers, values = weights.build_vector(weigh_server_texts(server, introduction))
    server_vector[numbers] += _INTRODUCTION_WEIGHT * values
    return _normalize(server_vector).astype(np.float32), tool_vectors


def _add_vectors(vectors: Iterable[SparseVector], width: int) -> NDArray[np.float64]:
    total = np.zeros(width, dtype=np.float64)
    for numbers, values in vectors:
        total[numbers] += values
    return total


def _normalize(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return vector / (np.sqrt(vector @ vector) or 1.0)


def weigh_tool_texts(name: str, title: str, description: str) -> WeightedTexts:
    return (description[:MAX_DESCRIPTION], 1), (title, 1), (name, _NAME_WEIGHT)


def weigh_server_texts(name: str, introduction: str) -> WeightedTexts:
    return (introduction[:MAX_INTRODUCTION], 1), (name, _SERVER_NAME_WEIGHT)


def log_softmax(scores: FloatArray) -> FloatArray:
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


@cache
def load_shipped_weights() -> WordWeights:
    """Load the packaged word weights, once, when a text is first classified."""
    from importlib import resources  # slow to import, and rarely needed at a start

    data = orjson.loads(resources.files("portico.catalog").joinpath(WEIGHTS_FILE).read_bytes())
    rows: Mapping[str, list[object]] = data["words"]
    packed = "".join(str(row[1]) for row in rows.values()).encode()
    levels = np.frombuffer(packed, dtype=np.uint8).reshape(len(rows), -1).astype(np.float32)
    return WordWeights(
        {word: number for number, word in enumerate(rows)},
        np.array([row[0] for row in rows.values()], dtype=np.float32),
        (levels - ZERO_WEIGHT) * np.float32(data["scale"]),
    )


def assign_categories(entry: ServerEntry) -> Mapping[str, str]:
    server_category = normalize_category(entry.category) or _get_tag_category(entry.tags)
    configured = {
        name: key
        for name in entry.tools
        if (key := _get_configured_category(name, entry.categories))
    }
    if server_category or len(configured) == len(entry.tools):
        return {name: configured.get(name, server_category) for name in entry.tools}
    names = sorted(entry.tools)
    texts = [(name, entry.tools[name].title, entry.tools[name].description) for name in names]
    server_name = " ".join(entry.twins or (entry.name,))
    classified = classify_tools(
        load_shipped_weights(), server_name, compose_introduction(entry), texts
    )
    return {**dict(zip(names, classified, strict=True)), **configured}


def collect_classification_inputs(entry: ServerEntry) -> tuple[str, ...]:
    """Return every input to classification except tool texts, for hashes."""
    overrides = (part for override in entry.categories.items() for part in override)
    return (VERSION, compose_introduction(entry), entry.category, *entry.twins, *overrides)


def compose_introduction(entry: ServerEntry) -> str:
    """Return the config's title and description of a server, then the server's own introduction."""
    own = ""
    if info := entry.initialize_info:
        own = extract_introduction(
            {"serverInfo": info.server_info, "instructions": info.instructions}
        )
    return " ".join(filter(None, (entry.title, entry.description, own)))[:MAX_INTRODUCTION]


def extract_introduction(initialize_result: Mapping[str, Any]) -> str:
    info = initialize_result.get("serverInfo")
    parts = [initialize_result.get("instructions")]
    if isinstance(info, Mapping):
        parts = [*(info.get(key) for key in ("name", "title", "description")), *parts]
    return " ".join(part for part in parts if isinstance(part, str) and part)


def _get_configured_category(tool: str, moves: Mapping[str, str]) -> str:
    """Return a tool's configured category: exact name first, then patterns in order."""
    if tool in moves:
        return normalize_category(moves[tool])
    matching = (name for pattern, name in moves.items() if fnmatchcase(tool, pattern))
    return normalize_category(next(matching, ""))


def _get_tag_category(tags: Sequence[str]) -> str:
    """Return the first tag that names a built-in category, else the first tag."""
    built_in = (BY_SYNONYM.get(fold(tag)) for tag in tags)
    return next(filter(None, built_in), "") or next(filter(None, map(to_slug, tags)), "")
