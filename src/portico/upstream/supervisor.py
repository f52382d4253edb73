"""One server's life: when it starts, what state it is in, why it is down, how it ends.

configured → known (its offer is on disk) → starting → ready → degraded (up, but it could not be listed) → down.

Nothing starts twice: everyone who needs the server waits for the same start. A caller that gives up does not stop a
start others wait for. After a failure the reason is answered at once, without another try, for a short while that
doubles with each failure. A server that starts and dies before it has answered anyone has failed too.

An isolated server runs once for each client: nobody is ever given another's instance. There are so many and no more;
for one more, the one that has been out of use longest goes.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from portico.errors import BackendUnavailable, RemoteError
from portico.events import Bus, UpstreamLost, UpstreamReady
from portico.upstream.backend import NO_OPTIONS, Ask, Backend, Connection, Era, Hello, Raw
from portico.upstream.instances import SHARED, Instances
from portico.upstream.lines import telling

logger = logging.getLogger(__name__)

State = Literal["configured", "known", "starting", "ready", "degraded", "down", "disabled"]

MAX_PAUSE_S = 60.0
MAX_INSTANCES = 64


@dataclass(frozen=True)
class Status:
    """What can be said about a server now."""

    name: str
    kind: str
    state: State
    since: float
    reason: str = ""
    hello: Hello | None = None
    calls: int = 0
    diagnostics: Mapping[str, Any] = field(default_factory=dict)


class Upstream:
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
    ) -> None:
        self.name = name
        self.backend = backend
        self.isolated = isolated
        self._max_instances = max_instances or MAX_INSTANCES
        self.era: Era | None = era
        self.on_connected: Callable[[], None] | None = None
        self.on_notified: Callable[[str, Raw, str], None] | None = None
        self._bus = bus
        self._start_timeout = start_timeout
        self._state: State = "known" if known else "configured"
        self._since = time.time()
        self._reason = ""
        self._hello: Hello | None = None
        self._instances = Instances()
        self._starting: dict[str, asyncio.Task[Connection]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._known = known
        self._failures = 0
        self._failure = ""
        self._retry_at = 0.0
        self._calls = 0
        self._stopped = False

    @property
    def state(self) -> State:
        return self._state

    @property
    def reason(self) -> str:
        return self._reason

    @property
    def since(self) -> float:
        return self._since

    def status(self) -> Status:
        """State, since when, and why."""
        found = self.backend.diagnostics()
        return Status(
            self.name,
            self.backend.kind,
            self._state,
            self._since,
            self._reason,
            self._hello,
            self._calls,
            {**found, "instances": len(self._instances.owned)} if self.isolated else found,
        )

    async def request(
        self, method: str, params: Raw | None = None, ask: Ask = NO_OPTIONS, session: str = SHARED
    ) -> Raw:
        """Ask the server, starting it first if need be."""
        key = self._key(session)
        with self._instances.use(key):
            connection = self._instances.get(key) or await self._connect(key)
            self._calls += 1
            try:
                result = await connection.request(method, params, ask)
            except RemoteError:
                self._has_answered(key)
                raise
            self._has_answered(key)
            return result

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

    def has(self, session: str) -> bool:
        """Whether a client's own instance is up, or starting."""
        return session in self._instances or session in self._starting

    def _key(self, session: str) -> str:
        return session if self.isolated else SHARED

    async def connect(self) -> Connection:
        """The live conversation, started if need be."""
        return self._instances.get(SHARED) or await self._connect(SHARED)

    @property
    def live(self) -> Connection | None:
        """A conversation that is open now, if there is one."""
        return self._instances.any

    def conversation(self, session: str) -> Connection | None:
        """The open conversation that a client's requests go to, if there is one."""
        return self._instances.get(self._key(session))

    def mark(self, state: State, reason: str = "") -> None:
        """Record a state with its reason."""
        if (state, reason) != (self._state, self._reason):
            self._state, self._reason, self._since = state, reason, time.time()

    def degrade(self, reason: str) -> None:
        """The server is up but something about it is wrong."""
        if self._state in ("ready", "degraded"):
            self.mark("degraded", reason)

    def recall(self) -> None:
        """Its offer is known from elsewhere: it need not be started to be listed."""
        self._known = True
        if self._state == "configured":
            self.mark("known")

    def mark_listed(self) -> None:
        """The server is up and could be listed."""
        self._known = True
        self._has_answered(SHARED)
        if self._state == "degraded":
            self.mark("ready")

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
        return self._clear_away(gone.connection) if gone is not None else None

    async def rest(self, idle: float, watched_by: Collection[str] = ()) -> None:
        """Stop what nobody has used for so many seconds, and nobody watches; the next call starts it again."""
        kept = watched_by if self.isolated else (SHARED,) if watched_by else ()
        going = [gone for key in self._instances.idle(idle, kept) if (gone := self._instances.take(key)) is not None]
        self._rested()
        closing = {self._clear_away(gone.connection) for gone in going}
        if closing:
            await asyncio.wait(closing)

    async def stop(self) -> None:
        """End every conversation; nothing starts again."""
        self._stopped = True
        starting = list(self._starting.values())
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        await self._clear_all_away()

    def _rested(self) -> None:
        # Only a server that was up rests: one that is down or disabled stays so, with its reason.
        if self._state in ("ready", "degraded", "starting") and not self._instances and not self._starting:
            self.mark("known" if self._known else "configured")

    def _clear_away(self, connection: Connection) -> "asyncio.Task[None]":
        # A task of its own: whoever asked for it may be cancelled, and `stop` waits for all of them.
        closing = asyncio.create_task(connection.close(), name=f"clear away {self.name}")
        self._closing.add(closing)
        closing.add_done_callback(self._cleared)
        return closing

    def _cleared(self, closing: "asyncio.Task[None]") -> None:
        self._closing.discard(closing)
        if not closing.cancelled() and (error := closing.exception()) is not None:
            logger.warning("%s did not close cleanly: %r", self.name, error)

    async def _clear_all_away(self) -> None:
        connections = self._instances.take_all()
        self._rested()
        for connection in connections:
            self._clear_away(connection)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _connect(self, key: str) -> Connection:
        task = self._starting.get(key)
        if task is None:
            self._refuse_while_pausing()
            if key != SHARED:
                self._make_room()
            task = asyncio.create_task(self._start(key), name=f"start {self.name}")
            self._starting[key] = task
            task.add_done_callback(lambda done: self._started(key, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._stopped:
                raise BackendUnavailable(f"{self.name} is stopped: the gateway is shutting down") from None
            raise

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

    def _started(self, key: str, task: "asyncio.Task[Connection]") -> None:
        self._starting.pop(key, None)
        if task.cancelled():
            self._rested()
        else:
            task.exception()  # whoever waits has it; nobody may be waiting any more

    async def _start(self, key: str) -> Connection:
        if not self._instances:
            self.mark("starting")
        listener = _Ears(self, key)
        try:
            async with asyncio.timeout(self._start_timeout):
                connection = await self.backend.connect(listener, self.era)
        except TimeoutError:
            patience = f"{self._start_timeout:g} s"
            raise self._failed(f"no answer to the handshake within {patience}{self._last_words()}") from None
        except RemoteError as error:
            raise self._failed(f"it refused the handshake: {error.message} (code {error.code})") from error
        except BackendUnavailable as error:
            raise self._failed(error.message, error.advice) from error
        except Exception as error:  # a backend may be anyone's: whatever it raises is why it did not start
            logger.exception("%s could not be started", self.name)
            raise self._failed(f"it could not be started: {type(error).__name__}: {error}") from error
        self._instances.add(key, connection)
        self._hello = connection.hello
        self.era = connection.hello.era
        self.mark("ready")
        self._bus.publish(UpstreamReady(self.name))
        if self.on_connected is not None:
            self.on_connected()
        return connection

    def _failed(self, reason: str, advice: str = "") -> BackendUnavailable:
        self.era = None  # what was remembered may be what is wrong
        self._pause(reason)
        if not self._instances:
            self.mark("down", reason)
        logger.warning("%s is down: %s", self.name, reason)
        self._bus.publish(UpstreamLost(self.name, reason))
        return unavailable(self.name, self._since, reason, advice)

    def _last_words(self) -> str:
        words = telling(self.backend.diagnostics().get("stderr", ()))
        return f" (stderr: {words[-400:]})" if words else ""

    def _pause(self, reason: str) -> None:
        self._failures += 1
        self._failure = reason
        self._retry_at = time.monotonic() + min(MAX_PAUSE_S, 2.0 ** (self._failures - 1))

    def _has_answered(self, key: str) -> None:
        self._instances.answered(key)
        self._failures = 0

    def _refuse_while_pausing(self) -> None:
        if self._stopped:
            raise BackendUnavailable(f"{self.name} is stopped: the gateway is shutting down")
        wait = self._retry_at - time.monotonic()
        if self._failures and wait > 0:
            raise unavailable(self.name, self._since, self._failure, f"The next try is in {math.ceil(wait)} s.")

    def heard(self, method: str, params: Raw, key: str) -> None:
        """A notification outside any request, in the conversation of a session."""
        if self.on_notified is not None:
            self.on_notified(method, params, key)

    def lost(self, key: str, reason: str) -> None:
        """A conversation broke."""
        gone = self._instances.take(key)
        if gone is None:
            return
        self._clear_away(gone.connection)
        if not gone.answered and not self._instances.in_use(key):
            # It was not a call that killed it: trying again at once would kill it again, and again.
            self._pause(reason)
        if not self._instances:
            self.mark("down", reason)
        self._bus.publish(UpstreamLost(self.name, reason))


class _Ears:
    """Hears one connection on behalf of its server."""

    def __init__(self, upstream: Upstream, key: str) -> None:
        self._upstream, self._key = upstream, key

    def notified(self, method: str, params: Raw) -> None:
        self._upstream.heard(method, params, self._key)

    def lost(self, reason: str) -> None:
        self._upstream.lost(self._key, reason)


def unavailable(name: str, since: float, reason: str, advice: str = "") -> BackendUnavailable:
    """`known but unavailable`, with the reason and since when."""
    moment = time.strftime("%H:%M:%S", time.localtime(since))
    return BackendUnavailable(
        f"{name} is known but unavailable since {moment}: {reason}",
        advice=advice or "Its tools stay listed; try again shortly, or run `portico status` to see why.",
    )
