"""`Upstream`: a supervised server with health checks, memory limit and restarts.

Requests pending on a replaced connection fail with the reason of its replacement. Where the reason
can wait (a restart, too much memory), pending requests finish first, while new ones go to the
replacement.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from portico.config import HealthConfig, RestartConfig
from portico.errors import BackendTimeout, BackendUnavailable, RemoteError
from portico.events import EventBus
from portico.upstream.backend import NO_OPTIONS, Backend, Connection, Era, Raw, RequestOptions
from portico.upstream.error_mask import ErrorMask
from portico.upstream.lifecycle import process_memory
from portico.upstream.lifecycle.health_checks import UNCHECKED_KINDS, HealthChecker
from portico.upstream.lifecycle.instances import SHARED, Instance
from portico.upstream.lifecycle.lifecycle import MAX_INSTANCES, SHUTTING_DOWN, Lifecycle
from portico.upstream.lifecycle.start_slots import StartSlots
from portico.upstream.lifecycle.status import LifecycleState, UpstreamStatus, shorten_lines

__all__ = ["SHARED", "LifecycleState", "Upstream", "UpstreamStatus"]

logger = logging.getLogger(__name__)

MAX_CALL_S = 600.0
CONFIGURATION_REPLACED = "its configuration changed, and a new one has taken its place"
_MIB = 1024**2


class Upstream(Lifecycle):
    """One configured server."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        bus: EventBus,
        *,
        start_timeout: float = 30.0,
        isolated: bool = False,
        max_instances: int = MAX_INSTANCES,
        era: Era | None = None,
        has_listing: bool = False,
        restart: RestartConfig | None = None,
        health: HealthConfig | None = None,
        start_slots: StartSlots | None = None,
        mask: ErrorMask | None = None,
        max_call_s: float = MAX_CALL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start_slots` and `mask` are shared by all servers of a gateway.

        A server counts as busy with a call for at most `max_call_s` seconds.
        """
        super().__init__(
            name,
            backend,
            bus,
            start_timeout=start_timeout,
            isolated=isolated,
            max_instances=max_instances,
            era=era,
            has_listing=has_listing,
            restart_policy=restart or RestartConfig(),
            start_slots=start_slots,
            mask=mask,
            clock=clock,
        )
        self._health_policy = self._select_health_policy(health or HealthConfig())
        self._health_checker = HealthChecker(
            name,
            self._health_policy,
            self._instances,
            max_call_s=max_call_s,
            on_missed=self._on_missed_check,
            on_recovered=self._on_checks_recovered,
            clock=clock,
        )
        self._health_problem = ""
        self._restart_task: asyncio.Task[None] | None = None
        self._restarted_at = 0.0
        self._restart_reason = ""
        self._call_count = 0
        self._memory_bytes = 0

    def get_status(self) -> UpstreamStatus:
        """Return state, reason and diagnostics."""
        diagnostics = self.backend.diagnostics()
        stderr_lines = self._get_stderr_lines()
        if "stderr" in diagnostics:
            diagnostics = {**diagnostics, "stderr": list(stderr_lines), "noise_samples": []}
        if self.isolated:
            diagnostics = {**diagnostics, "instances": len(self._instances.owned_keys)}
        next_try_at = None
        if self._breaker.phase == "open" and (wait := self._breaker.retry_after_s) is not None:
            next_try_at = time.time() + wait
        return UpstreamStatus(
            self.name,
            self.backend.kind,
            self._state,
            self._state_since,
            self._reason,
            self._initialize_info,
            self._call_count,
            diagnostics,
            breaker_phase=self._breaker.phase,
            failures=self._breaker.failures,
            next_try_at=next_try_at,
            restarts=self._restart_count,
            restart_reason=self._restart_reason,
            stderr=shorten_lines(stderr_lines),
            memory_bytes=self._memory_bytes,
        )

    def mark_listed(self) -> None:
        """Record that the server was listed successfully."""
        self._has_listing = True
        listed = self._instances.find(SHARED) or next(
            (instance for _, instance in self._instances.items()), None
        )
        if listed is not None:
            self._record_answer(listed)
        if self._state == "degraded":
            self.set_state("ready")

    # --- requests

    async def request(
        self,
        method: str,
        params: Raw | None = None,
        options: RequestOptions = NO_OPTIONS,
        session: str = SHARED,
    ) -> Raw:
        """Send a request, starting the server first if necessary; secrets in errors are masked."""
        key = self._instance_key(session)
        with self._instances.use(key):
            instance = self._instances.find(key) or await self._connect(key)
            self._call_count += 1
            instance.pending_calls += 1
            try:
                result = await instance.connection.request(
                    method, params, self._mask.mask_relay(options)
                )
            except RemoteError as error:
                self._record_answer(instance)
                await self._mask.mask_error(error)
                raise
            except BackendUnavailable as error:
                await self._mask.mask_error(error)
                if instance.end_reason and not isinstance(error, BackendTimeout):
                    raise BackendUnavailable(
                        f"{self.name}: {instance.end_reason}", advice=error.advice
                    ) from error
                raise
            finally:
                instance.pending_calls -= 1
                if instance.idle_event is not None and not instance.pending_calls:
                    instance.idle_event.set()
            self._record_answer(instance)
            if result.get("isError"):
                return await self._mask.mask_result(result)
            return result

    async def ensure_started(self, session: str = SHARED) -> None:
        """Start the server if it is not running, so that a later request does not include it."""
        key = self._instance_key(session)
        if key not in self._instances:
            with self._instances.use(key):
                await self._connect(key)

    async def notify(self, method: str, params: Raw | None = None, session: str = SHARED) -> None:
        """Send a notification if the server is running."""
        connection = self._instances.get_connection(self._instance_key(session))
        if connection is not None:
            await connection.notify(method, params)

    def in_use(self, session: str = SHARED) -> AbstractContextManager[None]:
        """Mark the instance in use, so that idle shutdown and eviction skip it."""
        return self._instances.use(self._instance_key(session))

    async def connect(self) -> Connection:
        """Return the shared connection, opening it if necessary."""
        instance = self._instances.find(SHARED) or await self._connect(SHARED, for_call=False)
        return instance.connection

    def _record_answer(self, instance: Instance) -> None:
        instance.has_answered = instance.heard_since_check = True
        if self._breaker.has_failures:
            self._breaker.record_success(self._clock() - instance.started_at)

    # --- maintenance

    async def maintain(self, *, restart_if_down: bool = False) -> None:
        """Enforce the memory limit; with `restart_if_down`, start a failed server if allowed."""
        is_down = self._state in ("down", "quarantined") and not self._instances
        if self._is_command and self._restart_policy.memory:
            is_down = await self._enforce_memory_limit() or is_down
        not_started = SHARED not in self._instances and SHARED not in self._start_tasks
        if (
            restart_if_down
            and is_down
            and not_started
            and not self._stop_reason
            and self._breaker.get_refusal() is None
        ):
            self._begin_start(SHARED)

    async def _enforce_memory_limit(self) -> bool:
        """Replace instances over the memory limit; return whether the shared one was."""
        running = {
            pid: (key, instance)
            for key, instance in self._instances.items()
            if (pid := process_memory.get_pid(instance)) is not None
        }
        if not running:
            return False
        sizes = await process_memory.measure_resident_bytes(running)
        self._memory_bytes = sum(sizes.values())
        replaced = False
        for pid, (key, instance) in running.items():
            if sizes[pid] > self._restart_policy.memory and self._instances.find(key) is instance:
                used_mib = sizes[pid] // _MIB
                limit_mib = self._restart_policy.memory // _MIB
                reason = (
                    f"it took {used_mib:,} MiB of memory, "
                    f"over its restart.memory of {limit_mib:,} MiB"
                )
                self._note_restart(reason)
                self._instances.remove(key)
                self._draining.drain(instance, self._restart_policy.drain_s, reason)
                self._mark_idle_if_unused()
                replaced = replaced or key == SHARED
        return replaced

    def _on_missed_check(self, key: str, instance: Instance) -> None:
        """Mark the server degraded and, after `failures` missed checks, replace the instance."""
        if self._instances.find(key) is not instance:
            return
        if instance.missed_checks > 1:
            times = f"{instance.missed_checks} health checks in a row"
        else:
            times = "a health check"
        self._health_problem = f"it did not answer {times}"
        self.degrade(self._health_problem)
        if instance.missed_checks < self._health_policy.failures:
            return
        reason = (
            f"{self._health_problem}, each within {self._health_policy.timeout_s:g} s, "
            "and is started anew"
        )
        self._note_restart(reason)
        self._instances.remove(key)
        closing = self._draining.close(instance, reason)
        self._breaker.record_crash(reason)
        self._mark_down(reason)
        if (
            key == SHARED
            and not self._stop_reason
            and self._breaker.get_refusal() is None
            and key not in self._start_tasks
        ):
            self._begin_start(key, after=closing)

    def _on_checks_recovered(self) -> None:
        if self._state == "degraded" and self._reason == self._health_problem:
            self.set_state("ready")

    def _on_connection_opened(self) -> None:
        self._health_checker.start()

    def _mark_idle_if_unused(self) -> None:
        super()._mark_idle_if_unused()
        if not self._instances:
            self._health_checker.cancel()

    # --- configuration, restart and stop

    def configure(self, start_timeout: float, restart: RestartConfig, health: HealthConfig) -> None:
        """Apply new timeouts and policies; ends a quarantine, and open connections stay open."""
        self._start_timeout = start_timeout
        self._restart_policy = restart
        self._breaker.configure(restart)
        self._health_policy = self._select_health_policy(health)
        self._health_checker.configure(self._health_policy)
        if self._state in ("down", "quarantined"):
            self.set_state("known" if self._has_listing else "configured")

    def _select_health_policy(self, health: HealthConfig) -> HealthConfig:
        if self.backend.kind in UNCHECKED_KINDS:
            return HealthConfig(every_s=0)
        return health

    async def restart(
        self, reason: str = "a restart was asked for", *, requested_at: float | None = None
    ) -> None:
        """Restart the server at once, regardless of earlier failures; raise if it does not start.

        Pending calls finish on the old connection within `drain_s`. With `requested_at` (wall-clock
        time), nothing happens if there was a restart since.
        """
        if requested_at is not None and self._restarted_at >= requested_at:
            return
        if self._stop_reason:
            raise self._make_stopped_error()
        if self._state == "disabled":
            raise BackendUnavailable(
                f"{self.name} cannot be used: {self._reason}", advice="Mend the configuration."
            )
        if self._restart_task is None or self._restart_task.done():
            self._restarted_at = time.time()
            self._restart_task = asyncio.create_task(
                self._restart(reason), name=f"restart {self.name}"
            )
            self._restart_task.add_done_callback(
                lambda done: None if done.cancelled() else done.exception()
            )
        try:
            await asyncio.shield(self._restart_task)
        except asyncio.CancelledError:
            if self._stop_reason:
                raise self._make_stopped_error() from None
            raise

    async def _restart(self, reason: str) -> None:
        self._breaker.reset()
        closing: asyncio.Task[None] | None = None
        for key, _ in self._instances.items():  # noqa: PERF102
            if (old := self._instances.remove(key)) is not None:
                self._note_restart(reason)
                idle = not old.pending_calls
                closing_task = self._draining.drain(
                    old, self._restart_policy.drain_s, f"it is started anew: {reason}"
                )
                if idle and key == SHARED:
                    # The new one waits for the old one to close: both may need the same port.
                    closing = closing_task
        self._health_checker.cancel()
        task = self._start_tasks.get(SHARED) or self._begin_start(SHARED, after=closing)
        await asyncio.shield(task)

    def _note_restart(self, reason: str) -> None:
        self._next_start_is_restart = True
        self._restart_reason = reason
        logger.warning("%s is restarted: %s", self.name, reason)

    async def wait_until_drained(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until the server has no users; return whether that is so."""
        return await self._instances.wait_until_unused(timeout)

    async def retire(self, drain_s: float, reason: str = CONFIGURATION_REPLACED) -> None:
        """Wait until the server has no users or `drain_s` is over, then stop it.

        Calls that already hold a reference to it may still begin meanwhile.
        """
        await self.wait_until_drained(drain_s)
        self._stop_reason = self._stop_reason or reason
        await self.stop()

    async def stop(self) -> None:
        """Close every connection; nothing can be started afterwards."""
        self._stop_reason = self._stop_reason or SHUTTING_DOWN
        if self._restart_task is not None and not self._restart_task.done():
            self._restart_task.cancel()
            await asyncio.wait({self._restart_task})
        await super().stop()
        await self._health_checker.stop()
