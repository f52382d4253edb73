"""Whether a server that is up still answers: while nothing is heard of it, it is asked.

Only silence counts: a server that answers with an error is there. One that is at work may be busy with nothing but
that: it is left alone for as long as a call may take at most. There is no clock in the way of a request: it leaves a
mark, and whoever passes by every so often looks for it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from portico.config import Health
from portico.errors import BackendTimeout, PorticoError
from portico.upstream.backend import Ask
from portico.upstream.instances import Instance, Instances

logger = logging.getLogger(__name__)

UNCHECKED = ("commands", "functions", "openapi", "recorded")
"""Servers that are in this process, or nowhere while nobody calls them."""


def due(instance: Instance, now: float, patience: float) -> bool:
    """Whether to ask; takes the marks that say it was heard. `patience` is how long a call may take."""
    if _spoke(instance) or instance.heard:
        instance.heard, instance.heard_at, instance.missed = False, now, 0
        return False
    return not busy(instance, now, patience)


def _spoke(instance: Instance) -> bool:
    """Whether it said anything in the middle of a call, such as how far it is."""
    connection: Any = instance.connection
    if spoke := bool(getattr(connection, "spoke", False)):
        connection.spoke = False
    return spoke


def busy(instance: Instance, now: float, patience: float) -> bool:
    """Whether it may be at work on something that it was given in time."""
    return instance.calls > 0 and now - instance.heard_at < patience


class Checks:
    """Asks after the conversations of one server, for as long as there are any."""

    def __init__(
        self,
        name: str,
        rule: Health,
        instances: Instances,
        *,
        patience: float,
        missed: Callable[[str, Instance], None],
        well: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`missed` is told of every question without an answer, `well` of the answer that ends a row of them."""
        self._name, self._rule, self._instances = name, rule, instances
        self._patience, self._missed, self._well, self._clock = patience, missed, well, clock
        self._task: asyncio.Task[None] | None = None

    def configure(self, rule: Health) -> None:
        """Go by another rule from now on."""
        self.end()
        self._rule = rule
        if self._instances:
            self.begin()

    def begin(self) -> None:
        """A conversation is open."""
        if self._rule.every_s and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(), name=f"check {self._name}")

    def end(self) -> None:
        """None is open any more."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            self._task = None

    async def stop(self) -> None:
        """End, and wait for it."""
        task = self._task
        self.end()
        if task is not None and task is not asyncio.current_task():
            await asyncio.wait({task})

    async def _run(self) -> None:
        while self._instances:
            troubled = any(instance.missed for _, instance in self._instances.all())
            # What did not answer is asked again sooner: what else is there to wait for?
            await asyncio.sleep(min(self._rule.every_s, self._rule.timeout_s) if troubled else self._rule.every_s)
            now = self._clock()
            asked = [one for one in self._instances.all() if due(one[1], now, self._patience)]
            if asked:
                await asyncio.gather(*(self._ask(key, instance) for key, instance in asked))

    async def _ask(self, key: str, instance: Instance) -> None:
        if await self._answers(instance):
            instance.heard_at = self._clock()
            if instance.missed:
                instance.missed = 0
                self._well()
        elif not instance.heard and not _spoke(instance) and not busy(instance, self._clock(), self._patience):
            instance.missed += 1
            self._missed(key, instance)

    async def _answers(self, instance: Instance) -> bool:
        method = "ping" if instance.connection.hello.era == "legacy" else "server/discover"
        ask = Ask(timeout=self._rule.timeout_s, longest=self._rule.timeout_s)
        try:
            await instance.connection.request(method, None, ask)
        except BackendTimeout:
            return False
        except PorticoError:
            return True  # it said no, or the conversation is over, and then somebody has been told
        except Exception:  # a backend may be anyone's
            logger.exception("%s could not be asked how it is", self._name)
        return True
