"""Who is connected, and telling them what changed.

Handshake-era clients have a connection that can be told; modern ones ask with
`subscriptions/listen`. A burst of changes is one notification, and a client that does not read
keeps no other from hearing.
"""

import asyncio
import contextlib
import hashlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    SubscriptionBus,
    ToolsListChanged,
)

from portico.access import MAX_URI_CHARS
from portico.errors import INTERNAL_ERROR, INVALID_PARAMS, PorticoError, RemoteError
from portico.upstream.backend import Connection as Conversation
from portico.upstream.backend import RequestOptions
from portico.upstream.lifecycle.supervisor import SHARED, Upstream

NOTIFY_QUIET_S = 0.2
NOTIFY_MAX_DELAY_S = 0.5
"""Changes are told when no other has come for so long, or when the first has waited for so long.

Together with the pause before a listing (`catalog.sync`) and the listing itself it stays within a
second."""
MAX_SUBSCRIPTIONS = 1_000
MAX_LISTENERS = 1_024
"""Modern clients of one view that listen at one time."""
MAX_CALLER_LISTENERS = 768
"""The same of one caller (`server/http/callers.py`)."""
SUBSCRIBE_CONCURRENCY = 32
"""Subscriptions a server that was started anew is told of at one time."""
_RESOURCE_PREFIX = "resource "
IDENTITY_KEY = "portico.identity"
"""In the scope of an HTTP request: a digest of the token it was let in by."""

ResourceKey = tuple[str, str]
"""A server, and the URI it knows a resource by."""


