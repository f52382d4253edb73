"""Learned shapes: the structure of a tool's first results, by the tool's hash.

A few results show what a definition without an output schema does not; after those, a call costs
one look-up. A changed definition has another hash and is learned again. Shapes are in memory;
`sync_with_storage` and `flush` read and write the database, and no call waits for them.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.tool import Tool
from portico.json_text import json_codec
from portico.json_text.part_stream import estimate_size
from portico.results.shape import (
    MAX_DEPTH,
    MAX_FIELDS,
    Range,
    Shape,
    infer_shape,
    merge_shapes,
    render_shape,
)
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import ShapeRow
from portico.upstream.backend import Raw

MAX_LEARNED_RESULTS = 5
"""Results that a shape is learned from."""
MAX_TOOLS = 2_000
MAX_LEARNED_CHARS = 64 * 1024
"""Size of a result below which it is learned from; larger ones would delay their caller."""
FLUSH_TIMEOUT_S = 2.0
"""Maximum duration of the last write, in seconds."""
MAX_STORED_CHARS = 64 * 1024
_UNKNOWN_KEY = "…"
_SCALARS = frozenset({"null", "boolean", "integer", "number", "string", "…"})


def extract_value(result: Raw) -> Any:
    """Return the value of a result: structured content, parsed JSON text, or text; else None."""
    structured = result.get("structuredContent")
    if structured is not None:
        return structured
    texts = get_texts(result)
    if not texts:
        return None
    try:
        if all(text.lstrip()[:1] in ("{", "[") for text in texts):
            values = [json_codec.loads(text.encode()) for text in texts]
            return values if len(values) > 1 else values[0]
    except ValueError:
        pass
    return "\n".join(texts)


def get_texts(result: Raw) -> list[str]:
    """Return the texts of a result's content blocks."""
    blocks = result.get("content")
    if not isinstance(blocks, list):
        return []
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    return [text for text in texts if isinstance(text, str)]


@dataclass(frozen=True)
class _LearnedShape:
    shape: Shape
    result_count: int


class LearnedShapes:
    def __init__(
        self,
        max_tools: int = MAX_TOOLS,
        *,
        store: GatewayStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._shapes: OrderedDict[str, _LearnedShape] = OrderedDict()
        self._max_tools = max_tools
        self._store = store
        self._clock = clock
        self._is_loaded = False
        self._unwritten: set[str] = set()

    def __len__(self) -> int:
        return len(self._shapes)

    def learn(self, tool: Tool, result: Raw) -> None:
        """Learn from a result, unless enough of this tool's results have been seen."""
        known = self._shapes.get(tool.hash)
        if known is not None and known.result_count >= MAX_LEARNED_RESULTS:
            return
        if result.get("isError") or result.get("resultType", "complete") != "complete":
            return
        if "structuredContent" not in result:
            texts = get_texts(result)
            if not texts or texts[0].lstrip()[:1] not in ("{", "["):
                return
        if estimate_size(result, MAX_LEARNED_CHARS) >= MAX_LEARNED_CHARS:
            return
        value = extract_value(result)
        if not isinstance(value, dict | list):
            return
        learned = _LearnedShape(infer_shape(value), 1)
        if known is not None:
            shape = merge_shapes(known.shape, learned.shape)
            learned = _LearnedShape(shape, known.result_count + 1)
        self._shapes[tool.hash] = learned
        self._shapes.move_to_end(tool.hash)
        if len(self._shapes) > self._max_tools:
            self._unwritten.discard(self._shapes.popitem(last=False)[0])
        if self._store is not None:
            self._unwritten.add(tool.hash)

    def get(self, tool: Tool) -> Shape | None:
        known = self._shapes.get(tool.hash)
        return known.shape if known is not None else None

    def render_line(self, tool: Tool, tokens: int, count: Callable[[str], int]) -> str:
        """Return a line for descriptions; "" if nothing is known."""
        known = self._shapes.get(tool.hash)
        if known is None:
            return ""
        count_text = f"{known.result_count} result{'s' * (known.result_count > 1)}"
        return f"returns (learned from {count_text}): {render_shape(known.shape, tokens, count)}"

    async def sync_with_storage(self) -> None:
        """Load stored shapes once, and write those learned since; a failed write is retried next
        time."""
        if self._store is None:
            return
        hashes: set[str] = set()
        try:
            if not self._is_loaded:
                self._load_rows(await self._store.load_shapes(self._max_tools))
                self._is_loaded = True
            hashes = self._unwritten
            self._unwritten = set()
            await self._store.save_shapes(self._to_rows(hashes))
        except StoreUnavailable:  # logged by the store
            self._unwritten |= hashes
        except BaseException:
            self._unwritten |= hashes
            raise

    async def flush(self) -> None:
        """Write unsaved shapes within FLUSH_TIMEOUT_S."""
        if self._unwritten:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.sync_with_storage(), FLUSH_TIMEOUT_S)

    def _load_rows(self, rows: list[ShapeRow]) -> None:
        """Add stored shapes; those learned meanwhile are newer and stay."""
        for row in rows:
            if len(self._shapes) >= self._max_tools:
                return
            if row.hash not in self._shapes and (shape := load_shape(row.shape)) is not None:
                self._shapes[row.hash] = _LearnedShape(shape, row.results)
                self._shapes.move_to_end(row.hash, last=False)

    def _to_rows(self, hashes: set[str]) -> list[ShapeRow]:
        now = self._clock()
        learned = ((name, self._shapes[name]) for name in hashes if name in self._shapes)
        return [
            ShapeRow(name, known.result_count, text, now)
            for name, known in learned
            if (text := dump_shape(known.shape)) is not None
        ]


