"""What a step's call came to: its value and how large that is, or why there is none."""

import asyncio
from collections.abc import Iterator
from typing import Any

from portico.catalog.visible import literal
from portico.execution.json_stream import decoded, weight, whole
from portico.execution.learned import value_of
from portico.execution.workflow.report import Failure
from portico.upstream.backend import Raw

LARGE_CHARS = 256 * 1024
"""From here on a result is taken apart in a thread and piece by piece, so that nobody else waits for it."""
MESSAGE_CHARS, MESSAGE_BLOCKS = 2_000, 5
_COUNTED = 2**40


async def value_and_size(result: Raw) -> tuple[Any, int]:
    """The value of a result, and about how many characters it has."""
    if weight(result, LARGE_CHARS) < LARGE_CHARS:
        value = value_of(result)
        return value, weight(value, _COUNTED)
    return await asyncio.to_thread(_large, result)


def failure_of(result: Raw, element: int | None = None) -> Failure | None:
    """Why a result is no answer; None where it is one."""
    kind = result.get("resultType", "complete")
    if kind != "complete":
        return Failure(
            "input_required",
            "the tool asks whoever called it for more before it goes on",
            "Call it with call_tool, and pass what it answers to the next steps as inputs.",
            element=element,
        )
    if not result.get("isError"):
        return None
    said = "\n".join(_texts(result))
    structured = result.get("structuredContent")
    if not said and structured is not None and weight(structured, MESSAGE_CHARS) < MESSAGE_CHARS:
        said = literal(structured)
    clipped = said if len(said) <= MESSAGE_CHARS else said[:MESSAGE_CHARS] + "…"
    return Failure("tool_error", clipped or "the tool says that it failed, and nothing else", element=element)


def _texts(result: Raw) -> Iterator[str]:
    content = result.get("content")
    for block in content[:MESSAGE_BLOCKS] if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            yield block["text"][: MESSAGE_CHARS + 1]


def _large(result: Raw) -> tuple[Any, int]:
    value: Any = None
    content = result.get("content")
    if result.get("structuredContent") is None and isinstance(content, list) and len(content) == 1:
        text = content[0].get("text") if isinstance(content[0], dict) else None
        if isinstance(text, str) and text.lstrip()[:1] in ("{", "["):
            try:
                value = whole(decoded(text))
            except ValueError:  # it only began like JSON
                value = text
    if value is None:
        value = value_of(result)
    return value, weight(value, _COUNTED)
