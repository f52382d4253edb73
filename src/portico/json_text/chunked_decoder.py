"""Large JSON text taken in windows, so that no single step holds the interpreter's lock for long.
Pure.

A decoder that is given fifty megabytes at once holds that lock until it is done, and the event loop
stands still even if it runs in another thread. Nothing here recurses, however deep a value is.
"""

import asyncio
import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NoReturn

from portico.json_text import json_codec
from portico.json_text.size import has_more_values
from portico.json_text.text_join import join_text

LARGE_BYTES = 128 * 1024
"""Bytes from which a thread is worth its while."""
MAX_VALUES = 2_000_000
"""JSON values of one message: a value takes up to a hundred bytes of memory, whatever it takes as
text."""
WINDOW_CHARS = 128 * 1024
"""Characters of text that are decoded at once."""

JsonPart = tuple[Literal["open", "item", "close"], str | None, Any]
"""What happens, under which key (None in an array), and the bracket or the value."""

CLOSING_BRACKETS = {"[": "]", "{": "}"}
_LONGEST_LITERAL = 16
"""Characters before the end of a window where an error may only mean that the window ends."""
_NOT_JSON_START = re.compile(rb'[ \t\n\r]{0,100}[^ \t\n\r{\["0-9tfn-]')
_SPACE = re.compile(r"[ \t\n\r]*")
_CUT_ESCAPE = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?\Z"
)
"""An escape that may go on behind the end, or be the first half of a pair."""
_ITEM_START = re.compile(r'\{\s*"[^"\\]{0,40}"|[\["]')
"""How an item looks that is one of many."""
_MAX_TRIES = 4
_FIRST_PENALTY = 64
"""Ends that are tried for a run of items, and items that are taken one by one when none was right.
"""


class TooManyValues(ValueError):
    """JSON that would take too much memory."""


async def decode(body: bytes) -> Any:
    """The value of JSON: a small one at once, a large one in a thread; raises ValueError."""
    if len(body) < LARGE_BYTES:
        return json_codec.loads(body)
    return await asyncio.to_thread(decode_chunked, body)


def decode_sync(body: bytes) -> Any:
    """The value of JSON in this thread, a large one in pieces; raises ValueError."""
    if len(body) < LARGE_BYTES:
        return json_codec.loads(body)
    return decode_chunked(body)


def decode_chunked(body: bytes) -> Any:
    """The value of JSON, as `jsontext.loads` reads it but without a long breath; raises ValueError."""
    if _NOT_JSON_START.match(body):
        raise ValueError("it does not begin as JSON does")  # and need not be decoded to find out
    if has_more_values(body, MAX_VALUES):
        raise TooManyValues(f"it has more than {MAX_VALUES:,} JSON values")
    return build_value(iter_parts(decode_utf8(body)))


def iter_parts(text: str) -> Iterator[JsonPart]:
    """The parts of JSON text, each of at most a window or one string; raises ValueError where it is
    not JSON."""
    at = _skip_space(text, 0)
    reading = _TextWindow(text)
    opened = list[str]()
    runs = _RunDecoder(text)
    key: str | None = None
    while True:
        found = reading.read_value(at)
        if found is None:
            yield "open", key, text[at]
            opened.append(text[at])
            at = _skip_space(text, at + 1)
            empty = text[at : at + 1] == CLOSING_BRACKETS[opened[-1]]
        else:
            yield "item", key, found[0]
            at = _skip_space(text, found[1])
            empty = False
        if found is not None or empty:
            while opened and text[at : at + 1] == CLOSING_BRACKETS[opened[-1]]:
                yield "close", None, None
                opened.pop()
                at = _skip_space(text, at + 1)
            if not opened:
                break
            if text[at : at + 1] != ",":
                raise ValueError(f"a comma is missing at {at}")
            after = at
            at = _skip_space(text, at + 1)
            if (
                found is not None
                and (run := runs.read_run(opened[-1], found[1], after, at)) is not None
            ):
                yield from run[0]
                at = _skip_space(text, _skip_space(text, run[1]) + 1)
        key, at = _read_key(text, at) if opened[-1] == "{" else (None, at)
        at = _skip_space(text, at)
    if at != len(text):
        raise ValueError(f"there is more after the value, at {at}")


