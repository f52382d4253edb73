"""Tools as LangChain has them: objects that call the gateway themselves. Needs `langchain-core`,
which is not ours."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from portico.embedding.model_calls import ModelToolCall
from portico.embedding.portable_schema import make_portable
from portico.embedding.provider_results import to_langchain_content
from portico.embedding.results import Result
from portico.errors import PorticoError
from portico.upstream.backend import Raw

_RESERVED_PARAMETERS = frozenset({"callbacks", "config", "run_manager", "self"})
"""Parameters that LangChain takes for its own."""

AsyncToolCall = Callable[[str, dict[str, Any]], Awaitable[Result]]
SyncToolCall = Callable[[str, dict[str, Any]], Result]


def make_tools(
    definitions: Iterable[Mapping[str, Any]],
    call_async: AsyncToolCall,
    call_sync: SyncToolCall | None = None,
) -> list[Any]:
    """A `StructuredTool` for each MCP definition; with `ask_now`, they can be called without a loop
    too."""
    made = _import_library("langchain_core.tools")

    def to_outcome(result: Result) -> tuple[Any, Result]:
        if result.is_error:
            raise made.ToolException(to_langchain_content(result))
        return to_langchain_content(result), result

    def make_tool(definition: Mapping[str, Any]) -> Any:
        name, (schema, real) = (
            str(definition["name"]),
            _rename_reserved(make_portable(definition.get("inputSchema") or {})),
        )

        def restore_names(arguments: dict[str, Any]) -> dict[str, Any]:
            return {real.get(key, key): value for key, value in arguments.items()}

        async def run_async(**arguments: Any) -> tuple[Any, Result]:
            return to_outcome(await call_async(name, restore_names(arguments)))

        def run_sync(**arguments: Any) -> tuple[Any, Result]:
            assert call_sync is not None
            return to_outcome(call_sync(name, restore_names(arguments)))

        return made.StructuredTool(
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
    """A schema whose parameters LangChain leaves alone, and what those that changed are really
    called."""
    told = {name: name for name in schema["properties"]}
    for name in _RESERVED_PARAMETERS & told.keys():
        other = f"{name}_"
        while other in told:
            other += "_"
        told[name] = other
    properties = {told[name]: shape for name, shape in schema["properties"].items()}
    required = [told[name] for name in schema.get("required", ())]
    other_names = {new: name for name, new in told.items() if new != name}
    return {
        **schema,
        "properties": properties,
        **({"required": required} if required else {}),
    }, other_names


def make_message(call: ModelToolCall, result: Result) -> Any:
    """A `ToolMessage` that answers a call."""
    made = _import_library("langchain_core.messages").ToolMessage
    if result.is_error:
        status = "error"
    else:
        status = "success"
    return made(
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
