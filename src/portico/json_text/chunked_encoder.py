"""Encoding of large values as JSON in pieces that each hold the interpreter's lock briefly. Pure.

The counterpart of `chunked_decoder`: an encoder that gets fifty megabytes at once holds the lock
until it is done. Nothing here recurses, however deep a value is.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from portico.json_text import json_codec
from portico.json_text.size import estimate_size

LARGE_CHARS = 128 * 1024
"""Size from which a value is split, and about what one step encodes."""
MAX_DEPTH = 250
"""Maximum nesting of containers that are split."""
_GROUP_MEMBERS = 4_096
"""Small members of a container that are encoded in one step."""

Encoder = Callable[[Any], bytes]


class TooDeep(ValueError):
    """A value is nested too deeply."""


def is_large(value: Any) -> bool:
    """Return whether a value is worth splitting."""
    return estimate_size(value, LARGE_CHARS) >= LARGE_CHARS


async def encode(value: Any, dumps: Encoder = json_codec.dumps) -> list[bytes]:
    """Encode to pieces, a large value in a thread; raises what `dumps` raises, and TooDeep."""
    if not is_large(value):
        return [dumps(value)]
    return await asyncio.to_thread(encode_chunks, value, dumps)


def encode_chunks(value: Any, dumps: Encoder = json_codec.dumps) -> list[bytes]:
    """Encode to pieces of about LARGE_CHARS; raises what `dumps` raises, and TooDeep."""
    pieces: list[bytes] = []
    pending: list[bytes] = []
    size = 0
    for part in _iter_parts(value, dumps):
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


def _iter_parts(value: Any, dumps: Encoder) -> Iterator[bytes]:
    if not _is_large_container(value):
        yield from _encode_scalar(value, dumps)
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
            yield dumps(container.kind(group))[1:-1]
            continue
        member = group[0]
        if container.kind is dict:
            name, member = member
            yield from _encode_scalar(name, dumps)
            yield b":"
        if _is_large_container(member):
            opened.append(_OpenContainer(member, container.depth + 1))
        else:
            yield from _encode_scalar(member, dumps)


def _is_large_container(value: Any) -> bool:
    return isinstance(value, dict | list) and is_large(value)


def _encode_scalar(value: Any, dumps: Encoder) -> Iterator[bytes]:
    """Encode anything but a large container."""
    if not isinstance(value, str) or len(value) < LARGE_CHARS:
        yield dumps(value)
        return
    yield b'"'
    for start in range(0, len(value), LARGE_CHARS):
        yield dumps(value[start : start + LARGE_CHARS])[1:-1]
    yield b'"'
