"""Calls of a step: built from its references, and the values of their results.

Building may take a while: it belongs in a thread.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.tool import Tool, to_literal
from portico.errors import InvalidArguments
from portico.json_text.part_stream import (
    build_value,
    decode_parts,
    encode_compact,
    estimate_size,
    to_parts,
)
from portico.results.learned_shapes import extract_value
from portico.upstream.backend import Raw
from portico.workflows.references import (
    INDEX,
    ITEM,
    MAX_RESOLVED_CHARS,
    TextTemplate,
    make_too_large_error,
    resolve_references,
)
from portico.workflows.runs import StepFailure
from portico.workflows.steps import WorkflowStep

LARGE_CHARS = 256 * 1024
"""Characters from which a result is parsed in a thread, to keep the event loop free."""
MAX_MESSAGE_CHARS = 2_000
MAX_MESSAGE_BLOCKS = 5
_NO_LIMIT = 2**40


@dataclass(frozen=True)
class StepCall:
    element: int | None
    arguments: dict[str, Any]
    fingerprint: str
    scope: Mapping[str, Any]
    chars: int


def build_step_calls(
    step: WorkflowStep, tool: Tool, scope: Mapping[str, Any], max_items: int, deadline: float
) -> list[StepCall] | None:
    """Build the calls of a step; None if its condition is false.

    `scope` has the values of its dependencies. Raises InvalidArguments, also after `deadline`.
    """
    if not step.has_item_condition and not _is_condition_met(step, scope, deadline):
        return None
    if step.for_each is None:
        return [_build_call(step, tool, scope, None, deadline)]
    found = resolve_references(step.for_each, scope, deadline)
    if not isinstance(found, list):
        raise InvalidArguments(
            f"for_each found {_describe_type(found)}, not a list",
            advice="Refer to a list: ${step.items}, or ${values(step)} for what an object holds.",
        )
    elements = cast("list[Any]", found)
    if len(elements) > max_items:
        raise InvalidArguments(
            f"for_each found {len(elements):,} elements; {max_items} is the most",
            advice=f"Take a part: ${{step.items[0:{max_items}]}}.",
        )
    step_calls: list[StepCall] = []
    chars = 0
    for number, element in enumerate(elements):
        item_scope = {**scope, ITEM: element, INDEX: number}
        if not step.has_item_condition or _is_condition_met(step, item_scope, deadline):
            step_calls.append(_build_call(step, tool, item_scope, number, deadline))
            chars += step_calls[-1].chars
            if chars > MAX_RESOLVED_CHARS:
                raise make_too_large_error()
    return step_calls


def _is_condition_met(step: WorkflowStep, scope: Mapping[str, Any], deadline: float) -> bool:
    condition = step.condition
    if isinstance(condition, bool):
        return condition
    return bool(resolve_references(TextTemplate((condition,)), scope, deadline))


def _build_call(
    step: WorkflowStep, tool: Tool, scope: Mapping[str, Any], number: int | None, deadline: float
) -> StepCall:
    arguments = resolve_references(step.arguments, scope, deadline)
    if not isinstance(arguments, dict):
        raise InvalidArguments(
            f"the reference that the arguments are found {_describe_type(arguments)},"
            " not an object",
            advice="Give the arguments one by one.",
        )
    chars = estimate_size(arguments, MAX_RESOLVED_CHARS)
    if chars >= MAX_RESOLVED_CHARS:
        raise make_too_large_error()
    fingerprint = compute_fingerprint([tool.address, tool.hash, number, arguments])
    return StepCall(number, cast("dict[str, Any]", arguments), fingerprint, scope, chars)


def compute_fingerprint(value: Any) -> str:
    """Return a digest of a JSON value; raises InvalidArguments."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        for part in encode_compact(to_parts(value, ordered=True), _encode_sorted):
            digest.update(part.encode(errors="surrogatepass"))
    except (TypeError, ValueError, RecursionError):
        raise InvalidArguments(
            "the arguments cannot be written as JSON", advice="Refer to less at a time."
        ) from None
    return digest.hexdigest()


def _encode_sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _describe_type(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return type(value).__name__


async def extract_value_and_size(result: Raw) -> tuple[Any, int]:
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
            "the tool asks its caller for more before it goes on",
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
