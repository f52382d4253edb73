"""Who is connected, and telling them what changed.

Handshake-era clients have a connection that can be told; modern ones ask with `subscriptions/listen`. A burst of
changes is one notification, and a client that does not read keeps no other from hearing.
"""

import asyncio
import contextlib
import hashlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from portico.errors import INVALID_PARAMS, PorticoError, RemoteError
from portico.upstream.backend import Ask
from portico.upstream.supervisor import SHARED, Upstream

QUIET_S, LONGEST_S = 0.25, 1.0
"""Changes are told when no other has come for so long, or when the first has waited for so long."""
MAX_SUBSCRIPTIONS = 1_000
MAX_URI = 4_096
_RESOURCE = "resource "
IDENTITY = "portico.identity"
"""In the scope of an HTTP request: a digest of the token it was let in by."""


@dataclass(eq=False)
class Session:
    """One handshake-era client, or one connection over stdio."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    log_level: str | None = None
    subscribed: dict[str, str] = field(default_factory=dict)
    """Outer URI of a resource → the URI the client asked for it by."""


def check_subscription(uris: Collection[str], already: int = 0) -> None:
    """Refuse what would let one client fill our memory."""
    if any(len(uri) > MAX_URI for uri in uris):
        raise RemoteError(INVALID_PARAMS, f"a URI longer than {MAX_URI} characters cannot be subscribed to")
    if already + len(uris) > MAX_SUBSCRIPTIONS:
        reason = f"a client can subscribe to {MAX_SUBSCRIPTIONS} resources; unsubscribe from some first"
        raise RemoteError(INVALID_PARAMS, reason)


class Watchers:
    """Which sessions watch which resources, at every door: a server all share is left only by the last of them."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], set[str]] = {}

    def add(self, resource: tuple[str, str], session: str) -> None:
        """A session watches a resource of a server."""
        self._sessions.setdefault(resource, set()).add(session)

    def remove(self, resource: tuple[str, str], session: str) -> None:
        """A session watches it no longer."""
        self._sessions.get(resource, set()).discard(session)

    def forget(self, session: str) -> None:
        """A session has ended."""
        self._sessions = {resource: left for resource, them in self._sessions.items() if (left := them - {session})}

    def of(self, server: str) -> list[tuple[str, set[str]]]:
        """The URIs of a server that are watched, each with the sessions that do."""
        return [(uri, them) for (owner, uri), them in self._sessions.items() if owner == server and them]

    def who(self, server: str) -> set[str]:
        """The sessions that watch anything of a server."""
        return {session for _, them in self.of(server) for session in them}

    def others(self, resource: tuple[str, str], session: str) -> bool:
        """Whether anybody else watches it."""
        return bool(self._sessions.get(resource, set()) - {session})

    async def watch_again(self, upstream: Upstream, patience: float) -> None:
        """A server that was started anew knows nothing of what its clients watch; each instance of its own client."""
        for uri, sessions in self.of(upstream.name):
            for session in tuple(sessions) if upstream.isolated else (SHARED,):
                with contextlib.suppress(PorticoError):
                    if (connection := upstream.conversation(session)) is not None:
                        await connection.request("resources/subscribe", {"uri": uri}, Ask(timeout=patience))


_KEY = "portico.session"


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """The connection behind a request.

    The SDK keeps per-connection state and teardown there but gives handlers no way to it: the one private attribute of
    the SDK this project leans on.
    """
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]


def session_of(ctx: ServerRequestContext[Any, Any]) -> Session:
    """The session a request belongs to: that of its conversation; a modern request over HTTP is one of its own."""
    state = connection_of(ctx).state
    if _KEY not in state:
        talk = ctx.lifespan_context
        state[_KEY] = talk if isinstance(talk, Session) and ctx.request is None else Session()
    return state[_KEY]


def identity_of(ctx: ServerRequestContext[Any, Any], *about: str) -> str:
    """By which token a request over HTTP was let in and what else is known, as a digest; empty without a token."""
    scope: Any = getattr(ctx.request, "scope", None)
    token = scope.get(IDENTITY) if isinstance(scope, Mapping) else None
    if not token:
        return ""
    known = "\0".join((str(token), *about)).encode(errors="surrogatepass")
    return hashlib.blake2b(known, digest_size=16).hexdigest()


