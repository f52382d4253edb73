"""One SDK server per profile, whose requests are answered with raw dicts.

A middleware runs before the SDK's typed handlers and answers every request itself, so that no typed
model comes between an upstream's wire and the client's. The SDK provides transports, handshake,
both eras and cancellation.
"""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, SubscriptionsListenRequestParams, SubscriptionsListenResult
from mcp_types import methods as spec
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from portico import __version__
from portico.access import Caller
from portico.calls.elicitation import MULTI_ROUND_METHODS
from portico.calls.pipeline import CallContext
from portico.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PorticoError,
    RemoteError,
)
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
from portico.profiles.state_handles import add_handle_to_result, create_handle, take_handle
from portico.profiles.view import ProfileSettings, ProfileView
from portico.server.http.large_values import replace_large_members
from portico.server.requests.admission import AdmissionControl, make_ticket
from portico.server.requests.client_relay import ClientRelay
from portico.server.requests.envelope import wrap_result
from portico.server.requests.multi_round import handle_multi_round
from portico.server.requests.pending_requests import PendingRequests
from portico.server.requests.spans import trace_request
from portico.server.requests.wire_json import ensure_encodable
from portico.server.sessions import (
    Session,
    SessionRegistry,
    SubscriptionRegistry,
    compute_identity,
    get_connection,
    get_session,
)
from portico.server.subscriptions import ResourceSubscriptions
from portico.upstream.backend import Era, Raw
from portico.upstream.lifecycle.supervisor import Upstream
from portico.upstream.protocol.envelope import add_log_level, strip_input_responses

logger = logging.getLogger(__name__)

SESSION_CLEANUP_S = 10.0
"""Seconds that the end of a session waits for its instances and pending requests to end."""
SERVER_INFO: Mapping[str, Any] = {"name": "portico", "title": "Portico", "version": __version__}


