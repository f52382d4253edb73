"""What tools are seen to answer: the shape of their first results, kept in memory by the tool's hash.

A few results tell what a definition without an output schema does not; after those, a call costs one look-up. A changed
definition has another hash and is learnt anew.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from portico.catalog.tool import Tool
from portico.execution.json_stream import weight
from portico.execution.shape import Shape, described, infer, merge
from portico.upstream import jsontext
from portico.upstream.backend import Raw

ENOUGH = 5
"""Results from which a shape is learnt."""
MAX_TOOLS = 2_000
MAX_CHARS = 64 * 1024
"""Of a result that is learnt from: larger ones would be felt by their caller."""


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

    def __init__(self, max_tools: int = MAX_TOOLS) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._max_tools = max_tools

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
            self._known.popitem(last=False)

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
