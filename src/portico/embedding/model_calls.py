"""A model's tool call, in any provider's format, parsed into a name and arguments. Pure.

Takes the objects of the providers' libraries, or plain dicts. A call that the model wrote wrongly
has a `problem`, which is returned to the model; an object that is not a call is an error of the
program.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.embedding.definitions import Format
from portico.errors import InvalidArguments
from portico.json_text import json_codec

_CALL_TYPES: Mapping[Format, str] = {
    "anthropic": "tool_use",
    "openai": "function_call",
    "openai-chat": "function",
    "langchain": "tool_call",
}
_CALL_SHAPES: Mapping[Format, str] = {
    "anthropic": 'a block {"type": "tool_use", "id", "name", "input"} of a message\'s content',
    "openai": (
        'an item {"type": "function_call", "call_id", "name", "arguments"} of a response\'s output'
    ),
    "openai-chat": (
        'an entry {"type": "function", "id", "function": {"name", "arguments"}} of a message\'s '
        "tool_calls"
    ),
    "langchain": 'an entry {"name", "args", "id"} of a message\'s tool_calls',
    "mcp": 'the params of a tools/call, {"name", "arguments"}',
}


@dataclass(frozen=True)
class ModelToolCall:
    """One tool call of a model."""

    id: str
    name: str
    arguments: dict[str, Any]
    problem: str = ""
    """Why it cannot be run as written."""


def parse_call(format: Format, call: Any) -> ModelToolCall:
    """Parse a call; raises InvalidArguments if it is not a call in that format."""
    if format == "openai-chat":
        inner = _get_part(call, "function")
    else:
        inner = call
    keys = {
        "anthropic": ("id", "input"),
        "openai": ("call_id", "arguments"),
        "langchain": ("id", "args"),
    }
    id_key, arguments_key = keys.get(format, ("id", "arguments"))
    name = _get_part(inner, "name")
    id_ = _get_part(call, id_key)
    if not isinstance(name, str) or (format != "mcp" and not isinstance(id_, str)):
        raise InvalidArguments(
            f"this is no tool call in the {format} format: {type(call).__name__}",
            advice=f"Pass {_CALL_SHAPES[format]}, one at a time; `handle_all` takes a whole list.",
        )
    arguments, problem = _parse_arguments(_get_part(inner, arguments_key))
    return ModelToolCall(id_ if isinstance(id_, str) else "", name, arguments, problem)


def filter_calls(format: Format, blocks: Iterable[Any] | None) -> list[Any]:
    """Return the tool calls among the blocks of an answer."""
    kind = _CALL_TYPES.get(format)
    return [
        block
        for block in blocks or ()
        if kind is None or (_get_part(block, "type") or kind) == kind
    ]


def _parse_arguments(raw_arguments: Any) -> tuple[dict[str, Any], str]:
    if isinstance(raw_arguments, str):
        try:
            if raw_arguments.strip():
                raw_arguments = json_codec.loads(raw_arguments.encode("utf-8", "replace"))
            else:
                raw_arguments = {}
        except ValueError as error:
            return {}, f"the arguments are not JSON ({error})"
    if raw_arguments is None:
        return {}, ""
    if not isinstance(raw_arguments, Mapping):
        return {}, f"the arguments are not an object but {type(raw_arguments).__name__}"
    return dict(cast("Mapping[str, Any]", raw_arguments)), ""


def _get_part(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(key)
    return getattr(value, key, None)
