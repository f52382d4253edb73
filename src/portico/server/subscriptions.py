"""Resource subscriptions: from clients of either era to servers of either era.

A server is subscribed at for the first client that watches a resource, and unsubscribed at after
the last one unsubscribes or disconnects. The answer to a modern client lists the resources that it
will be notified of: unknown ones, and those whose server sends no updates, are left out.
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

from portico.callers import NO_CALLER
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
from portico.server.http.auth import identify_caller
from portico.server.request import Request
from portico.server.sessions import (
    SUBSCRIBE_CONCURRENCY,
    ResourceKey,
    Session,
    SessionRegistry,
    SubscriptionRegistry,
    check_subscription,
)
from portico.upstream.backend import Era, Raw, RequestOptions
from portico.upstream.lifecycle.instances import SHARED
from portico.upstream.lifecycle.supervisor import Upstream

logger = logging.getLogger(__name__)

SUBSCRIBE_TIMEOUT_S = 10.0
"""Seconds that a modern client waits for servers to confirm; unconfirmed resources are left out."""
UNSUBSCRIBE_TIMEOUT_S = 10.0

_SUBSCRIBE = "resources/subscribe"
_UNSUBSCRIBE = "resources/unsubscribe"


class ResourceSubscriptions:
    """Resource subscriptions of the clients of one view."""

    def __init__(
        self,
        view: ProfileView,
        upstreams: Mapping[str, Upstream],
        sessions: SessionRegistry,
        registry: SubscriptionRegistry,
    ) -> None:
        self._view = view
        self._offers = view.upstream_offers
        self._upstreams = upstreams
        self._sessions = sessions
        self._registry = registry
        self._unsubscribe_tasks: set[asyncio.Task[None]] = set()

    async def subscribe(self, request: Request) -> Mapping[str, Any]:
        check_subscription((request.params["uri"],), len(request.session.subscriptions))
        context = CallContext(request.caller, request.relay, request.params)
        return await self._subscribe(request.params, request.session, context, request.era)

    async def unsubscribe(self, request: Request) -> Mapping[str, Any]:
        session = request.session
        link_owner = request.caller.link_owner
        uri: str = request.params["uri"]
        view = self._view.select_for(request.caller)
        if view.parse_gateway_uri(uri):
            session.subscriptions.pop(uri, None)
            return {}
        offers = view.upstream_offers
        resource = offers.locate_resource(uri, link_owner, must_be_known=False)
        outer = self._offers.to_outer_uri(*resource)
        if outer not in session.subscriptions:
            offers.locate_resource(uri, link_owner)
        uris = session.subscriptions.pop(outer, set())
        if uri in uris and len(uris) > 1:
            session.subscriptions[outer] = uris - {uri}
            return {}
        upstream = self._get_upstream(resource[0])
        key = session.id if upstream.isolated else SHARED
        async with self._registry.get_lock(resource, key):
            self._registry.remove(resource, session)
            if self._registry.is_subscribed(resource, key) or upstream.get_connection(key) is None:
                return {}
            self._registry.unmark_server_subscribed(resource, key)
            context = CallContext(request.caller, request.relay, request.params)
            return await view.handle(_UNSUBSCRIBE, request.params, context, request.era)

    async def listen(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: SubscriptionsListenRequestParams,
        context: CallContext,
    ) -> SubscriptionsListenResult:
        """Answer `subscriptions/listen`; returns when the client stops listening.

        Raises RemoteError if the listener is evicted: for another client, or as the gateway stops.
        """
        requested = params.notifications
        uris = list(dict.fromkeys(requested.resource_subscriptions or ()))
        check_subscription(uris)
        session = Session(context.caller.instance_key, caller=context.caller)
        bus = InMemorySubscriptionBus()
        caller = identify_caller(getattr(ctx.request, "scope", None))
        with (
            anyio.CancelScope() as scope,
            self._sessions.register_listener(session, bus, caller, scope.cancel),
        ):
            try:
                subscribed = await self._subscribe_all(uris, session, context)
                granted = requested.model_copy(update={"resource_subscriptions": subscribed})
                return await ListenHandler(bus)(
                    ctx, params.model_copy(update={"notifications": granted})
                )
            finally:
                self._drop_session(session)
        raise RemoteError(
            INTERNAL_ERROR,
            "this subscription was ended, for another client or as the gateway stops; listen again",
        )

    def drop_denied(self) -> None:
        """End the subscriptions that the rules deny now, after the rules changed."""
        for resource, sessions in self._registry.list_resources():
            outer = self._offers.to_outer_uri(*resource)
            for session in sessions:
                is_own = outer in session.subscriptions
                if is_own and self._view.denies_resource(session.caller or NO_CALLER, *resource):
                    del session.subscriptions[outer]
                    self._registry.remove(resource, session)
                    self._start_unsubscribing([resource], session.id)

    def notify_updated(self, event: ResourceUpdated) -> None:
        """Notify the subscribers of a resource; an isolated instance's update goes to its own
        client only."""
        if not self._offers.can_show_resource(event.server, event.uri):
            return
        upstream = self._upstreams.get(event.server)
        session_id = None
        if upstream is not None and upstream.isolated:
            session_id = event.session
        self._sessions.notify_resource_updated(
            self._offers.to_outer_uri(event.server, event.uri), session_id
        )

    def unsubscribe_on_close(self, connection: Connection, session: Session) -> None:
        """Drop all subscriptions of a client when its connection closes."""
        connection.exit_stack.callback(self._drop_session, session)

    async def close(self) -> None:
        """Cancel the unsubscribe tasks and wait for their end."""
        for task in self._unsubscribe_tasks:
            task.cancel()
        if self._unsubscribe_tasks:
            await asyncio.wait(self._unsubscribe_tasks)

    async def _subscribe_all(
        self, uris: Iterable[str], session: Session, context: CallContext
    ) -> list[str]:
        """Subscribe to the resources and return those that succeeded within
        `SUBSCRIBE_TIMEOUT_S`."""
        limit = asyncio.Semaphore(SUBSCRIBE_CONCURRENCY)

        async def subscribe(uri: str) -> None:
            async with limit:
                await self._subscribe({"uri": uri}, session, context, "modern")

        tasks = {
            uri: asyncio.create_task(subscribe(uri), name="subscribe to a resource") for uri in uris
        }
        if not tasks:
            return []
        try:
            await asyncio.wait(tasks.values(), timeout=SUBSCRIBE_TIMEOUT_S)
        finally:
            late = {task for task in tasks.values() if task.cancel()}
            if late:
                await asyncio.wait(late)
        return [uri for uri, task in tasks.items() if not task.cancelled() and _has_succeeded(task)]

    async def _subscribe(
        self, params: Raw, session: Session, context: CallContext, era: Era
    ) -> Mapping[str, Any]:
        uri: str = params["uri"]
        view = self._view.select_for(context.caller)
        if view.parse_gateway_uri(uri):
            result = await view.handle(_SUBSCRIBE, params, context, era)
            session.subscriptions.setdefault(uri, set()).add(uri)
            return result
        try:
            resource = view.upstream_offers.locate_resource(uri, context.caller.link_owner)
        except RemoteError:
            # The server may still be starting for the first time; if not, this raises the reason.
            await view.handle(_SUBSCRIBE, params, context, era)
            resource = view.upstream_offers.locate_resource(uri, context.caller.link_owner)
        result = await self._subscribe_at_server(resource, params, session, context, era)
        session.subscriptions.setdefault(self._offers.to_outer_uri(*resource), set()).add(uri)
        return result

    async def _subscribe_at_server(
        self, resource: ResourceKey, params: Raw, session: Session, context: CallContext, era: Era
    ) -> Mapping[str, Any]:
        upstream = self._get_upstream(resource[0])
        if upstream.personal:
            raise RemoteError(
                INVALID_PARAMS,
                f"{resource[0]} is used with an own account by each person: its resources can be "
                "read, and not subscribed to",
            )
        if upstream.isolated and not session.id:
            # Without a session id, the updates would be those of an instance without an owner.
            raise RemoteError(
                INVALID_PARAMS,
                f"{resource[0]} keeps a state for each client, and whose this is unknown",
            )
        key = session.id if upstream.isolated else SHARED
        async with self._registry.get_lock(resource, key):
            was_subscribed = self._offers.to_outer_uri(*resource) in session.subscriptions
            self._registry.add(resource, session)
            if self._registry.is_server_subscribed(upstream, resource, key):
                return {}
            try:
                view = self._view.select_for(context.caller)
                result = await view.handle(_SUBSCRIBE, params, context, era)
            except BaseException as error:
                if not was_subscribed:
                    self._registry.remove(resource, session)
                    # Without an error from the server, it may have subscribed nevertheless.
                    if not isinstance(error, RemoteError):
                        self._start_unsubscribing([resource], session.id)
                raise
            self._registry.mark_server_subscribed(upstream, resource, key)
            return result

    def _get_upstream(self, server: str) -> Upstream:
        if (upstream := self._upstreams.get(server)) is None:
            raise BackendUnavailable(f"{server} is not running here")
        return upstream

    def _drop_session(self, session: Session) -> None:
        session.subscriptions.clear()
        if resources := self._registry.remove_session(session):
            self._start_unsubscribing(resources, session.id)

    def _start_unsubscribing(self, resources: Iterable[ResourceKey], owner: str) -> None:
        # In a task of its own: the client has disconnected and must not be waited for.
        task = asyncio.create_task(
            self._unsubscribe_at_servers(list(resources), owner), name="unsubscribe from resources"
        )
        self._unsubscribe_tasks.add(task)
        task.add_done_callback(self._unsubscribe_tasks.discard)

    async def _unsubscribe_at_servers(self, resources: list[ResourceKey], owner: str) -> None:
        for resource in resources:
            upstream = self._upstreams.get(resource[0])
            if upstream is None:  # the server was removed: forget its subscriptions
                for key in (SHARED, owner):
                    if not self._registry.is_subscribed(resource, key):
                        self._registry.unmark_server_subscribed(resource, key)
                continue
            key = owner if upstream.isolated else SHARED
            async with self._registry.get_lock(resource, key):
                if self._registry.is_subscribed(resource, key):
                    continue
                self._registry.unmark_server_subscribed(resource, key)
                if (connection := upstream.get_connection(key)) is not None:
                    with contextlib.suppress(PorticoError):
                        await connection.request(
                            _UNSUBSCRIBE,
                            {"uri": resource[1]},
                            RequestOptions(timeout=UNSUBSCRIBE_TIMEOUT_S),
                        )


def _has_succeeded(task: "asyncio.Task[None]") -> bool:
    error = task.exception()
    if error is not None and not isinstance(error, PorticoError):
        logger.error("a resource could not be subscribed to", exc_info=error)
    return error is None
