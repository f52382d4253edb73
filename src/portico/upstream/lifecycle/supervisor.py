"""`Upstream`: a supervised server with health checks, memory limit and restarts.

Requests pending on a replaced connection fail with the reason of its replacement. Where the reason
can wait (a restart, too much memory), pending requests finish first, while new ones go to the
replacement.
"""

import asyncio
import logging
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from portico.callers import LOCAL_USER, Caller
from portico.config import HealthConfig, RestartConfig
from portico.errors import (
    BackendTimeout,
    BackendUnavailable,
    MoreRightsNeeded,
    RemoteError,
    SignInNeeded,
)
from portico.events import EventBus
from portico.upstream.backend import NO_OPTIONS, Backend, Connection, Raw, RequestOptions
from portico.upstream.error_mask import MaskedRelay
from portico.upstream.lifecycle import health_checks
from portico.upstream.lifecycle.health_checks import UNCHECKED_KINDS, HealthChecker
from portico.upstream.lifecycle.instances import SHARED, Instance, Instances
from portico.upstream.lifecycle.server_lifecycle import (
    SHUTTING_DOWN,
    Lifecycle,
    UpstreamOptions,
)
from portico.upstream.lifecycle.status import UpstreamStatus, shorten_lines
from portico.upstream.server_log import LogEntry

logger = logging.getLogger(__name__)

DEFAULT_OPTIONS = UpstreamOptions()
CONFIGURATION_REPLACED = "its configuration changed, and a new one has taken its place"
_MIB = 1024**2


@dataclass(slots=True)
class InstanceLease:
    """Marks an instance in use, so that it is not closed as idle.

    It may be entered before the instance is open. A class, because it is entered with every
    request, and a generator costs twice as much.
    """

    _instances: Instances
    _key: str

    def __enter__(self) -> None:
        instances = self._instances
        instances.user_counts[self._key] = instances.user_counts.get(self._key, 0) + 1
        instances.use_count += 1

    def __exit__(self, *_: object) -> None:
        instances = self._instances
        instances.user_counts[self._key] -= 1
        if not instances.user_counts[self._key]:
            del instances.user_counts[self._key]
            if instances.unused_event is not None and not instances.user_counts:
                instances.unused_event.set()
        if (instance := instances.open.get(self._key)) is not None:
            instance.last_used_at = instances.clock()


