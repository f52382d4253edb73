"""Decoding of large JSON text in windows that each hold the interpreter's lock briefly. Pure.

A decoder that gets fifty megabytes at once holds the lock until it is done, which blocks the event
loop even from another thread. Nothing here recurses, however deep a value is.
"""

import asyncio
import codecs
import functools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NoReturn

from portico.json_text import json_codec
from portico.json_text.json_codec import has_more_values

LARGE_BYTES = 128 * 1024
"""Size from which decoding in a thread pays off."""
MAX_VALUES = 2_000_000
"""Maximum number of values in one message: each takes up to a hundred bytes of memory, however
short its text is."""
WINDOW_CHARS = 64 * 1024
"""Characters that are decoded at once: 0.4 to 0.7 ms."""
MAX_NUMBER_CHARS = 128 * 1024

JsonPart = tuple[Literal["open", "item", "close"], str | None, Any]
"""Kind of part, key (None in an array), and the bracket or the value."""

CLOSING_BRACKETS = {"[": "]", "{": "}"}
_LONGEST_LITERAL = 16
"""Distance from the end of a window within which an error may be caused by that end."""
_NOT_JSON_START = re.compile(rb'[ \t\n\r]{0,100}[^ \t\n\r{\["0-9tfn-]')
_SPACE = re.compile(r"[ \t\n\r]*")
_CUT_ESCAPE = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?\Z"
)
"""An escape that may continue behind the end, or the first half of a surrogate pair."""
_ITEM_START = re.compile(r'\{\s*"[^"\\]{0,40}"|[\["]')
"""The start of an item that is one of many similar ones."""
_MAX_TRIES = 4
_FIRST_PENALTY = 64
"""Ends that are tried for a run of items, and items decoded one by one after none was right."""


class TooManyValues(ValueError):
    """The JSON text has too many values to fit in memory."""


async def decode(body: bytes) -> Any:
    """Decode JSON, large text in a thread; raises ValueError."""
    if len(body) < LARGE_BYTES:
        return json_codec.loads(body)
    return await asyncio.to_thread(decode_chunked, body)


def decode_sync(body: bytes) -> Any:
    """Decode JSON in this thread, large text in windows; raises ValueError."""
    if len(body) < LARGE_BYTES:
        return json_codec.loads(body)
    return decode_chunked(body)


def decode_chunked(body: bytes, *, is_counted: bool = False) -> Any:
    """Decode like `json_codec.loads`, but in short steps; raises ValueError.

    `is_counted` is for a text that is known to have at most MAX_VALUES values.
    """
    if _NOT_JSON_START.match(body):
        # Checked first, because it spares decoding.
        raise ValueError("it does not begin as JSON does")
    if not is_counted and has_more_values(body, MAX_VALUES):
        raise TooManyValues(f"it has more than {MAX_VALUES:,} JSON values")
    return build_value(iter_parts(decode_utf8(body)))


def iter_parts(text: str) -> Iterator[JsonPart]:
    """Yield the parts of JSON text, each at most a window or one string; raises ValueError."""
    at = _skip_space(text, 0)
    window = _TextWindow(text)
    opened = list[str]()
    runs = _RunDecoder(text)
    key: str | None = None
    while True:
        found = window.read_value(at)
        if found is None:
            yield "open", key, text[at]
            opened.append(text[at])
            at = _skip_space(text, at + 1)
            is_empty = text[at : at + 1] == CLOSING_BRACKETS[opened[-1]]
        else:
            yield "item", key, found[0]
            at = _skip_space(text, found[1])
            is_empty = False
        if found is not None or is_empty:
            while opened and text[at : at + 1] == CLOSING_BRACKETS[opened[-1]]:
                yield "close", None, None
                opened.pop()
                at = _skip_space(text, at + 1)
            if not opened:
                break
            if text[at : at + 1] != ",":
                raise ValueError(f"a comma is missing at {at}")
            comma = at
            at = _skip_space(text, at + 1)
            if (
                found is not None
                and (run := runs.read_run(opened[-1], found[1], comma, at)) is not None
            ):
                yield from run[0]
                at = _skip_space(text, _skip_space(text, run[1]) + 1)
        key, at = _read_key(text, at) if opened[-1] == "{" else (None, at)
        at = _skip_space(text, at)
    if at != len(text):
        raise ValueError(f"there is more after the value, at {at}")


