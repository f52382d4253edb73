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
from typing import Any

from portico.catalog.tool import Tool
from portico.json_text import json_codec
from portico.json_text.part_stream import estimate_size
from portico.results.shape import Shape, infer_shape, merge_shapes, render_shape
from portico.results.shape_json import dump_shape, load_shape
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


def extract_value(result: Raw) -> Any:
    """Return the value of a result: structured content, parsed JSON text, or text; else None."""
    structured = result.get("structuredContent")
    if structured is not None:
        return structured
    content = result.get("content")
    if isinstance(content, list):
        blocks: list[Any] = content
    else:
        blocks = []
    texts: list[str] = [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    if not texts:
        return None
    values = [_parse_json(text) for text in texts]
    if all(isinstance(value, dict | list) for value in values):
        if len(values) == 1:
            return values[0]
        return values
    return "\n".join(texts)


def _parse_json(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json_codec.loads(text.encode())
    except ValueError:
        return text


@dataclass(frozen=True)
class _LearnedShape:
    shape: Shape
    result_count: int


class LearnedShapes:
    """Learns and renders the shapes of results."""

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
        if (known is not None and known.result_count >= MAX_LEARNED_RESULTS) or result.get(
            "isError"
        ):
            return
        if (
            result.get("resultType", "complete") != "complete"
            or estimate_size(result, MAX_LEARNED_CHARS) >= MAX_LEARNED_CHARS
        ):
            return
        value = extract_value(result)
        if not isinstance(value, dict | list):
            return
        shape = infer_shape(value)
        if known:
            learned = _LearnedShape(merge_shapes(known.shape, shape), known.result_count + 1)
        else:
            learned = _LearnedShape(shape, 1)
        self._shapes[tool.hash] = learned
        self._shapes.move_to_end(tool.hash)
        if len(self._shapes) > self._max_tools:
            self._unwritten.discard(self._shapes.popitem(last=False)[0])
        if self._store is not None:
            self._unwritten.add(tool.hash)

    def get(self, tool: Tool) -> Shape | None:
        """Return the shape for this definition of a tool, or None."""
        known = self._shapes.get(tool.hash)
        if known:
            return known.shape
        return None

    def render_line(self, tool: Tool, tokens: int, count: Callable[[str], int]) -> str:
        """Return a line for descriptions; "" if nothing is known."""
        known = self._shapes.get(tool.hash)
        if known is None:
            return ""
        if known.result_count == 1:
            results = "1 result"
        else:
            results = f"{known.result_count} results"
        return f"returns (learned from {results}): {render_shape(known.shape, tokens, count)}"

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
