"""Packs, parts and cuts what does not fit. Pure."""

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


def cut(text: str, tokens: int) -> str:
    """Text in at most so many tokens, cut at a word."""
    text, whole = text[: tokens * 8], text
    if text == whole and count(text) <= tokens:
        return text
    while text and (cost := count(text)) > tokens - 1:
        shorter = text[: min(len(text) - 1, int(len(text) * (tokens - 1) / cost))]
        space = shorter.rfind(" ")
        text = shorter[:space] if space > len(shorter) // 2 else shorter
    return text.rstrip(" ,;:(-–—") + " …"


def part(text: str, start: int, tokens: int) -> int:
    """Where a part of `text` that begins at `start` and has about `tokens` ends: after a line, or inside one too long.

    Parts joined give the text back: each takes at least one character, and none is left between two.
    """
    end, spent = start, 0
    while end < len(text):
        line_end = text.find("\n", end) + 1 or len(text)
        # A token has seldom more than 8 characters, so that a line of megabytes need not be counted to its end.
        cost = count(text[end:line_end]) if line_end - end <= tokens * 8 else tokens + 1
        if spent + cost > tokens:
            if end > start and (cost <= tokens or spent >= tokens):
                return end
            return end + _fitting(text[end : min(line_end, end + tokens * 8)], tokens - spent)
        end, spent = line_end, spent + cost
    return end


def _fitting(text: str, tokens: int) -> int:
    """How many characters of one line fit."""
    while len(text) > 1 and (cost := count(text)) > tokens:
        text = text[: max(1, min(len(text) - 1, int(len(text) * tokens / cost)))]
    return len(text)
