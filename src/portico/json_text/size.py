"""Estimates: values in JSON text before decoding, characters of a value before encoding. Pure.

Decoding takes up to a microsecond and a hundred bytes for each value: four megabytes of text take
5 ms, four megabytes of empty lists more than a second. Values are counted by their separators
(commas, brackets) outside of strings.
"""

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, cast

_BACKSLASHES = re.compile(rb"\\+")
_SLICE_BYTES = 256 * 1024
"""Bytes processed in one step, so that none holds the interpreter's lock for long."""


_CONTAINERS = (dict, list)
"""A tuple, because a union would be created at every check."""
_LONG_NUMBER = 10**18
_KEYS_PER_STEP = 16_384
"""Keys or children processed in one step."""


def has_more_values(body: bytes, limit: int) -> bool:
    """Return whether JSON text has more than `limit` values, give or take one a container.

    Undefined for text that is not JSON.
    """
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
    """Yield slices of the text, none of which ends inside an escape."""
    start = 0
    while start < len(body):
        end = start + _SLICE_BYTES
        if run := _BACKSLASHES.match(body, end - 1):
            # A backslash may itself be escaped: include the whole run and the escaped character.
            end = run.end() + 1
        yield body[start:end]
        start = end


def _count_separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def estimate_size(value: Any, limit: int) -> int:
    """Estimate the characters of a value as JSON; stops counting at `limit`."""
    if isinstance(value, str):
        return len(value) + 3
    total = 5
    pending: list[Any] = [value]
    while pending and total < limit:
        container = pending.pop()
        children: Collection[Any] = ()
        # Counted before iterating, so that a million children are not visited in vain.
        if isinstance(container, dict):
            total += 2 + 4 * len(container)
            if total < limit:
                keys = iter(cast("dict[str, Any]", container))
                while total < limit and (length := sum(map(len, islice(keys, _KEYS_PER_STEP)))):
                    total += length
                children = container.values()
        elif isinstance(container, list):
            total += 2 + 2 * len(container)
            if total < limit:
                children = container
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
    """Estimate the size of many children in portions.

    For millions at once `estimate_size` would create a list that one garbage collection takes long
    to traverse.
    """
    total = 0
    rest = iter(children)
    while total < stop and (chunk := list(islice(rest, _KEYS_PER_STEP))):
        # `estimate_size` adds this for the list that holds them here.
        overhead = 7 + 2 * len(chunk)
        total += estimate_size(chunk, stop - total + overhead) - overhead
    return total
