"""One thing with everything that is known of it, or as much as fits: what is needed least goes first. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from portico.disclosure.cards import Card
from portico.disclosure.lines import room
from portico.disclosure.tokens import count
from portico.upstream import jsontext

EVERYTHING = 100_000
"""Asked for so many tokens, nothing is left out, whatever its size."""
_CHARACTERS_A_TOKEN = 16
"""No text has more: what is longer need not be counted to be too long."""


def fitted(always: Mapping[str, Any], parts: Mapping[str, Any], tokens: int, where: str) -> Card:
    """`always`, and the parts in order of need as long as they fit; the others are named, with where they are."""
    there = {key: value for key, value in parts.items() if value not in ("", None, [], {})}
    if tokens >= EVERYTHING:
        return {**always, **there}
    costs = {key: _cost(key, value, tokens) for key, value in there.items()}
    left = room(tokens, _text(always))
    if sum(costs.values()) <= left:
        return {**always, **there}
    kept, out = _split(costs, left - count(_text({"left_out": list(there), "whole": where})))
    return {**always, **{key: there[key] for key in kept}, "left_out": out, "whole": where}


def _split(costs: Mapping[str, int], left: int) -> tuple[Sequence[str], list[str]]:
    kept: list[str] = []
    for key, cost in costs.items():
        if cost <= left:
            kept.append(key)
            left -= cost
    return kept, [key for key in costs if key not in kept]


def _cost(key: str, value: Any, tokens: int) -> int:
    text = _text({key: value})
    return count(text) if len(text) <= tokens * _CHARACTERS_A_TOKEN else tokens


def _text(value: Any) -> str:
    return jsontext.dumps(value).decode()
