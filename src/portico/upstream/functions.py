"""Python callables as a server, in this process: what the demo runs on, and the shortest way to add one's own tool.

A function's signature is its input schema, its docstring its description. Plain functions run in a thread, coroutines
on the loop. A `str` is answered as text; anything else also as structured content.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, BackendTimeout, RemoteError
from portico.upstream.backend import Ask, Connection, Era, Hello, Listener, Raw
from portico.upstream.envelope import MODERN_VERSION
from portico.upstream.peer import NO_OPTIONS

Function = Callable[..., Any]


@dataclass(frozen=True)
class FunctionTool:
    """A function with the schema its signature implies."""

    function: Function
    arguments: type[BaseModel]
    definition: Raw


def function_tool(
    function: Function, name: str | None = None, annotations: Mapping[str, Any] | None = None
) -> FunctionTool:
    """Derive a tool from a function."""
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (annotation, default)
    model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
    schema = model.model_json_schema()
    schema.pop("title", None)
    for shown in schema.get("properties", {}).values():
        shown.pop("title", None)
    definition: Raw = {
        "name": name or function.__name__,
        "description": inspect.cleandoc(function.__doc__ or ""),
        "inputSchema": schema,
    }
    if annotations:
        definition["annotations"] = dict(annotations)
    return FunctionTool(function, model, definition)


@dataclass(frozen=True)
class FunctionsBackend:
    """A set of functions."""

    name: str
    tools: tuple[FunctionTool, ...]
    instructions: str = ""
    version: str = ""
    notes: dict[str, Any] = field(default_factory=dict)

    kind = "functions"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Nothing to start."""
        return FunctionsConnection(self)

    def diagnostics(self) -> Mapping[str, Any]:
        """How many functions there are."""
        return {"functions": len(self.tools)}


class FunctionsConnection:
    """A conversation with functions."""

    def __init__(self, backend: FunctionsBackend) -> None:
        self._tools = {tool.definition["name"]: tool for tool in backend.tools}
        info = {"name": backend.name, "version": backend.version}
        self._hello = Hello("modern", MODERN_VERSION, {"tools": {}}, info, backend.instructions)

    @property
    def hello(self) -> Hello:
        return self._hello

    async def request(self, method: str, params: Raw | None = None, ask: Ask = NO_OPTIONS) -> Raw:
        """List the functions or call one."""
        if method == "tools/list":
            return {"tools": [tool.definition for tool in self._tools.values()]}
        if method != "tools/call":
            raise RemoteError(METHOD_NOT_FOUND, f"{method} is not available on a set of functions")
        params = params or {}
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            raise RemoteError(INVALID_PARAMS, f"Unknown tool: {params.get('name')}")
        try:
            async with asyncio.timeout(ask.timeout):
                return await _call(tool, params.get("arguments") or {})
        except TimeoutError:
            raise BackendTimeout(f"{tool.definition['name']} did not return within {ask.timeout:g} s") from None

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Functions take no notifications."""

    async def close(self) -> None:
        """Nothing is held."""


async def _call(tool: FunctionTool, arguments: Raw) -> Raw:
    try:
        checked = tool.arguments.model_validate(arguments)
    except ValidationError as error:
        return _failure("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()))
    values = {name: getattr(checked, name) for name in tool.arguments.model_fields}
    call = partial(tool.function, **values)
    try:
        outcome = await call() if inspect.iscoroutinefunction(tool.function) else await asyncio.to_thread(call)
    except Exception as error:  # the function is the user's: whatever it raises is its tool's error
        return _failure(f"{type(error).__name__}: {error}")
    return _answer(outcome)


def _answer(outcome: Any) -> Raw:
    if isinstance(outcome, str):
        return {"content": [{"type": "text", "text": outcome}]}
    plain: Any = orjson.loads(orjson.dumps(outcome, default=_plain))
    text = orjson.dumps(plain).decode()
    structured = plain if isinstance(plain, dict) else {"result": plain}
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset | tuple):
        return list(cast("set[Any]", value))
    return str(value)


def _failure(text: str) -> Raw:
    return {"content": [{"type": "text", "text": text}], "isError": True}
