"""A result in the form in which each provider's model reads it. Pure."""

from collections.abc import Mapping
from typing import Any

from portico.embedding.definitions import Format
from portico.embedding.model_calls import ModelToolCall
from portico.embedding.results import RESULT_URI_PREFIX, Result, render_block
from portico.upstream.backend import Raw

IMAGE_TYPES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""What models can look at."""
EMPTY_RESULT_TEXT = "(the tool answered nothing)"
"""An empty text is refused by some providers, and puzzles every model."""


def render_reply(
    format: Format, call: ModelToolCall, result: Result, raw: Mapping[str, Any]
) -> Any:
    """What to give back to the model for its call."""
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
    """A `tool_result` block, for a user message."""
    blocks: list[Raw] = []
    for one in _list_visible_blocks(result):
        if _is_image(one) and not result.is_error:  # of an error, only text is taken
            source = {"type": "base64", "media_type": one["mimeType"], "data": one["data"]}
            blocks.append({"type": "image", "source": source})
        elif text := render_block(one):
            blocks.append({"type": "text", "text": text})
    blocks = blocks or [{"type": "text", "text": result.text or EMPTY_RESULT_TEXT}]
    return {
        "type": "tool_result",
        "tool_use_id": id_,
        "content": blocks,
        **({"is_error": True} if result.is_error else {}),
    }


def to_openai_result(id_: str, result: Result) -> Raw:
    """A `function_call_output` item, for the input of the next response."""
    output: Any = _render_text_with_status(result)
    if not result.is_error and any(map(_is_image, result.content)):
        output = [
            {"type": "input_image", "image_url": f"data:{one['mimeType']};base64,{one['data']}"}
            if _is_image(one)
            else {"type": "input_text", "text": render_block(one)}
            for one in _list_visible_blocks(result)
            if _is_image(one) or render_block(one)
        ]
    return {"type": "function_call_output", "call_id": id_, "output": output}


def to_langchain_content(result: Result) -> str | list[Raw]:
    """Text, or content blocks as LangChain has them where there are pictures."""
    if not any(map(_is_image, result.content)):
        return _render_text(result)
    return [
        {"type": "image", "base64": one["data"], "mime_type": one["mimeType"]}
        if _is_image(one)
        else {"type": "text", "text": render_block(one)}
        for one in _list_visible_blocks(result)
        if _is_image(one) or render_block(one)
    ]


def _render_text_with_status(result: Result) -> str:
    """Text alone: where there is no other sign of failure, it says so first."""
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
    """The content without the link to a result that was kept: its summary tells a model how to read
    on."""
    return [
        one for one in result.content if not str(one.get("uri", "")).startswith(RESULT_URI_PREFIX)
    ]


def _is_image(block: Mapping[str, Any]) -> bool:
    return (
        block.get("type") == "image"
        and block.get("mimeType") in IMAGE_TYPES
        and isinstance(block.get("data"), str)
    )
