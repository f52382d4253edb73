"""A tool result in each provider's format. Pure."""

from collections.abc import Mapping
from typing import Any

from portico.embedding.definitions import Format
from portico.embedding.model_calls import ModelToolCall
from portico.embedding.results import RESULT_URI_PREFIX, Result, render_block
from portico.upstream.backend import Raw

IMAGE_TYPES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""Image types that models accept."""
EMPTY_RESULT_TEXT = "(the tool answered nothing)"
"""Sent instead of an empty text, which some providers refuse."""


def render_reply(
    format: Format, call: ModelToolCall, result: Result, raw: Mapping[str, Any]
) -> Any:
    """Return the reply to a model's call."""
    match format:
        case "anthropic":
            return to_anthropic_result(call.id, result)
        case "openai":
            return to_openai_result(call.id, result)
        case "openai-chat":
            return {
                "role": "tool",
                "tool_call_id": call.id,
                "content": _render_text_with_status(result),
            }
        case "langchain":
            from portico.embedding.langchain import make_message

            return make_message(call, result)
        case "mcp":
            return dict(raw)


def to_anthropic_result(id_: str, result: Result) -> Raw:
    """Return a `tool_result` block, for a user message."""
    blocks: list[Raw] = []
    for block in _list_visible_blocks(result):
        if _is_image(block) and not result.is_error:  # error results take only text
            source = {"type": "base64", "media_type": block["mimeType"], "data": block["data"]}
            blocks.append({"type": "image", "source": source})
        elif text := render_block(block):
            blocks.append({"type": "text", "text": text})
    blocks = blocks or [{"type": "text", "text": result.text or EMPTY_RESULT_TEXT}]
    return {
        "type": "tool_result",
        "tool_use_id": id_,
        "content": blocks,
        **({"is_error": True} if result.is_error else {}),
    }


def to_openai_result(id_: str, result: Result) -> Raw:
    """Return a `function_call_output` item, for the input of the next response."""
    output: Any = _render_text_with_status(result)
    if not result.is_error and any(map(_is_image, result.content)):
        output = []
        for block in _list_visible_blocks(result):
            if _is_image(block):
                url = f"data:{block['mimeType']};base64,{block['data']}"
                output.append({"type": "input_image", "image_url": url})
            elif text := render_block(block):
                output.append({"type": "input_text", "text": text})
    return {"type": "function_call_output", "call_id": id_, "output": output}


def to_langchain_content(result: Result) -> str | list[Raw]:
    """Return text, or LangChain content blocks if there are images."""
    if not any(map(_is_image, result.content)):
        return _render_text(result)
    content: list[Raw] = []
    for block in _list_visible_blocks(result):
        if _is_image(block):
            image = {"type": "image", "base64": block["data"], "mime_type": block["mimeType"]}
            content.append(image)
        elif text := render_block(block):
            content.append({"type": "text", "text": text})
    return content


def _render_text_with_status(result: Result) -> str:
    """Return the text, with a prefix that marks errors for formats without an error flag."""
    if result.is_error:
        return f"Error: {_render_text(result)}"
    return _render_text(result)


def _render_text(result: Result) -> str:
    return (
        "\n".join(filter(None, map(render_block, _list_visible_blocks(result))))
        or result.text
        or EMPTY_RESULT_TEXT
    )


def _list_visible_blocks(result: Result) -> list[Mapping[str, Any]]:
    """Return the content without the link to a stored result; the summary explains how to read
    on.
    """
    return [
        block
        for block in result.content
        if not str(block.get("uri", "")).startswith(RESULT_URI_PREFIX)
    ]


def _is_image(block: Mapping[str, Any]) -> bool:
    return (
        block.get("type") == "image"
        and block.get("mimeType") in IMAGE_TYPES
        and isinstance(block.get("data"), str)
    )
