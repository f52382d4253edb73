"""Connection to a set of tools that this gateway runs itself: base of all that speak no MCP."""

import asyncio
import contextlib
import contextvars
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, cast

from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteError
from portico.upstream.backend import NO_OPTIONS, InitializeInfo, Raw, RequestOptions
from portico.upstream.protocol.envelope import MODERN_VERSION


class ToolConnection(ABC):
    """Answers `tools/list` and `tools/call`; subclasses list and call the tools."""

    noun = "a set of tools"
    """How errors name it."""

    def __init__(self, name: str, version: str = "", instructions: str = "") -> None:
        info = {"name": name, "version": version}
        self.initialize_info = InitializeInfo(
            "modern", MODERN_VERSION, {"tools": {}}, info, instructions
        )

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        if method == "tools/list":
            return {"tools": await self.list_tools()}
        if method != "tools/call":
            raise RemoteError(METHOD_NOT_FOUND, f"{method} is not available on {self.noun}")
        params = params or {}
        arguments: Any = params.get("arguments") or {}
        if not isinstance(arguments, dict):
            return make_error_result("The arguments must be one JSON object.")
        return await self.call_tool(str(params.get("name")), cast(Raw, arguments), options)

    async def notify(self, method: str, params: Raw | None = None) -> None:
        return  # nothing here listens

    async def close(self) -> None:
        return  # no resources are held

    @abstractmethod
    async def list_tools(self) -> list[Raw]: ...

    @abstractmethod
    async def call_tool(self, name: str, arguments: Raw, options: RequestOptions) -> Raw: ...


def make_unknown_tool_error(name: str) -> RemoteError:
    return RemoteError(INVALID_PARAMS, f"Unknown tool: {name}")


def make_text_result(text: str) -> Raw:
    return {"content": [{"type": "text", "text": text}]}


def make_error_result(text: str) -> Raw:
    return {**make_text_result(text), "isError": True}


def make_json_result(text: str, value: Any) -> Raw:
    """Return a JSON value as text and as structured content, which has to be an object."""
    structured = cast(Raw, value) if isinstance(value, dict) else {"result": value}
    return {**make_text_result(text), "structuredContent": structured}


async def run_in_dedicated_thread(
    call: Callable[[], Any], name: str, on_done: Callable[[], None] = lambda: None
) -> Any:
    """Return or raise what the call does.

    `on_done` is called when it has ended, even if the caller no longer waits.
    """
    loop = asyncio.get_running_loop()
    returned: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: Any, error: BaseException | None) -> None:
        on_done()
        if not returned.done():
            # Not set_exception: a future does not accept StopIteration.
            returned.set_result((outcome, error))

    def run() -> None:
        outcome = None
        failure = None
        try:
            outcome = context.run(call)
        except BaseException as error:  # handed to the caller, whatever it is
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop may be closed
            loop.call_soon_threadsafe(deliver, outcome, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    outcome, failure = await returned
    if failure is None:
        return outcome
    if isinstance(failure, Exception):
        raise failure
    raise RuntimeError(f"{type(failure).__name__}: {failure}")
