"""Decay of learned weights, and the choice of scopes to keep when there are too many. Pure.

Rows may contain anything, because anyone may have written to the file: a weight that is not a
number counts as zero.
"""

import math
from collections.abc import Mapping
from typing import Any

MAX_SCOPES = 100
"""Callers choose their own names, so the number of scopes is limited,"""
_MAX_DISPLACING_SCOPES = 10
"""so is the number of new scopes that may displace others at a time,"""
_NEWCOMER_SHARE = 0.5
"""and each displaces only one that is worth less than this share of it."""


def are_numbers(*values: Any) -> bool:
    """Return whether all values are numbers."""
    return all(isinstance(value, int | float) for value in values)


def decay_weight(weight: Any, at: Any, now: float, half_life_s: float) -> float:
    """Return a weight after decay; a time in the future counts as now."""
    if are_numbers(weight, at):
        return weight * 0.5 ** (max(0.0, now - at) / half_life_s)
    return 0.0


def compute_lasting_weight(weight: Any, at: Any, half_life_s: float) -> float:
    """Return a value that orders weights of different times, the same at any moment."""
    if are_numbers(weight, at):
        return math.log2(max(weight, 1e-300)) + at / half_life_s
    return -math.inf


def choose_scopes(known: Mapping[str, float], new: Mapping[str, float]) -> set[str]:
    """Return the scopes to keep when there are too many: those worth most, new ones bounded."""
    room = max(0, MAX_SCOPES - len(known)) + _MAX_DISPLACING_SCOPES
    best = sorted(new, key=lambda scope: new[scope], reverse=True)[:room]
    worth = {**known, **{scope: new[scope] * _NEWCOMER_SHARE for scope in best}}
    return set(sorted(worth, key=lambda scope: worth[scope], reverse=True)[:MAX_SCOPES])