class Upstream(Lifecycle):
    def __init__(
        self,
        name: str,
        backend: Backend,
        bus: EventBus,
        options: UpstreamOptions = DEFAULT_OPTIONS,
    ) -> None:
        super().__init__(name, backend, bus, options)
        self._health_policy = self._select_health_policy(options.health)
        self._health_checker = HealthChecker(
            name,
            self._health_policy,
            self._instances,
            max_call_s=options.max_call_s,
            on_missed=self._on_missed_check,
            on_recovered=self._on_checks_recovered,
            clock=options.clock,
        )
        self._health_problem = ""
        self._restart_task: asyncio.Task[None] | None = None
        self._restarted_at = 0.0
        self._restart_reason = ""
        self._call_count = 0
        self._memory_bytes = 0

    def get_status(self) -> UpstreamStatus:
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
            self.state,
            self.state_since,
            self.reason,
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

    @property
    def pending_calls(self) -> int:
        """Number of requests without an answer yet."""
        return sum(instance.pending_calls for instance in self._instances.open.values())

    def list_pids(self) -> tuple[int, ...]:
        """Return the processes behind open connections, without their children."""
        pids = map(health_checks.get_pid, self._instances.open.values())
        return tuple(pid for pid in pids if pid is not None)

    async def read_log(self, after: int) -> list[LogEntry]:
        """Return the entries of the log after a number, with secrets masked."""
        entries = self._log.read(after)
        texts = await self._mask.mask_texts([entry.text for entry in entries])
        return [entry._replace(text=text) for entry, text in zip(entries, texts, strict=True)]

    def mark_listed(self) -> None:
        self._has_listing = True
        listed = self._instances.open.get(SHARED) or next(iter(self._instances.open.values()), None)
        if listed is not None:
            self._record_answer(listed)
        if self.state == "degraded":
            self.set_state("ready")

    # --- requests

    def select_key(self, caller: Caller) -> str:
        """Return the key of the instance that serves a caller."""
        if self.personal:
            return SHARED if caller.principal.id == LOCAL_USER.id else caller.principal.id
        return caller.instance_key if self.isolated else SHARED

    async def request(
        self,
        method: str,
        params: Raw | None = None,
        options: RequestOptions = NO_OPTIONS,
        session: str = SHARED,
    ) -> Raw:
        """Send a request, starting the server first if necessary; secrets in errors are masked."""
        key = session if self.isolated else SHARED
        if options.relay is not None:
            options = replace(options, relay=MaskedRelay(self._mask, options.relay))
        with InstanceLease(self._instances, key):
            instance = self._instances.open.get(key) or await self._connect(key)
            self._call_count += 1
            instance.pending_calls += 1
            try:
                result = await instance.connection.request(method, params, options)
            except RemoteError as error:
                self._record_answer(instance)
                await self._mask.mask_error(error)
                raise
            except SignInNeeded as error:
                await self._mask.mask_error(error)
                if key == SHARED and not isinstance(error, MoreRightsNeeded):
                    self.mark_sign_in_needed(error)
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
        key = session if self.isolated else SHARED
        if key not in self._instances.open:
            with InstanceLease(self._instances, key):
                await self._connect(key)

    def get_connection(self, session: str) -> Connection | None:
        """Return the open connection that a session's requests use, or None."""
        instance = self._instances.open.get(session if self.isolated else SHARED)
        return instance and instance.connection

    async def notify(self, method: str, params: Raw | None = None, session: str = SHARED) -> None:
        if (connection := self.get_connection(session)) is not None:
            await connection.notify(method, params)

    def in_use(self, session: str = SHARED) -> AbstractContextManager[None]:
        """Mark the instance in use, so that idle shutdown and eviction skip it."""
        return InstanceLease(self._instances, session if self.isolated else SHARED)

    async def connect(self) -> Connection:
        instance = self._instances.open.get(SHARED) or await self._connect(SHARED, for_call=False)
        return instance.connection

    def _record_answer(self, instance: Instance) -> None:
        instance.has_answered = instance.heard_since_check = True
        if self.state == "needs sign-in":
            self.set_state("ready")
        if self._breaker.has_failures:
            self._breaker.record_success(self._clock() - instance.started_at)

    # --- maintenance

    async def maintain(self, *, restart_if_down: bool = False) -> None:
        """Enforce the memory limit; with `restart_if_down`, start a failed server if allowed."""
        is_down = self.state in ("down", "quarantined") and not self._instances
        if self._is_command and self._restart_policy.memory:
            is_down = await self._enforce_memory_limit() or is_down
        not_started = SHARED not in self._instances.open and SHARED not in self._start_tasks
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
            for key, instance in list(self._instances.open.items())
            if (pid := health_checks.get_pid(instance)) is not None
        }
        if not running:
            return False
        usage = await asyncio.to_thread(health_checks.measure_processes, list(running))
        sizes = {pid: used.memory_bytes for pid, used in usage.items()}
        self._memory_bytes = sum(sizes.values())
        replaced = False
        for pid, (key, instance) in running.items():
            is_open = self._instances.open.get(key) is instance
            if is_open and sizes[pid] > self._restart_policy.memory:
                used_mib = sizes[pid] // _MIB
                limit_mib = self._restart_policy.memory // _MIB
                reason = (
                    f"it took {used_mib:,} MiB of memory, "
                    f"over its restart.memory of {limit_mib:,} MiB"
                )
                self._note_restart(reason)
                self._instances.open.pop(key, None)
                self._draining.drain(instance, self._restart_policy.drain_s, reason)
                self._mark_idle_if_unused()
                replaced = replaced or key == SHARED
        return replaced

    def _on_missed_check(self, key: str, instance: Instance) -> None:
        """Mark the server degraded and, after `failures` missed checks, replace the instance."""
        if self._instances.open.get(key) is not instance:
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
            "and is restarted"
        )
        self._note_restart(reason)
        self._instances.open.pop(key, None)
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
        if self.state == "degraded" and self.reason == self._health_problem:
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
        if self.state in ("down", "quarantined"):
            self._reset_state()

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
        if self.state == "disabled":
            raise BackendUnavailable(
                f"{self.name} cannot be used: {self.reason}", advice="Correct the configuration."
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
        for key, _ in list(self._instances.open.items()):
            if (old := self._instances.open.pop(key, None)) is not None:
                self._note_restart(reason)
                idle = not old.pending_calls
                closing_task = self._draining.drain(
                    old, self._restart_policy.drain_s, f"it is restarted: {reason}"
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
        self._log.add_state("restart", reason)
        logger.warning("%s is restarted: %s", self.name, reason)

    async def wait_until_drained(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until the server has no users; return whether that is so."""
        return await self._instances.wait_until_unused(timeout)

    async def retire(self, drain_s: float) -> None:
        """Wait until the server has no users or `drain_s` is over, then stop it.

        Calls that already hold a reference to it may still begin meanwhile.
        """
        await self.wait_until_drained(drain_s)
        self._stop_reason = self._stop_reason or CONFIGURATION_REPLACED
        await self.stop()

    async def stop(self) -> None:
        """Close every connection; nothing can be started afterwards."""
        self._stop_reason = self._stop_reason or SHUTTING_DOWN
        if self._restart_task is not None and not self._restart_task.done():
            self._restart_task.cancel()
            await asyncio.wait({self._restart_task})
        await super().stop()
        await self._health_checker.stop()
