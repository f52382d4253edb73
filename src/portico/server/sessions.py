"""Registries of client sessions and resource subscriptions, and change notifications to clients.

Handshake-era clients are notified over their connection, modern ones over `subscriptions/listen`. A
burst of changes is sent as one notification. Each client has its own send task, so that a client
that does not read delays no other.
"""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from mcp.server.connection import Connection
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    SubscriptionBus,
    ToolsListChanged,
)

from portico.callers import Caller
from portico.errors import INTERNAL_ERROR, INVALID_PARAMS, PorticoError, RemoteError
from portico.upstream.backend import Connection as Conversation
from portico.upstream.backend import RequestOptions
from portico.upstream.lifecycle.instances import SHARED
from portico.upstream.lifecycle.supervisor import Upstream
from portico.visibility import MAX_URI_CHARS

NOTIFY_QUIET_S = 0.2
NOTIFY_MAX_DELAY_S = 0.5
"""Seconds without a further change, and seconds since the first change, after which a notification
is sent.

Together with the pause before a listing (`catalog.listing_sync`) and the listing itself this stays
within a second."""
MAX_SUBSCRIPTIONS = 1_000
MAX_LISTENERS = 1_024
"""Maximum number of modern clients that listen on one view at a time."""
MAX_CALLER_LISTENERS = 768
"""Maximum number of listeners of one caller (`server/http/auth.py`)."""
SUBSCRIBE_CONCURRENCY = 32
"""Maximum number of concurrent subscribe requests to a server after its restart."""
_RESOURCE_PREFIX = "resource "

ResourceKey = tuple[str, str]
"""Server name, and the URI of the resource at that server."""


