"""The gateway for programs without an event loop: the same methods, on a loop in its own thread."""

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from portico.config import Config, Exposure
from portico.errors import PorticoError
from portico.library.gateway import DEFAULT_CLIENT_NAME, Gateway
from portico.library.results import Result
from portico.library.session import get_running_loop
from portico.library.settings import Servers
from portico.upstream.backend import Raw

P = ParamSpec("P")
T = TypeVar("T")
_CLOSE_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 1.0
"""How often to check that the loop still runs, in seconds."""


def _block_on(
    method: Callable[Concatenate[Gateway, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncGateway", P], T]:
    """Make a method that runs one of `Gateway` on its loop and waits for the result."""

    @functools.wraps(method)
    def run(self: "SyncGateway", *args: P.args, **kwargs: P.kwargs) -> T:
        return self.wait(method(self.gateway, *args, **kwargs))

    return run


def _make_coroutine(
    method: Callable[Concatenate[Gateway, P], T],
) -> Callable[Concatenate[Gateway, P], Coroutine[Any, Any, T]]:
    """Make a coroutine function of a plain method that must run on the loop."""

    @functools.wraps(method)
    async def run(gateway: Gateway, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(gateway, *args, **kwargs)

    return run


class SyncGateway:
    """A `Gateway` whose methods block: `with SyncGateway("portico.yaml") as gateway: …`.

    It may be used from several threads at once, and where an event loop runs (which it then
    blocks). Arguments and methods are those of `Gateway`; LangChain's tools can be called both
    ways.
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
        self.gateway = _ThreadedGateway(
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
        return self.gateway.warnings

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Start the gateway."""
        if self._loop is not None:
            raise PorticoError(
                "the gateway is open already", advice="Make another one for another conversation."
            )
        self._loop = self.gateway.home_loop = loop = asyncio.new_event_loop()
        # A daemon thread, so that a program that forgets to close can still exit.
        self._thread = threading.Thread(
            target=_run_loop, args=(loop,), name="portico gateway", daemon=True
        )
        self._thread.start()
        try:
            self.wait(self.gateway.open())
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
                self.wait(self.gateway.close())
            finally:
                self._loop = self._thread = self.gateway.home_loop = None
                loop.call_soon_threadsafe(loop.stop)
                thread.join(_CLOSE_TIMEOUT_S)

    ready = _block_on(Gateway.ready)
    servers = _block_on(_make_coroutine(Gateway.servers))
    search = _block_on(Gateway.search)
    tool = _block_on(Gateway.tool)
    describe = _block_on(Gateway.describe)
    browse = _block_on(Gateway.browse)
    call = _block_on(Gateway.call)
    run_code = _block_on(Gateway.run_code)
    run_workflow = _block_on(Gateway.run_workflow)
    read_result = _block_on(Gateway.read_result)
    tools = _block_on(Gateway.tools)
    handle = _block_on(Gateway.handle)
    handle_all = _block_on(Gateway.handle_all)
    offers = _block_on(_make_coroutine(Gateway.offers))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the gateway's own loop and wait for its result."""
        return wait_for_result(self._loop, work)


class _ThreadedGateway(Gateway):
    """A gateway that is used from outside its loop."""

    home_loop: asyncio.AbstractEventLoop | None = None

    def _make_langchain_tools(self, chosen_definitions: list[Raw]) -> list[Any]:
        from portico.library import provider_formats

        async def call_async(name: str, arguments: Raw) -> Result:
            return await asyncio.wrap_future(
                _submit(self.home_loop, self._call_for_model(name, arguments))
            )

        return provider_formats.make_tools(
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
    try:
        if loop is None or loop.is_closed():
            raise PorticoError(
                "the gateway is not open",
                advice="Use it inside `with SyncGateway(…) as gateway:`.",
            )
        if get_running_loop() is loop:
            raise PorticoError(
                "a SyncGateway cannot be waited for on its own event loop",
                advice="Make the function that uses it a plain one, not a coroutine: plain "
                "functions run in threads.",
            )
        return asyncio.run_coroutine_threadsafe(work, loop)
    except PorticoError:
        work.close()
        raise
    except RuntimeError:  # The loop was closed in this moment.
        work.close()
        raise PorticoError("the gateway was closed meanwhile") from None


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
