"""The gateway for programs without an event loop: the same methods, on a loop in its own thread."""

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from portico.config import Config, Exposure
from portico.embedding.definitions import Format
from portico.embedding.gateway import DEFAULT_CLIENT_NAME, Detail, Gateway, Language
from portico.embedding.results import Matches, Result, ServerInfo, ToolInfo
from portico.embedding.settings import Servers
from portico.errors import PorticoError
from portico.upstream.backend import Raw

T = TypeVar("T")
_CLOSE_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 1.0
"""How often to check that the loop still runs, in seconds."""


class SyncGateway:
    """A `Gateway` whose methods block: `with SyncGateway("portico.yaml") as gateway: …`.

    It may be used from several threads at once, and where an event loop runs (which it then
    blocks). Arguments and methods are those of `Gateway`.
    """

    def __init__(
        self,
        config: "str | os.PathLike[str] | Mapping[str, Any] | Config | None" = None,
        *,
        servers: Servers | None = None,
        profile: str | None = None,
        exposure: Exposure | None = None,
        data_dir: "str | os.PathLike[str] | None" = None,
        in_memory: bool = False,
        name: str = DEFAULT_CLIENT_NAME,
    ) -> None:
        """Read the configuration. Raises `ConfigError`."""
        self._gateway = _ThreadedGateway(
            config,
            servers=servers,
            profile=profile,
            exposure=exposure,
            data_dir=data_dir,
            in_memory=in_memory,
            name=name,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._close_lock = threading.Lock()

    @property
    def warnings(self) -> tuple[str, ...]:
        """See `Gateway.warnings`."""
        return self._gateway.warnings

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> Self:
        """Start the gateway."""
        if self._loop is not None:
            raise PorticoError(
                "the gateway is open already", advice="Make another one for another conversation."
            )
        self._loop = self._gateway.home_loop = loop = asyncio.new_event_loop()
        # A daemon thread, so that a program that forgets to close can still exit.
        self._thread = threading.Thread(
            target=_run_loop, args=(loop,), name="portico gateway", daemon=True
        )
        self._thread.start()
        try:
            self._wait(self._gateway.open())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop the gateway and wait until nothing of it is left. Idempotent."""
        with self._close_lock:  # A second caller waits until it has closed, too.
            loop = self._loop
            thread = self._thread
            if loop is None or thread is None:
                return
            try:
                self._wait(self._gateway.close())
            finally:
                self._loop = self._thread = self._gateway.home_loop = None
                loop.call_soon_threadsafe(loop.stop)
                thread.join(_CLOSE_TIMEOUT_S)

    def ready(self, timeout: float | None = None) -> bool:
        """See `Gateway.ready`."""
        return self._wait(self._gateway.ready(timeout))

    def servers(self) -> list[ServerInfo]:
        """See `Gateway.servers`."""

        async def list_servers() -> list[ServerInfo]:
            return self._gateway.servers()

        return self._wait(list_servers())

    def search(
        self,
        query: str,
        *,
        server: str | None = None,
        category: str | None = None,
        tags: Sequence[str] = (),
        max_latency_ms: float | None = None,
        min_success_rate: float | None = None,
        limit: int = 8,
    ) -> Matches:
        """See `Gateway.search`."""
        return self._wait(
            self._gateway.search(
                query,
                server=server,
                category=category,
                tags=tags,
                max_latency_ms=max_latency_ms,
                min_success_rate=min_success_rate,
                limit=limit,
            )
        )

    def tool(self, name: str) -> ToolInfo:
        """See `Gateway.tool`."""
        return self._wait(self._gateway.tool(name))

    def describe(self, *names: str, detail: Detail = "schema") -> str:
        """See `Gateway.describe`."""
        return self._wait(self._gateway.describe(*names, detail=detail))

    def browse(
        self, server: str | None = None, category: str | None = None, cursor: str | None = None
    ) -> str:
        """See `Gateway.browse`."""
        return self._wait(self._gateway.browse(server, category, cursor))

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, whole: bool = False
    ) -> Result:
        """See `Gateway.call`."""
        return self._wait(self._gateway.call(name, arguments, whole=whole))

    def run_code(
        self, code: str, language: Language | None = None, timeout_s: float | None = None
    ) -> Result:
        """See `Gateway.run_code`."""
        return self._wait(self._gateway.run_code(code, language, timeout_s))

    def run_workflow(
        self,
        steps: Sequence[Mapping[str, Any]] | None = None,
        *,
        intent: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        resume: str | None = None,
    ) -> Result:
        """See `Gateway.run_workflow`."""
        return self._wait(
            self._gateway.run_workflow(steps, intent=intent, inputs=inputs, resume=resume)
        )

    def read_result(
        self,
        result_id: str,
        *,
        path: str | None = None,
        grep: str | None = None,
        cursor: str | None = None,
    ) -> str:
        """See `Gateway.read_result`."""
        return self._wait(self._gateway.read_result(result_id, path=path, grep=grep, cursor=cursor))

    def tools(
        self,
        format: Format,
        *,
        names: Iterable[str] | None = None,
        intent: str | None = None,
        exposure: Exposure | None = None,
        cache: bool = False,
        defer: bool = False,
    ) -> list[Any]:
        """See `Gateway.tools`; LangChain's tools can then be called both ways."""
        return self._wait(
            self._gateway.tools(
                format, names=names, intent=intent, exposure=exposure, cache=cache, defer=defer
            )
        )

    def handle(self, format: Format, call: Any) -> Any:
        """See `Gateway.handle`."""
        return self._wait(self._gateway.handle(format, call))

    def handle_all(self, format: Format, blocks: Iterable[Any] | None) -> list[Any]:
        """See `Gateway.handle_all`."""
        return self._wait(self._gateway.handle_all(format, blocks))

    def offers(self, name: str) -> bool:
        """See `Gateway.offers`."""

        async def check_offer() -> bool:
            return self._gateway.offers(name)

        return self._wait(check_offer())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the gateway's own loop and wait for its result."""
        return wait_for_result(self._loop, work)


class _ThreadedGateway(Gateway):
    """A gateway that is used from outside its loop."""

    home_loop: asyncio.AbstractEventLoop | None = None

    def _make_langchain_tools(self, chosen_definitions: list[Raw]) -> list[Any]:
        from portico.embedding import langchain

        async def call_async(name: str, arguments: Raw) -> Result:
            return await asyncio.wrap_future(
                _submit(self.home_loop, self._call_for_model(name, arguments))
            )

        return langchain.make_tools(
            chosen_definitions,
            call_async,
            lambda name, arguments: wait_for_result(
                self.home_loop, self._call_for_model(name, arguments)
            ),
        )


def wait_for_result(loop: asyncio.AbstractEventLoop | None, work: Coroutine[Any, Any, T]) -> T:
    """Wait for work on another thread's loop; an interruption cancels the work."""
    future = _submit(loop, work)
    try:
        while not concurrent.futures.wait([future], _POLL_INTERVAL_S).done:
            if loop is None or loop.is_closed():
                # Submitted just as the loop stopped, so it will never finish.
                with contextlib.suppress(RuntimeError):
                    work.close()
                raise PorticoError("the gateway was closed meanwhile")
        return future.result()
    except concurrent.futures.CancelledError:
        raise PorticoError("the gateway was closed meanwhile") from None
    except BaseException:
        future.cancel()
        raise


def _submit(
    loop: asyncio.AbstractEventLoop | None, work: Coroutine[Any, Any, T]
) -> "concurrent.futures.Future[T]":
    problem = ""
    if loop is None or loop.is_closed():
        problem = "the gateway is not open"
        advice = "Use it inside `with SyncGateway(…) as gateway:`."
    elif _get_running_loop() is loop:
        problem = "a SyncGateway cannot be waited for on its own event loop"
        advice = (
            "Make the function that uses it a plain one, not a coroutine: plain functions run "
            "in threads."
        )
    else:
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # The loop was closed in this moment.
            problem = "the gateway was closed meanwhile"
            advice = ""
    work.close()
    raise PorticoError(problem, advice=advice)


def _get_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        remaining = asyncio.all_tasks(loop)
        for task in remaining:
            task.cancel()
        if remaining:
            loop.run_until_complete(asyncio.wait(remaining, timeout=_CLOSE_TIMEOUT_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
