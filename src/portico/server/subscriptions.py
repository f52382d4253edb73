"""Watching resources: a client subscribes in the way of its era, and a server is told in the way of
its own.

A server is told by the first who watches a resource, and told to stop by the last: a client of
either era, one that says so or one that has gone. A modern client is told which of the resources it
asked for it will hear of: one that no server has, or whose server does not announce it, is left
out.
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

from portico.calls.pipeline import CallContext
from portico.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    BackendUnavailable,
    PorticoError,
    RemoteError,
)
from portico.events import ResourceUpdated
from portico.profiles.view import ProfileView
from portico.server.http.callers import identify_caller
from portico.server.sessions import (
    SUBSCRIBE_CONCURRENCY,
    ResourceKey,
    Session,
    SessionRegistry,
    SubscriptionRegistry,
    check_subscription,
)
from portico.upstream.backend import Era, Raw, RequestOptions
from portico.upstream.lifecycle.supervisor import SHARED, Upstream

logger = logging.getLogger(__name__)

SUBSCRIBE_TIMEOUT_S = 10.0
"""How long a modern client waits for servers to agree; it will not hear of what has not been agreed
on by then."""
UNSUBSCRIBE_TIMEOUT_S = 10.0

_SUBSCRIBE = "resources/subscribe"
_UNSUBSCRIBE = "resources/unsubscribe"


class ResourceSubscriptions:
    """What the clients of one view watch."""

    def __init__(
        self,
        view: ProfileView,
        upstreams: Mapping[str, Upstream],
        sessions: SessionRegistry,
        registry: SubscriptionRegistry,
    ) -> None:
        self._view = view
        self._upstreams = upstreams
        self._sessions = sessions
        self._registry = registry
        self._unsubscribe_tasks: set[asyncio.Task[None]] = set()

    async def handle(
        self, method: str, params: Raw, session: Session, origin: CallContext, era: Era
    ) -> Mapping[str, Any]:
        """Answer `resources/subscribe` or `resources/unsubscribe`."""
        if method == _UNSUBSCRIBE:
            return await self._unsubscribe(params, session, origin, era)
        check_subscription((params["uri"],), len(session.subscriptions))
        return await self._subscribe(params, session, origin, era)

    async def listen(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: SubscriptionsListenRequestParams,
        origin: CallContext,
    ) -> SubscriptionsListenResult:
        """Answer `subscriptions/listen`, for as long as the client listens."""
        wanted = params.notifications
        uris = list(dict.fromkeys(wanted.resource_subscriptions or ()))
        check_subscription(uris)
        session = Session(origin.caller.instance_key)
        bus = InMemorySubscriptionBus()
        caller = identify_caller(getattr(ctx.request, "scope", None))
        with (
            anyio.CancelScope() as scope,
            self._sessions.register_listener(session, bus, caller, scope.cancel),
        ):
            try:
                heard = await self._subscribe_all(uris, session, origin)
                granted = wanted.model_copy(update={"resource_subscriptions": heard})
                return await ListenHandler(bus)(
                    ctx, params.model_copy(update={"notifications": granted})
                )
            finally:
                self._drop_session(session)
        raise RemoteError(
            INTERNAL_ERROR,
            "this subscription was ended to make room for another client; listen again",
        )

    def notify_updated(self, event: ResourceUpdated) -> None:
        """Tell those who watch it; what an own instance says concerns its own client alone."""
        if not self._view.can_show_resource(event.server, event.uri):
            return
        upstream = self._upstreams.get(event.server)
        if upstream is not None and upstream.isolated:
            own = event.session
        else:
            own = None
        self._sessions.notify_resource_updated(
            self._view.to_outer_uri(event.server, event.uri), own
        )

    def unsubscribe_on_close(self, connection: Connection, session: Session) -> None:
        """When this client has gone, it watches nothing any more."""
        connection.exit_stack.callback(self._drop_session, session)

    async def close(self) -> None:
        """Leave nothing under way."""
        for task in self._unsubscribe_tasks:
            task.cancel()
        if self._unsubscribe_tasks:
            await asyncio.wait(self._unsubscribe_tasks)

    async def _subscribe_all(
        self, uris: Iterable[str], session: Session, origin: CallContext
    ) -> list[str]:
        """Those of the resources that can be heard of."""
        gate = asyncio.Semaphore(SUBSCRIBE_CONCURRENCY)

        async def subscribe(uri: str) -> None:
            async with gate:
                await self._subscribe({"uri": uri}, session, origin, "modern")

        asking = {uri: asyncio.create_task(subscribe(uri), name="watch a resource") for uri in uris}
        if not asking:
            return []
        try:
            await asyncio.wait(asking.values(), timeout=SUBSCRIBE_TIMEOUT_S)
        finally:
            late = {task for task in asking.values() if task.cancel()}
            if late:
                await asyncio.wait(late)
        return [
            uri for uri, task in asking.items() if not task.cancelled() and _has_succeeded(task)
        ]

    async def _subscribe(
        self, params: Raw, session: Session, origin: CallContext, era: Era
    ) -> Mapping[str, Any]:
        uri: str = params["uri"]
        if self._view.parse_gateway_uri(uri):
            result = await self._view.handle(_SUBSCRIBE, params, origin, era)
            session.subscriptions.setdefault(uri, set()).add(uri)
            return result
        try:
            resource = self._view.locate_resource(uri, origin.caller.state_key)
        except RemoteError:
            # Its server may be on its first start still; if it is not, this says what is wrong.
            await self._view.handle(_SUBSCRIBE, params, origin, era)
            resource = self._view.locate_resource(uri, origin.caller.state_key)
        result = await self._subscribe_at_server(resource, params, session, origin, era)
        session.subscriptions.setdefault(self._view.to_outer_uri(*resource), set()).add(uri)
        return result

    async def _subscribe_at_server(
        self, resource: ResourceKey, params: Raw, session: Session, origin: CallContext, era: Era
    ) -> Mapping[str, Any]:
        upstream = self._get_upstream(resource[0])
        if upstream.isolated and not session.id:
            # What it would hear of is an instance that is nobody's.
            raise RemoteError(
                INVALID_PARAMS,
                f"{resource[0]} keeps a state for each client, and whose this is unknown",
            )
        if upstream.isolated:
            key = session.id
        else:
            key = SHARED
        async with self._registry.get_lock(resource, key):
            before = self._view.to_outer_uri(*resource) in session.subscriptions
            self._registry.add(resource, session)
            if self._registry.is_server_subscribed(upstream, resource, key):
                return {}
            try:
                result = await self._view.handle(_SUBSCRIBE, params, origin, era)
            except BaseException as error:
                if not before:
                    self._registry.remove(resource, session)
                    if not isinstance(error, RemoteError):  # it may have heard us all the same
                        self._start_unsubscribing([resource], session.id)
                raise
            self._registry.mark_server_subscribed(upstream, resource, key)
            return result

    async def _unsubscribe(
        self, params: Raw, session: Session, origin: CallContext, era: Era
    ) -> Mapping[str, Any]:
        uri: str = params["uri"]
        if self._view.parse_gateway_uri(uri):
            session.subscriptions.pop(uri, None)
            return {}
        resource = self._view.locate_resource(uri, origin.caller.state_key, must_be_known=False)
        outer = self._view.to_outer_uri(*resource)
        if outer not in session.subscriptions:
            self._view.locate_resource(uri, origin.caller.state_key)
        asked = session.subscriptions.pop(outer, set())
        if uri in asked and len(asked) > 1:
            session.subscriptions[outer] = asked - {uri}
            return {}
        upstream = self._get_upstream(resource[0])
        if upstream.isolated:
            key = session.id
        else:
            key = SHARED
        async with self._registry.get_lock(resource, key):
            self._registry.remove(resource, session)
            if self._registry.is_subscribed(resource, key) or upstream.get_connection(key) is None:
                return {}
            self._registry.unmark_server_subscribed(resource, key)
            return await self._view.handle(_UNSUBSCRIBE, params, origin, era)

    def _get_upstream(self, server: str) -> Upstream:
        if (upstream := self._upstreams.get(server)) is None:
            raise BackendUnavailable(f"{server} is not running here")
        return upstream

    def _drop_session(self, session: Session) -> None:
        session.subscriptions.clear()
        if resources := self._registry.remove_session(session):
            self._start_unsubscribing(resources, session.id)

    def _start_unsubscribing(self, resources: Iterable[ResourceKey], owner: str) -> None:
        # Whoever left waits for nothing any more: a task of its own.
        task = asyncio.create_task(
            self._unsubscribe_at_servers(list(resources), owner), name="leave resources"
        )
        self._unsubscribe_tasks.add(task)
        task.add_done_callback(self._unsubscribe_tasks.discard)

    async def _unsubscribe_at_servers(self, resources: list[ResourceKey], owner: str) -> None:
        for resource in resources:
            upstream = self._upstreams.get(resource[0])
            if (
                upstream is None
            ):  # it was taken away, and what is remembered of it would be kept for ever
                for key in (SHARED, owner):
                    if not self._registry.is_subscribed(resource, key):
                        self._registry.unmark_server_subscribed(resource, key)
                continue
            if upstream.isolated:
                key = owner
            else:
                key = SHARED
            async with self._registry.get_lock(resource, key):
                if self._registry.is_subscribed(resource, key):
                    continue
                self._registry.unmark_server_subscribed(resource, key)
                if (conversation := upstream.get_connection(key)) is not None:
                    with contextlib.suppress(PorticoError):
                        await conversation.request(
                            _UNSUBSCRIBE,
                            {"uri": resource[1]},
                            RequestOptions(timeout=UNSUBSCRIBE_TIMEOUT_S),
                        )


def _has_succeeded(task: "asyncio.Task[None]") -> bool:
    error = task.exception()
    if error is not None and not isinstance(error, PorticoError):
        logger.error("a resource could not be watched", exc_info=error)
    return error is None