@dataclass(eq=False)
class Session:
    """One handshake-era client, one connection over stdio, or one modern client that listens."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    log_level: str | None = None
    subscriptions: dict[str, set[str]] = field(default_factory=dict)
    """Outer URI of a resource → the URIs the client asked for it by."""


def check_subscription(uris: Collection[str], current_count: int = 0) -> None:
    """Refuse what would let one client fill our memory."""
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
    """Who watches which resources, at every door: a server is told by the first of them, and left
    by the last.

    A conversation is that of one client where a server keeps a state for each, and `SHARED`
    everywhere else.
    """

    def __init__(self) -> None:
        self._sessions: dict[ResourceKey, set[Session]] = {}
        self._server_subscriptions: dict[tuple[ResourceKey, str], Conversation] = {}
        self._locks: WeakValueDictionary[tuple[ResourceKey, str], asyncio.Lock] = (
            WeakValueDictionary()
        )

    def get_lock(self, resource: ResourceKey, key: str) -> asyncio.Lock:
        """Whoever tells a server what is watched has this: of two who come and go, the last to
        decide speaks last."""
        return self._locks.setdefault((resource, key), asyncio.Lock())

    def add(self, resource: ResourceKey, session: Session) -> None:
        """A session watches a resource of a server."""
        self._sessions.setdefault(resource, set()).add(session)

    def remove(self, resource: ResourceKey, session: Session) -> None:
        """A session watches it no longer."""
        them = self._sessions.get(resource, set())
        them.discard(session)
        if not them:
            self._sessions.pop(resource, None)

    def remove_session(self, session: Session) -> list[ResourceKey]:
        """A session has ended; what it watched."""
        watched = [resource for resource, them in self._sessions.items() if session in them]
        for resource in watched:
            self.remove(resource, session)
        return watched

    def list_subscriptions(self, server: str) -> list[tuple[str, set[Session]]]:
        """The URIs of a server that are watched, each with the sessions that do."""
        return [(uri, them) for (owner, uri), them in self._sessions.items() if owner == server]

    def list_session_ids(self, server: str) -> set[str]:
        """The sessions that watch anything of a server, by their ids."""
        return {session.id for _, them in self.list_subscriptions(server) for session in them}

    def is_subscribed(self, resource: ResourceKey, key: str) -> bool:
        """Whether anybody watches it in a conversation."""
        return any(key in (SHARED, session.id) for session in self._sessions.get(resource, ()))

    def is_server_subscribed(self, upstream: Upstream, resource: ResourceKey, key: str) -> bool:
        """Whether the server was told that it is watched, in the conversation that is open now."""
        told = self._server_subscriptions.get((resource, key))
        return told is not None and told is upstream.get_connection(key)

    def mark_server_subscribed(self, upstream: Upstream, resource: ResourceKey, key: str) -> None:
        """It has been told."""
        if (conversation := upstream.get_connection(key)) is not None:
            self._server_subscriptions[resource, key] = conversation

    def unmark_server_subscribed(self, resource: ResourceKey, key: str) -> None:
        """Nobody watches it any more."""
        self._server_subscriptions.pop((resource, key), None)

    async def resubscribe(self, upstream: Upstream, timeout_s: float) -> None:
        """A server that was started anew knows nothing of what its clients watch; each instance of
        its own client."""
        gate = asyncio.Semaphore(SUBSCRIBE_CONCURRENCY)

        async def resubscribe_one(resource: ResourceKey, key: str) -> None:
            async with gate, self.get_lock(resource, key):
                conversation = upstream.get_connection(key)
                if (
                    conversation is None
                    or self.is_server_subscribed(upstream, resource, key)
                    or not self.is_subscribed(resource, key)
                ):
                    return
                with contextlib.suppress(PorticoError):
                    await conversation.request(
                        "resources/subscribe",
                        {"uri": resource[1]},
                        RequestOptions(timeout=timeout_s),
                    )
                    self._server_subscriptions[resource, key] = conversation

        await asyncio.gather(
            *(
                resubscribe_one((upstream.name, uri), key)
                for uri, sessions in self.list_subscriptions(upstream.name)
                for key in (
                    {session.id for session in sessions} if upstream.isolated else (SHARED,)
                )
            )
        )


_SESSION_KEY = "portico.session"


def get_connection(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """The connection behind a request.

    The SDK keeps per-connection state and teardown there but gives handlers no way to it: the one
    private attribute of the SDK this project leans on.
    """
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


def get_session(ctx: ServerRequestContext[Any, Any]) -> Session:
    """The session a request belongs to: that of its conversation; a modern request over HTTP is one
    of its own."""
    state = get_connection(ctx).state
    if _SESSION_KEY not in state:
        talk = ctx.lifespan_context
        state[_SESSION_KEY] = (
            talk if isinstance(talk, Session) and ctx.request is None else Session()
        )
    return state[_SESSION_KEY]


def compute_identity(ctx: ServerRequestContext[Any, Any], *attributes: str) -> str:
    """By which token a request over HTTP was let in and what else is known, as a digest; empty
    without a token."""
    scope: Any = getattr(ctx.request, "scope", None)
    if isinstance(scope, Mapping):
        token = scope.get(IDENTITY_KEY)
    else:
        token = None
    if not token:
        return ""
    known = "\0".join((str(token), *attributes)).encode(errors="surrogatepass")
    return hashlib.blake2b(known, digest_size=16).hexdigest()


class _ClientNotifier:
    """One client's way: what it has yet to be told, and the task that tells it, which waits for no
    other client."""

    def __init__(self, session: Session, send: Callable[[str], Awaitable[None]]) -> None:
        self.session = session
        self.caller = ""
        self.on_evicted: Callable[[], None] = lambda: None
        """Stops a client from listening."""
        self._send = send
        self._pending: set[str] = set()
        self._added_at = 0.0
        self._send_task: asyncio.Task[None] | None = None

    def add(self, kinds: Iterable[str]) -> None:
        """Tell these soon: each once, however often it changes before the client has heard."""
        told = set(kinds)
        if not told:
            return
        self._pending |= told
        self._added_at = asyncio.get_running_loop().time()
        if self._send_task is None or self._send_task.done():
            self._send_task = asyncio.create_task(self._send_pending(), name="tell a client")

    def close(self) -> "asyncio.Task[None] | None":
        """Stop telling; what is left to wait for."""
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
        """Until the burst is over."""
        clock = asyncio.get_running_loop().time
        latest = clock() + NOTIFY_MAX_DELAY_S
        while (wait := min(self._added_at + NOTIFY_QUIET_S, latest) - clock()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(wait)


class SessionRegistry:
    """The clients of one view."""

    def __init__(self) -> None:
        self._connected_notifiers: dict[Connection, _ClientNotifier] = {}
        self._listening_notifiers: dict[Session, _ClientNotifier] = {}
        """In the order they came."""

    def __len__(self) -> int:
        return len(self._connected_notifiers)

    @property
    def listener_count(self) -> int:
        """How many modern clients listen now."""
        return len(self._listening_notifiers)

    @property
    def _notifiers(self) -> tuple[_ClientNotifier, ...]:
        return (*self._connected_notifiers.values(), *self._listening_notifiers.values())

    def add(self, connection: Connection, session: Session) -> None:
        """Remember a client until its connection closes."""
        if connection not in self._connected_notifiers:
            self._connected_notifiers[connection] = _ClientNotifier(
                session, lambda kind: _notify(connection, session, kind)
            )
            connection.exit_stack.callback(self._remove, connection)

    def _remove(self, connection: Connection) -> None:
        if (line := self._connected_notifiers.pop(connection, None)) is not None:
            line.close()

    @contextlib.contextmanager
    def register_listener(
        self,
        session: Session,
        bus: SubscriptionBus,
        caller: str = "",
        on_evicted: Callable[[], None] = lambda: None,
    ) -> Generator[None]:
        """While a modern client listens: what there is to tell it is published on its own bus.

        Where all places are taken, the caller that holds most gives way with the one that has
        listened longest: its
        `end` is called. Raises RemoteError where that is this caller itself, or it has its share.
        """
        self._ensure_capacity(caller)
        line = _ClientNotifier(session, lambda kind: _publish(bus, session, kind))
        line.caller = caller
        line.on_evicted = on_evicted
        self._listening_notifiers[session] = line
        try:
            yield
        finally:
            self._listening_notifiers.pop(session, None)
            line.close()

    def _ensure_capacity(self, caller: str) -> None:
        held = Counter(line.caller for line in self._listening_notifiers.values())
        most = max(held, key=held.__getitem__, default=caller)
        is_full = len(self._listening_notifiers) >= MAX_LISTENERS
        if held[caller] >= MAX_CALLER_LISTENERS or (is_full and held[most] <= held[caller] + 1):
            reason = f"{len(self._listening_notifiers)} clients listen already, {held[caller]} of them from where you are"
            raise RemoteError(
                INTERNAL_ERROR, f"{reason}; end some of your subscriptions, or try again later"
            )
        if is_full:
            oldest = next(
                session
                for session, line in self._listening_notifiers.items()
                if line.caller == most
            )
            self._listening_notifiers.pop(oldest).on_evicted()

    def notify_list_changed(self, *kinds: str) -> None:
        """Tell everyone, soon, that `tools`, `resources` or `prompts` changed."""
        for line in self._notifiers:
            line.add(kinds)

    def notify_resource_updated(self, uri: str, session_id: str | None = None) -> None:
        """Tell those who subscribed, or only one session of them, that a resource changed."""
        for line in self._notifiers:
            if uri in line.session.subscriptions and session_id in (None, line.session.id):
                line.add((f"{_RESOURCE_PREFIX}{uri}",))

    def notify_matching_resources(self, is_concerned: Callable[[str], bool]) -> None:
        """Tell those who watch a resource that is concerned that it changed."""
        for line in self._notifiers:
            line.add(
                [
                    f"{_RESOURCE_PREFIX}{uri}"
                    for uri in line.session.subscriptions
                    if is_concerned(uri)
                ]
            )

    async def close(self) -> None:
        """Stop telling."""
        closing = [task for line in self._notifiers if (task := line.close())]
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
    for asked in sorted(session.subscriptions.get(kind.removeprefix(_RESOURCE_PREFIX), ())):
        await bus.publish(ResourceUpdated(asked))


async def _notify(connection: Connection, session: Session, kind: str) -> None:
    if not kind.startswith(_RESOURCE_PREFIX):
        await connection.notify(f"notifications/{kind}/list_changed", None)
        return
    for asked in sorted(session.subscriptions.get(kind.removeprefix(_RESOURCE_PREFIX), ())):
        await connection.notify("notifications/resources/updated", {"uri": asked})
