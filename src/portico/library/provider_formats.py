"""Tools, calls and results in each model provider's format. Pure.

MCP definitions become a provider's definitions, a model's tool call becomes a name and arguments,
and a result becomes the reply to the model. Calls are the objects of the providers' libraries, or
plain dicts. A call that the model wrote wrongly has a `problem`, which is returned to the model; an
object that is not a call is an error of the program.

LangChain tools call the gateway themselves; they need `langchain-core`, which is no dependency.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from portico.errors import InvalidArguments, PorticoError
from portico.json_text import json_codec
from portico.json_text.json_codec import to_text
from portico.library.portable_schema import make_portable
from portico.library.results import RESULT_URI_PREFIX, Result, render_block
from portico.upstream.backend import Raw

# --- definitions

Format = Literal["anthropic", "openai", "openai-chat", "langchain", "mcp"]
"""`openai` is the Responses API, `openai-chat` Chat Completions, `mcp` the protocol's own form."""

FORMATS: tuple[str, ...] = get_args(Format)
DEFERRING_FORMATS = ("anthropic", "openai")
"""Formats whose provider can load a tool definition later."""
_EPHEMERAL = {"type": "ephemeral"}
_RESERVED_PARAMETERS = frozenset({"callbacks", "config", "run_manager", "self"})
"""Parameter names that LangChain reserves."""

AsyncToolCall = Callable[[str, dict[str, Any]], Awaitable[Result]]
SyncToolCall = Callable[[str, dict[str, Any]], Result]


def check_format(format: str) -> Format:
    """Return `format` if it is known, else raise InvalidArguments."""
    if format not in FORMATS:
        raise InvalidArguments(
            f"there is no format {format!r}", advice=f"Formats: {', '.join(FORMATS)}."
        )
    return cast(Format, format)


def render_definitions(
    format: Format, definitions: Iterable[Mapping[str, Any]], deferred: frozenset[str] = frozenset()
) -> list[Raw]:
    """Convert MCP definitions to a provider's format.

    Those named in `deferred` are loaded only when the provider's own tool search finds them.
    """
    convert = {"anthropic": to_anthropic, "openai": to_openai, "openai-chat": to_openai_chat}.get(
        format, dict[str, Any]
    )
    rendered = [convert(definition) for definition in definitions]
    for definition in rendered:
        if definition.get("name") in deferred:
            definition["defer_loading"] = True
    return rendered


def to_anthropic(definition: Mapping[str, Any]) -> Raw:
    """Convert a definition for the Messages API."""
    return {
        "name": definition["name"],
        **_get_description(definition),
        "input_schema": make_portable(definition.get("inputSchema") or {}),
    }


def to_openai(definition: Mapping[str, Any]) -> Raw:
    """Convert a definition for the Responses API."""
    # Explicit, because by default that API makes every optional parameter required.
    return {"type": "function", **_to_function(definition), "strict": False}


def to_openai_chat(definition: Mapping[str, Any]) -> Raw:
    """Convert a definition for the Chat Completions API."""
    return {"type": "function", "function": _to_function(definition)}


def add_cache_control(definitions: list[Raw]) -> list[Raw]:
    """Mark Anthropic definitions so that all up to the last non-deferred one are in the prompt
    cache.
    """
    last = max(
        (
            index
            for index, definition in enumerate(definitions)
            if not definition.get("defer_loading")
        ),
        default=None,
    )
    marked = list(definitions)
    if last is not None:
        marked[last] = {**marked[last], "cache_control": _EPHEMERAL}
    return marked


def _to_function(definition: Mapping[str, Any]) -> Raw:
    parameters = make_portable(definition.get("inputSchema") or {})
    return {"name": definition["name"], **_get_description(definition), "parameters": parameters}


def _get_description(definition: Mapping[str, Any]) -> Raw:
    description = definition.get("description") or definition.get("title")
    if isinstance(description, str) and description:
        return {"description": description}
    return {}


