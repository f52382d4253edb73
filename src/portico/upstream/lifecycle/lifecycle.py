"""One server's life: when it starts, what state it is in, why it is down, how it ends.

configured → known (its offer is on disk) → starting → ready → degraded (up, but something is wrong
with it) → down → quarantined (it failed too often, and is left alone).

Nothing starts twice: everyone who needs the server waits for the same start. A caller that gives up
does not stop a start others wait for. After a failure the reason is answered at once, without
another try, until the server's breaker says that one is due.

An isolated server runs once for each client: nobody is ever given another's instance. There are so
many and no more; for one more, the one that has been out of use longest goes.
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
"""A command that ends by itself so soon after its start keeps dying, whatever it has answered."""
SHUTTING_DOWN = "the gateway is shutting down"


class Lifecycle:
    """The conversations with one server: begun, lost and ended."""

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

    # --- how it is

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
        """Record a state with its reason."""
        if (state, reason) != (self._state, self._reason):
            self._state = state
            self._reason = reason
            self._state_since = time.time()

    def degrade(self, reason: str) -> None:
        """The server is up but something about it is wrong."""
        if self._state in ("ready", "degraded"):
            self.set_state("degraded", self._mask.mask_text(reason))

    def mark_known(self) -> None:
        """Its offer is known from elsewhere: it need not be started to be listed."""
        self._has_listing = True
        if self._state == "configured":
            self.set_state("known")

    def has_instance(self, session: str) -> bool:
        """Whether a client's own instance is up, or starting."""
        return session in self._instances or session in self._start_tasks

    def _instance_key(self, session: str) -> str:
        if self.isolated:
            return session
        return SHARED

    @property
    def any_connection(self) -> Connection | None:
        """A conversation that is open now, if there is one."""
        return self._instances.any_connection

    def get_connection(self, session: str) -> Connection | None:
        """The open conversation that a client's requests go to, if there is one."""
        return self._instances.get_connection(self._instance_key(session))

    # --- starting it

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
        """The end of what it wrote on stderr, masked once for as long as it writes nothing more."""
        said = take_last_lines(self.backend.diagnostics().get("stderr", ()))
        if said != self._raw_stderr_lines:
            self._raw_stderr_lines = said
            self._masked_stderr_lines = tuple(map(self._mask.mask_text, said))
        return self._masked_stderr_lines

    def _make_stopped_error(self) -> BackendUnavailable:
        if self._stop_reason == SHUTTING_DOWN:
            again = ""
        else:
            again = "Make the call again."
        return BackendUnavailable(f"{self.name} cannot be used: {self._stop_reason}", advice=again)

    def _evict_if_full(self) -> None:
        """For one more instance: what has been out of use longest goes, never one that somebody
        waits for."""
        starting = sum(key != SHARED for key in self._start_tasks)
        if len(self._instances.owned_keys) + starting < self._max_instances:
            return
        oldest = self._instances.find_longest_idle()
        if oldest is None:
            raise BackendUnavailable(
                f"{self.name} already runs {self._max_instances} instances, each for another client, and all are busy",
                advice="Try again shortly, close other sessions, raise this server's max_instances, or set isolation: "
                "shared for it.",
            )
        logger.info(
            "%s runs %d instances: one that was idle goes for a new one",
            self.name,
            self._max_instances,
        )
        self.end_session_nowait(oldest)

    def _on_start_done(self, key: str, task: "asyncio.Task[Instance]") -> None:
        self._start_tasks.pop(key, None)
        self._breaker.end_start()
        self._mark_idle_if_unused()
        if not task.cancelled():
            task.exception()  # whoever waits has it; nobody may be waiting any more

    async def _start(
        self, key: str, for_call: bool, after: "asyncio.Task[None] | None"
    ) -> Instance:
        if not self._instances:
            self.set_state("starting")
        if after is not None:
            await asyncio.wait({after})
        ears = ConnectionListener(
            lambda method, params: self.handle_notification(method, params, key),
            lambda one, reason: self._handle_connection_lost(key, one, reason),
        )
        if for_call and self._start_slots:
            place = self._start_slots.acquire(self.name, self._start_timeout)
        else:
            place = nullcontext()
        try:
            async with place:
                connection = await open_connection(
                    self.name,
                    self.backend,
                    ears,
                    self.era,
                    self._start_timeout,
                    self._mask.mask_text,
                )
        except ConnectFailed as error:
            raise self._handle_start_failure(error) from error
        ears.instance = instance = self._instances.add(key, connection)
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
        """For whoever has more to do when a conversation is open."""

    # --- losing it

    def _handle_start_failure(self, error: ConnectFailed) -> BackendUnavailable:
        self.era = None  # what was remembered may be what is wrong
        reason = self._mask.mask_text(error.reason)
        self._breaker.record_failure(reason)
        logger.warning("%s is down: %s", self.name, reason)
        self._mark_down(reason)
        return make_unavailable_error(
            self.name, self._breaker.failing_since, reason, self._mask.mask_text(error.advice)
        )

    def _handle_connection_lost(self, key: str, instance: Instance, reason: str) -> None:
        """A conversation broke."""
        if self._instances.find(key) is not instance:
            return  # it was on its way out
        reason = self._mask.mask_text(reason)
        logger.warning("%s went away: %s", self.name, reason)
        self._instances.remove(key)
        self._draining.close(instance)
        if not instance.has_answered and not self._instances.is_in_use(key):
            # It was not a call that killed it: trying again at once would kill it again, and again.
            self._breaker.record_failure(reason)
        elif self._is_command and (
            instance.pending_calls or self._clock() - instance.started_at < MIN_UPTIME_S
        ):
            self._breaker.record_crash(reason)
        self._mark_down(reason)

    def _mark_down(self, reason: str) -> None:
        """It is gone, and the breaker knows why."""
        self._next_start_is_restart = True
        if not self._instances:
            quarantined = self._breaker.quarantined
            if quarantined:
                told = describe_quarantine(
                    self._breaker.failures, self._restart_policy.window_s, reason
                )
            else:
                told = reason
            self.set_state("quarantined" if quarantined else "down", told)
            self._state_since = self._breaker.failing_since or self._state_since
            if quarantined:
                logger.error(
                    "%s is left alone: %s; `portico restart %s` tries it again",
                    self.name,
                    told,
                    self.name,
                )
        self._bus.publish(UpstreamLost(self.name, reason))

    def handle_notification(self, method: str, params: Raw, key: str) -> None:
        """A notification outside any request, in the conversation of a session."""
        if self.on_notification is not None:
            self.on_notification(method, params, key)

    # --- ending it

    async def end_session(self, session: str) -> None:
        """A client has gone: its own instance goes too."""
        starting = self._start_tasks.get(session)
        closing = self.end_session_nowait(session)
        if starting is not None and session != SHARED:
            await asyncio.wait({starting})
        if closing is not None:
            await asyncio.shield(closing)

    def end_session_nowait(self, session: str) -> "asyncio.Task[None] | None":
        """The same without waiting; what there is to wait for, if anybody wants to."""
        if session == SHARED:
            return None
        if (starting := self._start_tasks.get(session)) is not None:
            starting.cancel()
        gone = self._instances.remove(session)
        self._mark_idle_if_unused()
        if gone is not None:
            return self._draining.close(gone)
        return None

    async def stop_if_idle(self, idle_s: float, watched_by: Collection[str] = ()) -> None:
        """Stop what nobody has used for so many seconds, and nobody watches; the next call starts
        it again."""
        if self.isolated:
            kept = watched_by
        elif watched_by:
            kept = (SHARED,)
        else:
            kept = ()
        going = [
            gone
            for key in self._instances.find_idle(idle_s, kept)
            if (gone := self._instances.remove(key)) is not None
        ]
        self._mark_idle_if_unused()
        closing = {self._draining.close(gone) for gone in going}
        if closing:
            await asyncio.wait(closing)

    async def stop(self) -> None:
        """End every conversation; nothing starts again."""
        self._stop_reason = self._stop_reason or SHUTTING_DOWN
        starting = list(self._start_tasks.values())
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        gone = self._instances.remove_all()
        self._mark_idle_if_unused()
        for instance in gone:
            self._draining.close(instance, self._stop_reason)
        self._draining.abort()
        await self._draining.wait_closed()

    def _mark_idle_if_unused(self) -> None:
        # Only a server that was up rests: one that is down or disabled stays so, with its reason.
        if (
            self._state in ("ready", "degraded", "starting")
            and not self._instances
            and not self._start_tasks
        ):
            self.set_state("known" if self._has_listing else "configured")
