"""The gateway for programs without an event loop: the same methods, on a loop in a thread of its
own."""

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
"""How often it is looked whether there is still a loop that could answer."""


class SyncGateway:
    """A `Gateway` whose methods wait: `with SyncGateway("portico.yaml") as gateway: …`.

    Any thread may use it, several at the same time, and it may be used where an event loop runs
    (which it then holds up). Everything is as in `Gateway`, of which it takes the arguments.
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
        """As `Gateway`: read the configuration. Raises `ConfigError`."""
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
        """As `Gateway.warnings`."""
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
        """Begin."""
        if self._loop is not None:
            raise PorticoError(
                "the gateway is open already", advice="Make another one for another conversation."
            )
        self._loop = self._gateway.home_loop = loop = asyncio.new_event_loop()
        # A daemon: a program that forgets to close must still be able to end.
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
        """End; when this returns, nothing of it is left. Idempotent."""
        with self._close_lock:  # whoever comes second waits until it has ended, too
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
        """As `Gateway.ready`."""
        return self._wait(self._gateway.ready(timeout))

    def servers(self) -> list[ServerInfo]:
        """As `Gateway.servers`."""

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
        """As `Gateway.search`."""
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
        """As `Gateway.tool`."""
        return self._wait(self._gateway.tool(name))

    def describe(self, *names: str, detail: Detail = "schema") -> str:
        """As `Gateway.describe`."""
        return self._wait(self._gateway.describe(*names, detail=detail))

    def browse(
        self, server: str | None = None, category: str | None = None, cursor: str | None = None
    ) -> str:
        """As `Gateway.browse`."""
        return self._wait(self._gateway.browse(server, category, cursor))

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, whole: bool = False
    ) -> Result:
        """As `Gateway.call`."""
        return self._wait(self._gateway.call(name, arguments, whole=whole))

    def run_code(
        self, code: str, language: Language | None = None, timeout_s: float | None = None
    ) -> Result:
        """As `Gateway.run_code`."""
        return self._wait(self._gateway.run_code(code, language, timeout_s))

    def run_workflow(
        self,
        steps: Sequence[Mapping[str, Any]] | None = None,
        *,
        intent: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        resume: str | None = None,
    ) -> Result:
        """As `Gateway.run_workflow`."""
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
        """As `Gateway.read_result`."""
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
        """As `Gateway.tools`; LangChain's tools can then be called both ways."""
        return self._wait(
            self._gateway.tools(
                format, names=names, intent=intent, exposure=exposure, cache=cache, defer=defer
            )
        )

    def handle(self, format: Format, call: Any) -> Any:
        """As `Gateway.handle`."""
        return self._wait(self._gateway.handle(format, call))

    def handle_all(self, format: Format, blocks: Iterable[Any] | None) -> list[Any]:
        """As `Gateway.handle_all`."""
        return self._wait(self._gateway.handle_all(format, blocks))

    def offers(self, name: str) -> bool:
        """As `Gateway.offers`."""

        async def check_offer() -> bool:
            return self._gateway.offers(name)

        return self._wait(check_offer())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine comes to, on the gateway's own loop."""
        return wait_for_result(self._loop, work)


class _ThreadedGateway(Gateway):
    """A gateway that is reached from outside its loop."""

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
    """Wait for work on another thread's loop; whoever is interrupted meanwhile ends the work too."""
    future = _submit(loop, work)
    try:
        while not concurrent.futures.wait([future], _POLL_INTERVAL_S).done:
            if loop is None or loop.is_closed():
                # It was taken just as the loop ended, and nobody will ever say what became of it.
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
        advice = "Make the function that uses it a plain one, not a coroutine: plain functions run in threads."
    else:
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # closed in this moment
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
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_CLOSE_TIMEOUT_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
