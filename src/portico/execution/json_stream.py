"""Large JSON as a stream of its parts, from a value or from text, and as lines that can be paged and searched. Pure.

A part is small enough that encoding or decoding it takes well under a millisecond or two: both hold the interpreter's
lock, so that a thread which did ten megabytes at once would stop the event loop as if it ran there. Nothing here
recurses, however deep a value is.
"""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from portico.upstream import jsontext
from portico.upstream.json_windows import CLOSING, Part, whole, windows

__all__ = ["Part", "decoded", "dismantle", "lines", "parts", "weight", "whole"]

LINE = 600
"""Characters of a container that stays on one line; a heavier one has a line for each child."""
MAX_INDENT = 12

_CONTAINERS = (dict, list)
"""A union would be made anew at every look."""
_FREED = 4_096


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
    for part in windows(text):
        if part[0] == "item":
            yield from parts(part[2], part[1])
        else:
            yield part


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
            closing.append(CLOSING[value])
            before = None
        else:
            before = start + jsontext.dumps(value).decode()
    yield f"{before}\n"
