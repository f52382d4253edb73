"""Packs, parts and cuts what does not fit. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from portico.rendering.token_count import count_tokens


@dataclass(frozen=True)
class PackedTexts:
    """The texts that fit, and whether anything was left."""

    texts: tuple[str, ...]
    is_full: bool
    """True when the next text would have gone over the budget."""


def pack(
    items: Iterable[str], budget: int, measure: Callable[[str], int] = count_tokens
) -> PackedTexts:
    """Texts in order until the budget is spent; the first is kept whatever its size, so that no
    answer is empty."""
    kept: list[str] = []
    spent = 0
    for text in items:
        cost = measure(text) + 1
        if kept and spent + cost > budget:
            return PackedTexts(tuple(kept), is_full=True)
        kept.append(text)
        spent += cost
    return PackedTexts(tuple(kept), is_full=False)


def truncate(text: str, max_tokens: int) -> str:
    """Text in at most so many tokens, cut at a word."""
    text, whole = text[: max_tokens * 8], text
    if text == whole and count_tokens(text) <= max_tokens:
        return text
    while text and (cost := count_tokens(text)) > max_tokens - 1:
        shorter = text[: min(len(text) - 1, int(len(text) * (max_tokens - 1) / cost))]
        space = shorter.rfind(" ")
        if space > len(shorter) // 2:
            text = shorter[:space]
        else:
            text = shorter
    return text.rstrip(" ,;:(-–—") + " …"


def find_part_end(text: str, start: int, max_tokens: int) -> int:
    """Where a part of `text` that begins at `start` and has about `tokens` ends: after a line, or
    inside one too long.

    Parts joined give the text back: each takes at least one character, and none is left between
    two.
    """
    end = start
    spent = 0
    while end < len(text):
        line_end = text.find("\n", end) + 1 or len(text)
        # A token has seldom more than 8 characters, so that a line of megabytes need not be counted
        # to its end.
        if line_end - end <= max_tokens * 8:
            cost = count_tokens(text[end:line_end])
        else:
            cost = max_tokens + 1
        if spent + cost > max_tokens:
            if end > start and (cost <= max_tokens or spent >= max_tokens):
                return end
            return end + _count_fitting_chars(
                text[end : min(line_end, end + max_tokens * 8)], max_tokens - spent
            )
        end = line_end
        spent = spent + cost
    return end


def _count_fitting_chars(text: str, max_tokens: int) -> int:
    """How many characters of one line fit."""
    while len(text) > 1 and (cost := count_tokens(text)) > max_tokens:
        text = text[: max(1, min(len(text) - 1, int(len(text) * max_tokens / cost)))]
    return len(text)
