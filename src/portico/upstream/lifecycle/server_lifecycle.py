"""Lifecycle of one server: start, state, connection loss and stop.

configured → known (its listing is on disk) → starting → ready → degraded (running, with a problem)
→ down → quarantined (failed too often, not retried for long), or needs sign-in (a person's turn).

No server is started twice: all requests that need it wait for the same start, and a cancelled
request does not cancel that start. After a failure the reason is returned at once, without another
try, until the circuit breaker allows one.

An isolated server runs once per client, a personal one once per person, and nobody ever gets
another's instance. Above `max_instances`, the longest unused instance is closed for a new one.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass, field

from portico.config import HealthConfig, RestartConfig
from portico.errors import BackendUnavailable, SignInNeeded
from portico.events import EventBus, ServerStateChanged, UpstreamLost, UpstreamReady
from portico.upstream.backend import Backend, Connection, Era, InitializeInfo, Raw
from portico.upstream.backends.personal import PersonalBackend
from portico.upstream.error_mask import ErrorMask
from portico.upstream.lifecycle.connection_attempt import (
    ConnectFailed,
    ConnectionListener,
    StartSlots,
    open_connection,
)
from portico.upstream.lifecycle.instances import SHARED, Draining, Instance, Instances
from portico.upstream.lifecycle.restart_circuit_breaker import CircuitBreaker
from portico.upstream.lifecycle.status import (
    LifecycleState,
    describe_quarantine,
    make_refusal_error,
    make_unavailable_error,
    shorten_lines,
    take_last_lines,
)
from portico.upstream.server_log import ServerLog

logger = logging.getLogger(__name__)

MAX_INSTANCES = 64
MAX_CALL_S = 600.0
MAX_LOGGED_PROBLEMS = 20
"""Different problems that are logged while a server is not ready."""
_DIGITS = re.compile(r"\d+")
MIN_UPTIME_S = 5.0
"""A command that exits sooner after its start counts as crashed, whatever it answered."""
SHUTTING_DOWN = "the gateway is shutting down"


@dataclass(frozen=True)
class UpstreamOptions:
    """How one server is started, shared and checked."""

    start_timeout: float = 30.0
    isolated: bool = False
    personal: bool = False
    """Whether each person uses an own account there; it is isolated then."""
    max_instances: int = MAX_INSTANCES
    era: Era | None = None
    """The era that it spoke last."""
    has_listing: bool = False
    restart: RestartConfig = field(default_factory=RestartConfig)
    health: HealthConfig = field(default_factory=HealthConfig)
    start_slots: StartSlots | None = None
    """Shared by all servers of a gateway, as `mask` is."""
    mask: ErrorMask = field(default_factory=ErrorMask)
    log: ServerLog = field(default_factory=ServerLog)
    max_call_s: float = MAX_CALL_S
    """Seconds for which it counts as busy with a call, at most."""
    clock: Callable[[], float] = time.monotonic


class Lifecycle:
    """Opens, loses and closes the connections of one server."""

    def __init__(
        self, name: str, backend: Backend, bus: EventBus, options: UpstreamOptions
    ) -> None:
        self.name = name
        self.backend = backend
        self.isolated = options.isolated or options.personal
        self.personal = options.personal
        self.era: Era | None = options.era
        self.on_connected: Callable[[], None] | None = None
        self.on_notification: Callable[[str, Raw, str], None] | None = None
        self._bus = bus
        self._mask = options.mask
        self._log = options.log
        self._max_instances = options.max_instances or MAX_INSTANCES
        self._start_timeout = options.start_timeout
        self._restart_policy = options.restart
        self._start_slots = options.start_slots
        self._clock = options.clock
        self.state: LifecycleState = "known" if options.has_listing else "configured"
        self.state_since = time.time()
        self.reason = ""
        self._initialize_info: InitializeInfo | None = None
        self._is_command = backend.kind == "stdio"
        self._breaker = CircuitBreaker(
            options.restart, can_quarantine=self._is_command, clock=options.clock
        )
        self._instances = Instances(options.clock)
        self._draining = Draining(name)
        self._start_tasks: dict[str, asyncio.Task[Instance]] = {}
        self._raw_stderr_lines: tuple[str, ...] = ()
        self._masked_stderr_lines: tuple[str, ...] = ()
        self._next_start_is_restart = False
        self._restart_count = 0
        self._has_listing = options.has_listing
        self._stop_reason = ""
        self._logged_problems: set[str] = set()

    # --- state

    def set_state(self, state: LifecycleState, reason: str = "") -> None:
        """Set the state and its reason; a change sets `state_since`."""
        if (state, reason) != (self.state, self.reason):
            self.state = state
            self.reason = reason
            self.state_since = time.time()
            if not self._stop_reason:  # its successor may use the same log already
                self._log.add_state(state, reason)
                self._bus.publish(ServerStateChanged(self.name, state, reason))

    def _reset_state(self) -> None:
        """Set the state of a server that is not running."""
        self.set_state("known" if self._has_listing else "configured")

    def degrade(self, reason: str) -> None:
        if self.state in ("ready", "degraded"):
            self.set_state("degraded", self._mask.mask_text(reason))

    def mark_known(self) -> None:
        """Record that the listing is known, so the server need not be started to be listed."""
        self._has_listing = True
        if self.state == "configured":
            self.set_state("known")

    def has_instance(self, session: str) -> bool:
        """Return whether this session's own instance is running or starting."""
        return session in self._instances.open or session in self._start_tasks

    @property
    def any_connection(self) -> Connection | None:
        instance = self._instances.open.get(SHARED) or next(
            iter(self._instances.open.values()), None
        )
        return instance and instance.connection

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
            reason = self.reason if self.state == "quarantined" else refusal.reason
            stderr_lines = shorten_lines(self._get_stderr_lines())
            raise make_refusal_error(self.name, refusal, reason, stderr_lines)

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
        slot = nullcontext()
        if for_call and self._start_slots:
            slot = self._start_slots.acquire(self.name, self._start_timeout)
        try:
            async with slot:
                connection = await open_connection(
                    self.name,
                    self._get_backend(key),
                    listener,
                    self.era,
                    self._start_timeout,
                    self._mask.mask_text,
                )
        except ConnectFailed as error:
            if error.needs_sign_in:
                raise self._handle_missing_sign_in(error, key) from error
            raise self._handle_start_failure(error) from error
        listener.instance = instance = self._instances.add(key, connection)
        self._initialize_info = connection.initialize_info
        self.era = connection.initialize_info.era
        self._restart_count += self._next_start_is_restart
        self._next_start_is_restart = False
        self.set_state("ready")
        level = logging.WARNING if self._logged_problems else logging.INFO
        self._logged_problems.clear()
        logger.log(
            level,
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

    def _get_backend(self, key: str) -> Backend:
        if isinstance(self.backend, PersonalBackend):
            return self.backend.for_person(key)
        return self.backend

    def _on_connection_opened(self) -> None:
        """Hook for subclasses, called when a connection has been opened."""

    # --- connection loss

    def _log_problem(self, text: str, level: int = logging.WARNING) -> None:
        """Log a problem, once until the server is ready again: it is tried again and again."""
        # Counts, ports and times in it differ from one try to the next.
        kind = _DIGITS.sub("", text)
        if kind not in self._logged_problems and len(self._logged_problems) < MAX_LOGGED_PROBLEMS:
            self._logged_problems.add(kind)
            logger.log(level, "%s %s", self.name, text)

    def _handle_start_failure(self, error: ConnectFailed) -> BackendUnavailable:
        self.era = None  # the remembered era may be the cause
        reason = self._mask.mask_text(error.reason)
        self._breaker.record_failure(reason)
        self._log_problem(f"is down: {reason}")
        self._mark_down(reason)
        return make_unavailable_error(
            self.name, self._breaker.failing_since, reason, self._mask.mask_text(error.advice)
        )

    def _handle_missing_sign_in(self, error: ConnectFailed, key: str) -> SignInNeeded:
        """Record that a person has to sign in. No failure of the server: the next call tries again,
        without asking it while nobody has."""
        problem = SignInNeeded(
            self._mask.mask_text(error.reason),
            advice=self._mask.mask_text(error.advice),
            url=error.sign_in_url,
        )
        if key == SHARED:
            self.mark_sign_in_needed(problem)
        elif not self._instances:
            self._reset_state()
        return problem

    def mark_sign_in_needed(self, error: SignInNeeded) -> None:
        """Set the state, for an error of the shared account."""
        reason = self._mask.mask_text(error.message).removeprefix(f"{self.name} needs a sign-in: ")
        self._log_problem(f"needs a sign-in: {reason}. {error.advice}")
        if self.personal and self._has_listing:
            self._mark_idle_if_unused()  # others may be signed in
        elif self.state != "disabled":
            self.set_state("needs sign-in", f"{reason}. {error.advice}")

    def _handle_connection_lost(self, key: str, instance: Instance, reason: str) -> None:
        """Record a broken connection, and count it as failure or crash."""
        if self._instances.open.get(key) is not instance:
            return  # it is being closed already
        reason = self._mask.mask_text(reason)
        self._log_problem(f"went away: {reason}")
        self._instances.open.pop(key, None)
        self._draining.close(instance)
        if not instance.has_answered and key not in self._instances.user_counts:
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
                remedy = f"`portico restart {self.name}` tries it again"
                self._log_problem(f"is quarantined: {detail}; {remedy}", logging.ERROR)
            else:
                self.set_state("down", reason)
            self.state_since = self._breaker.failing_since or self.state_since
        self._bus.publish(UpstreamLost(self.name, reason))

    def handle_notification(self, method: str, params: Raw, key: str) -> None:
        if self.on_notification is not None:
            self.on_notification(method, params, key)

    # --- stop

    async def end_session(self, session: str) -> None:
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
        instance = self._instances.open.pop(session, None)
        self._mark_idle_if_unused()
        if instance is not None:
            return self._draining.close(instance)
        return None

    async def stop_if_idle(self, idle_s: float, watched_by: Collection[str] = ()) -> None:
        """Close instances unused for `idle_s` seconds and not watched; a later call restarts."""
        excluded = watched_by
        if not self.isolated and watched_by:
            excluded = (SHARED,)
        idle_keys = self._instances.find_idle(idle_s, excluded)
        removed = [self._instances.open.pop(key) for key in idle_keys]
        self._mark_idle_if_unused()
        closing = {self._draining.close(instance) for instance in removed}
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
        removed = list(self._instances.open.values())
        self._instances.open.clear()
        self._mark_idle_if_unused()
        for instance in removed:
            self._draining.close(instance, self._stop_reason)
        self._draining.abort()
        await self._draining.wait_closed()

    def _mark_idle_if_unused(self) -> None:
        # Only a running server becomes idle: a down or disabled one keeps its state and reason.
        if (
            self.state in ("ready", "degraded", "starting")
            and not self._instances
            and not self._start_tasks
        ):
            self._reset_state()
