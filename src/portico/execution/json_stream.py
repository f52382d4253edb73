"""Large JSON as a stream of its parts, from a value or from text, and as lines that can be paged and searched. Pure.

A part is small enough that encoding or decoding it takes well under a millisecond or two: both hold the interpreter's
lock, so that a thread which did ten megabytes at once would stop the event loop as if it ran there. Nothing here
recurses, however deep a value is.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NoReturn, cast

from portico.upstream import jsontext

LINE = 600
"""Characters of a container that stays on one line; a heavier one has a line for each child."""
WINDOW = 256 * 1024
"""Characters of text that are decoded at once."""
MAX_INDENT = 12

Part = tuple[Literal["open", "item", "close"], str | None, Any]
"""What happens, under which key (None in an array), and the bracket or the value."""

_CONTAINERS = (dict, list)
"""A union would be made anew at every look."""
_CLOSING = {"[": "]", "{": "}"}
_FREED = 4_096
_LONGEST_LITERAL = 16
"""Characters before the end of a window where an error may only mean that the window ends."""
_SPACE = re.compile(r"[ \t\n\r]*")


def weight(value: Any, stop: int) -> int:
    """About how many characters a value has as JSON; counting ends once `stop` is reached."""
    if isinstance(value, str):
        return len(value) + 3
    total = 5
    pending: list[Any] = [value]
    while pending and total < stop:
        one = pending.pop()
        children: Iterable[Any] = ()
        # Before they are looked at: a million children must not be walked to learn that they are many.
        if isinstance(one, dict):
            total += 2 + 4 * len(one)
            if total < stop:
                total += sum(map(len, cast("dict[str, Any]", one)))
                children = one.values()
        elif isinstance(one, list):
            total += 2 + 2 * len(one)
            children = one if total < stop else ()
        for child in children:
            if isinstance(child, str):
                total += len(child) + 3
            elif isinstance(child, _CONTAINERS):
                pending.append(child)
            else:
                total += 3
    return total


def parts(value: Any, key: str | None = None) -> Iterator[Part]:
    """A value's parts: heavy containers are opened, light ones are items."""
    opened: list[Iterator[tuple[str | None, Any]]] = [iter(((key, value),))]
    while opened:
        for name, child in opened[-1]:
            if isinstance(child, _CONTAINERS) and weight(child, LINE) >= LINE:
                yield "open", name, "[" if isinstance(child, list) else "{"
                opened.append(_children(child))
                break
            yield "item", name, child
        else:
            opened.pop()
            if opened:
                yield "close", None, None


def _children(container: Any) -> Iterator[tuple[str | None, Any]]:
    return iter(container.items()) if isinstance(container, dict) else ((None, child) for child in container)


def decoded(text: str) -> Iterator[Part]:
    """The parts of JSON text, without the whole value ever being in memory; raises ValueError where it is not JSON."""
    at, reading, opened = 0, _Window(text), list[str]()
    key: str | None = None
    while True:
        at = _skip(text, at)
        found = reading.value(at)
        if found is None:
            yield "open", key, text[at]
            opened.append(text[at])
            at = _skip(text, at + 1)
            empty = text[at : at + 1] == _CLOSING[opened[-1]]
        else:
            yield from parts(found[0], key)
            at = _skip(text, found[1])
            empty = False
        if found is not None or empty:
            while opened and text[at : at + 1] == _CLOSING[opened[-1]]:
                yield "close", None, None
                opened.pop()
                at = _skip(text, at + 1)
            if not opened:
                break
            if text[at : at + 1] != ",":
                raise ValueError(f"a comma is missing at {at}")
            at = _skip(text, at + 1)
        key, at = _key(text, at) if opened[-1] == "{" else (None, at)
    if at != len(text):
        raise ValueError(f"there is more after the value, at {at}")


def whole(stream: Iterable[Part]) -> Any:
    """The value that parts are of."""
    root: list[Any] = []
    opened: list[Any] = [root]
    for what, key, value in stream:
        if what == "close":
            opened.pop()
            continue
        child: Any = value if what == "item" else [] if value == "[" else {}
        if key is None:
            opened[-1].append(child)
        else:
            opened[-1][key] = child
        if what == "open":
            opened.append(child)
    return root[0]


def dismantle(value: Any) -> None:
    """Take a large value of one's own apart, so that it is freed bit by bit and not in one long breath."""
    pending: list[Any] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            while one:
                pending.append(one.popitem()[1])
        elif isinstance(one, list):
            while one:
                pending += one[-_FREED:]
                del one[-_FREED:]


def lines(stream: Iterable[Part]) -> Iterator[str]:
    """Parts as lines of text; joined, they are the JSON again."""
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
        name = "" if key is None else f"{jsontext.dumps(key).decode()}: "
        start = " " * min(len(closing), MAX_INDENT) + name
        if what == "open":
            yield f"{start}{value}\n"
            closing.append(_CLOSING[value])
            before = None
        else:
            before = start + jsontext.dumps(value).decode()
    yield f"{before}\n"


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise ValueError(f"a key is missing at {at}")
    key, at = _DECODER.raw_decode(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise ValueError(f"a colon is missing at {at}")
    return key, at + 1


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


class _Window:
    """A part of the text, copied out, so that a decoder cannot run on for megabytes."""

    def __init__(self, text: str) -> None:
        self._text, self._from, self._window = text, 0, text[:WINDOW]

    def value(self, at: int) -> tuple[Any, int] | None:
        """The value at a place and where it ends; None for a container that is too large to be decoded at once."""
        if (found := self._within(at)) is None and at > self._from:
            self._from, self._window = at, self._text[at : at + WINDOW]
            found = self._within(at)
        if found is None and self._text[at : at + 1] not in _CLOSING:
            return _DECODER.raw_decode(self._text, at)
        return found

    def _within(self, at: int) -> tuple[Any, int] | None:
        try:
            value, end = _DECODER.raw_decode(self._window, at - self._from)
        except json.JSONDecodeError as error:
            cut = error.pos >= len(self._window) - _LONGEST_LITERAL or error.msg.startswith("Unterminated string")
            if cut and self._from + len(self._window) < len(self._text):
                return None
            raise
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        # A number at the edge may have more digits behind it.
        if end == len(self._window) and self._from + end < len(self._text):
            return None
        return value, self._from + end
