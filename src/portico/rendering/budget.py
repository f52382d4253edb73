"""Packing, splitting and truncating text to fit a token budget. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from portico.rendering.token_count import count_tokens


@dataclass(frozen=True)
class PackedTexts:
    """The texts that fit, and whether any were left out."""

    texts: tuple[str, ...]
    is_full: bool
    """True when the next text would have gone over the budget."""


def pack(
    items: Iterable[str], budget: int, measure: Callable[[str], int] = count_tokens
) -> PackedTexts:
    """Take texts in order until the budget is spent.

    The first is taken whatever its size, so that no response is empty.
    """
    packed: list[str] = []
    spent = 0
    for text in items:
        cost = measure(text) + 1
        if packed and spent + cost > budget:
            return PackedTexts(tuple(packed), is_full=True)
        packed.append(text)
        spent += cost
    return PackedTexts(tuple(packed), is_full=False)


def truncate(text: str, max_tokens: int) -> str:
    """Cut text to at most `max_tokens`, at a word boundary."""
    full_length = len(text)
    text = text[: max_tokens * 8]
    if len(text) == full_length and count_tokens(text) <= max_tokens:
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
    """Return the end of a part of `text` from `start` with about `max_tokens`: after a line if
    possible.

    A line that is too long is split. Joined parts equal the text: each has at least one character,
    and none is lost between two.
    """
    end = start
    spent = 0
    while end < len(text):
        line_end = text.find("\n", end) + 1 or len(text)
        # Tokens rarely exceed 8 characters, so a line of megabytes need not be counted to its end.
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
    """Return how many characters of one line fit."""
    while len(text) > 1 and (cost := count_tokens(text)) > max_tokens:
        text = text[: max(1, min(len(text) - 1, int(len(text) * max_tokens / cost)))]
    return len(text)