class _RunDecoder:
    """Many items at once, where they look alike: one by one, a million small ones take their time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._items_to_skip = 0
        self._penalty = _FIRST_PENALTY

    def read_run(
        self, bracket: str, previous_end: int, comma: int, at: int
    ) -> "tuple[list[JsonPart], int] | None":
        """The items from `at`, and where the last of them ends; `end` and `comma` are those of the
        item before."""
        if self._items_to_skip > 0 or len(self._text) - at < WINDOW_CHARS // 4:
            self._items_to_skip -= 1
            return None
        text = self._text
        closed = text[previous_end - 1] in '}]"'
        begins = _ITEM_START.match(text, at)
        mark = text[previous_end - 1 if closed else comma : begins.end() if begins else at]
        window = text[at : at + WINDOW_CHARS]
        upto = len(window)
        for _ in range(_MAX_TRIES):
            upto = window.rfind(mark, 0, upto)
            if upto <= 0:
                break
            stop = upto + closed
            try:
                # What is JSON with these brackets around it are whole items, whatever the mark was.
                value = json_codec.loads(
                    f"{bracket}{window[:stop]}{CLOSING_BRACKETS[bracket]}".encode()
                )
            except ValueError:
                continue
            self._penalty = _FIRST_PENALTY
            if bracket == "{":
                named = value.items()
            else:
                named = ((None, item) for item in value)
            return [("item", name, item) for name, item in named], at + stop
        self._items_to_skip = self._penalty
        self._penalty = self._penalty * 2
        return None


def build_value(parts: Iterable[JsonPart]) -> Any:
    """The value that parts are of."""
    root: list[Any] = []
    opened: list[Any] = [root]
    for what, key, value in parts:
        if what == "close":
            opened.pop()
            continue
        if what == "item":
            child: Any = value
        elif value == "[":
            child = []
        else:
            child = {}
        if key is None:
            opened[-1].append(child)
        else:
            opened[-1][key] = child
        if what == "open":
            opened.append(child)
    return root[0]


def decode_utf8(body: bytes) -> str:
    """UTF-8 as text, decoded piece by piece; raises UnicodeDecodeError."""
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
    found = _SPACE.match(text, at)
    if found:
        return found.end()
    return at


def _read_string(text: str, at: int) -> tuple[str, int]:
    """The string at a place, however long, and where it ends."""
    pieces: list[str] = []
    at += 1
    while at < len(text):
        piece = _trim_cut_escape(text[at : at + WINDOW_CHARS])
        # A quotation mark of ours ends it; where one of its own comes before, the string ends
        # there.
        value, end = _DECODER.raw_decode(f'"{piece}"')
        pieces.append(_fix_surrogates(value, piece))
        at += min(end - 1, len(piece))
        if end - 1 <= len(piece):
            return join_text(pieces), at
        if not piece:
            break
    raise ValueError(f"a string does not end, at {at}")


def _trim_cut_escape(piece: str) -> str:
    """A piece of a string without the escape, or the half of a pair of escapes, that its end cuts
    in two."""
    found = _CUT_ESCAPE.search(piece, max(0, len(piece) - 12))
    while found:
        start = found.start()
        if (start - len(piece[:start].rstrip("\\"))) % 2 == 0:
            return piece[:start]
        found = _CUT_ESCAPE.search(piece, start + 1)
    return piece


def _fix_surrogates(value: Any, text: str) -> Any:
    if "\\ud" in text or "\\uD" in text:
        return json_codec.replace_lone_surrogates(value)
    return value


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


class _TextWindow:
    """A part of the text, copied out, so that a decoder cannot run on for megabytes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._start = 0
        self._window = text[:WINDOW_CHARS]

    def read_value(self, at: int) -> tuple[Any, int] | None:
        """The value at a place and where it ends; None for a container that is too large to be
        decoded at once."""
        if (found := self._decode_within(at)) is None and at > self._start:
            self._start = at
            self._window = self._text[at : at + WINDOW_CHARS]
            found = self._decode_within(at)
        if found is None and (first := self._text[at : at + 1]) not in CLOSING_BRACKETS:
            if first == '"':
                return _read_string(self._text, at)
            return _DECODER.raw_decode(self._text, at)
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
        # A number at the edge may have more digits behind it, and `1e+` is a number only with them.
        edge = isinstance(value, int | float) and end >= len(self._window) - 3
        if edge and self._start + len(self._window) < len(self._text):
            return None
        return _fix_surrogates(value, self._window[start:end]), self._start + end