class _RunDecoder:
    """Decodes runs of similar items at once; one by one, a million small ones take long."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._items_to_skip = 0
        self._penalty = _FIRST_PENALTY

    def read_run(
        self, bracket: str, previous_end: int, comma: int, at: int
    ) -> "tuple[list[JsonPart], int] | None":
        """Return the items from `at` on and the end of the last one, or None.

        `previous_end` and `comma` are positions of the preceding item.
        """
        if self._items_to_skip > 0 or len(self._text) - at < WINDOW_CHARS // 4:
            self._items_to_skip -= 1
            return None
        text = self._text
        closed = text[previous_end - 1] in '}]"'
        start_match = _ITEM_START.match(text, at)
        mark = text[
            previous_end - 1 if closed else comma : start_match.end() if start_match else at
        ]
        window = text[at : at + WINDOW_CHARS]
        mark_position = len(window)
        for _ in range(_MAX_TRIES):
            mark_position = window.rfind(mark, 0, mark_position)
            if mark_position <= 0:
                break
            run_end = mark_position + closed
            try:
                # If this is JSON within brackets, it is a sequence of complete items.
                value = json_codec.loads(
                    f"{bracket}{window[:run_end]}{CLOSING_BRACKETS[bracket]}".encode()
                )
            except ValueError:
                # The container may end anywhere in the window.
                mark_position //= 2
                continue
            self._penalty = _FIRST_PENALTY
            if bracket == "{":
                pairs = value.items()
            else:
                pairs = ((None, item) for item in value)
            return [("item", name, item) for name, item in pairs], at + run_end
        self._items_to_skip = self._penalty
        self._penalty = self._penalty * 2
        return None


def build_value(parts: Iterable[JsonPart]) -> Any:
    root: list[Any] = []
    opened: list[Any] = [root]
    for kind, key, value in parts:
        if kind == "close":
            opened.pop()
            continue
        if kind == "item":
            child: Any = value
        elif value == "[":
            child = []
        else:
            child = {}
        if key is None:
            opened[-1].append(child)
        else:
            opened[-1][key] = child
        if kind == "open":
            opened.append(child)
    return root[0]


def decode_utf8(body: bytes) -> str:
    """Decode UTF-8 piece by piece; raises UnicodeDecodeError."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    step = 4 * WINDOW_CHARS
    starts = range(0, len(body), step)
    last = len(body) - step
    return join_text([decoder.decode(body[at : at + step], at >= last) for at in starts])


def _read_key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise ValueError(f"a key is missing at {at}")
    key, at = _DECODER.raw_decode(text, at)
    at = _skip_space(text, at)
    if text[at : at + 1] != ":":
        raise ValueError(f"a colon is missing at {at}")
    return key, at + 1


def _skip_space(text: str, at: int) -> int:
    """Return the position after white space; one step is at most a window."""
    while (found := _SPACE.match(text, at, at + WINDOW_CHARS)) and found.end() > at:
        at = found.end()
    return at


def _read_string(text: str, at: int) -> tuple[str, int]:
    """Return the string at a position, however long, and its end."""
    pieces: list[str] = []
    at += 1
    while at < len(text):
        piece = _trim_cut_escape(text[at : at + WINDOW_CHARS])
        # The added quotation mark ends the piece, unless the string's own comes first.
        value, end = _DECODER.raw_decode(f'"{piece}"')
        pieces.append(_fix_surrogates(value, piece))
        at += min(end - 1, len(piece))
        if end - 1 <= len(piece):
            return join_text(pieces), at
        if not piece:
            break
    raise ValueError(f"a string does not end, at {at}")


def _trim_cut_escape(piece: str) -> str:
    """Remove an escape, or half of a surrogate pair of escapes, that the end of a piece cuts."""
    found = _CUT_ESCAPE.search(piece, max(0, len(piece) - 12))
    while found:
        start = found.start()
        if (start - len(piece[:start].rstrip("\\"))) % 2 == 0:
            return piece[:start]
        found = _CUT_ESCAPE.search(piece, start + 1)
    return piece


