"""What remembered things are worth as time passes, and who stays when there is no room for all. Pure.

A row may say anything, because anybody may have written to the file: one that is no number is worth nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

SCOPES = 100
"""Callers name themselves: whoever comes under ever new names must not fill the disk …"""
_DISPLACING = 10
"""… nor push out many others at once: so many new ones at a time may, where there is no room left …"""
_NEWCOMER = 0.5
"""… each only one that is worth less than this share of it."""


def are_numbers(*values: Any) -> bool:
    """Whether each can be reckoned with."""
    return all(isinstance(value, int | float) for value in values)


def faded(weight: Any, at: Any, now: float, half_life_s: float) -> float:
    """What is left now of a weight; nothing has faded that is dated ahead."""
    return weight * 0.5 ** (max(0.0, now - at) / half_life_s) if are_numbers(weight, at) else 0.0


def lasting_worth(weight: Any, at: Any, half_life_s: float) -> float:
    """What a weight is worth beside others, at any moment."""
    return math.log2(max(weight, 1e-300)) + at / half_life_s if are_numbers(weight, at) else -math.inf


def staying_scopes(known: Mapping[str, float], new: Mapping[str, float]) -> set[str]:
    """Which scopes stay when there are too many: those worth most. New ones first take what room there is."""
    room = max(0, SCOPES - len(known)) + _DISPLACING
    best = sorted(new, key=lambda scope: new[scope], reverse=True)[:room]
    worth = {**known, **{scope: new[scope] * _NEWCOMER for scope in best}}
    return set(sorted(worth, key=lambda scope: worth[scope], reverse=True)[:SCOPES])
