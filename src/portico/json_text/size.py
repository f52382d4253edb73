"""Count the values of JSON text before it is decoded, and the characters of a value before it is
encoded. Pure.

Decoding takes up to a microsecond and a hundred bytes a value: four megabytes of text take 5 ms,
four megabytes of empty lists more than a second. What is counted is what separates values (commas,
brackets) outside of strings.
"""

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, cast

_BACKSLASHES = re.compile(rb"\\+")
_SLICE_BYTES = 256 * 1024
"""Bytes that are looked at in one step, so that none holds the interpreter's lock for long."""


_CONTAINERS = (dict, list)
"""A union would be made again at every look."""
_LONG_NUMBER = 10**18
_KEYS_PER_STEP = 16_384
"""Keys, or children, that are looked at at once."""


def has_more_values(body: bytes, limit: int) -> bool:
    """Whether JSON text has more values than `most`, give or take one a container; any other text
    has whatever."""
    if len(body) <= limit or sum(map(_count_separators, _iter_slices(body))) <= limit:
        return False
    values = 0
    in_string = False
    for part in _iter_slices(body):
        # Without escapes, every second piece between quotation marks is a string.
        pieces = part.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        values += _count_separators(b"".join(pieces[in_string::2]))
        in_string ^= len(pieces) % 2 == 0
        if values > limit:
            return True
    return False


def _iter_slices(body: bytes) -> Iterator[bytes]:
    """Parts of the text, none of which ends inside an escape."""
    start = 0
    while start < len(body):
        end = start + _SLICE_BYTES
        if run := _BACKSLASHES.match(body, end - 1):
            # A backslash may itself be escaped: its run is taken whole, with what it escapes.
            end = run.end() + 1
        yield body[start:end]
        start = end


def _count_separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def estimate_size(value: Any, limit: int) -> int:
    """About how many characters a value has as JSON; counting ends once `stop` is reached."""
    if isinstance(value, str):
        return len(value) + 3
    total = 5
    pending: list[Any] = [value]
    while pending and total < limit:
        one = pending.pop()
        children: Collection[Any] = ()
        # Before they are looked at: a million children must not be walked to learn that they are
        # many.
        if isinstance(one, dict):
            total += 2 + 4 * len(one)
            if total < limit:
                keys = iter(cast("dict[str, Any]", one))
                while total < limit and (length := sum(map(len, islice(keys, _KEYS_PER_STEP)))):
                    total += length
                children = one.values()
        elif isinstance(one, list):
            total += 2 + 2 * len(one)
            if total < limit:
                children = one
            else:
                children = ()
        if len(children) > _KEYS_PER_STEP:
            total += _weigh_many(children, limit - total)
            continue
        for child in children:
            if isinstance(child, str):
                total += len(child) + 3
            elif isinstance(child, _CONTAINERS):
                if child:
                    pending.append(child)
                else:
                    total += 2
            elif type(child) is int and not -_LONG_NUMBER < child < _LONG_NUMBER:
                total += child.bit_length() // 3
            else:
                total += 3
    return total


def _weigh_many(children: Collection[Any], stop: int) -> int:
    """The weight of a container's children, in portions.

    Of millions at once, `estimate_size` would make a list that one collection of garbage takes long
    to walk through.
    """
    total = 0
    rest = iter(children)
    while total < stop and (some := list(islice(rest, _KEYS_PER_STEP))):
        around = 7 + 2 * len(some)  # what `estimate_size` adds for the list they are in here
        total += estimate_size(some, stop - total + around) - around
    return total
