"""Token counts: a calibrated estimate for the hot path, exact o200k_base counts if available.

The estimate splits text into the pieces that a byte-pair tokenizer starts from (a word with the
character before it, up to three digits, a run of punctuation, white space) and adds up their
average costs. The averages were measured with o200k_base on the listings, descriptions and
renderings of 4,136 tools of real servers; they lean a little high, because exceeding a budget costs
more than leaving some of it unused.
"""

import hashlib
import os
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

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
    1.0,
    1.0,
    1.0,
    1.01,
    1.01,
    1.01,
    1.04,
    1.03,
    1.04,
    1.07,
    1.11,
    1.13,
    1.13,
    1.1,
    1.2,
    1.3,
    2.0,
)
_AT_START = (
    1.0,
    1.0,
    1.0,
    1.05,
    1.03,
    1.07,
    1.17,
    1.18,
    1.18,
    1.41,
    1.31,
    1.53,
    2.0,
    2.0,
    2.0,
    2.3,
    2.8,
)
_AFTER_MARK = (
    1.0,
    1.0,
    1.06,
    1.23,
    1.12,
    1.25,
    1.29,
    1.42,
    1.57,
    1.77,
    1.84,
    1.96,
    2.3,
    2.3,
    2.6,
    2.9,
    3.2,
)
_CAPITALS = (
    1.0,
    1.0,
    1.04,
    1.15,
    1.22,
    1.53,
    1.62,
    1.87,
    2.03,
    2.16,
    2.5,
    3.0,
    3.1,
    3.6,
    3.7,
    3.9,
    4.2,
)
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
    "\u0370",
    "\u0530",
    "\u2000",
    "\u2070",
    "\u2e80",
    "\uac00",
    "\ud7b0",
    "\U00010000",
)
_NON_ASCII_COSTS = (0.05, 0.21, 0.31, 0.7, 1.0, 0.71, 0.58, 0.71, 1.7)


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
        if bare:
            word = piece
        else:
            word = piece[1:]
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
