"""One SDK server per profile, whose requests are answered with raw dicts.

A middleware of the SDK runs before its typed handlers and answers every request itself, so that no
typed model comes between an upstream's wire and the client's. The SDK provides transports,
handshake, both eras and cancellation. Every request passes the middlewares in the list of
`ProfileEndpoint.__init__`, the first of them outermost.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from portico import __version__
from portico.calls.elicitation import MULTI_ROUND_METHODS
from portico.calls.pipeline import CallContext
from portico.calls.server_task import TaskMode, knows_tasks
from portico.errors import INTERNAL_ERROR, PorticoError
from portico.events import (
    CatalogChanged,
    EmbeddingsComputed,
    Event,
    EventBus,
    ListChangeAnnounced,
    ResourceUpdated,
    StandingsChanged,
    UpstreamLost,
    UpstreamReady,
)
from portico.mcp_sdk_internals import get_connection
from portico.observability.tracing import is_disabled
from portico.profiles.state_handles import add_handle_to_result, create_handle, take_handle
from portico.profiles.view import ProfileSettings, ProfileView
from portico.server.admission import AdmissionControl
from portico.server.http.large_values import replace_large_members
from portico.server.pending_requests import PendingRequests
from portico.server.request import (
    Handler,
    Middleware,
    Request,
    compose,
    get_session,
    make_request,
    run_in_span,
    to_legacy_result,
    to_mcp_error,
    to_modern_result,
    validate_request,
)
from portico.server.sessions import Session, SessionRegistry, SubscriptionRegistry
from portico.server.subscriptions import ResourceSubscriptions
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.status import UNUSABLE_STATES
from portico.upstream.lifecycle.supervisor import Upstream
from portico.upstream.protocol.envelope import from_legacy_params
from portico.upstream.protocol.extensions import read_extensions

logger = logging.getLogger(__name__)

SESSION_CLEANUP_S = 10.0
"""Seconds that the end of a session waits for its instances and pending requests to end."""
SERVER_INFO: Mapping[str, Any] = {"name": "portico", "title": "Portico", "version": __version__}
_ROOTS_CHANGED = "notifications/roots/list_changed"
_OWN_LISTS = ("tools", "resources")
_SDK_METHODS = ("initialize", "ping", "subscriptions/listen")
"""Requests that the SDK's own handlers answer."""
_STATELESS_METHODS = ("server/discover", "resources/subscribe", "resources/unsubscribe")


