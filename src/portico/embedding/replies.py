"""A result in the form in which each provider's model reads it. Pure."""

from collections.abc import Mapping
from typing import Any

from portico.embedding.definitions import Format
from portico.embedding.requests import Asked
from portico.embedding.results import KEPT, Result, in_words
from portico.upstream.backend import Raw

PICTURES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""What models can look at."""
NOTHING = "(the tool answered nothing)"
"""An empty text is refused by some providers, and puzzles every model."""


def replied(format: Format, asked: Asked, result: Result, raw: Mapping[str, Any]) -> Any:
    """What to give back to the model for its call."""
    match format:
        case "anthropic":
            return anthropic(asked.id, result)
        case "openai":
            return openai(asked.id, result)
        case "openai-chat":
            return {"role": "tool", "tool_call_id": asked.id, "content": _said(result)}
        case "langchain":
            from portico.embedding.langchain import message

            return message(asked, result)
        case "mcp":
            return dict(raw)


def anthropic(id_: str, result: Result) -> Raw:
    """A `tool_result` block, for a user message."""
    blocks: list[Raw] = []
    for one in _shown(result):
        if _is_picture(one) and not result.is_error:  # of an error, only text is taken
            source = {"type": "base64", "media_type": one["mimeType"], "data": one["data"]}
            blocks.append({"type": "image", "source": source})
        elif text := in_words(one):
            blocks.append({"type": "text", "text": text})
    blocks = blocks or [{"type": "text", "text": result.text or NOTHING}]
    return {
        "type": "tool_result",
        "tool_use_id": id_,
        "content": blocks,
        **({"is_error": True} if result.is_error else {}),
    }


def openai(id_: str, result: Result) -> Raw:
    """A `function_call_output` item, for the input of the next response."""
    output: Any = _said(result)
    if not result.is_error and any(map(_is_picture, result.content)):
        output = [
            {"type": "input_image", "image_url": f"data:{one['mimeType']};base64,{one['data']}"}
            if _is_picture(one)
            else {"type": "input_text", "text": in_words(one)}
            for one in _shown(result)
            if _is_picture(one) or in_words(one)
        ]
    return {"type": "function_call_output", "call_id": id_, "output": output}


def blocks(result: Result) -> str | list[Raw]:
    """Text, or content blocks as LangChain has them where there are pictures."""
    if not any(map(_is_picture, result.content)):
        return _words(result)
    return [
        {"type": "image", "base64": one["data"], "mime_type": one["mimeType"]}
        if _is_picture(one)
        else {"type": "text", "text": in_words(one)}
        for one in _shown(result)
        if _is_picture(one) or in_words(one)
    ]


def _said(result: Result) -> str:
    """Text alone: where there is no other sign of failure, it says so first."""
    return f"Error: {_words(result)}" if result.is_error else _words(result)


def _words(result: Result) -> str:
    return "\n".join(filter(None, map(in_words, _shown(result)))) or result.text or NOTHING


def _shown(result: Result) -> list[Mapping[str, Any]]:
    """The content without the link to a result that was kept: its summary tells a model how to read on."""
    return [one for one in result.content if not str(one.get("uri", "")).startswith(KEPT)]


def _is_picture(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "image" and block.get("mimeType") in PICTURES and isinstance(block.get("data"), str)