class _Line:
    """One client's way: what it has yet to be told, and the task that tells it, which waits for no other client."""

    def __init__(self, session: Session, tell: Callable[[str], Awaitable[None]]) -> None:
        self.session = session
        self._tell = tell
        self._pending: set[str] = set()
        self._added_at = 0.0
        self._telling: asyncio.Task[None] | None = None

    def add(self, kinds: Iterable[str]) -> None:
        """Tell these soon: each once, however often it changes before the client has heard."""
        told = set(kinds)
        if not told:
            return
        self._pending |= told
        self._added_at = asyncio.get_running_loop().time()
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_soon(), name="tell a client")

    def close(self) -> "asyncio.Task[None] | None":
        """Stop telling; what is left to wait for."""
        if self._telling is not None:
            self._telling.cancel()
        return self._telling

    async def _tell_soon(self) -> None:
        while self._pending:
            await self._quiet()
            kinds, self._pending = self._pending, set()
            for kind in sorted(kinds):
                await self._tell(kind)

    async def _quiet(self) -> None:
        """Until the burst is over."""
        clock = asyncio.get_running_loop().time
        latest = clock() + LONGEST_S
        while (wait := min(self._added_at + QUIET_S, latest) - clock()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(wait)


class Sessions:
    """The clients of one view."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._connected: dict[Connection, _Line] = {}
        self._listened: Counter[str] = Counter()
        self._modern = _Line(Session(), self._publish)

    def __len__(self) -> int:
        return len(self._connected)

    def add(self, connection: Connection, session: Session) -> None:
        """Remember a client until its connection closes."""
        if connection not in self._connected:
            self._connected[connection] = _Line(session, lambda kind: _notify(connection, session, kind))
            connection.exit_stack.callback(self._remove, connection)

    def _remove(self, connection: Connection) -> None:
        if (line := self._connected.pop(connection, None)) is not None:
            line.close()

    @contextlib.contextmanager
    def listening(self, uris: Iterable[str]) -> Generator[None]:
        """While a modern client listens for these resources."""
        heard = Counter(set(uris))
        self._listened += heard
        try:
            yield
        finally:
            self._listened -= heard

    def changed(self, *kinds: str) -> None:
        """Tell everyone, soon, that `tools`, `resources` or `prompts` changed."""
        for line in (self._modern, *self._connected.values()):
            line.add(kinds)

    def updated(self, uri: str, session: str | None = None) -> None:
        """Tell those who subscribed, or only one session of them, that a resource changed."""
        if session is None and uri in self._listened:
            self._modern.add((f"{_RESOURCE}{uri}",))
        for line in self._connected.values():
            if uri in line.session.subscribed and session in (None, line.session.id):
                line.add((f"{_RESOURCE}{uri}",))

    def touched(self, concerns: Callable[[str], bool]) -> None:
        """Tell those who watch a resource that is concerned that it changed."""
        self._modern.add([f"{_RESOURCE}{uri}" for uri in self._listened if concerns(uri)])
        for line in self._connected.values():
            line.add([f"{_RESOURCE}{uri}" for uri in line.session.subscribed if concerns(uri)])

    async def close(self) -> None:
        """Stop telling."""
        closing = [task for line in (self._modern, *self._connected.values()) if (task := line.close())]
        if closing:
            await asyncio.wait(closing)

    async def _publish(self, kind: str) -> None:
        event: ServerEvent
        if kind.startswith(_RESOURCE):
            event = ResourceUpdated(kind.removeprefix(_RESOURCE))
        else:
            event = {"tools": ToolsListChanged, "resources": ResourcesListChanged, "prompts": PromptsListChanged}[
                kind
            ]()
        await self.bus.publish(event)


async def _notify(connection: Connection, session: Session, kind: str) -> None:
    if not kind.startswith(_RESOURCE):
        await connection.notify(f"notifications/{kind}/list_changed", None)
    elif (asked := session.subscribed.get(kind.removeprefix(_RESOURCE))) is not None:
        await connection.notify("notifications/resources/updated", {"uri": asked})
