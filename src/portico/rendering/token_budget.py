"""Token counts, and packing, splitting and truncating text to fit a budget. Pure.

The estimate splits text into the pieces that a byte-pair tokenizer starts from (a word with the
character before it, up to three digits, a run of punctuation, white space) and adds up their
average costs. The averages were measured with o200k_base on the listings, descriptions and
renderings of 4,136 tools of real servers; they lean a little high, because exceeding a budget costs
more than leaving some of it unused.

Counts are a calibrated estimate on the hot path, exact o200k_base counts where they are available.
"""

import hashlib
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from portico.catalog.tool import sanitize_text

_TABLE_FILE = "fb374d419588a4632f3f557e76b4b70aebbca790"
_TABLE_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Cache file name and digest under which tiktoken accepts o200k_base: with any other it would
download the table, which must never happen here.
"""

_BIAS = 1.012
"""Above 1, so that the estimate errs on the high side more often than not."""

# Plain character ranges, because classes such as \w are three times slower here. Every run is
# bounded, so that the cost cache never holds a piece of a megabyte.
_PIECE = re.compile(
    r"[A-Za-z0-9+/]{80,400}"
    r"| ?[a-z]{1,40}"
    r"| ?[!-/:-@\[-`{-~]{2,40}[\r\n/]{0,8}"
    r"|[^A-Za-z0-9\r\n]?[A-Z]{0,20}[a-z]{1,40}"
    r"|[^A-Za-z0-9\r\n]?[A-Z]{1,20}"
    r"|[0-9]{1,3}"
    r"| ?[!-/:-@\[-`{-~][\r\n]{0,8}"
    r"|[ \t]{0,80}[\r\n]{1,40}"
    r"|[ \t]{1,80}(?![^ \t])|[ \t]{1,80}(?=[ \t])"
    r"| ?[^\x00-\x7f]{1,40}"
    r"|[\x00-\x7f]"
)

# Average cost of a word by its number of letters: after a space, at the start of a piece, after a
# mark such as `_` or `.`.
_AFTER_SPACE = (
    1.0, 1.0, 1.0, 1.01, 1.01, 1.01, 1.04, 1.03, 1.04, 1.07, 1.11, 1.13, 1.13, 1.1, 1.2, 1.3,
    2.0,
)  # fmt: skip
_AT_START = (
    1.0, 1.0, 1.0, 1.05, 1.03, 1.07, 1.17, 1.18, 1.18, 1.41, 1.31, 1.53, 2.0, 2.0, 2.0, 2.3,
    2.8,
)  # fmt: skip
_AFTER_MARK = (
    1.0, 1.0, 1.06, 1.23, 1.12, 1.25, 1.29, 1.42, 1.57, 1.77, 1.84, 1.96, 2.3, 2.3, 2.6, 2.9,
    3.2,
)  # fmt: skip
_CAPITALS = (
    1.0, 1.0, 1.04, 1.15, 1.22, 1.53, 1.62, 1.87, 2.03, 2.16, 2.5, 3.0, 3.1, 3.6, 3.7, 3.9, 4.2,
)  # fmt: skip
_MARKS = (1.0, 1.0, 1.0, 1.25, 1.6, 1.95, 2.7, 3.3, 3.7)
# Pieces that make up half of every schema; each is one token whatever its length.
_COMMON = frozenset(
    ("type", "string", "title", "object", "description", "default", "properties", "required",
     "integer", "number", "boolean", "enum", "items", "array", '":"', '":{"', '","', '":["',
     '"},{"', '.","', '"}}', "://")
)  # fmt: skip
# Cost of a non-ASCII character by block: Latin, Greek and Cyrillic, other alphabets, punctuation,
# symbols, Chinese and Japanese, Korean, full-width forms, emoji.
_NON_ASCII_STARTS = (
    "\u0370", "\u0530", "\u2000", "\u2070", "\u2e80", "\uac00", "\ud7b0", "\U00010000",
)  # fmt: skip
_NON_ASCII_COSTS = (0.05, 0.21, 0.31, 0.7, 1.0, 0.71, 0.58, 0.71, 1.7)
_USABLE_SHARE = 0.95
_RESERVED_TOKENS = 60
"""Part of a budget that is used. Costs are estimated; for a server with unusual names the estimate
is low by up to a seventh in short responses and a twentieth in long ones.
"""

_CHARS_PER_TOKEN = 64
"""Characters of a text that are read per token shown."""


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A counting function, and the name to print beside its figures."""

    name: str
    count: Callable[[str], int]


MAX_COUNTED_CHARS = 32 * 1024
"""Characters that are examined."""
_MAX_CHARS_PER_TOKEN = 6
"""Maximum characters per token assumed beyond that, so that a text sparse at its beginning is not
underestimated.
"""


