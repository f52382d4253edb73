"""Large JSON as a stream of parts, and as lines that can be paged and searched. Pure.

Encoding or decoding a part takes a millisecond or two at most: both hold the interpreter's lock, so
that a thread which processed ten megabytes at once would block the event loop. Nothing here
recurses, however deep a value is.

A large value is also freed in a thread: freeing millions of objects at once blocks the event loop.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, cast

from portico.json_text import json_codec
from portico.json_text.chunked_decoder import CLOSING_BRACKETS, JsonPart, build_value, iter_parts
from portico.json_text.json_codec import estimate_size

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
"""Size of a container that stays on one line; a larger one has a line for each child."""
MAX_INDENT = 12

_CONTAINERS = (dict, list)
"""A tuple, because a union would be created at every check."""
_RELEASE_STEP = 4_096
_OWN_REFERENCES = 3
"""References to a value in `dismantle`: the list, the name and the argument of `getrefcount`."""
_MAX_SORTED_KEYS = 16_384
"""Maximum number of keys that are sorted at once."""
_TEXT_PIECE_CHARS = 64 * 1024
"""Characters of a text that are encoded at once."""
_DELAY_S = 0.2
_TRIES = 25
"""Maximum number of waits for other references to disappear."""

_pending_releases: set["asyncio.Task[None]"] = set()


def to_parts(value: Any, key: str | None = None, *, ordered: bool = False) -> Iterator[JsonPart]:
    """Yield the parts of a value: large containers are opened, small ones are items.

    With `ordered` the fields of opened objects are sorted by name, up to a limit.
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
    """Yield the parts of JSON text without building the whole value; raises ValueError."""
    for part in iter_parts(text):
        if part[0] == "item":
            yield from to_parts(part[2], part[1])
        else:
            yield part


def dismantle(values: list[Any], *, shared: bool = True) -> None:
    """Empty the values of a list in portions, so that they are not all freed in one long step.

    Without `shared`, values that are referenced elsewhere are left unchanged.
    """
    while values:
        value = values[-1]
        if not shared and sys.getrefcount(value) > _OWN_REFERENCES:
            values.pop()
        elif isinstance(value, dict) and value:
            values += [value.popitem()[1] for _ in range(min(len(value), _RELEASE_STEP))]
        elif isinstance(value, list) and value:
            values += value[-_RELEASE_STEP:]
            del value[-_RELEASE_STEP:]
        else:
            values.pop()


def encode_compact(stream: Iterable[JsonPart], encode: Callable[[Any], str]) -> Iterator[str]:
    """Yield pieces of text that join to compact JSON."""
    closing: list[str] = []
    comma = ""
    for kind, key, value in stream:
        if kind == "close":
            yield closing.pop()
            comma = ","
            continue
        yield comma
        if key is not None:
            yield from _encode_pieces(key, encode)
            yield ":"
        if kind == "open":
            yield value
            closing.append(CLOSING_BRACKETS[value])
            comma = ""
        else:
            yield from _encode_pieces(value, encode)
            comma = ","


def encode_value(value: Any) -> str:
    return json_codec.dumps(value).decode()


def _encode_pieces(value: Any, encode: Callable[[Any], str]) -> Iterator[str]:
    """Yield the JSON of a small value, or of a text of any length, in pieces."""
    if not isinstance(value, str) or len(value) <= _TEXT_PIECE_CHARS:
        yield encode(value)
        return
    yield '"'
    for start in range(0, len(value), _TEXT_PIECE_CHARS):
        yield encode(value[start : start + _TEXT_PIECE_CHARS])[1:-1]
    yield '"'


def encode_lines(stream: Iterable[JsonPart]) -> Iterator[str]:
    """Yield lines of text, long ones in pieces, that join to the JSON again."""
    closing: list[str] = []
    line: str | None = None
    for kind, key, value in stream:
        if kind == "close":
            if line is not None:
                yield f"{line}\n"
            line = " " * (min(len(closing), MAX_INDENT) - 1) + closing.pop()
            continue
        if line is not None:
            yield f"{line},\n"
        line = " " * min(len(closing), MAX_INDENT)
        if key is None and kind == "item" and not isinstance(value, str):
            line += encode_value(value)  # the fast path: there may be a million of them
            continue
        if key is None:
            key_pieces = ()
        else:
            key_pieces = chain(_encode_pieces(key, encode_value), (": ",))
        value_pieces = (value,) if kind == "open" else _encode_pieces(value, encode_value)
        for piece in chain(key_pieces, value_pieces):
            if len(line) >= _TEXT_PIECE_CHARS:
                yield line
                line = ""
            line += piece
        if kind == "open":
            yield f"{line}\n"
            closing.append(CLOSING_BRACKETS[value])
            line = None
    yield f"{line}\n"


@asynccontextmanager
async def release_later(result: dict[str, Any]) -> AsyncGenerator[None]:
    """Free the structured content of a result in a thread, some time after the block.

    What is still referenced elsewhere then is not changed.
    """
    try:
        yield
    finally:
        held = [result.get("structuredContent")]
        if isinstance(held[0], dict | list):
            task = asyncio.create_task(_free_later(held), name="release a large result")
            _pending_releases.add(task)
            task.add_done_callback(_pending_releases.discard)


async def _free_later(held: list[Any]) -> None:
    for _ in range(_TRIES):
        await asyncio.sleep(_DELAY_S)
        if sys.getrefcount(held[0]) == 2:  # the list and the argument
            break
    await asyncio.to_thread(dismantle, held, shared=False)