@dataclass(eq=False)
class Session:
    """One handshake-era client, one connection over stdio, or one modern client that listens."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    log_level: str | None = None
    caller: Caller | None = None
    """The caller of its requests; None before the first."""
    capabilities: Mapping[str, Any] | None = None
    """Capabilities that a handshake-era client declared and that are relayed, once needed."""
    subscriptions: dict[str, set[str]] = field(default_factory=dict)
    """Outer URI of a resource → the URIs that the client subscribed with."""


def check_subscription(uris: Collection[str], current_count: int = 0) -> None:
    """Raise RemoteError for URIs that are too long, or more of them than one client may subscribe
    to."""
    if any(len(uri) > MAX_URI_CHARS for uri in uris):
        raise RemoteError(
            INVALID_PARAMS, f"a URI longer than {MAX_URI_CHARS} characters cannot be subscribed to"
        )
    if current_count + len(uris) > MAX_SUBSCRIPTIONS:
        reason = (
            f"a client can subscribe to {MAX_SUBSCRIPTIONS} resources; unsubscribe from some first"
        )
        raise RemoteError(INVALID_PARAMS, reason)


class SubscriptionRegistry:
    """Which sessions watch which resources, across all endpoints.

    A server is subscribed at for the first watching session and unsubscribed at after the last. The
    `key` of a connection is the session id where a server is isolated, else `SHARED`.
    """

    def __init__(self) -> None:
        self._sessions: dict[ResourceKey, set[Session]] = {}
        self._server_subscriptions: dict[tuple[ResourceKey, str], Conversation] = {}
        self._locks: WeakValueDictionary[tuple[ResourceKey, str], asyncio.Lock] = (
            WeakValueDictionary()
        )

    def get_lock(self, resource: ResourceKey, key: str) -> asyncio.Lock:
        """Return the lock that serialises subscribe and unsubscribe for one resource and
        connection."""
        return self._locks.setdefault((resource, key), asyncio.Lock())

    def add(self, resource: ResourceKey, session: Session) -> None:
        """Record that a session watches a resource of a server."""
        self._sessions.setdefault(resource, set()).add(session)

    def remove(self, resource: ResourceKey, session: Session) -> None:
        """Record that a session no longer watches a resource."""
        sessions = self._sessions.get(resource, set())
        sessions.discard(session)
        if not sessions:
            self._sessions.pop(resource, None)

    def remove_session(self, session: Session) -> list[ResourceKey]:
        """Remove a session that has ended and return the resources it watched."""
        watched = [resource for resource, sessions in self._sessions.items() if session in sessions]
        for resource in watched:
            self.remove(resource, session)
        return watched

    def list_subscriptions(self, server: str) -> list[tuple[str, set[Session]]]:
        """Return the watched URIs of a server, each with the sessions that watch it."""
        return [
            (uri, sessions) for (owner, uri), sessions in self._sessions.items() if owner == server
        ]

    def list_resources(self) -> list[tuple[ResourceKey, set[Session]]]:
        """Return every watched resource, with the sessions that watch it."""
        return [(resource, set(sessions)) for resource, sessions in self._sessions.items()]

    def list_session_ids(self, server: str) -> set[str]:
        """Return the ids of the sessions that watch any resource of a server."""
        return {
            session.id for _, sessions in self.list_subscriptions(server) for session in sessions
        }

    def is_subscribed(self, resource: ResourceKey, key: str) -> bool:
        """Return whether any session watches the resource over the connection `key`."""
        return any(key in (SHARED, session.id) for session in self._sessions.get(resource, ()))

    def is_server_subscribed(self, upstream: Upstream, resource: ResourceKey, key: str) -> bool:
        """Return whether the resource is subscribed to over the connection that is open now."""
        subscribed = self._server_subscriptions.get((resource, key))
        return subscribed is not None and subscribed is upstream.get_connection(key)

    def mark_server_subscribed(self, upstream: Upstream, resource: ResourceKey, key: str) -> None:
        """Record that the resource is subscribed to over the current connection."""
        if (connection := upstream.get_connection(key)) is not None:
            self._server_subscriptions[resource, key] = connection

    def unmark_server_subscribed(self, resource: ResourceKey, key: str) -> None:
        self._server_subscriptions.pop((resource, key), None)

    async def resubscribe(self, upstream: Upstream, timeout_s: float) -> None:
        """Repeat all subscriptions at a server that was restarted; for an isolated server, at each
        instance those of its own session."""
        gate = asyncio.Semaphore(SUBSCRIBE_CONCURRENCY)

        async def resubscribe_one(resource: ResourceKey, key: str) -> None:
            async with gate, self.get_lock(resource, key):
                connection = upstream.get_connection(key)
                if (
                    connection is None
                    or self.is_server_subscribed(upstream, resource, key)
                    or not self.is_subscribed(resource, key)
                ):
                    return
                with contextlib.suppress(PorticoError):
                    await connection.request(
                        "resources/subscribe",
                        {"uri": resource[1]},
                        RequestOptions(timeout=timeout_s),
                    )
                    self._server_subscriptions[resource, key] = connection

        subscribing: list[Awaitable[None]] = []
        for uri, sessions in self.list_subscriptions(upstream.name):
            keys = {SHARED}
            if upstream.isolated:
                keys = {session.id for session in sessions}
            subscribing += [resubscribe_one((upstream.name, uri), key) for key in keys]
        await asyncio.gather(*subscribing)


class _ClientNotifier:
    """Pending notifications of one client and the task that sends them."""

    def __init__(self, session: Session, send: Callable[[str], Awaitable[None]]) -> None:
        self.session = session
        self.caller = ""
        self.on_evicted: Callable[[], None] = lambda: None
        """Ends the listen request of an evicted client."""
        self._send = send
        self._pending: set[str] = set()
        self._added_at = 0.0
        self._send_task: asyncio.Task[None] | None = None

    def add(self, kinds: Iterable[str]) -> None:
        """Schedule notifications; each kind is sent once, however often it is added before that."""
        added = set(kinds)
        if not added:
            return
        self._pending |= added
        self._added_at = asyncio.get_running_loop().time()
        if self._send_task is None or self._send_task.done():
            self._send_task = asyncio.create_task(self._send_pending(), name="notify a client")

    def close(self) -> "asyncio.Task[None] | None":
        """Cancel the send task and return it, so that the caller can await its end."""
        if self._send_task is not None:
            self._send_task.cancel()
        return self._send_task

    async def _send_pending(self) -> None:
        while self._pending:
            await self._wait_for_quiet()
            kinds = self._pending
            self._pending = set()
            for kind in sorted(kinds):
                await self._send(kind)

    async def _wait_for_quiet(self) -> None:
        """Wait until no change has been added for `NOTIFY_QUIET_S`, at most
        `NOTIFY_MAX_DELAY_S`."""
        clock = asyncio.get_running_loop().time
        latest = clock() + NOTIFY_MAX_DELAY_S
        while True:
            wait = min(self._added_at + NOTIFY_QUIET_S, latest) - clock()
            if wait <= 0:
                return
            await asyncio.sleep(wait)


class SessionRegistry:
    """Connected and listening clients of one view."""

    def __init__(self) -> None:
        self._connected_notifiers: dict[Connection, _ClientNotifier] = {}
        self._listening_notifiers: dict[Session, _ClientNotifier] = {}
        """In the order of registration."""

    def __len__(self) -> int:
        return len(self._connected_notifiers)

    @property
    def listener_count(self) -> int:
        """Number of modern clients that listen."""
        return len(self._listening_notifiers)

    @property
    def _notifiers(self) -> tuple[_ClientNotifier, ...]:
        return (*self._connected_notifiers.values(), *self._listening_notifiers.values())

    def add(self, connection: Connection, session: Session) -> None:
        """Register a client until its connection closes."""
        if connection not in self._connected_notifiers:
            self._connected_notifiers[connection] = _ClientNotifier(
                session, lambda kind: _notify(connection, session, kind)
            )
            connection.exit_stack.callback(self._remove, connection)

    def _remove(self, connection: Connection) -> None:
        if (notifier := self._connected_notifiers.pop(connection, None)) is not None:
            notifier.close()

    @contextlib.contextmanager
    def register_listener(
        self,
        session: Session,
        bus: SubscriptionBus,
        caller: str = "",
        on_evicted: Callable[[], None] = lambda: None,
    ) -> Generator[None]:
        """Register a listening modern client for the duration of the context; events go to `bus`.

        Where all places are taken, the longest listener of the caller with most listeners is
        evicted and its `on_evicted` called. Raises RemoteError if `caller` itself holds most, or
        has reached `MAX_CALLER_LISTENERS`.
        """
        self._ensure_capacity(caller)
        notifier = _ClientNotifier(session, lambda kind: _publish(bus, session, kind))
        notifier.caller = caller
        notifier.on_evicted = on_evicted
        self._listening_notifiers[session] = notifier
        try:
            yield
        finally:
            self._listening_notifiers.pop(session, None)
            notifier.close()

    def end_listeners(self) -> None:
        """End the subscriptions of all listening clients, because the gateway stops."""
        for notifier in list(self._listening_notifiers.values()):
            notifier.on_evicted()

    def _ensure_capacity(self, caller: str) -> None:
        counts = Counter(notifier.caller for notifier in self._listening_notifiers.values())
        largest = max(counts, key=counts.__getitem__, default=caller)
        is_full = len(self._listening_notifiers) >= MAX_LISTENERS
        if counts[caller] >= MAX_CALLER_LISTENERS or (
            is_full and counts[largest] <= counts[caller] + 1
        ):
            reason = (
                f"{len(self._listening_notifiers)} clients listen already, "
                f"{counts[caller]} of them from where you are"
            )
            raise RemoteError(
                INTERNAL_ERROR, f"{reason}; end some of your subscriptions, or try again later"
            )
        if is_full:
            oldest = next(
                session
                for session, notifier in self._listening_notifiers.items()
                if notifier.caller == largest
            )
            self._listening_notifiers.pop(oldest).on_evicted()

    def notify_list_changed(self, *kinds: str) -> None:
        """Notify all clients that `tools`, `resources` or `prompts` changed."""
        for notifier in self._notifiers:
            notifier.add(kinds)

    def notify_resource_updated(self, uri: str, session_id: str | None = None) -> None:
        """Notify the subscribers of a resource, or only one session of them, that it changed."""
        for notifier in self._notifiers:
            if uri in notifier.session.subscriptions and session_id in (None, notifier.session.id):
                notifier.add((f"{_RESOURCE_PREFIX}{uri}",))

    def notify_matching_resources(self, is_concerned: Callable[[str], bool]) -> None:
        """Notify subscribers of every resource for which `is_concerned` is true."""
        for notifier in self._notifiers:
            uris = filter(is_concerned, notifier.session.subscriptions)
            notifier.add([f"{_RESOURCE_PREFIX}{uri}" for uri in uris])

    async def close(self) -> None:
        """Cancel all send tasks and wait for their end."""
        closing = [task for notifier in self._notifiers if (task := notifier.close())]
        if closing:
            await asyncio.wait(closing)


_LIST_EVENTS: Mapping[str, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "resources": ResourcesListChanged,
    "prompts": PromptsListChanged,
}


async def _publish(bus: SubscriptionBus, session: Session, kind: str) -> None:
    if not kind.startswith(_RESOURCE_PREFIX):
        await bus.publish(_LIST_EVENTS[kind]())
        return
    for uri in sorted(session.subscriptions.get(kind.removeprefix(_RESOURCE_PREFIX), ())):
        await bus.publish(ResourceUpdated(uri))


async def _notify(connection: Connection, session: Session, kind: str) -> None:
    if not kind.startswith(_RESOURCE_PREFIX):
        await connection.notify(f"notifications/{kind}/list_changed", None)
        return
    for uri in sorted(session.subscriptions.get(kind.removeprefix(_RESOURCE_PREFIX), ())):
        await connection.notify("notifications/resources/updated", {"uri": uri})
