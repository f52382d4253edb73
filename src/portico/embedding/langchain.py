"""LangChain tools, which call the gateway themselves.

Needs `langchain-core`, which is not a dependency of Portico.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from portico.embedding.model_calls import ModelToolCall
from portico.embedding.portable_schema import make_portable
from portico.embedding.provider_results import to_langchain_content
from portico.embedding.results import Result
from portico.errors import PorticoError
from portico.upstream.backend import Raw

_RESERVED_PARAMETERS = frozenset({"callbacks", "config", "run_manager", "self"})
"""Parameter names that LangChain reserves."""

AsyncToolCall = Callable[[str, dict[str, Any]], Awaitable[Result]]
SyncToolCall = Callable[[str, dict[str, Any]], Result]


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
    if result.is_error:
        status = "error"
    else:
        status = "success"
    return message_class(
        content=to_langchain_content(result),
        tool_call_id=call.id,
        name=call.name,
        status=status,
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
