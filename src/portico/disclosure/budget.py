"""Packs what fits. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from portico.disclosure.tokens import count


@dataclass(frozen=True)
class Packed:
    """The texts that fit, and whether anything was left."""

    texts: tuple[str, ...]
    full: bool
    """True when the next text would have gone over the budget."""


def pack(items: Iterable[str], budget: int, measure: Callable[[str], int] = count) -> Packed:
    """Texts in order until the budget is spent; the first is kept whatever its size, so that no answer is empty."""
    kept: list[str] = []
    spent = 0
    for text in items:
        cost = measure(text) + 1
        if kept and spent + cost > budget:
            return Packed(tuple(kept), full=True)
        kept.append(text)
        spent += cost
    return Packed(tuple(kept), full=False)
