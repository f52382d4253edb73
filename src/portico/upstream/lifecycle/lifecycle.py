"""Lifecycle of one server: start, state, connection loss and stop.

configured → known (its listing is on disk) → starting → ready → degraded (running, with a problem)
→ down → quarantined (failed too often, not retried for long).

No server is started twice: all requests that need it wait for the same start, and a cancelled
request does not cancel that start. After a failure the reason is returned at once, without another
try, until the circuit breaker allows one.

An isolated server runs once per client, and a client never gets another's instance. Above
`max_instances`, the longest unused instance is closed for a new one.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext

from portico.config import RestartConfig
from portico.errors import BackendUnavailable
from portico.events import EventBus, UpstreamLost, UpstreamReady
from portico.upstream.backend import Backend, Connection, Era, InitializeInfo, Raw
from portico.upstream.error_mask import ErrorMask
from portico.upstream.lifecycle.circuit_breaker import CircuitBreaker
from portico.upstream.lifecycle.connection_attempt import (
    ConnectFailed,
    ConnectionListener,
    open_connection,
)
from portico.upstream.lifecycle.draining import Draining
from portico.upstream.lifecycle.instances import SHARED, Instance, Instances
from portico.upstream.lifecycle.start_slots import StartSlots
from portico.upstream.lifecycle.status import (
    LifecycleState,
    describe_quarantine,
    make_refusal_error,
    make_unavailable_error,
    shorten_lines,
    take_last_lines,
)

logger = logging.getLogger(__name__)

MAX_INSTANCES = 64
MIN_UPTIME_S = 5.0
"""A command that exits sooner after its start counts as crashed, whatever it answered."""
SHUTTING_DOWN = "the gateway is shutting down"


class Lifecycle:
    """Opens, loses and closes the connections of one server."""

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
        restart_policy: RestartConfig,
        start_slots: StartSlots | None = None,
        mask: ErrorMask | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._mask = mask or ErrorMask()
        self.backend = backend
        self.isolated = isolated
        self._max_instances = max_instances or MAX_INSTANCES
        self.era: Era | None = era
        self.on_connected: Callable[[], None] | None = None
        self.on_notification: Callable[[str, Raw, str], None] | None = None
        self._bus = bus
        self._start_timeout = start_timeout
        self._restart_policy = restart_policy
        self._start_slots = start_slots
        self._clock = clock
        if has_listing:
            self._state: LifecycleState = "known"
        else:
            self._state = "configured"
        self._state_since = time.time()
        self._reason = ""
        self._initialize_info: InitializeInfo | None = None
        self._is_command = backend.kind == "stdio"
        self._breaker = CircuitBreaker(restart_policy, can_quarantine=self._is_command, clock=clock)
        self._instances = Instances(clock)
        self._draining = Draining(name)
        self._start_tasks: dict[str, asyncio.Task[Instance]] = {}
        self._raw_stderr_lines: tuple[str, ...] = ()
        self._masked_stderr_lines: tuple[str, ...] = ()
        self._next_start_is_restart = False
        self._restart_count = 0
        self._has_listing = has_listing
        self._stop_reason = ""

    # --- state

    @property
    def state(self) -> LifecycleState:
        return self._state

    @property
    def reason(self) -> str:
        return self._reason

    @property
    def state_since(self) -> float:
        return self._state_since

    def set_state(self, state: LifecycleState, reason: str = "") -> None:
        """Set the state and its reason; a change sets `state_since`."""
        if (state, reason) != (self._state, self._reason):
            self._state = state
            self._reason = reason
            self._state_since = time.time()

    def degrade(self, reason: str) -> None:
        """Mark a running server as degraded."""
        if self._state in ("ready", "degraded"):
            self.set_state("degraded", self._mask.mask_text(reason))

    def mark_known(self) -> None:
        """Record that the listing is known, so the server need not be started to be listed."""
        self._has_listing = True
        if self._state == "configured":
            self.set_state("known")

    def has_instance(self, session: str) -> bool:
        """Return whether this session's own instance is running or starting."""
        return session in self._instances or session in self._start_tasks

    def _instance_key(self, session: str) -> str:
        if self.isolated:
            return session
        return SHARED

    @property
    def any_connection(self) -> Connection | None:
        """Any open connection, or None."""
        return self._instances.any_connection

    def get_connection(self, session: str) -> Connection | None:
        """Return the open connection that a session's requests use, or None."""
        return self._instances.get_connection(self._instance_key(session))

    # --- start

    async def _connect(self, key: str, *, for_call: bool = True) -> Instance:
        task = self._start_tasks.get(key)
        if task is None or self._breaker.phase == "half-open":
            self._raise_if_refused()
        if task is None:
            if key != SHARED:
                self._evict_if_full()
            task = self._begin_start(key, for_call=for_call)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._stop_reason:
                raise self._make_stopped_error() from None
            raise

    def _begin_start(
        self, key: str, *, for_call: bool = False, after: "asyncio.Task[None] | None" = None
    ) -> "asyncio.Task[Instance]":
        self._breaker.begin_start()
        task = asyncio.create_task(self._start(key, for_call, after), name=f"start {self.name}")
        self._start_tasks[key] = task
        task.add_done_callback(lambda done: self._on_start_done(key, done))
        return task

    def _raise_if_refused(self) -> None:
        if self._stop_reason:
            raise self._make_stopped_error()
        if (refusal := self._breaker.get_refusal()) is not None:
            if self._state == "quarantined":
                reason = self._reason
            else:
                reason = refusal.reason
            raise make_refusal_error(
                self.name, refusal, reason, shorten_lines(self._get_stderr_lines())
            )

    def _get_stderr_lines(self) -> tuple[str, ...]:
        """Return the last stderr lines, masked; the result is reused until there are new ones."""
        lines = take_last_lines(self.backend.diagnostics().get("stderr", ()))
        if lines != self._raw_stderr_lines:
            self._raw_stderr_lines = lines
            self._masked_stderr_lines = tuple(map(self._mask.mask_text, lines))
        return self._masked_stderr_lines

    def _make_stopped_error(self) -> BackendUnavailable:
        advice = "" if self._stop_reason == SHUTTING_DOWN else "Make the call again."
        return BackendUnavailable(f"{self.name} cannot be used: {self._stop_reason}", advice=advice)

    def _evict_if_full(self) -> None:
        """Close the longest unused instance if the limit is reached; never one in use."""
        starting = sum(key != SHARED for key in self._start_tasks)
        if len(self._instances.owned_keys) + starting < self._max_instances:
            return
        oldest = self._instances.find_longest_idle()
        if oldest is None:
            raise BackendUnavailable(
                f"{self.name} already runs {self._max_instances} instances, "
                "each for another client, and all are busy",
                advice="Try again shortly, close other sessions, raise this server's "
                "max_instances, or set isolation: shared for it.",
            )
        logger.info(
            "%s runs %d instances: the longest unused one is closed", self.name, self._max_instances
        )
        self.end_session_nowait(oldest)

    def _on_start_done(self, key: str, task: "asyncio.Task[Instance]") -> None:
        self._start_tasks.pop(key, None)
        self._breaker.end_start()
        self._mark_idle_if_unused()
        if not task.cancelled():
            task.exception()  # mark as retrieved: nobody may be waiting for the start any more

    async def _start(
        self, key: str, for_call: bool, after: "asyncio.Task[None] | None"
    ) -> Instance:
        if not self._instances:
            self.set_state("starting")
        if after is not None:
            await asyncio.wait({after})
        listener = ConnectionListener(
            lambda method, params: self.handle_notification(method, params, key),
            lambda instance, reason: self._handle_connection_lost(key, instance, reason),
        )
        if for_call and self._start_slots:
            slot = self._start_slots.acquire(self.name, self._start_timeout)
        else:
            slot = nullcontext()
        try:
            async with slot:
                connection = await open_connection(
                    self.name,
                    self.backend,
                    listener,
                    self.era,
                    self._start_timeout,
                    self._mask.mask_text,
                )
        except ConnectFailed as error:
            raise self._handle_start_failure(error) from error
        listener.instance = instance = self._instances.add(key, connection)
        self._initialize_info = connection.initialize_info
        self.era = connection.initialize_info.era
        self._restart_count += self._next_start_is_restart
        self._next_start_is_restart = False
        self.set_state("ready")
        logger.info(
            "%s is ready (%s, %s)",
            self.name,
            self.backend.kind,
            connection.initialize_info.protocol_version,
        )
        self._bus.publish(UpstreamReady(self.name))
        self._on_connection_opened()
        if self.on_connected is not None:
            self.on_connected()
        return instance

    def _on_connection_opened(self) -> None:
        """Hook for subclasses, called when a connection has been opened."""

    # --- connection loss

    def _handle_start_failure(self, error: ConnectFailed) -> BackendUnavailable:
        self.era = None  # the remembered era may be the cause
        reason = self._mask.mask_text(error.reason)
        self._breaker.record_failure(reason)
        logger.warning("%s is down: %s", self.name, reason)
        self._mark_down(reason)
        return make_unavailable_error(
            self.name, self._breaker.failing_since, reason, self._mask.mask_text(error.advice)
        )

    def _handle_connection_lost(self, key: str, instance: Instance, reason: str) -> None:
        """Record a broken connection, and count it as failure or crash."""
        if self._instances.find(key) is not instance:
            return  # it is being closed already
        reason = self._mask.mask_text(reason)
        logger.warning("%s went away: %s", self.name, reason)
        self._instances.remove(key)
        self._draining.close(instance)
        if not instance.has_answered and not self._instances.is_in_use(key):
            # No call caused this: starting again at once would most likely fail the same way.
            self._breaker.record_failure(reason)
        elif self._is_command and (
            instance.pending_calls or self._clock() - instance.started_at < MIN_UPTIME_S
        ):
            self._breaker.record_crash(reason)
        self._mark_down(reason)

    def _mark_down(self, reason: str) -> None:
        """Publish the loss and, without other instances, set state down or quarantined."""
        self._next_start_is_restart = True
        if not self._instances:
            if self._breaker.quarantined:
                detail = describe_quarantine(
                    self._breaker.failures, self._restart_policy.window_s, reason
                )
                self.set_state("quarantined", detail)
                logger.error(
                    "%s is quarantined: %s; `portico restart %s` tries it again",
                    self.name,
                    detail,
                    self.name,
                )
            else:
                self.set_state("down", reason)
            self._state_since = self._breaker.failing_since or self._state_since
        self._bus.publish(UpstreamLost(self.name, reason))

    def handle_notification(self, method: str, params: Raw, key: str) -> None:
        """Forward a notification outside any request, with its instance key."""
        if self.on_notification is not None:
            self.on_notification(method, params, key)

    # --- stop

    async def end_session(self, session: str) -> None:
        """Close the instance of a session that ended, and wait for it."""
        starting = self._start_tasks.get(session)
        closing = self.end_session_nowait(session)
        if starting is not None and session != SHARED:
            await asyncio.wait({starting})
        if closing is not None:
            await asyncio.shield(closing)

    def end_session_nowait(self, session: str) -> "asyncio.Task[None] | None":
        """Close the instance of a session without waiting; return the closing task, if any."""
        if session == SHARED:
            return None
        if (starting := self._start_tasks.get(session)) is not None:
            starting.cancel()
        instance = self._instances.remove(session)
        self._mark_idle_if_unused()
        if instance is not None:
            return self._draining.close(instance)
        return None

    async def stop_if_idle(self, idle_s: float, watched_by: Collection[str] = ()) -> None:
        """Close instances unused for `idle_s` seconds and not watched; a later call restarts."""
        excluded = watched_by
        if not self.isolated and watched_by:
            excluded = (SHARED,)
        removed = [
            self._instances.remove(key) for key in self._instances.find_idle(idle_s, excluded)
        ]
        self._mark_idle_if_unused()
        closing = {self._draining.close(instance) for instance in removed if instance is not None}
        if closing:
            await asyncio.wait(closing)

    async def stop(self) -> None:
        """Close every connection; nothing can be started afterwards."""
        self._stop_reason = self._stop_reason or SHUTTING_DOWN
        starting = list(self._start_tasks.values())
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        removed = self._instances.remove_all()
        self._mark_idle_if_unused()
        for instance in removed:
            self._draining.close(instance, self._stop_reason)
        self._draining.abort()
        await self._draining.wait_closed()

    def _mark_idle_if_unused(self) -> None:
        # Only a running server becomes idle: a down or disabled one keeps its state and reason.
        if (
            self._state in ("ready", "degraded", "starting")
            and not self._instances
            and not self._start_tasks
        ):
            self.set_state("known" if self._has_listing else "configured")
