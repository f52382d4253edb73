"""Python callables as a server in this process; used by the demo and for custom tools.

A function's signature is its input schema, its docstring its description. Plain functions run in a
thread, coroutines on the loop. A `str` is returned as text; other values also as structured
content.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from portico.errors import BackendTimeout, BackendUnavailable
from portico.json_text import json_codec
from portico.upstream.backend import Connection, Era, Listener, Raw, RequestOptions
from portico.upstream.backends.tool_connection import (
    ToolConnection,
    make_error_result,
    make_json_result,
    make_text_result,
    make_unknown_tool_error,
    run_in_dedicated_thread,
)

ToolFunction = Callable[..., Any]

MAX_THREADS = 64
"""Concurrent plain functions of one server, including those that timed out."""
_VARIADIC_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class FunctionTool:
    function: ToolFunction
    arguments: type[BaseModel]
    definition: Raw


def make_function_tool(
    function: ToolFunction, name: str | None = None, annotations: Mapping[str, Any] | None = None
) -> FunctionTool:
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.kind in _VARIADIC_KINDS:
            continue  # clients pass arguments by name only
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (annotation, default)
    model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
    schema = model.model_json_schema()
    schema.pop("title", None)
    for property_schema in schema.get("properties", {}).values():
        property_schema.pop("title", None)
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
    name: str
    tools: tuple[FunctionTool, ...]
    instructions: str = ""
    version: str = ""

    kind = "functions"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        return FunctionsConnection(self)

    def diagnostics(self) -> Mapping[str, Any]:
        return {"functions": len(self.tools)}


class FunctionsConnection(ToolConnection):
    noun = "a set of functions"

    def __init__(self, backend: FunctionsBackend) -> None:
        super().__init__(backend.name, backend.version, backend.instructions)
        self._tools = {tool.definition["name"]: tool for tool in backend.tools}
        self._thread_count = 0

    async def list_tools(self) -> list[Raw]:
        return [tool.definition for tool in self._tools.values()]

    async def call_tool(self, name: str, arguments: Raw, options: RequestOptions) -> Raw:
        tool = self._tools.get(name)
        if tool is None:
            raise make_unknown_tool_error(name)
        try:
            async with asyncio.timeout(options.timeout):
                return await self._call(tool, arguments)
        except TimeoutError:
            raise BackendTimeout(f"{name} did not return within {options.timeout:g} s") from None

    async def _call(self, tool: FunctionTool, arguments: Raw) -> Raw:
        try:
            model = tool.arguments.model_validate(arguments)
        except ValidationError as error:
            return make_error_result(
                "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            )
        values = {name: getattr(model, name) for name in tool.arguments.model_fields}
        call = partial(tool.function, **values)
        try:
            if inspect.iscoroutinefunction(tool.function):
                outcome = call()
            else:
                outcome = await self._run_in_thread(call)
            return _to_result(await outcome if inspect.isawaitable(outcome) else outcome)
        except BackendUnavailable:
            raise
        except (Exception, SystemExit) as error:  # user code: anything it raises is a tool error
            return make_error_result(f"{type(error).__name__}: {error}")

    async def _run_in_thread(self, call: Callable[[], Any]) -> Any:
        """Run a plain function in a thread; raise BackendUnavailable above `MAX_THREADS`."""
        if self._thread_count >= MAX_THREADS:
            raise BackendUnavailable(
                f"{MAX_THREADS} of {self.initialize_info.server_info['name']}'s functions "
                "are running already",
                advice="Wait for some to return; those that never do end with the gateway.",
            )
        self._thread_count += 1
        return await run_in_dedicated_thread(call, "portico function", self._on_thread_done)

    def _on_thread_done(self) -> None:
        self._thread_count -= 1


def _to_result(outcome: Any) -> Raw:
    if isinstance(outcome, str):
        return make_text_result(outcome)
    text = _encode_json(outcome)
    return make_json_result(text.decode(), json_codec.loads(text))


def _encode_json(outcome: Any) -> bytes:
    try:
        return orjson.dumps(outcome, default=_to_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # such as an integer over 64 bits
        return json.dumps(
            outcome, default=_to_plain, ensure_ascii=False, separators=(",", ":")
        ).encode()


def _to_plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset | tuple):
        return list(cast("set[Any]", value))
    return str(value)
