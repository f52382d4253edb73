"""What remembered things are worth as time passes, and who stays when there is no room for all.
Pure.

A row may say anything, because anybody may have written to the file: one that is no number is worth
nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

MAX_SCOPES = 100
"""Callers name themselves: whoever comes under ever new names must not fill the disk …"""
_MAX_DISPLACING_SCOPES = 10
"""… nor push out many others at once: so many new ones at a time may, where there is no room left …
"""
_NEWCOMER_SHARE = 0.5
"""… each only one that is worth less than this share of it."""


def are_numbers(*values: Any) -> bool:
    """Whether each can be reckoned with."""
    return all(isinstance(value, int | float) for value in values)


def decay_weight(weight: Any, at: Any, now: float, half_life_s: float) -> float:
    """What is left now of a weight; nothing has faded that is dated ahead."""
    if are_numbers(weight, at):
        return weight * 0.5 ** (max(0.0, now - at) / half_life_s)
    return 0.0


def compute_lasting_weight(weight: Any, at: Any, half_life_s: float) -> float:
    """What a weight is worth beside others, at any moment."""
    if are_numbers(weight, at):
        return math.log2(max(weight, 1e-300)) + at / half_life_s
    return -math.inf


def choose_scopes(known: Mapping[str, float], new: Mapping[str, float]) -> set[str]:
    """Which scopes stay when there are too many: those worth most. New ones first take what room
    there is."""
    room = max(0, MAX_SCOPES - len(known)) + _MAX_DISPLACING_SCOPES
    best = sorted(new, key=lambda scope: new[scope], reverse=True)[:room]
    worth = {**known, **{scope: new[scope] * _NEWCOMER_SHARE for scope in best}}
    return set(sorted(worth, key=lambda scope: worth[scope], reverse=True)[:MAX_SCOPES])
