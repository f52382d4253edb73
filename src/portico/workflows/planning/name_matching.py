"""How well a name fits a parameter: of an input, or of a field of an earlier result. Pure.

`issue_id`, `issueId` and `issue` are one thing; `title` of a tool that creates issues is an
`issue_title`; `repo` is a `repository`.
"""

from collections.abc import Collection
from functools import lru_cache

import numpy as np

from portico.catalog.tool import Tool
from portico.search import Vector
from portico.workflows.planning.parameters import Leaf, LeafPath, split_identifier

_MIN_PREFIX = 3
_KEYS = frozenset({"id", "key", "name", "number", "value", "identifier", "slug", "uid", "gid"})
"""Words that say how a thing is named, not which: `project` may be a `project_id`."""
_KEY_WEIGHT = 0.35
_SHORT_PLURALS = frozenset({"ids", "ips", "prs"})


@lru_cache(maxsize=16_384)
def to_words(name: str) -> tuple[str, ...]:
    """Return the words of a name, singular."""
    return tuple(to_singular(word) for word in split_identifier(name))


@lru_cache(maxsize=16_384)
def to_singular(word: str) -> str:
    """Convert `channels` to `channel`, `entries` to `entry`."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    if word in _SHORT_PLURALS:
        return word[:-1]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def get_context_words(tool: Tool) -> frozenset[str]:
    """Return the words of a tool's and its server's name."""
    return frozenset((*to_words(tool.name), *to_words(tool.server)))


def are_other_things(name: str, leaf: Leaf) -> bool:
    """Return whether both names are those of keys, each of another thing."""
    said = set(to_words(name))
    own = set(to_words(str(leaf.path[-1])))
    things = (said - _KEYS, own - _KEYS)
    is_key = said & own & {"id", "key", "uid", "gid"}
    return bool(is_key) and all(things) and not _share_matched(*things)


def score_name(name: str, leaf: Leaf, context: Collection[str]) -> float:
    """Return how well a name fits a parameter, from 0 to 1; `context` are the tool's own words."""
    return _score_path(name, leaf.path, frozenset(context))


@lru_cache(maxsize=8_192)
def _score_path(name: str, path: LeafPath, context: frozenset[str]) -> float:
    said = to_words(name)
    own = to_words(str(next(part for part in reversed(path) if part != 0)))
    around = to_words(" ".join(str(part) for part in path[:-1] if part != 0))
    if not said or not own:
        return 0.0
    if said == own or "".join(said) == "".join(own):
        return 1.0
    matched_own = _share_matched(own, said)
    matched_said = _share_matched(said, (*own, *around, *context))
    shared = _share_matched(said, own)
    if matched_own < 0.3 or not shared:
        return 0.0
    return 0.95 * matched_own * (0.4 + 0.6 * matched_said)


def _share_matched(words: Collection[str], others: Collection[str]) -> float:
    """Return the share of words that are among the others; words that name a key count less."""
    total = 0.0
    matched = 0.0
    for word in words:
        weight = _KEY_WEIGHT if word in _KEYS else 1.0
        total += weight
        if any(_is_same_word(word, other) for other in others):
            matched += weight
    return matched / total


def _is_same_word(one: str, other: str) -> bool:
    """Return whether two words are one, or one abbreviates the other."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return len(short) >= _MIN_PREFIX and long.startswith(short)


def compute_cosine(one: Vector | None, other: Vector | None) -> float | None:
    """Return the cosine of two vectors; None if they cannot be compared."""
    if one is None or other is None or not one.size or one.shape != other.shape:
        return None
    left = one.astype(np.float32)
    right = other.astype(np.float32)
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / (size or 1.0)
