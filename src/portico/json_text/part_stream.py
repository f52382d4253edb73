"""Large JSON as a stream of its parts, from a value or from text, and as lines that can be paged
and searched. Pure.

A part is small enough that encoding or decoding it takes well under a millisecond or two: both hold
the interpreter's lock, so that a thread which did ten megabytes at once would stop the event loop
as if it ran there. Nothing here recurses, however deep a value is.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, cast

from portico.json_text import json_codec
from portico.json_text.chunked_decoder import CLOSING_BRACKETS, JsonPart, build_value, iter_parts
from portico.json_text.size import estimate_size

__all__ = [
    "JsonPart",
    "build_value",
    "decode_parts",
    "dismantle",
    "encode_compact",
    "encode_lines",
    "encode_value",
    "estimate_size",
    "to_parts",
]

MAX_LINE_CHARS = 600
"""Characters of a container that stays on one line; a heavier one has a line for each child."""
MAX_INDENT = 12

_CONTAINERS = (dict, list)
"""A union would be made anew at every look."""
_RELEASE_STEP = 4_096
_OWN_REFERENCES = 3
"""Of a value that is taken apart: the list, the name and the argument of `getrefcount`."""
_MAX_SORTED_KEYS = 16_384
"""Keys that are sorted at once."""
_TEXT_PIECE_CHARS = 64 * 1024
"""Characters of a text that are encoded at once."""


def to_parts(value: Any, key: str | None = None, *, ordered: bool = False) -> Iterator[JsonPart]:
    """A value's parts: heavy containers are opened, light ones are items.

    With `ordered`, the fields of opened objects come in the order of their names, unless they are
    very many.
    """
    opened: list[Iterator[tuple[str | None, Any]]] = [iter(((key, value),))]
    while opened:
        for name, child in opened[-1]:
            if (
                isinstance(child, _CONTAINERS)
                and child
                and estimate_size(child, MAX_LINE_CHARS) >= MAX_LINE_CHARS
            ):
                yield "open", name, "[" if isinstance(child, list) else "{"
                opened.append(_iter_children(child, ordered))
                break
            yield "item", name, child
        else:
            opened.pop()
            if opened:
                yield "close", None, None


def _iter_children(container: Any, ordered: bool) -> Iterator[tuple[str | None, Any]]:
    if not isinstance(container, dict):
        return ((None, child) for child in container)
    fields = cast("dict[str, Any]", container)
    if ordered and len(fields) <= _MAX_SORTED_KEYS:
        return ((name, fields[name]) for name in sorted(fields))
    return iter(fields.items())


def decode_parts(text: str) -> Iterator[JsonPart]:
    """The parts of JSON text, without the whole value ever being in memory; raises ValueError where
    it is not JSON."""
    for part in iter_parts(text):
        if part[0] == "item":
            yield from to_parts(part[2], part[1])
        else:
            yield part


def dismantle(values: list[Any], *, shared: bool = True) -> None:
    """Take the values in a list apart, so that they are freed bit by bit and not in one long
    breath.

    Without `shared`, what somebody else holds is left as it is.
    """
    while values:
        one = values[-1]
        if not shared and sys.getrefcount(one) > _OWN_REFERENCES:
            values.pop()
        elif isinstance(one, dict) and one:
            values += [one.popitem()[1] for _ in range(min(len(one), _RELEASE_STEP))]
        elif isinstance(one, list) and one:
            values += one[-_RELEASE_STEP:]
            del one[-_RELEASE_STEP:]
        else:
            values.pop()


def encode_compact(stream: Iterable[JsonPart], encode: Callable[[Any], str]) -> Iterator[str]:
    """Parts as pieces of text; joined, they are the JSON again, without spaces."""
    closing: list[str] = []
    comma = ""
    for what, key, value in stream:
        if what == "close":
            yield closing.pop()
            comma = ","
            continue
        yield comma
        if key is not None:
            yield from _encode_pieces(key, encode)
            yield ":"
        if what == "open":
            yield value
            closing.append(CLOSING_BRACKETS[value])
            comma = ""
        else:
            yield from _encode_pieces(value, encode)
            comma = ","


def encode_value(value: Any) -> str:
    """A light value as JSON."""
    return json_codec.dumps(value).decode()


def _encode_pieces(value: Any, encode: Callable[[Any], str]) -> Iterator[str]:
    """The JSON of a light value, or of a text of any length, in pieces."""
    if not isinstance(value, str) or len(value) <= _TEXT_PIECE_CHARS:
        yield encode(value)
        return
    yield '"'
    for at in range(0, len(value), _TEXT_PIECE_CHARS):
        yield encode(value[at : at + _TEXT_PIECE_CHARS])[1:-1]
    yield '"'


def encode_lines(stream: Iterable[JsonPart]) -> Iterator[str]:
    """Parts as lines of text, long ones in pieces; joined, they are the JSON again."""
    closing: list[str] = []
    before: str | None = None
    for what, key, value in stream:
        if what == "close":
            if before is not None:
                yield f"{before}\n"
            before = " " * (min(len(closing), MAX_INDENT) - 1) + closing.pop()
            continue
        if before is not None:
            yield f"{before},\n"
        before = " " * min(len(closing), MAX_INDENT)
        if key is None and what == "item" and not isinstance(value, str):
            before += encode_value(value)  # there may be a million of them
            continue
        if key is None:
            named = ()
        else:
            named = chain(_encode_pieces(key, encode_value), (": ",))
        for piece in chain(
            named, (value,) if what == "open" else _encode_pieces(value, encode_value)
        ):
            if len(before) >= _TEXT_PIECE_CHARS:
                yield before
                before = ""
            before += piece
        if what == "open":
            yield f"{before}\n"
            closing.append(CLOSING_BRACKETS[value])
            before = None
    yield f"{before}\n"
