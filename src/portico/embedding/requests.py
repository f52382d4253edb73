"""A model's tool call, in whichever form its provider has it, as a name and arguments. Pure.

Takes what the providers' libraries hand out, objects or plain dicts. A call that the model wrote wrongly is the model's
to correct: its `problem` is answered like any error. An object that is no call at all is its caller's mistake.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.embedding.definitions import Format
from portico.errors import InvalidArguments
from portico.upstream import jsontext

_CALLS: Mapping[Format, str] = {
    "anthropic": "tool_use",
    "openai": "function_call",
    "openai-chat": "function",
    "langchain": "tool_call",
}
_SHAPES: Mapping[Format, str] = {
    "anthropic": 'a block {"type": "tool_use", "id", "name", "input"} of a message\'s content',
    "openai": 'an item {"type": "function_call", "call_id", "name", "arguments"} of a response\'s output',
    "openai-chat": 'an entry {"type": "function", "id", "function": {"name", "arguments"}} of a message\'s tool_calls',
    "langchain": 'an entry {"name", "args", "id"} of a message\'s tool_calls',
    "mcp": 'the params of a tools/call, {"name", "arguments"}',
}


@dataclass(frozen=True)
class Asked:
    """One tool call of a model."""

    id: str
    name: str
    arguments: dict[str, Any]
    problem: str = ""
    """Why it cannot be run as it was written."""


def read(format: Format, call: Any) -> Asked:
    """What a call asks for; raises InvalidArguments for what is no call of that format."""
    inner = _part(call, "function") if format == "openai-chat" else call
    keys = {"anthropic": ("id", "input"), "openai": ("call_id", "arguments"), "langchain": ("id", "args")}
    id_key, arguments_key = keys.get(format, ("id", "arguments"))
    name, id_ = _part(inner, "name"), _part(call, id_key)
    if not isinstance(name, str) or (format != "mcp" and not isinstance(id_, str)):
        raise InvalidArguments(
            f"this is no tool call in the {format} format: {type(call).__name__}",
            advice=f"Pass {_SHAPES[format]}, one at a time; `handle_all` takes a whole list.",
        )
    arguments, problem = _arguments(_part(inner, arguments_key))
    return Asked(id_ if isinstance(id_, str) else "", name, arguments, problem)


def calls_in(format: Format, blocks: Iterable[Any] | None) -> list[Any]:
    """The calls among the blocks of an answer; what else a model says is none of ours."""
    kind = _CALLS.get(format)
    return [one for one in blocks or () if kind is None or (_part(one, "type") or kind) == kind]


def _arguments(given: Any) -> tuple[dict[str, Any], str]:
    if isinstance(given, str):
        try:
            given = jsontext.loads(given.encode("utf-8", "replace")) if given.strip() else {}
        except ValueError as error:
            return {}, f"the arguments are not JSON ({error})"
    if given is None:
        return {}, ""
    if not isinstance(given, Mapping):
        return {}, f"the arguments are not an object but {type(given).__name__}"
    return dict(cast("Mapping[str, Any]", given)), ""


def _part(value: Any, key: str) -> Any:
    return cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else getattr(value, key, None)