def _fix_surrogates(value: Any, text: str) -> Any:
    # A search for one character is many times as fast.
    if "\\" in text and ("\\ud" in text or "\\uD" in text):
        return json_codec.replace_lone_surrogates(value)
    return value


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


class _TextWindow:
    """A copied window of the text, so that a decoder cannot run on for megabytes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._start = 0
        self._window = text[:WINDOW_CHARS]

    def read_value(self, at: int) -> tuple[Any, int] | None:
        """Return the value at a position and its end; None for a container larger than the
        window."""
        if (found := self._decode_within(at)) is None and at > self._start:
            self._start = at
            self._window = self._text[at : at + WINDOW_CHARS]
            found = self._decode_within(at)
        if found is None and (first := self._text[at : at + 1]) not in CLOSING_BRACKETS:
            if first == '"':
                return _read_string(self._text, at)
            self._window = self._text[at : at + MAX_NUMBER_CHARS]
            found = self._decode_within(at)
            self._window = self._window[:WINDOW_CHARS]
            if found is None:
                raise ValueError(f"a number has more than {MAX_NUMBER_CHARS:,} characters, at {at}")
        return found

    def _decode_within(self, at: int) -> tuple[Any, int] | None:
        start = at - self._start
        try:
            value, end = _DECODER.raw_decode(self._window, start)
        except json.JSONDecodeError as error:
            cut = error.pos >= len(self._window) - _LONGEST_LITERAL or error.msg.startswith(
                "Unterminated string"
            )
            if cut and self._start + len(self._window) < len(self._text):
                return None
            raise
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        # A number at the edge may continue behind it, and `1e+` is a number only with the rest.
        edge = isinstance(value, int | float) and end >= len(self._window) - 3
        if edge and self._start + len(self._window) < len(self._text):
            return None
        return _fix_surrogates(value, self._window[start:end]), self._start + end


# --- long texts


LONG = 2 * 1024**2
"""Length from which text is joined in steps."""
_ASCII = 0x7F
_LATIN_1 = 0xFF
_TWO_BYTES = 0xFFFF
_FOUR_BYTES = 0x10FFFF
"""The last characters of the four storage formats of CPython's text.

The narrowest that fits is required: texts in different formats are never equal.
"""


def join_text(pieces: Sequence[str]) -> str:
    """Return the same as `"".join(pieces)`; one step takes as long as the longest piece."""
    size = sum(map(len, pieces))
    if size < LONG:
        return "".join(pieces)
    functions = _load_functions()
    if functions is None:
        return "".join(pieces)
    create, copy, to_object, release = functions
    text = create(size, max(map(_find_width, pieces)))
    try:
        position = 0
        for piece in pieces:
            position += copy(text, position, piece, 0, len(piece))
        return to_object(text)
    finally:
        release(text)


def _find_width(piece: str) -> int:
    """Return the last character of the narrowest format for a piece."""
    if piece.isascii():
        return _ASCII
    try:
        piece.encode("latin-1")
    except UnicodeEncodeError:
        pairs = len(piece.encode("utf-16-le", "surrogatepass")) > 2 * len(piece)
        if pairs:
            return _FOUR_BYTES
        return _TWO_BYTES
    return _LATIN_1


@functools.cache
def _load_functions() -> tuple[Any, ...] | None:
    """Return the functions that create, fill, convert and release a text; None on other Pythons.

    Until it is converted to an object a text is a plain address: CPython refuses to fill one with
    two references.
    """
    if sys.implementation.name != "cpython":
        return None
    try:
        import ctypes  # imported here, because it slows start-up
    except ImportError:
        return None
    address = ctypes.c_void_p
    size = ctypes.c_ssize_t
    value = ctypes.py_object
    interface = ctypes.pythonapi
    create = ctypes.PYFUNCTYPE(address, size, ctypes.c_uint32)(("PyUnicode_New", interface))
    copying = ctypes.PYFUNCTYPE(size, address, size, value, size, size)
    copy = copying(("PyUnicode_CopyCharacters", interface))
    release = ctypes.PYFUNCTYPE(None, address)(("Py_DecRef", interface))

    def to_object(text: int) -> Any:
        return ctypes.cast(text, value).value

    return create, copy, to_object, release
