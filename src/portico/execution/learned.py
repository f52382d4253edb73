"""What tools are seen to answer: the shape of their first results, by the tool's hash.

A few results tell what a definition without an output schema does not; after those, a call costs one look-up. A changed
definition has another hash and is learnt anew. All of it is in memory; `tend` and `finish` read and write the record,
where there is one, and no call waits for them.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from portico.catalog.tool import Tool
from portico.execution.json_stream import weight
from portico.execution.shape import Shape, described, infer, merge
from portico.execution.shape_text import dumped, loaded
from portico.storage.record import Record, RecordUnavailable
from portico.storage.rows import ShapeRow
from portico.upstream import jsontext
from portico.upstream.backend import Raw

ENOUGH = 5
"""Results from which a shape is learnt."""
MAX_TOOLS = 2_000
MAX_CHARS = 64 * 1024
"""Of a result that is learnt from: larger ones would be felt by their caller."""
END_PATIENCE_S = 2.0
"""How long the last writing may take."""


def value_of(result: Raw) -> Any:
    """The value a result stands for: its structured content, the JSON that its text is, or its text; else None."""
    structured = result.get("structuredContent")
    if structured is not None:
        return structured
    content = result.get("content")
    blocks: list[Any] = content if isinstance(content, list) else []
    texts: list[str] = [
        block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    if not texts:
        return None
    values = [_parsed(text) for text in texts]
    if all(isinstance(value, dict | list) for value in values):
        return values[0] if len(values) == 1 else values
    return "\n".join(texts)


def _parsed(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return jsontext.loads(text.encode())
    except ValueError:
        return text


@dataclass(frozen=True)
class _Known:
    shape: Shape
    results: int


class Shapes:
    """Learns and tells shapes."""

    def __init__(
        self, max_tools: int = MAX_TOOLS, *, record: Record | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._max_tools = max_tools
        self._record = record
        self._clock = clock
        self._recalled = False
        self._unwritten: set[str] = set()

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, tool: Tool, result: Raw) -> None:
        """Look at a result, unless enough of this tool's have been seen."""
        known = self._known.get(tool.hash)
        if (known is not None and known.results >= ENOUGH) or result.get("isError"):
            return
        if result.get("resultType", "complete") != "complete" or weight(result, MAX_CHARS) >= MAX_CHARS:
            return
        value = value_of(result)
        if not isinstance(value, dict | list):
            return
        shape = infer(value)
        self._known[tool.hash] = _Known(merge(known.shape, shape), known.results + 1) if known else _Known(shape, 1)
        self._known.move_to_end(tool.hash)
        if len(self._known) > self._max_tools:
            self._unwritten.discard(self._known.popitem(last=False)[0])
        if self._record is not None:
            self._unwritten.add(tool.hash)

    def of(self, tool: Tool) -> Shape | None:
        """What is known of this very definition of a tool."""
        known = self._known.get(tool.hash)
        return known.shape if known else None

    def told(self, tool: Tool, tokens: int, count: Callable[[str], int]) -> str:
        """A line for descriptions; empty where nothing is known."""
        known = self._known.get(tool.hash)
        if known is None:
            return ""
        results = "1 result" if known.results == 1 else f"{known.results} results"
        return f"returns (learned from {results}): {described(known.shape, tokens, count)}"

    async def tend(self) -> None:
        """Read what is on record, once, and write what was learnt since; what cannot be written waits."""
        if self._record is None:
            return
        hashes: set[str] = set()
        try:
            if not self._recalled:
                self._take(await self._record.shapes(self._max_tools))
                self._recalled = True
            hashes, self._unwritten = self._unwritten, hashes
            await self._record.save_shapes(self._rows(hashes))
        except RecordUnavailable:  # the keeper of the record says so
            self._unwritten |= hashes
        except BaseException:
            self._unwritten |= hashes
            raise

    async def finish(self) -> None:
        """Write what was learnt, but not for long."""
        if self._unwritten:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.tend(), END_PATIENCE_S)

    def _take(self, rows: list[ShapeRow]) -> None:
        """What was learnt here meanwhile is newer, and is kept as it is."""
        for row in rows:
            if len(self._known) >= self._max_tools:
                return
            if row.hash not in self._known and (shape := loaded(row.shape)) is not None:
                self._known[row.hash] = _Known(shape, row.results)
                self._known.move_to_end(row.hash, last=False)

    def _rows(self, hashes: set[str]) -> list[ShapeRow]:
        now = self._clock()
        told = ((name, self._known[name]) for name in hashes if name in self._known)
        return [
            ShapeRow(name, known.results, text, now)
            for name, known in told
            if (text := dumped(known.shape)) is not None
        ]
