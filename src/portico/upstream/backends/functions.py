"""Python callables as a server in this process; used by the demo and for custom tools.

A function's signature is its input schema, its docstring its description. Plain functions run in a
thread, coroutines on the loop. A `str` is returned as text; other values also as structured
content.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from portico.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    BackendTimeout,
    BackendUnavailable,
    RemoteError,
)
from portico.json_text import json_codec
from portico.upstream.backend import (
    NO_OPTIONS,
    Connection,
    Era,
    InitializeInfo,
    Listener,
    Raw,
    RequestOptions,
)
from portico.upstream.backends.dedicated_thread import run_in_dedicated_thread
from portico.upstream.protocol.envelope import MODERN_VERSION

ToolFunction = Callable[..., Any]

MAX_THREADS = 64
"""Concurrent plain functions of one server, including those that timed out."""
_VARIADIC_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class FunctionTool:
    """A function with the schema derived from its signature."""

    function: ToolFunction
    arguments: type[BaseModel]
    definition: Raw


def make_function_tool(
    function: ToolFunction, name: str | None = None, annotations: Mapping[str, Any] | None = None
) -> FunctionTool:
    """Derive a tool from a function's signature and docstring."""
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
    """A set of functions."""

    name: str
    tools: tuple[FunctionTool, ...]
    instructions: str = ""
    version: str = ""
    notes: dict[str, Any] = field(default_factory=dict)

    kind = "functions"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Return a connection; nothing is started."""
        return FunctionsConnection(self)

    def diagnostics(self) -> Mapping[str, Any]:
        """Return the number of functions."""
        return {"functions": len(self.tools)}


class FunctionsConnection:
    """Connection to a set of functions."""

    def __init__(self, backend: FunctionsBackend) -> None:
        self._tools = {tool.definition["name"]: tool for tool in backend.tools}
        self._thread_count = 0
        info = {"name": backend.name, "version": backend.version}
        self._initialize_info = InitializeInfo(
            "modern", MODERN_VERSION, {"tools": {}}, info, backend.instructions
        )

    @property
    def initialize_info(self) -> InitializeInfo:
        return self._initialize_info

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
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
            async with asyncio.timeout(options.timeout):
                return await self._call(tool, params.get("arguments") or {})
        except TimeoutError:
            raise BackendTimeout(
                f"{tool.definition['name']} did not return within {options.timeout:g} s"
            ) from None

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Ignore the notification."""

    async def close(self) -> None:
        """Do nothing: no resources are held."""

    async def _call(self, tool: FunctionTool, arguments: Raw) -> Raw:
        try:
            model = tool.arguments.model_validate(arguments)
        except ValidationError as error:
            return _make_error_result(
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
            return _make_error_result(f"{type(error).__name__}: {error}")

    async def _run_in_thread(self, call: Callable[[], Any]) -> Any:
        """Run a plain function in a thread; raise BackendUnavailable above `MAX_THREADS`."""
        if self._thread_count >= MAX_THREADS:
            raise BackendUnavailable(
                f"{MAX_THREADS} of {self._initialize_info.server_info['name']}'s functions "
                "are running already",
                advice="Wait for some to return; those that never do end with the gateway.",
            )
        self._thread_count += 1
        return await run_in_dedicated_thread(call, "portico function", self._on_thread_done)

    def _on_thread_done(self) -> None:
        self._thread_count -= 1


def _to_result(outcome: Any) -> Raw:
    if isinstance(outcome, str):
        return {"content": [{"type": "text", "text": outcome}]}
    text = _encode_json(outcome)
    plain: Any = json_codec.loads(text)
    structured = plain if isinstance(plain, dict) else {"result": plain}
    return {"content": [{"type": "text", "text": text.decode()}], "structuredContent": structured}


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


def _make_error_result(text: str) -> Raw:
    return {"content": [{"type": "text", "text": text}], "isError": True}
