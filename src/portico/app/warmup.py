"""Which servers start with the gateway, and how long the first questions wait for servers nothing
is known of."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from portico.app.server_registry import ServerRegistry
from portico.errors import PorticoError
from portico.events import EventBus

logger = logging.getLogger(__name__)

FIRST_LISTING_S = 5.0
"""How long after its start the gateway lets a search wait for servers nothing is known of."""
START_SLOT_S = 5.0
"""How long a start counts against `limits.start_concurrency`."""


class ServerWarmup:
    """Starts and lists servers that nobody has called."""

    def __init__(self, servers: ServerRegistry, bus: EventBus, concurrency: int) -> None:
        self._servers = servers
        self._bus = bus
        self._concurrency = concurrency
        self._started_at = time.monotonic()
        self._startup_task: asyncio.Task[None] | None = None

    def set_startup_task(self, task: "asyncio.Task[None]") -> None:
        """The gateway has started, or goes by another configuration, and this task starts what
        starts with that."""
        self._started_at = time.monotonic()
        self._startup_task = task

    @property
    def is_done(self) -> bool:
        """Whether all that starts unasked has been heard, or has failed."""
        return self._startup_task is not None and self._startup_task.done()

    async def start_and_list(
        self, names: Iterable[str], on_done: Callable[[str], None] | None = None
    ) -> None:
        """Start and list these; `heard` is told each name as it is done."""
        gate = asyncio.Semaphore(self._concurrency)

        async def start_and_list_one(name: str) -> None:
            try:
                # Only this crowd waits at the gate: a call to any of these servers starts it at
                # once.
                async with gate:
                    # A few servers that never answer must not keep the others outside until they
                    # are given up.
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(
                            self._servers.upstreams[name].connect(), START_SLOT_S
                        )
                await self._servers.syncs[name].refresh()
            except PorticoError as error:
                logger.info("%s was not started: %s", name, error.message)
            except KeyError:
                logger.debug("%s was taken away before it was started", name)
            except Exception:  # one server's fault is no other's
                logger.exception("%s could not be started or listed", name)
            if on_done is not None:
                on_done(name)

        await asyncio.gather(*(start_and_list_one(name) for name in names))

    async def wait_until_listed(self) -> None:
        """Wait until every server that starts with the gateway has been listed or has failed."""
        if self._startup_task is not None:
            await asyncio.shield(self._startup_task)

    async def wait_for_first_listing(self, is_enough: Callable[[], bool]) -> None:
        """Wait for servers nothing is known of, but not long: one that never answers must not hold
        up the others."""
        patience = self._started_at + FIRST_LISTING_S - time.monotonic()
        first = self._startup_task
        if first is None or patience <= 0:
            return
        heard = asyncio.Event()
        wake: Callable[[object], None] = lambda _: heard.set()  # noqa: E731
        forget = self._bus.subscribe(wake)
        first.add_done_callback(wake)
        try:
            async with asyncio.timeout(patience):
                while not first.done() and not is_enough():
                    heard.clear()
                    await heard.wait()
        except TimeoutError:
            return
        finally:
            forget()
            first.remove_done_callback(wake)
