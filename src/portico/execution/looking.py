"""`view="shape"`: a tool is really called, and only the structure of what it answers is told.

Looking at a structure must not change anything, so a tool that does not say it is read-only needs the caller's word.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from portico.catalog.tool import Tool
from portico.errors import InvalidArguments
from portico.execution.cache import is_read_only
from portico.execution.call import NOBODY, Calls, Origin
from portico.execution.handles import block
from portico.execution.json_stream import decoded, parts, weight
from portico.execution.learned import MAX_CHARS, value_of
from portico.execution.letting_go import let_go
from portico.execution.marks import marked, marks_of
from portico.execution.sampling import Sampler
from portico.execution.shape import described, infer, sampled
from portico.execution.summary import one_line, size_text
from portico.upstream.backend import Raw

SHAPE_TOKENS = 600
_SAMPLE_TOKENS = 200
_FRAME_TOKENS = 60


async def shape_of_call(
    calls: Calls,
    tool: Tool,
    arguments: Mapping[str, Any],
    origin: Origin = NOBODY,
    *,
    confirm: bool = False,
    count: Callable[[str], int],
) -> Raw:
    """Call a tool and answer with the shape of its result; raises InvalidArguments and what a call raises."""
    if not confirm and not is_read_only(tool):
        raise InvalidArguments(
            f'{tool.address} is not known to be read-only, and view="shape" really calls it',
            advice="Pass confirm=true if the call may have its effects, or describe_tools for what is known of its "
            "answers without calling it.",
        )
    result = await calls.call(tool, arguments, origin)
    if result.get("isError") or result.get("resultType", "complete") != "complete":
        return result
    async with let_go(result):
        text = await asyncio.to_thread(described_result, tool.address, result, count)
    told: Raw = {"content": [block(text)]}
    return marked(told, marks) if (marks := marks_of(result)) else told


def described_result(address: str, result: Raw, count: Callable[[str], int]) -> str:
    """What a result is made of, in at most 600 tokens. Blocks for as long as a large one takes to be walked through."""
    value = _sample(result)
    content = result.get("content")
    blocks: list[Any] = content if isinstance(content, list) else []
    kinds = sorted({one_line(str(block.get("type")))[:20] for block in blocks if isinstance(block, dict)})[:8]
    first = f"{one_line(address)[:120]} answers with {size_text(weight(result, 2**40))}"
    first += f" ({len(blocks)} blocks: {', '.join(kinds)})" if len(blocks) > 1 or kinds not in ([], ["text"]) else ""
    if value is None:
        return f"{first}."
    shape = infer(value)
    lines = [f"{first}:", described(shape, SHAPE_TOKENS - _SAMPLE_TOKENS - _FRAME_TOKENS, count)]
    if samples := sampled(shape, _SAMPLE_TOKENS, count):
        lines += ["Samples:", *samples]
    return "\n".join(lines)


def _sample(result: Raw) -> Any:
    """The value, taken in parts where it is large."""
    if weight(result, MAX_CHARS) < MAX_CHARS:
        return value_of(result)
    structured = result.get("structuredContent")
    content = result.get("content")
    blocks: list[Any] = content if isinstance(content, list) else []
    texts = [block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)]
    sampler = Sampler()
    try:
        if structured is None and len(texts) != 1:
            return value_of(result)
        for _ in sampler.watch(parts(structured) if structured is not None else decoded(texts[0])):
            pass
    except ValueError:
        return texts[0]
    return sampler.value