def count_tokens(text: str) -> int:
    """Estimate the tokens of `text`; at least one unless it is empty.

    Linear in the first MAX_COUNTED_CHARS characters; the rest is assumed to be similar.
    """
    if not text:
        return 0
    tokens = sum(map(_estimate_piece, _PIECE.findall(text, 0, MAX_COUNTED_CHARS))) * _BIAS
    if len(text) > MAX_COUNTED_CHARS:
        tokens += (len(text) - MAX_COUNTED_CHARS) * max(
            tokens / MAX_COUNTED_CHARS, 1 / _MAX_CHARS_PER_TOKEN
        )
    return max(1, round(tokens))


ESTIMATE_COUNTER = TokenCounter("estimate", count_tokens)


def load_exact_counter() -> TokenCounter | None:
    """Return the o200k_base counter if tiktoken and its table (TIKTOKEN_CACHE_DIR) are available.

    Never downloads the table.
    """
    folder = os.environ.get("TIKTOKEN_CACHE_DIR")
    if folder:
        return _load_exact_from(folder)
    return None


def get_best_counter() -> TokenCounter:
    """Return the exact counter if available, else the estimate."""
    return load_exact_counter() or ESTIMATE_COUNTER


@cache
def _load_exact_from(folder: str) -> TokenCounter | None:
    try:
        import tiktoken

        table = (Path(folder) / _TABLE_FILE).read_bytes()
    except (ImportError, OSError):
        return None
    if hashlib.sha256(table).hexdigest() != _TABLE_SHA256:
        return None
    encoding = tiktoken.get_encoding("o200k_base")
    return TokenCounter("o200k_base", lambda text: len(encoding.encode_ordinary(text)))


@lru_cache(maxsize=4_096)
def _estimate_piece(piece: str) -> float:
    """Return the average cost of one piece."""
    if piece in _COMMON:
        return 1.0
    first = piece[0]
    last = piece[-1]
    if len(piece) >= 80 and piece.isascii() and not piece.isspace():
        return len(piece) * 0.69
    if "a" <= last <= "z" or "A" <= last <= "Z":
        bare = "a" <= first <= "z" or "A" <= first <= "Z"
        if not bare and first > "\x7f":
            return _estimate_non_ascii(first) + _estimate_piece(piece[1:])
        word = piece if bare else piece[1:]
        if len(word) > 1 and not word[1:].islower():
            return _look_up_cost(_CAPITALS, len(word))
        if bare:
            return _look_up_cost(_AT_START, len(word))
        return _look_up_cost(_AFTER_SPACE if first == " " else _AFTER_MARK, len(word))
    if last > "\x7f":
        return _estimate_non_ascii(piece)
    if "0" <= first <= "9" or piece.isspace():
        return 1.0
    if len(piece) > 4 and len(set(piece.strip())) == 1:
        return 1.0 + len(piece) // 20
    return _look_up_cost(_MARKS, len(piece))


def _look_up_cost(table: tuple[float, ...], length: int) -> float:
    if length < len(table):
        return table[length]
    return table[-1] + (length - len(table) + 1) / 3


def _estimate_non_ascii(run: str) -> float:
    """Return the cost of accented letters, other alphabets, symbols and scripts without spaces."""
    cost = 0.3
    for char in run.lstrip():
        cost += _NON_ASCII_COSTS[bisect_right(_NON_ASCII_STARTS, char)]
    return cost


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


def cut_at_space(text: str) -> str:
    """Cut text at its last space, unless that is in its first half."""
    space = text.rfind(" ")
    if space > len(text) // 2:
        return text[:space]
    return text


def truncate(text: str, max_tokens: int) -> str:
    """Cut text to at most `max_tokens`, at a word boundary."""
    full_length = len(text)
    text = text[: max_tokens * 8]
    if len(text) == full_length and count_tokens(text) <= max_tokens:
        return text
    while text and (cost := count_tokens(text)) > max_tokens - 1:
        end = min(len(text) - 1, int(len(text) * (max_tokens - 1) / cost))
        text = cut_at_space(text[:end])
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
        cost = max_tokens + 1
        if line_end - end <= max_tokens * 8:
            cost = count_tokens(text[end:line_end])
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


def format_count(number: int, singular: str, plural: str = "") -> str:
    """Format a number with its noun: `1 tool`, `1,200 tools`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def to_short_line(text: str, max_tokens: int) -> str:
    """Return an untrusted text as one line of at most `max_tokens`."""
    # Tokens rarely exceed 8 characters, so a long text need not be read to its end.
    return truncate(
        " ".join(sanitize_text(text[: max_tokens * _CHARS_PER_TOKEN]).split()), max_tokens
    )


def compute_remaining_tokens(budget: int, *lines: str) -> int:
    """Return what a budget leaves for the entries of a response beside its other lines."""
    return int(budget * _USABLE_SHARE) - _RESERVED_TOKENS - count_tokens("\n".join(lines)) - 1
