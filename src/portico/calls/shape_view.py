"""`view="shape"`: call a tool and return only the structure of its result.

A tool that is not annotated as read-only needs the caller's confirmation.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from portico.calls.cache import is_read_only
from portico.calls.pipeline import DEFAULT_CONTEXT, CallContext, CallPipeline
from portico.catalog.tool import Tool
from portico.errors import InvalidArguments
from portico.json_text.deferred_release import release_later
from portico.json_text.part_stream import decode_parts, estimate_size, to_parts
from portico.results.handles import build_text_block
from portico.results.learned_shapes import MAX_LEARNED_CHARS, extract_value
from portico.results.marks import add_marks, get_marks
from portico.results.shape import infer_shape, render_samples, render_shape
from portico.results.summary import format_size, to_one_line
from portico.results.value_sample import ValueSampler
from portico.upstream.backend import Raw

SHAPE_TOKENS = 600
_SAMPLE_TOKENS = 200
_FRAME_TOKENS = 60


async def call_for_shape(
    calls: CallPipeline,
    tool: Tool,
    arguments: Mapping[str, Any],
    context: CallContext = DEFAULT_CONTEXT,
    *,
    confirm: bool = False,
    count: Callable[[str], int],
) -> Raw:
    """Call a tool and return the shape of its result.

    Raises InvalidArguments without confirmation, and whatever a call raises.
    """
    if not confirm and not is_read_only(tool):
        raise InvalidArguments(
            f'{tool.address} is not known to be read-only, and view="shape" really calls it',
            advice="Pass confirm=true if the call may have its effects, "
            "or describe_tools for what is known of its "
            "answers without calling it.",
        )
    result = await calls.call(tool, arguments, context)
    if result.get("isError") or result.get("resultType", "complete") != "complete":
        return result
    async with release_later(result):
        text = await asyncio.to_thread(describe_result, tool.address, result, count)
    answer: Raw = {"content": [build_text_block(text)]}
    if marks := get_marks(result):
        return add_marks(answer, marks)
    return answer


def describe_result(address: str, result: Raw, count: Callable[[str], int]) -> str:
    """Describe the structure of a result in at most SHAPE_TOKENS tokens. Blocks while it walks
    through a large one."""
    value = _sample_value(result)
    content = result.get("content")
    if isinstance(content, list):
        blocks: list[Any] = content
    else:
        blocks = []
    kinds = sorted(
        {to_one_line(str(block.get("type")))[:20] for block in blocks if isinstance(block, dict)}
    )[:8]
    first = f"{to_one_line(address)[:120]} answers with {format_size(estimate_size(result, 2**40))}"
    if len(blocks) > 1 or kinds not in ([], ["text"]):
        first += f" ({len(blocks)} blocks: {', '.join(kinds)})"
    if value is None:
        return f"{first}."
    shape = infer_shape(value)
    lines = [f"{first}:", render_shape(shape, SHAPE_TOKENS - _SAMPLE_TOKENS - _FRAME_TOKENS, count)]
    if samples := render_samples(shape, _SAMPLE_TOKENS, count):
        lines += ["Samples:", *samples]
    return "\n".join(lines)


def _sample_value(result: Raw) -> Any:
    """Return the value of a result, sampled in parts if it is large."""
    if estimate_size(result, MAX_LEARNED_CHARS) < MAX_LEARNED_CHARS:
        return extract_value(result)
    structured = result.get("structuredContent")
    content = result.get("content")
    if isinstance(content, list):
        blocks: list[Any] = content
    else:
        blocks = []
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    sampler = ValueSampler()
    try:
        if structured is None and len(texts) != 1:
            return extract_value(result)
        parts = to_parts(structured) if structured is not None else decode_parts(texts[0])
        for _ in sampler.watch(parts):
            pass
    except ValueError:
        return texts[0]
    return sampler.value
