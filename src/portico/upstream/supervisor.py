"""A server that is looked after: asked how it is, replaced when it is unwell or too large, restarted on demand.

What it is replaced for, whoever waits for it is told; what is replaced for a reason that can wait (a restart, too much
memory) first answers what it was asked, while new requests go to what replaces it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from portico.config import Health, Restart
from portico.errors import BackendTimeout, BackendUnavailable, RemoteError
from portico.events import Bus
from portico.upstream import memory
from portico.upstream.backend import NO_OPTIONS, Ask, Backend, Connection, Era, Raw
from portico.upstream.error_mask import ErrorMask
from portico.upstream.health import UNCHECKED, Checks
from portico.upstream.instances import SHARED, Instance
from portico.upstream.life import CLOSED, MAX_INSTANCES, Life
from portico.upstream.starts import Starts
from portico.upstream.status import State, Status, shortened

__all__ = ["SHARED", "State", "Status", "Upstream"]

logger = logging.getLogger(__name__)

LONGEST_CALL_S = 600.0
REPLACED = "its configuration changed, and a new one has taken its place"
_MIB = 1024**2


class Upstream(Life):
    """One configured server."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        bus: Bus,
        *,
        start_timeout: float = 30.0,
        isolated: bool = False,
        max_instances: int = MAX_INSTANCES,
        era: Era | None = None,
        known: bool = False,
        restart: Restart | None = None,
        health: Health | None = None,
        starts: Starts | None = None,
        mask: ErrorMask | None = None,
        longest_call: float = LONGEST_CALL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`starts` and `mask` are shared by the servers of a gateway.

        A server may be busy with a call for `longest_call`.
        """
        super().__init__(
            name,
            backend,
            bus,
            start_timeout=start_timeout,
            isolated=isolated,
            max_instances=max_instances,
            era=era,
            known=known,
            rule=restart or Restart(),
            starts=starts,
            mask=mask,
            clock=clock,
        )
        self._health = self._checked(health or Health())
        self._checks = Checks(
            name,
            self._health,
            self._instances,
            patience=longest_call,
            missed=self._silent,
            well=self._well,
            clock=clock,
        )
        self._unwell = ""
        self._restarting: asyncio.Task[None] | None = None
        self._restarted_at = 0.0
        self._restarted_for = ""
        self._calls = 0
        self._memory = 0

    def status(self) -> Status:
        """State, since when, and why."""
        found, said = self.backend.diagnostics(), self._last_lines()
        if "stderr" in found:
            found = {**found, "stderr": list(said), "noise_samples": []}
        wait = self._breaker.wait if self._breaker.phase == "open" else None
        return Status(
            self.name,
            self.backend.kind,
            self._state,
            self._since,
            self._reason,
            self._hello,
            self._calls,
            {**found, "instances": len(self._instances.owned)} if self.isolated else found,
            breaker=self._breaker.phase,
            failures=self._breaker.failures,
            next_try=None if wait is None else time.time() + wait,
            restarts=self._restarts,
            restarted_for=self._restarted_for,
            stderr=shortened(said),
            memory=self._memory,
        )

    def mark_listed(self) -> None:
        """The server is up and could be listed."""
        self._known = True
        listed = self._instances.find(SHARED) or next((one for _, one in self._instances.all()), None)
        if listed is not None:
            self._has_answered(listed)
        if self._state == "degraded":
            self.mark("ready")

    # --- asking it

    async def request(
        self, method: str, params: Raw | None = None, ask: Ask = NO_OPTIONS, session: str = SHARED
    ) -> Raw:
        """Ask the server, starting it first if need be."""
        key = session if self.isolated else SHARED
        with self._instances.use(key):
            instance = self._instances.find(key) or await self._connect(key)
            self._calls += 1
            instance.calls += 1
            try:
                result = await instance.connection.request(method, params, self._mask.over_ask(ask))
            except RemoteError as error:
                self._has_answered(instance)
                await self._mask.error(error)
                raise
            except BackendUnavailable as error:
                await self._mask.error(error)
                if instance.ended and not isinstance(error, BackendTimeout):
                    raise BackendUnavailable(f"{self.name}: {instance.ended}", advice=error.advice) from error
                raise
            finally:
                instance.calls -= 1
                if instance.idle is not None and not instance.calls:
                    instance.idle.set()
            self._has_answered(instance)
            return await self._mask.result(result) if result.get("isError") else result

    async def woken(self, session: str = SHARED) -> None:
        """Start it if it is not up, so that a request from here on takes no longer than its answer."""
        key = self._key(session)
        if key not in self._instances:
            with self._instances.use(key):
                await self._connect(key)

    async def notify(self, method: str, params: Raw | None = None, session: str = SHARED) -> None:
        """Tell the server, if it is up."""
        connection = self._instances.get(self._key(session))
        if connection is not None:
            await connection.notify(method, params)

    def held(self, session: str = SHARED) -> AbstractContextManager[None]:
        """While a client is at work with it, though nothing is asked of it yet: nobody takes it for idle."""
        return self._instances.use(self._key(session))

    async def connect(self) -> Connection:
        """The live conversation, started if need be."""
        found = self._instances.find(SHARED) or await self._connect(SHARED, called=False)
        return found.connection

    def _has_answered(self, instance: Instance) -> None:
        instance.answered = instance.heard = True
        if self._breaker.troubled:
            self._breaker.answered(self._clock() - instance.started)

    # --- looking after it

    async def tend(self, *, wanted: bool = False) -> None:
        """What is due every so often. One that fell and is `wanted`, called or not, is started once it may be."""
        fallen = self._state in ("down", "quarantined") and not self._instances
        if self._command and self._rule.memory:
            fallen = await self._watch_memory() or fallen
        free = SHARED not in self._instances and SHARED not in self._starting
        if wanted and fallen and free and not self._over and self._breaker.refusal() is None:
            self._begin(SHARED)

    async def _watch_memory(self) -> bool:
        """Replace what has grown too large; whether that was the one that nobody owns."""
        running = {pid: (key, one) for key, one in self._instances.all() if (pid := memory.pid_of(one)) is not None}
        if not running:
            return False
        sizes = await memory.resident(running)
        self._memory, replaced = sum(sizes.values()), False
        for pid, (key, instance) in running.items():
            if sizes[pid] > self._rule.memory and self._instances.find(key) is instance:
                taken, most = sizes[pid] // _MIB, self._rule.memory // _MIB
                reason = f"it took {taken:,} MiB of memory, over its restart.memory of {most:,} MiB"
                self._note_restart(reason)
                self._instances.take(key)
                self._leaving.drain(instance, self._rule.drain_s, reason)
                self._rested()
                replaced = replaced or key == SHARED
        return replaced

    def _silent(self, key: str, instance: Instance) -> None:
        """A health check was not answered."""
        if self._instances.find(key) is not instance:
            return
        times = f"{instance.missed} health checks in a row" if instance.missed > 1 else "a health check"
        self._unwell = f"it did not answer {times}"
        self.degrade(self._unwell)
        if instance.missed < self._health.failures:
            return
        reason = f"{self._unwell}, each within {self._health.timeout_s:g} s, and is started anew"
        self._note_restart(reason)
        self._instances.take(key)
        closing = self._leaving.close(instance, reason)
        self._breaker.died(reason)
        self._fell(reason)
        if key == SHARED and not self._over and self._breaker.refusal() is None and key not in self._starting:
            self._begin(key, after=closing)

    def _well(self) -> None:
        if self._state == "degraded" and self._reason == self._unwell:
            self.mark("ready")

    def _opened(self) -> None:
        self._checks.begin()

    def _rested(self) -> None:
        super()._rested()
        if not self._instances:
            self._checks.end()

    # --- replacing it

    def configure(self, start_timeout: float, restart: Restart, health: Health) -> None:
        """Wait for it and look after it otherwise from now on; that ends a quarantine, and whatever is up stays up."""
        self._start_timeout, self._rule = start_timeout, restart
        self._breaker.configure(restart)
        self._health = self._checked(health)
        self._checks.configure(self._health)
        if self._state in ("down", "quarantined"):
            self.mark("known" if self._known else "configured")

    def _checked(self, health: Health) -> Health:
        return Health(every_s=0) if self.backend.kind in UNCHECKED else health

    async def restart(self, reason: str = "a restart was asked for", *, asked: float | None = None) -> None:
        """Start it anew, at once and whatever it did before; raises what keeps it from starting.

        Calls under way end on the old one, within `drain_s`. Whoever says when it was `asked` (in the time of day) gets
        no second restart where there was one since.
        """
        if asked is not None and self._restarted_at >= asked:
            return
        if self._over:
            raise self._gone()
        if self._state == "disabled":
            raise BackendUnavailable(f"{self.name} cannot be used: {self._reason}", advice="Mend the configuration.")
        if self._restarting is None or self._restarting.done():
            self._restarted_at = time.time()
            self._restarting = asyncio.create_task(self._restart(reason), name=f"restart {self.name}")
            self._restarting.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        try:
            await asyncio.shield(self._restarting)
        except asyncio.CancelledError:
            if self._over:
                raise self._gone() from None
            raise

    async def _restart(self, reason: str) -> None:
        self._breaker.reset()
        closing: asyncio.Task[None] | None = None
        for key, _ in self._instances.all():
            if (old := self._instances.take(key)) is not None:
                self._note_restart(reason)
                idle = not old.calls
                going = self._leaving.drain(old, self._rule.drain_s, f"it is started anew: {reason}")
                if idle and key == SHARED:
                    closing = going  # where nobody waits for the old one, two need not fight over a port or a file
        self._checks.end()
        task = self._starting.get(SHARED) or self._begin(SHARED, after=closing)
        await asyncio.shield(task)

    def _note_restart(self, reason: str) -> None:
        self._broken, self._restarted_for = True, reason
        logger.warning("%s is started anew: %s", self.name, reason)

    async def drained(self, seconds: float) -> bool:
        """Wait until nobody waits for an answer of its, but not longer; whether that is so."""
        return await self._instances.settled(seconds)

    async def retire(self, drain_s: float, why: str = REPLACED) -> None:
        """Go on until nobody waits for it, or the time is up; then stop. A call that has already found it may begin."""
        await self.drained(drain_s)
        self._over = self._over or why
        await self.stop()

    async def stop(self) -> None:
        """End every conversation; nothing starts again."""
        self._over = self._over or CLOSED
        if self._restarting is not None and not self._restarting.done():
            self._restarting.cancel()
            await asyncio.wait({self._restarting})
        await super().stop()
        await self._checks.stop()
