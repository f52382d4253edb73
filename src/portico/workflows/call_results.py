"""Extracts the value and size of a step's call result, or why it failed."""

import asyncio
from collections.abc import Iterator
from typing import Any

from portico.catalog.visible_text import to_literal
from portico.json_text.part_stream import build_value, decode_parts, estimate_size
from portico.results.learned_shapes import extract_value
from portico.upstream.backend import Raw
from portico.workflows.report import StepFailure

LARGE_CHARS = 256 * 1024
"""Characters from which a result is parsed in a thread, to keep the event loop free."""
MAX_MESSAGE_CHARS = 2_000
MAX_MESSAGE_BLOCKS = 5
_NO_LIMIT = 2**40


async def extract_value_and_size(result: Raw) -> tuple[Any, int]:
    """Return the value of a result and its approximate size in characters."""
    if estimate_size(result, LARGE_CHARS) < LARGE_CHARS:
        value = extract_value(result)
        return value, estimate_size(value, _NO_LIMIT)
    return await asyncio.to_thread(_extract_large, result)


def to_failure(result: Raw, element: int | None = None) -> StepFailure | None:
    """Return why a result is a failure; None if it is a success."""
    kind = result.get("resultType", "complete")
    if kind != "complete":
        return StepFailure(
            "input_required",
            "the tool asks whoever called it for more before it goes on",
            "Call it with call_tool, and pass what it answers to the next steps as inputs.",
            element=element,
        )
    if not result.get("isError"):
        return None
    text = "\n".join(_iter_texts(result))
    structured = result.get("structuredContent")
    if (
        not text
        and structured is not None
        and estimate_size(structured, MAX_MESSAGE_CHARS) < MAX_MESSAGE_CHARS
    ):
        text = to_literal(structured)
    clipped = text if len(text) <= MAX_MESSAGE_CHARS else text[:MAX_MESSAGE_CHARS] + "…"
    return StepFailure(
        "tool_error", clipped or "the tool says that it failed, and nothing else", element=element
    )


def _iter_texts(result: Raw) -> Iterator[str]:
    content = result.get("content")
    for block in content[:MAX_MESSAGE_BLOCKS] if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            yield block["text"][: MAX_MESSAGE_CHARS + 1]


def _extract_large(result: Raw) -> tuple[Any, int]:
    value: Any = None
    content = result.get("content")
    if result.get("structuredContent") is None and isinstance(content, list) and len(content) == 1:
        text = content[0].get("text") if isinstance(content[0], dict) else None
        if isinstance(text, str) and text.lstrip()[:1] in ("{", "["):
            try:
                value = build_value(decode_parts(text))
            except ValueError:  # it only begins like JSON
                value = text
    if value is None:
        value = extract_value(result)
    return value, estimate_size(value, _NO_LIMIT)