# --- stored form: only structure, because samples of items and keys of maps are user data


def dump_shape(shape: Shape) -> str | None:
    """Return a shape as text; None if it is too large to store."""
    try:
        text = json_codec.dumps(_to_dict(shape)).decode()
    except (TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= MAX_STORED_CHARS else None


def load_shape(text: str) -> Shape | None:
    """Return the shape of a text; None if the text is invalid."""
    try:
        return _from_dict(json_codec.loads(text.encode(errors="surrogatepass")), 0)
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
        return None


def _to_dict(shape: Shape) -> dict[str, Any]:
    data: dict[str, Any] = {"n": shape.seen_count}
    if shape.scalars:
        data["is"] = sorted(shape.scalars)
    for key, span in (("chars", shape.chars), ("length", shape.length), ("keys", shape.keys)):
        if span is not None:
            data[key] = list(span)
    if shape.fields is not None:
        data["fields"] = {name: _to_dict(field) for name, field in shape.fields.items()}
        data["objects"] = shape.object_count
    if shape.items is not None:
        data["items"] = _to_dict(shape.items)
    if shape.values is not None:
        data["values"] = _to_dict(shape.values)
    return data


def _from_dict(data: Any, depth: int) -> Shape:
    if not isinstance(data, dict) or depth > 2 * MAX_DEPTH:
        raise ValueError("that is no shape")
    members = cast("dict[str, Any]", data)
    fields = None
    if (stored := members.get("fields")) is not None:
        if len(stored) > 2 * MAX_FIELDS:
            raise ValueError("those are too many fields")
        fields = {name: _from_dict(field, depth + 1) for name, field in stored.items()}
    inner = {
        name: _from_dict(members[name], depth + 1)
        for name in ("items", "values")
        if name in members
    }
    keys = _parse_range(members.get("keys"))
    return Shape(
        seen_count=int(members["n"]),
        scalars=frozenset(cast("list[str]", members.get("is", ()))) & _SCALARS,
        chars=_parse_range(members.get("chars")),
        fields=fields,
        object_count=int(members.get("objects", 0)),
        items=inner.get("items"),
        length=_parse_range(members.get("length")),
        keys=keys,
        values=inner.get("values"),
        sample_key="" if keys is None else _UNKNOWN_KEY,
    )


def _parse_range(data: Any) -> Range | None:
    if data is None:
        return None
    low, high = data
    return int(low), int(high)