class ProfileEndpoint:
    """Serves one view over any transport."""

    def __init__(
        self,
        view: ProfileView,
        upstreams: Mapping[str, Upstream],
        bus: EventBus,
        subscription_registry: SubscriptionRegistry,
        admission: AdmissionControl | None = None,
        pending_requests: PendingRequests | None = None,
    ) -> None:
        """`pending_requests` is shared by all endpoints of the gateway."""
        self.view = view
        if pending_requests is None:
            pending_requests = PendingRequests()
        self.pending_requests = pending_requests
        self.admission = admission
        self.sessions = SessionRegistry()
        self._subscriptions = ResourceSubscriptions(
            view, upstreams, self.sessions, subscription_registry
        )
        self._upstreams = upstreams
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
        self.server.middleware[:] = [trace_request, self]
        self.server.get_tool_input_schema = view.get_input_schema

    def apply(self, settings: ProfileSettings) -> None:
        """Apply new settings; if they differ, clients are notified that their lists changed."""
        if settings != self.view.settings:
            self.view.apply(settings)
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
        if ctx.method == "initialize":
            result = self._build_initialize_result(await call_next(ctx))
            # The SDK knows the client's name only from the next request on.
            name = str((ctx.params or {}).get("clientInfo", {}).get("name", ""))
            self.view.publish_shown(
                replace(self._identify_caller(ctx, "legacy"), name=name),
                result.get("instructions"),
            )
            self._register_cleanup(ctx)
            try:
                return ensure_encodable(result, allow_surrogates=ctx.request is None)
            except RemoteError as error:
                raise _to_mcp_error(error) from error
        if ctx.method == "subscriptions/listen":
            try:
                return await call_next(ctx)
            except PorticoError as error:
                raise _to_mcp_error(error, allow_surrogates=ctx.request is None) from error
        if ctx.method == "ping":
            return await call_next(ctx)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            era: Era = "modern"
        else:
            era = "legacy"
        try:
            wrapped = wrap_result(await self._admit(ctx, era), ctx.method, era, self._server_info)
            return await replace_large_members(wrapped, ctx.request and ctx.request.scope, era)
        except PorticoError as error:
            raise _to_mcp_error(error, allow_surrogates=ctx.request is None) from error
        except MCPError:
            raise
        except Exception as error:
            # The SDK would send the text of the exception to the client.
            logger.exception("%s failed", ctx.method)
            raise MCPError(
                INTERNAL_ERROR, f"the gateway failed on {ctx.method}; its log says why"
            ) from error

    async def _admit(self, ctx: ServerRequestContext[Any, Any], era: Era) -> Mapping[str, Any]:
        if self.admission is None:
            return await self._handle_request(ctx, era)
        ticket = make_ticket(
            ctx, self._identify_caller(ctx, era), self.view.settings.enabled_meta_tools
        )
        return await self.admission.run(
            ticket, lambda queued_s: self._handle_request(ctx, era, queued_s)
        )

    async def _handle_request(
        self, ctx: ServerRequestContext[Any, Any], era: Era, waited_s: float = 0.0
    ) -> Mapping[str, Any]:
        handle, params = take_handle(ctx.params or {})
        session = get_session(ctx)
        _validate_request(ctx, era)
        if ctx.method == "server/discover":
            discovered = self._build_discover_result()
            self.view.publish_shown(self._identify_caller(ctx, era), discovered.get("instructions"))
            return discovered
        is_multi_round = ctx.method in MULTI_ROUND_METHODS
        caller = self._identify_caller(ctx, era)
        relay = ClientRelay(
            ctx,
            era,
            session.id,
            session.log_level,
            transparent=self.view.transparent_server is not None,
            elicitation_timeout_s=self.pending_requests.elicitation_timeout_s,
        )

        async def handle_in_view(params: Raw) -> Mapping[str, Any]:
            signed_handle, params = take_handle(params)
            extra = {
                key: value for key, value in params.items() if key not in ("name", "arguments")
            }
            origin = CallContext(
                caller,
                relay,
                extra,
                queued_s=waited_s,
                is_multi_round=is_multi_round and era == "modern",
            )
            state_handle = signed_handle if handle is None else handle
            result = await self._dispatch(ctx.method, state_handle, params, origin, era)
            await relay.flush()
            return result

        if ctx.method in ("resources/subscribe", "resources/unsubscribe"):
            return await self._subscriptions.handle(
                ctx.method, params, session, CallContext(caller, relay, params), era
            )
        if is_multi_round and era == "modern":
            return await handle_multi_round(
                self.pending_requests, ctx, params, caller, relay, handle_in_view
            )
        try:
            forwarded = params
            if is_multi_round:
                # Only the modern era answers elicitations with a request: such fields of a legacy
                # request must not reach a server.
                forwarded = add_log_level(strip_input_responses(params), session.log_level)
            result = await handle_in_view(forwarded)
        finally:
            relay.end()
        if ctx.method == "logging/setLevel":
            session.log_level = params.get("level")
        return result

    async def _dispatch(
        self, method: str, state_handle: Any, params: Raw, origin: CallContext, era: Era
    ) -> Mapping[str, Any]:
        if state_handle is not None:
            origin = replace(
                origin,
                caller=replace(origin.caller, handle=self.view.state_handles.redeem(state_handle)),
            )
        if not origin.caller.state_key and (
            self.view.can_store_values(method, params) or self.view.profile_state.isolated_servers
        ):
            return await self._handle_anonymous(method, params, origin, era)
        return await self.view.handle(method, params, origin, era)

    async def _listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        handle, _ = take_handle(ctx.params or {})
        caller = self._identify_caller(ctx, "modern")
        if handle is not None:
            caller = replace(caller, handle=self.view.state_handles.redeem(handle))
        return await self._subscriptions.listen(ctx, params, CallContext(caller))

    def _identify_caller(self, ctx: ServerRequestContext[Any, Any], era: Era) -> Caller:
        info = ctx.session.client_params
        if info:
            name = info.client_info.name
        else:
            name = ""
        profile = self.view.settings.profile
        if era == "legacy" or ctx.request is None:
            return Caller(get_session(ctx).id, name, profile)
        # A modern request over HTTP has no session. Its token and name decide whose limits it
        # counts against, but give access to no stored state.
        return Caller("", name, profile, compute_identity(ctx, profile, name))

    async def _handle_anonymous(
        self, method: str, params: Raw, origin: CallContext, era: Era
    ) -> Mapping[str, Any]:
        """Handle a client without session or token under a fresh state handle.

        Returns that handle with the result if anything was stored or an isolated instance was
        started, so that the client can reuse it.
        """
        handle = create_handle()
        caller = replace(origin.caller, handle=handle.key)
        try:
            result = await self.view.handle(method, params, replace(origin, caller=caller), era)
        except BaseException:
            # The handle is not returned, so nobody could reuse the instances it started.
            for upstream in self._list_isolated_upstreams():
                upstream.end_session_nowait(handle.key)
            raise
        has_instance = any(
            upstream.has_instance(handle.key) for upstream in self._list_isolated_upstreams()
        )
        if not has_instance and not self.view.has_stored_values(caller):
            return result
        self.view.state_handles.issue(handle, caller.owner)
        meta_tools = self.view.settings.enabled_meta_tools
        is_meta_tool = method == "tools/call" and params.get("name") in meta_tools
        return add_handle_to_result(result, handle, with_text=is_meta_tool)

    def _list_isolated_upstreams(self) -> list[Upstream]:
        return [upstream for upstream in self._upstreams.values() if upstream.isolated]

    async def _handle_notification(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> Any:
        if ctx.method == "notifications/initialized":
            self.sessions.add(get_connection(ctx), get_session(ctx))
        elif ctx.method == "notifications/roots/list_changed" and self.view.transparent_server:
            await self._upstreams[self.view.transparent_server].notify(
                ctx.method, dict(ctx.params or {}), get_session(ctx).id
            )
        return await call_next(ctx)

    def _register_cleanup(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """End the subscriptions and isolated instances of a session with its connection."""
        stack = get_connection(ctx).exit_stack
        session = get_session(ctx)
        self._subscriptions.unsubscribe_on_close(get_connection(ctx), session)
        stack.push_async_callback(self._end_instances, session)

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

    def _build_initialize_result(self, result: Any) -> Raw:
        initialized: Raw = dict(result)
        initialized["capabilities"] = self.view.get_capabilities("legacy")
        initialized["serverInfo"] = self._server_info
        initialized["instructions"] = self.view.render_instructions()
        if not initialized["instructions"]:
            del initialized["instructions"]
        return initialized

    def _build_discover_result(self) -> Raw:
        discovered: Raw = {
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self.view.get_capabilities("modern"),
        }
        if instructions := self.view.render_instructions():
            discovered["instructions"] = instructions
        return discovered

    @property
    def _server_info(self) -> Mapping[str, Any]:
        if self.view.transparent_server:
            info = self.view.snapshot.servers[self.view.transparent_server].initialize_info
            if info and info.server_info:
                return info.server_info
        return SERVER_INFO

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
        elif isinstance(event, ResourceUpdated) and event.server in servers:
            self._subscriptions.notify_updated(event)
        if isinstance(event, StandingsChanged) or getattr(event, "server", None) in servers:
            self.sessions.notify_matching_resources(lambda uri: self.view.is_affected(uri, event))


def _validate_request(ctx: ServerRequestContext[Any, Any], era: Era) -> None:
    """Repeat the checks that the SDK makes before its own handlers. Raises RemoteError."""
    if era == "legacy" and ctx.session.client_params is None:
        raise RemoteError(INVALID_REQUEST, "the first request must be initialize")
    if ctx.method == "tools/call":
        # Without a model: validating large arguments against one costs more than the call.
        params = ctx.params or {}
        if not isinstance(params.get("name"), str) or not isinstance(
            params.get("arguments", {}), dict | None
        ):
            raise RemoteError(INVALID_PARAMS, "tools/call takes a name and an object of arguments")
    elif ctx.method in spec.SPEC_CLIENT_METHODS:
        try:
            spec.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
        except KeyError:
            raise RemoteError(METHOD_NOT_FOUND, "Method not found", ctx.method) from None
        except ValidationError as error:
            raise RemoteError(
                INVALID_PARAMS, f"Invalid params of {ctx.method}: {_describe_first_error(error)}"
            ) from None


def _describe_first_error(error: ValidationError) -> str:
    problem = error.errors(include_input=False, include_url=False)[0]
    return ": ".join(part for part in (".".join(map(str, problem["loc"])), problem["msg"]) if part)


class _ExplicitNull(RootModel[None]):
    """A null that is sent: the SDK omits an error's `data` if it is None."""


_EXPLICIT_NULL = _ExplicitNull(None)


def _to_mcp_error(error: PorticoError, *, allow_surrogates: bool = False) -> MCPError:
    if isinstance(error, RemoteError):
        try:
            message, data = ensure_encodable(
                [error.message, error.data], allow_surrogates=allow_surrogates
            )
        except RemoteError:
            message = ensure_encodable(error.message, allow_surrogates=allow_surrogates)
            data = "what came with this error cannot be passed on"
        if error.has_data and data is None:
            data = _EXPLICIT_NULL
        return MCPError(code=error.code, message=message, data=data)
    details: Raw = {"kind": error.kind, "retryable": error.retryable}
    if error.retry_after_s is not None:
        details["retry_after_s"] = error.retry_after_s
    return MCPError(code=error.code, message=str(error), data=details)
