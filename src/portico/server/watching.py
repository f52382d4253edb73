"""Watching resources: a client subscribes in the way of its era, and a server is told in the way of its own.

A server is told by the first who watches a resource, and told to stop by the last: a client of either era, one that
says so or one that has gone. A modern client is told which of the resources it asked for it will hear of: one that no
server has, or whose server does not announce it, is left out.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from portico.disclosure.view import View
from portico.errors import INTERNAL_ERROR, INVALID_PARAMS, BackendUnavailable, PorticoError, RemoteError
from portico.events import ResourceUpdated
from portico.execution.call import Origin
from portico.server.callers import caller_of
from portico.server.sessions import AT_ONCE, Resource, Session, Sessions, Watchers, check_subscription
from portico.upstream.backend import Ask, Era, Raw
from portico.upstream.supervisor import SHARED, Upstream

logger = logging.getLogger(__name__)

AGREE_S = 10.0
"""How long a modern client waits for servers to agree; it will not hear of what has not been agreed on by then."""
LEAVE_S = 10.0

_SUBSCRIBE, _UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"


class Watching:
    """What the clients of one view watch."""

    def __init__(self, view: View, upstreams: Mapping[str, Upstream], sessions: Sessions, watchers: Watchers) -> None:
        self._view = view
        self._upstreams = upstreams
        self._sessions = sessions
        self._watchers = watchers
        self._leaving: set[asyncio.Task[None]] = set()

    async def asked(self, method: str, params: Raw, session: Session, origin: Origin, era: Era) -> Mapping[str, Any]:
        """Answer `resources/subscribe` or `resources/unsubscribe`."""
        if method == _UNSUBSCRIBE:
            return await self._unwatch(params, session, origin, era)
        check_subscription((params["uri"],), len(session.subscribed))
        return await self._watch(params, session, origin, era)

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams, origin: Origin
    ) -> SubscriptionsListenResult:
        """Answer `subscriptions/listen`, for as long as the client listens."""
        wanted = params.notifications
        uris = list(dict.fromkeys(wanted.resource_subscriptions or ()))
        check_subscription(uris)
        session, bus = Session(origin.caller.instance), InMemorySubscriptionBus()
        caller = caller_of(getattr(ctx.request, "scope", None))
        with anyio.CancelScope() as scope, self._sessions.listening(session, bus, caller, scope.cancel):
            try:
                heard = await self._agreed(uris, session, origin)
                granted = wanted.model_copy(update={"resource_subscriptions": heard})
                return await ListenHandler(bus)(ctx, params.model_copy(update={"notifications": granted}))
            finally:
                self._left(session)
        raise RemoteError(INTERNAL_ERROR, "this subscription was ended to make room for another client; listen again")

    def updated(self, event: ResourceUpdated) -> None:
        """Tell those who watch it; what an own instance says concerns its own client alone."""
        if not self._view.shows_resource(event.server, event.uri):
            return
        upstream = self._upstreams.get(event.server)
        own = event.session if upstream is not None and upstream.isolated else None
        self._sessions.updated(self._view.outer_uri(event.server, event.uri), own)

    def end_with(self, connection: Connection, session: Session) -> None:
        """When this client has gone, it watches nothing any more."""
        connection.exit_stack.callback(self._left, session)

    async def close(self) -> None:
        """Leave nothing under way."""
        for task in self._leaving:
            task.cancel()
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _agreed(self, uris: Iterable[str], session: Session, origin: Origin) -> list[str]:
        """Those of the resources that can be heard of."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def watch(uri: str) -> None:
            async with gate:
                await self._watch({"uri": uri}, session, origin, "modern")

        asking = {uri: asyncio.create_task(watch(uri), name="watch a resource") for uri in uris}
        if not asking:
            return []
        try:
            await asyncio.wait(asking.values(), timeout=AGREE_S)
        finally:
            late = {task for task in asking.values() if task.cancel()}
            if late:
                await asyncio.wait(late)
        return [uri for uri, task in asking.items() if not task.cancelled() and _succeeded(task)]

    async def _watch(self, params: Raw, session: Session, origin: Origin, era: Era) -> Mapping[str, Any]:
        uri: str = params["uri"]
        if self._view.owns(uri):
            result = await self._view.handle(_SUBSCRIBE, params, origin, era)
            session.subscribed.setdefault(uri, set()).add(uri)
            return result
        try:
            resource = self._view.locate(uri, origin.caller.state)
        except RemoteError:
            # Its server may be on its first start still; if it is not, this says what is wrong.
            await self._view.handle(_SUBSCRIBE, params, origin, era)
            resource = self._view.locate(uri, origin.caller.state)
        result = await self._watch_at(resource, params, session, origin, era)
        session.subscribed.setdefault(self._view.outer_uri(*resource), set()).add(uri)
        return result

    async def _watch_at(
        self, resource: Resource, params: Raw, session: Session, origin: Origin, era: Era
    ) -> Mapping[str, Any]:
        upstream = self._upstream(resource[0])
        if upstream.isolated and not session.id:
            # What it would hear of is an instance that is nobody's.
            raise RemoteError(INVALID_PARAMS, f"{resource[0]} keeps a state for each client, and whose this is unknown")
        key = session.id if upstream.isolated else SHARED
        async with self._watchers.turn(resource, key):
            before = self._view.outer_uri(*resource) in session.subscribed
            self._watchers.add(resource, session)
            if self._watchers.knows(upstream, resource, key):
                return {}
            try:
                result = await self._view.handle(_SUBSCRIBE, params, origin, era)
            except BaseException as error:
                if not before:
                    self._watchers.remove(resource, session)
                    if not isinstance(error, RemoteError):  # it may have heard us all the same
                        self._leave([resource], session.id)
                raise
            self._watchers.tell(upstream, resource, key)
            return result

    async def _unwatch(self, params: Raw, session: Session, origin: Origin, era: Era) -> Mapping[str, Any]:
        uri: str = params["uri"]
        if self._view.owns(uri):
            session.subscribed.pop(uri, None)
            return {}
        resource = self._view.locate(uri, origin.caller.state, known=False)
        outer = self._view.outer_uri(*resource)
        if outer not in session.subscribed:
            self._view.locate(uri, origin.caller.state)
        asked = session.subscribed.pop(outer, set())
        if uri in asked and len(asked) > 1:
            session.subscribed[outer] = asked - {uri}
            return {}
        upstream = self._upstream(resource[0])
        key = session.id if upstream.isolated else SHARED
        async with self._watchers.turn(resource, key):
            self._watchers.remove(resource, session)
            if self._watchers.watched(resource, key) or upstream.conversation(key) is None:
                return {}
            self._watchers.part(resource, key)
            return await self._view.handle(_UNSUBSCRIBE, params, origin, era)

    def _upstream(self, server: str) -> Upstream:
        if (upstream := self._upstreams.get(server)) is None:
            raise BackendUnavailable(f"{server} is not running here")
        return upstream

    def _left(self, session: Session) -> None:
        session.subscribed.clear()
        if resources := self._watchers.forget(session):
            self._leave(resources, session.id)

    def _leave(self, resources: Iterable[Resource], owner: str) -> None:
        # Whoever left waits for nothing any more: a task of its own.
        task = asyncio.create_task(self._tell_of_leaving(list(resources), owner), name="leave resources")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _tell_of_leaving(self, resources: list[Resource], owner: str) -> None:
        for resource in resources:
            upstream = self._upstreams.get(resource[0])
            if upstream is None:  # it was taken away, and what is remembered of it would be kept for ever
                for key in (SHARED, owner):
                    if not self._watchers.watched(resource, key):
                        self._watchers.part(resource, key)
                continue
            key = owner if upstream.isolated else SHARED
            async with self._watchers.turn(resource, key):
                if self._watchers.watched(resource, key):
                    continue
                self._watchers.part(resource, key)
                if (conversation := upstream.conversation(key)) is not None:
                    with contextlib.suppress(PorticoError):
                        await conversation.request(_UNSUBSCRIBE, {"uri": resource[1]}, Ask(timeout=LEAVE_S))


def _succeeded(task: "asyncio.Task[None]") -> bool:
    error = task.exception()
    if error is not None and not isinstance(error, PorticoError):
        logger.error("a resource could not be watched", exc_info=error)
    return error is None
