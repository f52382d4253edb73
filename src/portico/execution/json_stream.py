"""Large JSON as a stream of its parts, from a value or from text, and as lines that can be paged and searched. Pure.

A part is small enough that encoding or decoding it takes well under a millisecond or two: both hold the interpreter's
lock, so that a thread which did ten megabytes at once would stop the event loop as if it ran there. Nothing here
recurses, however deep a value is.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, cast

from portico.upstream import jsontext
from portico.upstream.json_values import weight
from portico.upstream.json_windows import CLOSING, Part, whole, windows

__all__ = ["Part", "compact", "decoded", "dismantle", "encode", "lines", "parts", "weight", "whole"]

LINE = 600
"""Characters of a container that stays on one line; a heavier one has a line for each child."""
MAX_INDENT = 12

_CONTAINERS = (dict, list)
"""A union would be made anew at every look."""
_FREED = 4_096
_OWN_REFERENCES = 3
"""Of a value that is taken apart: the list, the name and the argument of `getrefcount`."""
_COUNTED = 16_384
"""Keys that are sorted at once."""
_LONG_TEXT = 64 * 1024
"""Characters of a text that are encoded at once."""


def parts(value: Any, key: str | None = None, *, ordered: bool = False) -> Iterator[Part]:
    """A value's parts: heavy containers are opened, light ones are items.

    With `ordered`, the fields of opened objects come in the order of their names, unless they are very many.
    """
    opened: list[Iterator[tuple[str | None, Any]]] = [iter(((key, value),))]
    while opened:
        for name, child in opened[-1]:
            if isinstance(child, _CONTAINERS) and child and weight(child, LINE) >= LINE:
                yield "open", name, "[" if isinstance(child, list) else "{"
                opened.append(_children(child, ordered))
                break
            yield "item", name, child
        else:
            opened.pop()
            if opened:
                yield "close", None, None


def _children(container: Any, ordered: bool) -> Iterator[tuple[str | None, Any]]:
    if not isinstance(container, dict):
        return ((None, child) for child in container)
    fields = cast("dict[str, Any]", container)
    if ordered and len(fields) <= _COUNTED:
        return ((name, fields[name]) for name in sorted(fields))
    return iter(fields.items())


def decoded(text: str) -> Iterator[Part]:
    """The parts of JSON text, without the whole value ever being in memory; raises ValueError where it is not JSON."""
    for part in windows(text):
        if part[0] == "item":
            yield from parts(part[2], part[1])
        else:
            yield part


def dismantle(values: list[Any], *, shared: bool = True) -> None:
    """Take the values in a list apart, so that they are freed bit by bit and not in one long breath.

    Without `shared`, what somebody else holds is left as it is.
    """
    while values:
        one = values[-1]
        if not shared and sys.getrefcount(one) > _OWN_REFERENCES:
            values.pop()
        elif isinstance(one, dict) and one:
            values += [one.popitem()[1] for _ in range(min(len(one), _FREED))]
        elif isinstance(one, list) and one:
            values += one[-_FREED:]
            del one[-_FREED:]
        else:
            values.pop()


def compact(stream: Iterable[Part], encode: Callable[[Any], str]) -> Iterator[str]:
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
            yield from _encoded(key, encode)
            yield ":"
        if what == "open":
            yield value
            closing.append(CLOSING[value])
            comma = ""
        else:
            yield from _encoded(value, encode)
            comma = ","


def encode(value: Any) -> str:
    """A light value as JSON."""
    return jsontext.dumps(value).decode()


def _encoded(value: Any, encode: Callable[[Any], str]) -> Iterator[str]:
    """The JSON of a light value, or of a text of any length, in pieces."""
    if not isinstance(value, str) or len(value) <= _LONG_TEXT:
        yield encode(value)
        return
    yield '"'
    for at in range(0, len(value), _LONG_TEXT):
        yield encode(value[at : at + _LONG_TEXT])[1:-1]
    yield '"'


def lines(stream: Iterable[Part]) -> Iterator[str]:
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
            before += encode(value)  # there may be a million of them
            continue
        named = () if key is None else chain(_encoded(key, encode), (": ",))
        for piece in chain(named, (value,) if what == "open" else _encoded(value, encode)):
            if len(before) >= _LONG_TEXT:
                yield before
                before = ""
            before += piece
        if what == "open":
            yield f"{before}\n"
            closing.append(CLOSING[value])
            before = None
    yield f"{before}\n"
