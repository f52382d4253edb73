"""Startup of servers with the gateway, and the wait of first searches for unlisted servers."""

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
"""Seconds after the gateway's start within which a search waits for servers that were never
listed."""
START_SLOT_S = 5.0
"""Seconds for which a start counts against `limits.start_concurrency`."""


class ServerWarmup:
    """Starts and lists servers that no client has called."""

    def __init__(self, servers: ServerRegistry, bus: EventBus, concurrency: int) -> None:
        self._servers = servers
        self._bus = bus
        self._concurrency = concurrency
        self._started_at = time.monotonic()
        self._startup_task: asyncio.Task[None] | None = None

    def set_startup_task(self, task: "asyncio.Task[None]") -> None:
        """Set the task that starts servers after the gateway's start or a new configuration."""
        self._started_at = time.monotonic()
        self._startup_task = task

    @property
    def is_done(self) -> bool:
        """Whether all servers of the startup task have been listed or have failed."""
        return self._startup_task is not None and self._startup_task.done()

    async def start_and_list(
        self, names: Iterable[str], on_done: Callable[[str], None] | None = None
    ) -> None:
        """Start and list these servers; `on_done` is called with each name as it is done."""
        slots = asyncio.Semaphore(self._concurrency)

        async def start_and_list_one(name: str) -> None:
            try:
                # Only this startup is limited: a call to any of these servers starts it at once.
                async with slots:
                    # Servers that never answer must not block the others until they time out.
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(
                            self._servers.upstreams[name].connect(), START_SLOT_S
                        )
                await self._servers.syncs[name].refresh()
            except PorticoError as error:
                logger.info("%s was not started: %s", name, error.message)
            except KeyError:
                logger.debug("%s was removed before it was started", name)
            except Exception:  # boundary: one server's failure must not affect the others
                logger.exception("%s could not be started or listed", name)
            if on_done is not None:
                on_done(name)

        await asyncio.gather(*(start_and_list_one(name) for name in names))

    async def wait_until_listed(self) -> None:
        """Wait until every server that starts with the gateway has been listed or has failed."""
        if self._startup_task is not None:
            await asyncio.shield(self._startup_task)

    async def wait_for_first_listing(self, is_enough: Callable[[], bool]) -> None:
        """Wait until `is_enough`, at most `FIRST_LISTING_S` after the start: one server that never
        answers must not delay searches for long."""
        timeout_s = self._started_at + FIRST_LISTING_S - time.monotonic()
        startup = self._startup_task
        if startup is None or timeout_s <= 0:
            return
        changed = asyncio.Event()
        wake: Callable[[object], None] = lambda _: changed.set()  # noqa: E731
        unsubscribe = self._bus.subscribe(wake)
        startup.add_done_callback(wake)
        try:
            async with asyncio.timeout(timeout_s):
                while not startup.done() and not is_enough():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            unsubscribe()
            startup.remove_done_callback(wake)
