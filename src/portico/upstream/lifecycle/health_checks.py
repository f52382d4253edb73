"""Whether a server that is up still answers: while nothing is heard of it, it is asked.

Only silence counts: a server that answers with an error is there. One that is at work may be busy
with nothing but that: it is left alone for as long as a call may take at most. There is no clock in
the way of a request: it leaves a mark, and whoever passes by every so often looks for it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from portico.config import HealthConfig
from portico.errors import BackendTimeout, PorticoError
from portico.upstream.backend import RequestOptions
from portico.upstream.lifecycle.instances import Instance, Instances

logger = logging.getLogger(__name__)

UNCHECKED_KINDS = ("commands", "functions", "openapi", "recorded")
"""Servers that are in this process, or nowhere while nobody calls them."""


def needs_check(instance: Instance, now: float, max_call_s: float) -> bool:
    """Whether to ask; takes the marks that say it was heard. `patience` is how long a call may
    take."""
    if _take_activity_flag(instance) or instance.heard_since_check:
        instance.heard_since_check = False
        instance.last_heard_at = now
        instance.missed_checks = 0
        return False
    return not is_busy(instance, now, max_call_s)


def _take_activity_flag(instance: Instance) -> bool:
    """Whether it said anything in the middle of a call, such as how far it is."""
    connection: Any = instance.connection
    if spoke := bool(getattr(connection, "has_activity", False)):
        connection.spoke = False
    return spoke


def is_busy(instance: Instance, now: float, max_call_s: float) -> bool:
    """Whether it may be at work on something that it was given in time."""
    return instance.pending_calls > 0 and now - instance.last_heard_at < max_call_s


class HealthChecker:
    """Asks after the conversations of one server, for as long as there are any."""

    def __init__(
        self,
        name: str,
        policy: HealthConfig,
        instances: Instances,
        *,
        max_call_s: float,
        on_missed: Callable[[str, Instance], None],
        on_recovered: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`missed` is told of every question without an answer, `well` of the answer that ends a row of them."""
        self._name = name
        self._policy = policy
        self._instances = instances
        self._max_call_s = max_call_s
        self._on_missed = on_missed
        self._on_recovered = on_recovered
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def configure(self, policy: HealthConfig) -> None:
        """Go by another rule from now on."""
        self.cancel()
        self._policy = policy
        if self._instances:
            self.start()

    def start(self) -> None:
        """A conversation is open."""
        if self._policy.every_s and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(), name=f"check {self._name}")

    def cancel(self) -> None:
        """None is open any more."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            self._task = None

    async def stop(self) -> None:
        """End, and wait for it."""
        task = self._task
        self.cancel()
        if task is not None and task is not asyncio.current_task():
            await asyncio.wait({task})

    async def _run(self) -> None:
        while self._instances:
            troubled = any(instance.missed_checks for _, instance in self._instances.items())
            # What did not answer is asked again sooner: what else is there to wait for?
            await asyncio.sleep(
                min(self._policy.every_s, self._policy.timeout_s)
                if troubled
                else self._policy.every_s
            )
            now = self._clock()
            asked = [
                one for one in self._instances.items() if needs_check(one[1], now, self._max_call_s)
            ]
            if asked:
                await asyncio.gather(*(self._check(key, instance) for key, instance in asked))

    async def _check(self, key: str, instance: Instance) -> None:
        if await self._ping(instance):
            instance.last_heard_at = self._clock()
            if instance.missed_checks:
                instance.missed_checks = 0
                self._on_recovered()
        elif (
            not instance.heard_since_check
            and not _take_activity_flag(instance)
            and not is_busy(instance, self._clock(), self._max_call_s)
        ):
            instance.missed_checks += 1
            self._on_missed(key, instance)

    async def _ping(self, instance: Instance) -> bool:
        if instance.connection.initialize_info.era == "legacy":
            method = "ping"
        else:
            method = "server/discover"
        ask = RequestOptions(timeout=self._policy.timeout_s, total_timeout=self._policy.timeout_s)
        try:
            await instance.connection.request(method, None, ask)
        except BackendTimeout:
            return False
        except PorticoError:
            return True  # it said no, or the conversation is over, and then somebody has been told
        except Exception:  # a backend may be anyone's
            logger.exception("%s could not be asked how it is", self._name)
        return True