# --- calls

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
    id: str
    name: str
    arguments: dict[str, Any]
    problem: str = ""
    """Why it cannot be run as written."""


def parse_call(format: Format, call: Any) -> ModelToolCall:
    """Parse a call; raises InvalidArguments if it is not a call in that format."""
    inner = call
    if format == "openai-chat":
        inner = _get_part(call, "function")
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
    return ModelToolCall(to_text(id_), name, arguments, problem)


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
        if not raw_arguments.strip():
            return {}, ""
        try:
            raw_arguments = json_codec.loads(raw_arguments.encode("utf-8", "replace"))
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


# --- results

IMAGE_TYPES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""Image types that models accept."""
EMPTY_RESULT_TEXT = "(the tool answered nothing)"
"""Sent instead of an empty text, which some providers refuse."""


def render_reply(
    format: Format, call: ModelToolCall, result: Result, raw: Mapping[str, Any]
) -> Any:
    match format:
        case "anthropic":
            return to_anthropic_result(call.id, result)
        case "openai":
            return to_openai_result(call.id, result)
        case "openai-chat":
            content = _render_text_with_status(result)
            return {"role": "tool", "tool_call_id": call.id, "content": content}
        case "langchain":
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


def make_tools(
    definitions: Iterable[Mapping[str, Any]],
    call_async: AsyncToolCall,
    call_sync: SyncToolCall | None = None,
) -> list[Any]:
    """Make a `StructuredTool` of each MCP definition.

    With `call_sync`, they can be called without an event loop too.
    """
    tools_module = _import_library("langchain_core.tools")

    def to_outcome(result: Result) -> tuple[Any, Result]:
        if result.is_error:
            raise tools_module.ToolException(to_langchain_content(result))
        return to_langchain_content(result), result

    def make_tool(definition: Mapping[str, Any]) -> Any:
        name = str(definition["name"])
        schema, real_names = _rename_reserved(make_portable(definition.get("inputSchema") or {}))

        def restore_names(arguments: dict[str, Any]) -> dict[str, Any]:
            return {real_names.get(key, key): value for key, value in arguments.items()}

        async def run_async(**arguments: Any) -> tuple[Any, Result]:
            return to_outcome(await call_async(name, restore_names(arguments)))

        def run_sync(**arguments: Any) -> tuple[Any, Result]:
            assert call_sync is not None
            return to_outcome(call_sync(name, restore_names(arguments)))

        return tools_module.StructuredTool(
            name=name,
            description=str(definition.get("description") or definition.get("title") or name),
            args_schema=schema,
            coroutine=run_async,
            func=run_sync if call_sync is not None else None,
            response_format="content_and_artifact",
            handle_tool_error=True,
        )

    return [make_tool(definition) for definition in definitions]


def _rename_reserved(schema: Raw) -> tuple[Raw, dict[str, str]]:
    """Rename parameters that LangChain reserves; return the schema and new name → real name."""
    new_names = {name: name for name in schema["properties"]}
    for name in _RESERVED_PARAMETERS & new_names.keys():
        new_name = f"{name}_"
        while new_name in new_names:
            new_name += "_"
        new_names[name] = new_name
    properties = {new_names[name]: shape for name, shape in schema["properties"].items()}
    renamed = {**schema, "properties": properties}
    if required := [new_names[name] for name in schema.get("required", ())]:
        renamed["required"] = required
    return renamed, {new: name for name, new in new_names.items() if new != name}


def make_message(call: ModelToolCall, result: Result) -> Any:
    """Make the `ToolMessage` that answers a call."""
    message_class = _import_library("langchain_core.messages").ToolMessage
    return message_class(
        content=to_langchain_content(result),
        tool_call_id=call.id,
        name=call.name,
        status="error" if result.is_error else "success",
        artifact=result,
    )


def _import_library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PorticoError(
            f"the langchain format needs a package that is not installed ({error.name})",
            advice="pip install langchain-core",
        ) from error
