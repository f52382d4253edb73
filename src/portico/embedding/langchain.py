"""Tools as LangChain has them: objects that call the gateway themselves. Needs `langchain-core`, which is not ours."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from portico.embedding.portable import portable
from portico.embedding.replies import blocks
from portico.embedding.requests import Asked
from portico.embedding.results import Result
from portico.errors import PorticoError
from portico.upstream.backend import Raw

_TAKEN = frozenset({"callbacks", "config", "run_manager", "self"})
"""Parameters that LangChain takes for its own."""

Ask = Callable[[str, dict[str, Any]], Awaitable[Result]]
AskNow = Callable[[str, dict[str, Any]], Result]


def tools(definitions: Iterable[Mapping[str, Any]], ask: Ask, ask_now: AskNow | None = None) -> list[Any]:
    """A `StructuredTool` for each MCP definition; with `ask_now`, they can be called without a loop too."""
    made = _library("langchain_core.tools")

    def outcome(result: Result) -> tuple[Any, Result]:
        if result.is_error:
            raise made.ToolException(blocks(result))
        return blocks(result), result

    def tool(definition: Mapping[str, Any]) -> Any:
        name, (schema, real) = str(definition["name"]), _untaken(portable(definition.get("inputSchema") or {}))

        def given(arguments: dict[str, Any]) -> dict[str, Any]:
            return {real.get(key, key): value for key, value in arguments.items()}

        async def later(**arguments: Any) -> tuple[Any, Result]:
            return outcome(await ask(name, given(arguments)))

        def now(**arguments: Any) -> tuple[Any, Result]:
            assert ask_now is not None
            return outcome(ask_now(name, given(arguments)))

        return made.StructuredTool(
            name=name,
            description=str(definition.get("description") or definition.get("title") or name),
            args_schema=schema,
            coroutine=later,
            func=now if ask_now is not None else None,
            response_format="content_and_artifact",
            handle_tool_error=True,
        )

    return [tool(definition) for definition in definitions]


def _untaken(schema: Raw) -> tuple[Raw, dict[str, str]]:
    """A schema whose parameters LangChain leaves alone, and what those that changed are really called."""
    told = {name: name for name in schema["properties"]}
    for name in _TAKEN & told.keys():
        other = f"{name}_"
        while other in told:
            other += "_"
        told[name] = other
    properties = {told[name]: shape for name, shape in schema["properties"].items()}
    required = [told[name] for name in schema.get("required", ())]
    other_names = {new: name for name, new in told.items() if new != name}
    return {**schema, "properties": properties, **({"required": required} if required else {})}, other_names


def message(asked: Asked, result: Result) -> Any:
    """A `ToolMessage` that answers a call."""
    made = _library("langchain_core.messages").ToolMessage
    status = "error" if result.is_error else "success"
    return made(content=blocks(result), tool_call_id=asked.id, name=asked.name, status=status, artifact=result)


def _library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PorticoError(
            f"the langchain format needs a package that is not installed ({error.name})",
            advice="pip install langchain-core",
        ) from error
