"""JSON codec with estimates of sizes: orjson, and the standard library where orjson would change or
refuse a number.

orjson reads an integer beyond 64 bits as a float and cannot write one; a gateway must pass it
unchanged. And an encoder that gets fifty megabytes at once holds the interpreter's lock until it is
done: large values are encoded in pieces. Nothing there recurses, however deep a value is.
"""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import orjson

_BACKSLASHES = re.compile(rb"\\+")
_SLICE_BYTES = 64 * 1024
"""Bytes processed in one step, so that none holds the interpreter's lock for long: 0.35 ms."""
_CONTAINERS = (dict, list)
"""A tuple, because a union would be created at every check."""
_LONG_INTEGER = 10**18
_KEYS_PER_STEP = 16_384
"""Keys or children processed in one step."""
LONG_DIGITS = 19
"""Digits of the shortest integer (a negative one) that may exceed 64 bits."""
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_DIGITS_TO_ZEROS = bytes(byte if byte not in b"0123456789" else 0x30 for byte in range(256))
_LONG_NUMBER = b"0" * LONG_DIGITS

LARGE_CHARS = 128 * 1024
"""Size from which a value is split, and about what one step encodes."""
MAX_DEPTH = 250
"""Maximum nesting of containers that are split."""
_GROUP_MEMBERS = 4_096
"""Small members of a container that are encoded in one step."""

MAX_MEASURED_VALUES = 50_000
"""Limit of counting values, at 0.2 µs each."""
_WORD_BITS = 64
_LONG_INTEGER_VALUES = 16
"""Values that an integer beyond 64 bits counts for, as it is compared with all others."""
Encoder = Callable[[Any], bytes]


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
            elif type(child) is int and not -_LONG_INTEGER < child < _LONG_INTEGER:
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


@dataclass(frozen=True)
class ValueSize:
    values: int
    """Nodes; an integer beyond 64 bits counts for the cost of comparing it with all others."""
    chars: int
    """Characters of its strings and keys."""
    levels: int
    """Levels of nesting; 0 for a scalar."""


def measure_value(value: Any, max_values: int = MAX_MEASURED_VALUES) -> ValueSize:
    """Count a value's nodes, characters and levels; stops beyond `max_values` nodes."""
    values = 1
    chars = 0
    levels = 0
    long_integers = 0
    pending: list[Any] = [value]
    while pending and values <= max_values:
        level: list[Any] = []
        for node in pending:
            if isinstance(node, str):
                chars += len(node)
            elif isinstance(node, dict):
                values += len(node)
                if values > max_values:
                    break
                chars += sum(map(len, cast("dict[str, Any]", node)))
                level += node.values()
            elif isinstance(node, list):
                values += len(node)
                if values > max_values:
                    break
                level += node
            elif isinstance(node, int) and (words := node.bit_length() // _WORD_BITS):
                # `uniqueItems` cannot hash these, and compares each with all others.
                long_integers += 1
                values += words * words + _LONG_INTEGER_VALUES * long_integers
        levels += bool(level)
        pending = level
    return ValueSize(values, chars, levels)


def loads(text: bytes) -> Any:
    """Decode JSON; raises ValueError if it is invalid or nested too deeply."""
    if _LONG_NUMBER not in text.translate(_DIGITS_TO_ZEROS):
        return orjson.loads(text)
    try:
        value = json.loads(text)
        if b"\\ud" in text.lower():
            return replace_lone_surrogates(value)
        return value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dumps(value: Any) -> bytes:
    """Encode as compact JSON; raises ValueError, TypeError or RecursionError."""
    try:
        return orjson.dumps(value)
    except TypeError:  # integers over 64 bits and lone surrogates are legal JSON
        return json.dumps(value, separators=(",", ":")).encode()


def replace_lone_surrogates(value: Any) -> Any:
    """Return the value with U+FFFD for lone surrogates, which cannot be encoded."""
    if isinstance(value, str):
        return _HALF.sub("\ufffd", _PAIR.sub(_join_pair, value))
    if isinstance(value, list):
        return [replace_lone_surrogates(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            replace_lone_surrogates(key): replace_lone_surrogates(item)
            for key, item in cast("dict[str, Any]", value).items()
        }
    return value


def _join_pair(found: re.Match[str]) -> str:
    return found[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


# --- large values in pieces


class TooDeep(ValueError):
    """A value is nested too deeply."""


def is_large(value: Any) -> bool:
    """Return whether a value is worth splitting."""
    return estimate_size(value, LARGE_CHARS) >= LARGE_CHARS


async def encode(value: Any, encoder: Encoder = dumps) -> list[bytes]:
    """Encode to pieces, a large value in a thread; raises what `encoder` raises, and TooDeep."""
    if estimate_size(value, LARGE_CHARS) < LARGE_CHARS:
        return [encoder(value)]
    return await asyncio.to_thread(encode_chunks, value, encoder)


def encode_chunks(value: Any, encoder: Encoder = dumps) -> list[bytes]:
    """Encode to pieces of about LARGE_CHARS; raises what `encoder` raises, and TooDeep."""
    pieces: list[bytes] = []
    pending: list[bytes] = []
    size = 0
    for part in _iter_parts(value, encoder):
        pending.append(part)
        size += len(part)
        if size >= LARGE_CHARS:
            pieces.append(b"".join(pending))
            pending.clear()
            size = 0
    if pending:
        pieces.append(b"".join(pending))
    return pieces


class _OpenContainer:
    """A large container that is being encoded."""

    def __init__(self, value: Any, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise TooDeep(f"it is nested more than {MAX_DEPTH} levels deep")
        self.depth = depth
        self.separator = b"["
        """Written before the next member."""
        self.kind: type = list
        if isinstance(value, dict):
            self.kind = dict
            self.separator = b"{"
        self._members: Iterator[Any] = iter(value.items() if self.kind is dict else value)
        self._groups: list[list[Any]] = []

    def next_group(self) -> list[Any]:
        """Return members that are small together, or a single one; empty at the end."""
        if not self._groups:
            self._groups.append(list(islice(self._members, _GROUP_MEMBERS)))
        group = self._groups.pop()
        while len(group) > 1 and is_large(self.kind(group)):
            half = len(group) // 2
            self._groups.append(group[half:])
            group = group[:half]
        return group


def _iter_parts(value: Any, encoder: Encoder) -> Iterator[bytes]:
    if not _is_large_container(value):
        yield from _encode_scalar(value, encoder)
        return
    opened = [_OpenContainer(value, 0)]
    while opened:
        container = opened[-1]
        group = container.next_group()
        if not group:
            yield b"}" if container.kind is dict else b"]"
            opened.pop()
            continue
        yield container.separator
        container.separator = b","
        if len(group) > 1:
            yield encoder(container.kind(group))[1:-1]
            continue
        member = group[0]
        if container.kind is dict:
            name, member = member
            yield from _encode_scalar(name, encoder)
            yield b":"
        if _is_large_container(member):
            opened.append(_OpenContainer(member, container.depth + 1))
        else:
            yield from _encode_scalar(member, encoder)


def _is_large_container(value: Any) -> bool:
    return isinstance(value, dict | list) and is_large(value)


def _encode_scalar(value: Any, encoder: Encoder) -> Iterator[bytes]:
    """Encode anything but a large container."""
    if not isinstance(value, str) or len(value) < LARGE_CHARS:
        yield encoder(value)
        return
    yield b'"'
    for start in range(0, len(value), LARGE_CHARS):
        yield encoder(value[start : start + LARGE_CHARS])[1:-1]
    yield b'"'


def to_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def to_text(value: Any) -> str:
    return value if isinstance(value, str) else ""
