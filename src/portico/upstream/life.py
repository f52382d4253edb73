"""One server's life: when it starts, what state it is in, why it is down, how it ends.

configured → known (its offer is on disk) → starting → ready → degraded (up, but something is wrong with it) → down →
quarantined (it failed too often, and is left alone).

Nothing starts twice: everyone who needs the server waits for the same start. A caller that gives up does not stop a
start others wait for. After a failure the reason is answered at once, without another try, until the server's breaker
says that one is due.

An isolated server runs once for each client: nobody is ever given another's instance. There are so many and no more;
for one more, the one that has been out of use longest goes.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext

from portico.config import Restart
from portico.errors import BackendUnavailable
from portico.events import Bus, UpstreamLost, UpstreamReady
from portico.upstream.backend import Backend, Connection, Era, Hello, Raw
from portico.upstream.breaker import Breaker
from portico.upstream.error_mask import ErrorMask
from portico.upstream.instances import SHARED, Instance, Instances
from portico.upstream.leaving import Leaving
from portico.upstream.opening import Ears, NotOpened, opened
from portico.upstream.starts import Starts
from portico.upstream.status import State, given_up, last_lines, refused, shortened, unavailable

logger = logging.getLogger(__name__)

MAX_INSTANCES = 64
YOUNG_S = 5.0
"""A command that ends by itself so soon after its start keeps dying, whatever it has answered."""
CLOSED = "the gateway is shutting down"


class Life:
    """The conversations with one server: begun, lost and ended."""

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
        rule: Restart,
        starts: Starts | None = None,
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
        self.on_notified: Callable[[str, Raw, str], None] | None = None
        self._bus = bus
        self._start_timeout = start_timeout
        self._rule, self._starts, self._clock = rule, starts, clock
        self._state: State = "known" if known else "configured"
        self._since = time.time()
        self._reason = ""
        self._hello: Hello | None = None
        self._command = backend.kind == "stdio"
        self._breaker = Breaker(rule, command=self._command, clock=clock)
        self._instances = Instances(clock)
        self._leaving = Leaving(name)
        self._starting: dict[str, asyncio.Task[Instance]] = {}
        self._written: tuple[str, ...] = ()
        self._shown_lines: tuple[str, ...] = ()
        self._broken = False
        self._restarts = 0
        self._known = known
        self._over = ""

    # --- how it is

    @property
    def state(self) -> State:
        return self._state

    @property
    def reason(self) -> str:
        return self._reason

    @property
    def since(self) -> float:
        return self._since

    def mark(self, state: State, reason: str = "") -> None:
        """Record a state with its reason."""
        if (state, reason) != (self._state, self._reason):
            self._state, self._reason, self._since = state, reason, time.time()

    def degrade(self, reason: str) -> None:
        """The server is up but something about it is wrong."""
        if self._state in ("ready", "degraded"):
            self.mark("degraded", self._mask.text(reason))

    def recall(self) -> None:
        """Its offer is known from elsewhere: it need not be started to be listed."""
        self._known = True
        if self._state == "configured":
            self.mark("known")

    def has(self, session: str) -> bool:
        """Whether a client's own instance is up, or starting."""
        return session in self._instances or session in self._starting

    def _key(self, session: str) -> str:
        return session if self.isolated else SHARED

    @property
    def live(self) -> Connection | None:
        """A conversation that is open now, if there is one."""
        return self._instances.any

    def conversation(self, session: str) -> Connection | None:
        """The open conversation that a client's requests go to, if there is one."""
        return self._instances.get(self._key(session))

    # --- starting it

    async def _connect(self, key: str, *, called: bool = True) -> Instance:
        task = self._starting.get(key)
        if task is None or self._breaker.phase == "half-open":
            self._refuse()
        if task is None:
            if key != SHARED:
                self._make_room()
            task = self._begin(key, called=called)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._over:
                raise self._gone() from None
            raise

    def _begin(
        self, key: str, *, called: bool = False, after: "asyncio.Task[None] | None" = None
    ) -> "asyncio.Task[Instance]":
        self._breaker.begin()
        task = asyncio.create_task(self._start(key, called, after), name=f"start {self.name}")
        self._starting[key] = task
        task.add_done_callback(lambda done: self._started(key, done))
        return task

    def _refuse(self) -> None:
        if self._over:
            raise self._gone()
        if (refusal := self._breaker.refusal()) is not None:
            reason = self._reason if self._state == "quarantined" else refusal.reason
            raise refused(self.name, refusal, reason, shortened(self._last_lines()))

    def _last_lines(self) -> tuple[str, ...]:
        """The end of what it wrote on stderr, masked once for as long as it writes nothing more."""
        said = last_lines(self.backend.diagnostics().get("stderr", ()))
        if said != self._written:
            self._written = said
            self._shown_lines = tuple(map(self._mask.text, said))
        return self._shown_lines

    def _gone(self) -> BackendUnavailable:
        again = "" if self._over == CLOSED else "Make the call again."
        return BackendUnavailable(f"{self.name} cannot be used: {self._over}", advice=again)

    def _make_room(self) -> None:
        """For one more instance: what has been out of use longest goes, never one that somebody waits for."""
        starting = sum(key != SHARED for key in self._starting)
        if len(self._instances.owned) + starting < self._max_instances:
            return
        oldest = self._instances.longest_idle()
        if oldest is None:
            raise BackendUnavailable(
                f"{self.name} already runs {self._max_instances} instances, each for another client, and all are busy",
                advice="Try again shortly, close other sessions, raise this server's max_instances, or set isolation: "
                "shared for it.",
            )
        logger.info("%s runs %d instances: one that was idle goes for a new one", self.name, self._max_instances)
        self.let_go(oldest)

    def _started(self, key: str, task: "asyncio.Task[Instance]") -> None:
        self._starting.pop(key, None)
        self._breaker.decided()
        self._rested()
        if not task.cancelled():
            task.exception()  # whoever waits has it; nobody may be waiting any more

    async def _start(self, key: str, called: bool, after: "asyncio.Task[None] | None") -> Instance:
        if not self._instances:
            self.mark("starting")
        if after is not None:
            await asyncio.wait({after})
        ears = Ears(
            lambda method, params: self.heard(method, params, key), lambda one, reason: self._lost(key, one, reason)
        )
        place = self._starts.place(self.name, self._start_timeout) if called and self._starts else nullcontext()
        try:
            async with place:
                connection = await opened(self.name, self.backend, ears, self.era, self._start_timeout, self._mask.text)
        except NotOpened as error:
            raise self._failed(error) from error
        ears.instance = instance = self._instances.add(key, connection)
        self._hello = connection.hello
        self.era = connection.hello.era
        self._restarts += self._broken
        self._broken = False
        self.mark("ready")
        logger.info("%s is ready (%s, %s)", self.name, self.backend.kind, connection.hello.protocol_version)
        self._bus.publish(UpstreamReady(self.name))
        self._opened()
        if self.on_connected is not None:
            self.on_connected()
        return instance

    def _opened(self) -> None:
        """For whoever has more to do when a conversation is open."""

    # --- losing it

    def _failed(self, error: NotOpened) -> BackendUnavailable:
        self.era = None  # what was remembered may be what is wrong
        reason = self._mask.text(error.reason)
        self._breaker.failed(reason)
        logger.warning("%s is down: %s", self.name, reason)
        self._fell(reason)
        return unavailable(self.name, self._breaker.since, reason, self._mask.text(error.advice))

    def _lost(self, key: str, instance: Instance, reason: str) -> None:
        """A conversation broke."""
        if self._instances.find(key) is not instance:
            return  # it was on its way out
        reason = self._mask.text(reason)
        logger.warning("%s went away: %s", self.name, reason)
        self._instances.take(key)
        self._leaving.close(instance)
        if not instance.answered and not self._instances.in_use(key):
            # It was not a call that killed it: trying again at once would kill it again, and again.
            self._breaker.failed(reason)
        elif self._command and (instance.calls or self._clock() - instance.started < YOUNG_S):
            self._breaker.died(reason)
        self._fell(reason)

    def _fell(self, reason: str) -> None:
        """It is gone, and the breaker knows why."""
        self._broken = True
        if not self._instances:
            quarantined = self._breaker.quarantined
            told = given_up(self._breaker.failures, self._rule.window_s, reason) if quarantined else reason
            self.mark("quarantined" if quarantined else "down", told)
            self._since = self._breaker.since or self._since
            if quarantined:
                logger.error("%s is left alone: %s; `portico restart %s` tries it again", self.name, told, self.name)
        self._bus.publish(UpstreamLost(self.name, reason))

    def heard(self, method: str, params: Raw, key: str) -> None:
        """A notification outside any request, in the conversation of a session."""
        if self.on_notified is not None:
            self.on_notified(method, params, key)

    # --- ending it

    async def end_session(self, session: str) -> None:
        """A client has gone: its own instance goes too."""
        starting = self._starting.get(session)
        closing = self.let_go(session)
        if starting is not None and session != SHARED:
            await asyncio.wait({starting})
        if closing is not None:
            await asyncio.shield(closing)

    def let_go(self, session: str) -> "asyncio.Task[None] | None":
        """The same without waiting; what there is to wait for, if anybody wants to."""
        if session == SHARED:
            return None
        if (starting := self._starting.get(session)) is not None:
            starting.cancel()
        gone = self._instances.take(session)
        self._rested()
        return self._leaving.close(gone) if gone is not None else None

    async def rest(self, idle: float, watched_by: Collection[str] = ()) -> None:
        """Stop what nobody has used for so many seconds, and nobody watches; the next call starts it again."""
        kept = watched_by if self.isolated else (SHARED,) if watched_by else ()
        going = [gone for key in self._instances.idle(idle, kept) if (gone := self._instances.take(key)) is not None]
        self._rested()
        closing = {self._leaving.close(gone) for gone in going}
        if closing:
            await asyncio.wait(closing)

    async def stop(self) -> None:
        """End every conversation; nothing starts again."""
        self._over = self._over or CLOSED
        starting = list(self._starting.values())
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        gone = self._instances.take_all()
        self._rested()
        for instance in gone:
            self._leaving.close(instance, self._over)
        self._leaving.hurry()
        await self._leaving.gone()

    def _rested(self) -> None:
        # Only a server that was up rests: one that is down or disabled stays so, with its reason.
        if self._state in ("ready", "degraded", "starting") and not self._instances and not self._starting:
            self.mark("known" if self._known else "configured")