class ProfileEndpoint:
    """Serves one view over any transport."""

    def __init__(
        self,
        view: ProfileView,
        upstreams: Mapping[str, Upstream],
        bus: EventBus,
        subscription_registry: SubscriptionRegistry,
        admission: AdmissionControl,
        pending_requests: PendingRequests,
    ) -> None:
        """`admission` and `pending_requests` are shared by all endpoints of the gateway."""
        self.view = view
        self.pending_requests = pending_requests
        self.sessions = SessionRegistry()
        self._upstreams = upstreams
        self._lost_servers: set[str] = set()
        self._subscriptions = ResourceSubscriptions(
            view, upstreams, self.sessions, subscription_registry
        )
        middlewares: list[Middleware] = [
            self._finish,
            admission.admit,
            validate_request,
            self._run_rounds,
            self._use_state_handle,
        ]
        self._handle = compose(middlewares, self._dispatch)
        self._handlers: Mapping[str, Handler] = {
            "server/discover": self._discover,
            "resources/subscribe": self._subscriptions.subscribe,
            "resources/unsubscribe": self._subscriptions.unsubscribe,
            "logging/setLevel": self._set_level,
        }
        self._unsubscribe = bus.subscribe(
            self._on_event,
            CatalogChanged,
            EmbeddingsComputed,
            ListChangeAnnounced,
            ResourceUpdated,
            UpstreamReady,
            UpstreamLost,
            StandingsChanged,
        )
        self.server: Server[Any] = Server(
            SERVER_INFO["name"],
            version=__version__,
            title=SERVER_INFO["title"],
            on_subscriptions_listen=self._listen,
            lifespan=self._open_session,
        )
        # Replaces the SDK's own middleware, which traces every request even without an exporter.
        self.server.middleware[:] = [self]
        self.server.get_tool_input_schema = view.get_input_schema

    def apply(self, settings: ProfileSettings, *, has_new_rules: bool = False) -> None:
        """Apply new settings; if they or the rules differ, clients are notified that their lists
        changed."""
        is_changed = settings != self.view.settings
        self.view.apply(settings)
        if has_new_rules:
            self._subscriptions.drop_denied()
        if is_changed or has_new_rules:
            self.sessions.notify_list_changed("tools", "resources", "prompts")

    async def close(self) -> None:
        """Unsubscribe from events, and stop notifications."""
        self._unsubscribe()
        await self.sessions.close()
        await self._subscriptions.close()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
        """Answer one message. Raises MCPError."""
        if ctx.request_id is None:
            return await self._handle_notification(ctx, call_next)
        request = make_request(
            ctx, self.view.profile_state, self.pending_requests.elicitation_timeout_s
        )
        handle = self._handle
        if ctx.method in _SDK_METHODS:
            handle = partial(self._handle_by_sdk, call_next=call_next)
        # `subscriptions/listen` ends with its client: a span of hours tells nothing.
        if is_disabled() or ctx.method == "subscriptions/listen":
            return await handle(request)
        return await run_in_span(request, handle)

    # --- middlewares and handlers

    async def _handle_by_sdk(self, request: Request, call_next: CallNext) -> Any:
        try:
            result: Any = await call_next(request.ctx)
            if request.method == "initialize":
                return await self._initialize(request, result)
            return result
        except PorticoError as error:
            raise to_mcp_error(error, allow_surrogates=request.ctx.request is None) from error

    async def _finish(self, request: Request, call_next: Handler) -> Raw:
        """Middleware: bring results into the form of the client's era, and errors into MCP's."""
        http_request = request.ctx.request
        try:
            result = await call_next(request)
            if request.era == "legacy":
                result = to_legacy_result(result, request.method)
            else:
                server_info = _get_server_info(self._select_view(request))
                result = to_modern_result(result, request.method, server_info)
            scope = http_request and http_request.scope
            return await replace_large_members(result, scope, request.era)
        except PorticoError as error:
            raise to_mcp_error(error, allow_surrogates=http_request is None) from error
        except MCPError:
            raise
        except Exception as error:
            # The SDK would send the text of the exception to the client.
            logger.exception("%s failed", request.method)
            raise MCPError(
                INTERNAL_ERROR, f"the gateway failed on {request.method}; its log says why"
            ) from error

    def _dispatch(self, request: Request) -> Awaitable[Mapping[str, Any]]:
        if (handler := self._handlers.get(request.method)) is not None:
            return handler(request)
        params = request.params
        extra = {key: value for key, value in params.items() if key not in ("name", "arguments")}
        context = CallContext(
            request.caller,
            request.relay,
            extra,
            request.queued_s,
            is_multi_round=request.is_multi_round,
            task_mode=self._select_task_mode(request),
        )
        return self._select_view(request).handle(request.method, params, context, request.era)

    def _select_task_mode(self, request: Request) -> TaskMode:
        """Return what a client gets where a server makes a task of its call."""
        if request.era == "legacy":
            return "await"
        if knows_tasks(request.params):
            return "return"
        # What a modern client does not declare, the server of a transparent view gets to know.
        return "none" if self.view.transparent_server else "await"

    def _select_view(self, request: Request) -> ProfileView:
        """Return what the maker of a request sees of the profile."""
        return self.view.select_for(request.caller)

    async def _run_rounds(self, request: Request, call_next: Handler) -> Mapping[str, Any]:
        """Middleware: let a modern client answer elicitations by further requests."""
        if request.is_multi_round:
            return await self.pending_requests.run_rounds(request, call_next)
        if request.method in MULTI_ROUND_METHODS:
            request.params = from_legacy_params(request.params, request.session.log_level)
        try:
            result = await call_next(request)
            if request.relay.has_notified:
                await request.relay.flush()
            return result
        finally:
            request.relay.is_ended = True

    def _use_state_handle(
        self, request: Request, call_next: Handler
    ) -> Awaitable[Mapping[str, Any]]:
        """Middleware: give a client without a session access to what it stored, and to no other
        state. Raises UnknownName for a handle that was not issued here."""
        handle = None
        if "_meta" in request.params:
            handle, request.params = take_handle(request.params)
        if request.method in _STATELESS_METHODS:
            return call_next(request)
        if handle is not None:
            key = self.view.state_handles.redeem(handle, request.caller.principal.id)
            request.caller = replace(request.caller, handle=key)
        if not request.caller.state_key and (
            self.view.can_store_values(request.method, request.params)
            or self.view.profile_state.isolated_servers
        ):
            return self._run_anonymous(request, call_next)
        return call_next(request)

    async def _run_anonymous(self, request: Request, call_next: Handler) -> Mapping[str, Any]:
        """Handle a client without session or token under a fresh state handle.

        Returns that handle with the result if anything was stored or an isolated instance was
        started, so that the client can reuse it.
        """
        handle = create_handle(request.caller.principal.id)
        request.caller = replace(request.caller, handle=handle.key)
        try:
            result = await call_next(request)
        except BaseException:
            # The handle is not returned, so nobody could reuse the instances it started.
            for upstream in self._list_isolated_upstreams():
                upstream.end_session_nowait(handle.key)
            raise
        has_instance = any(
            upstream.has_instance(handle.key) for upstream in self._list_isolated_upstreams()
        )
        if not has_instance and not self.view.has_stored_values(request.caller):
            return result
        self.view.state_handles.issue(handle, request.caller.owner)
        is_meta_tool = (
            request.method == "tools/call"
            and request.params.get("name") in request.settings.enabled_meta_tools
        )
        return add_handle_to_result(result, handle, with_text=is_meta_tool)

    def _list_isolated_upstreams(self) -> list[Upstream]:
        """Return the servers that run one instance for each client."""
        upstreams = self._upstreams.values()
        return [one for one in upstreams if one.isolated and not one.personal]

    async def _initialize(self, request: Request, result: Any) -> Raw:
        initialized: Raw = dict(result)
        view = self._select_view(request)
        extensions = read_extensions(request.params.get("capabilities"))
        initialized["capabilities"] = view.get_capabilities("legacy", extensions)
        initialized["serverInfo"] = _get_server_info(view)
        initialized["instructions"] = view.render_instructions()
        if not initialized["instructions"]:
            del initialized["instructions"]
        self.view.profile_state.publish_shown(request.caller, initialized.get("instructions"))
        self._register_cleanup(request)
        http_request = request.ctx.request
        return await replace_large_members(
            initialized, http_request and http_request.scope, "legacy"
        )

    async def _discover(self, request: Request) -> Raw:
        view = self._select_view(request)
        discovered: Raw = {
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": view.get_capabilities("modern", request.relay.extensions),
        }
        if instructions := view.render_instructions():
            discovered["instructions"] = instructions
        self.view.profile_state.publish_shown(request.caller, instructions)
        return discovered

    async def _set_level(self, request: Request) -> Raw:
        context = CallContext(request.caller, request.relay)
        view = self._select_view(request)
        result = await view.handle(request.method, request.params, context, request.era)
        request.session.log_level = request.params.get("level")
        return result

    async def _listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        request = make_request(ctx, self.view.profile_state, elicitation_timeout_s=0.0)
        handle, _ = take_handle(request.params)
        caller = request.caller
        if handle is not None:
            caller = replace(
                caller, handle=self.view.state_handles.redeem(handle, caller.principal.id)
            )
        return await self._subscriptions.listen(ctx, params, CallContext(caller))

    # --- sessions and notifications

    async def _handle_notification(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> Any:
        if ctx.method == "notifications/initialized":
            self.sessions.add(get_connection(ctx), get_session(ctx))
        elif ctx.method == _ROOTS_CHANGED and self.view.transparent_server:
            request = make_request(ctx, self.view.profile_state, elicitation_timeout_s=0.0)
            if server := self._select_view(request).transparent_server:
                upstream = self._upstreams[server]
                await upstream.notify(_ROOTS_CHANGED, request.params, request.session.id)
        return await call_next(ctx)

    def _register_cleanup(self, request: Request) -> None:
        """End the subscriptions and isolated instances of a session with its connection."""
        connection = get_connection(request.ctx)
        self._subscriptions.unsubscribe_on_close(connection, request.session)
        connection.exit_stack.push_async_callback(self._end_instances, request.session)

    async def _end_instances(self, session: Session) -> None:
        # Looked up at the end: a server may have been replaced since the session began.
        for upstream in self._list_isolated_upstreams():
            await upstream.end_session(session.id)

    @asynccontextmanager
    async def _open_session(self, _: Server[Any]) -> AsyncGenerator[Session]:
        """Open the session of one client over a pipe; over HTTP, where it is unused, one for
        all."""
        session = Session()
        try:
            yield session
        finally:
            with anyio.move_on_after(SESSION_CLEANUP_S, shield=True):
                await self.pending_requests.cancel_owner(session.id)
                await self._end_instances(session)

    def _notify_availability(self, server: str) -> None:
        """Notify clients that a listed server can no longer be used, or can be again."""
        is_lost = self._upstreams[server].state in UNUSABLE_STATES
        is_shown = self.view.snapshot.servers[server].is_listed and not self.view.transparent_server
        if is_shown and is_lost != (server in self._lost_servers):
            self._lost_servers ^= {server}
            # A list of every tool stays as it was, and is too long to be fetched for nothing.
            kinds = ("resources",) if self.view.settings.exposure == "full" else _OWN_LISTS
            self.sessions.notify_list_changed(*kinds)

    def _on_event(self, event: Event) -> None:
        servers = self.view.snapshot.servers
        if isinstance(event, CatalogChanged) and self.view.settings.scope.can_see_server(
            event.server
        ):
            self.sessions.notify_list_changed(*self.view.find_changed_lists(event))
        elif isinstance(event, EmbeddingsComputed) and self.view.has_changed_tool_list():
            self.sessions.notify_list_changed("tools")
        elif (
            isinstance(event, ListChangeAnnounced) and event.server == self.view.transparent_server
        ):
            # A transparent profile passes the announcement on even if no change was found.
            self.sessions.notify_list_changed(event.kind)
        elif isinstance(event, UpstreamLost | UpstreamReady) and event.server in servers:
            self._notify_availability(event.server)
        elif isinstance(event, ResourceUpdated) and event.server in servers:
            self._subscriptions.notify_updated(event)
        if isinstance(event, StandingsChanged) or getattr(event, "server", None) in servers:
            self.sessions.notify_matching_resources(lambda uri: self.view.is_affected(uri, event))


def _get_server_info(view: ProfileView) -> Mapping[str, Any]:
    if view.transparent_server:
        info = view.snapshot.servers[view.transparent_server].initialize_info
        if info and info.server_info:
            return info.server_info
    return SERVER_INFO
