"""One SDK server per view, answered raw.

A middleware stands before the SDK's typed handlers and answers every request itself, so that no
typed model comes between an upstream's wire and the client's. The SDK keeps what it is good at:
transports, handshake, both eras, cancellation.
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
"""How long the end of a conversation waits for what was its own to end."""
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
        """`parking` is shared with the gateway's other doors."""
        self.view = view
        if pending_requests is not None:
            self.pending_requests = pending_requests
        else:
            self.pending_requests = PendingRequests()
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
        # In place of the SDK's own, which traces every request whether anybody listens or not.
        self.server.middleware[:] = [trace_request, self]
        self.server.get_tool_input_schema = view.get_input_schema

    def apply(self, settings: ProfileSettings) -> None:
        """Show another face from now on; clients whose lists are others then are told."""
        if settings != self.view.settings:
            self.view.apply(settings)
            self.sessions.notify_list_changed("tools", "resources", "prompts")

    async def close(self) -> None:
        """Stop hearing and telling."""
        self._unsubscribe()
        await self.sessions.close()
        await self._subscriptions.close()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
        """Answer one message."""
        if ctx.request_id is None:
            return await self._handle_notification(ctx, call_next)
        if ctx.method == "initialize":
            introduced = self._build_initialize_result(await call_next(ctx))
            # Who it is, the SDK knows only with the next request.
            named = str((ctx.params or {}).get("clientInfo", {}).get("name", ""))
            self.view.publish_shown(
                replace(self._identify_caller(ctx, "legacy"), name=named),
                introduced.get("instructions"),
            )
            self._register_cleanup(ctx)
            try:
                return ensure_encodable(introduced, allow_surrogates=ctx.request is None)
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
            finished = wrap_result(await self._admit(ctx, era), ctx.method, era, self._server_info)
            return await replace_large_members(finished, ctx.request and ctx.request.scope, era)
        except PorticoError as error:
            raise _to_mcp_error(error, allow_surrogates=ctx.request is None) from error
        except MCPError:
            raise
        except Exception as error:
            # The SDK would put the text of whatever went wrong on the wire.
            logger.exception("%s failed", ctx.method)
            raise MCPError(
                INTERNAL_ERROR, f"the gateway failed on {ctx.method}; its log says why"
            ) from error

    async def _admit(self, ctx: ServerRequestContext[Any, Any], era: Era) -> Mapping[str, Any]:
        if self.admission is None:
            return await self._handle_request(ctx, era)
        request = make_ticket(
            ctx, self._identify_caller(ctx, era), self.view.settings.enabled_meta_tools
        )
        return await self.admission.run(
            request, lambda waited: self._handle_request(ctx, era, waited)
        )

    async def _handle_request(
        self, ctx: ServerRequestContext[Any, Any], era: Era, waited_s: float = 0.0
    ) -> Mapping[str, Any]:
        given, params = take_handle(ctx.params or {})
        session = get_session(ctx)
        _validate_request(ctx, era)
        if ctx.method == "server/discover":
            found = self._build_discover_result()
            self.view.publish_shown(self._identify_caller(ctx, era), found.get("instructions"))
            return found
        rounds = ctx.method in MULTI_ROUND_METHODS
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
            sealed, params = take_handle(params)
            extra = {
                key: value for key, value in params.items() if key not in ("name", "arguments")
            }
            origin = CallContext(
                caller, relay, extra, queued_s=waited_s, is_multi_round=rounds and era == "modern"
            )
            result = await self._dispatch(
                ctx.method, sealed if given is None else given, params, origin, era
            )
            await relay.flush()
            return result

        if ctx.method in ("resources/subscribe", "resources/unsubscribe"):
            return await self._subscriptions.handle(
                ctx.method, params, session, CallContext(caller, relay, params), era
            )
        if rounds and era == "modern":
            return await handle_multi_round(
                self.pending_requests, ctx, params, caller, relay, handle_in_view
            )
        try:
            # Only the modern era answers questions with a request: of another, no server may see
            # what looks like it.
            result = await handle_in_view(
                add_log_level(strip_input_responses(params), session.log_level)
                if rounds
                else params
            )
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
        given, _ = take_handle(ctx.params or {})
        caller = self._identify_caller(ctx, "modern")
        if given is not None:
            caller = replace(caller, handle=self.view.state_handles.redeem(given))
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
        # Over HTTP a modern request stands alone. Its token and name say whom it counts for, not
        # whose anything is.
        return Caller("", name, profile, compute_identity(ctx, profile, name))

    async def _handle_anonymous(
        self, method: str, params: Raw, origin: CallContext, era: Era
    ) -> Mapping[str, Any]:
        """Answer who cannot be told from others: what it begins is its own, and it is told how to
        come back to it."""
        handle = create_handle()
        caller = replace(origin.caller, handle=handle.key)
        try:
            result = await self.view.handle(method, params, replace(origin, caller=caller), era)
        except BaseException:
            # It is not told its handle: nobody can come back to what it began.
            for upstream in self._list_isolated_upstreams():
                upstream.end_session_nowait(handle.key)
            raise
        begun = any(
            upstream.has_instance(handle.key) for upstream in self._list_isolated_upstreams()
        )
        if not begun and not self.view.has_stored_values(caller):
            return result
        self.view.state_handles.issue(handle, caller.owner)
        return add_handle_to_result(
            result,
            handle,
            with_text=method == "tools/call"
            and params.get("name") in self.view.settings.enabled_meta_tools,
        )

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
        """When the client has gone, so has what was its own."""
        stack = get_connection(ctx).exit_stack
        session = get_session(ctx)
        self._subscriptions.unsubscribe_on_close(get_connection(ctx), session)
        stack.push_async_callback(self._end_instances, session)

    async def _end_instances(self, session: Session) -> None:
        # Asked for at the end: a server may have been replaced since the client came.
        for upstream in self._list_isolated_upstreams():
            await upstream.end_session(session.id)

    @asynccontextmanager
    async def _open_session(self, _: Server[Any]) -> AsyncGenerator[Session]:
        """One client over a pipe, from its first word to its last; over HTTP all together, who have
        no session here."""
        session = Session()
        try:
            yield session
        finally:
            with anyio.move_on_after(SESSION_CLEANUP_S, shield=True):
                await self.pending_requests.cancel_owner(session.id)
                await self._end_instances(session)

    def _build_initialize_result(self, result: Any) -> Raw:
        introduced: Raw = dict(result)
        introduced["capabilities"] = self.view.get_capabilities("legacy")
        introduced["serverInfo"] = self._server_info
        introduced["instructions"] = self.view.render_instructions()
        if not introduced["instructions"]:
            del introduced["instructions"]
        return introduced

    def _build_discover_result(self) -> Raw:
        found: Raw = {
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self.view.get_capabilities("modern"),
        }
        if instructions := self.view.render_instructions():
            found["instructions"] = instructions
        return found

    @property
    def _server_info(self) -> Mapping[str, Any]:
        if self.view.transparent_server:
            hello = self.view.snapshot.servers[self.view.transparent_server].initialize_info
        else:
            hello = None
        if hello and hello.server_info:
            return hello.server_info
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
            # Whoever looks through us hears what the server says, even if we found nothing new.
            self.sessions.notify_list_changed(event.kind)
        elif isinstance(event, ResourceUpdated) and event.server in servers:
            self._subscriptions.notify_updated(event)
        if isinstance(event, StandingsChanged) or getattr(event, "server", None) in servers:
            self.sessions.notify_matching_resources(lambda uri: self.view.is_affected(uri, event))


def _validate_request(ctx: ServerRequestContext[Any, Any], era: Era) -> None:
    """What the SDK would have checked before its handlers."""
    if era == "legacy" and ctx.session.client_params is None:
        raise RemoteError(INVALID_REQUEST, "the first request must be initialize")
    if ctx.method == "tools/call":
        # By hand: validating a large arguments object against a model costs more than the call.
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
    """A null that stays: the SDK takes an error's `data` of None for one that has none."""


_EXPLICIT_NULL = _ExplicitNull(None)


def _to_mcp_error(error: PorticoError, *, allow_surrogates: bool = False) -> MCPError:
    if isinstance(error, RemoteError):
        try:
            message, given = ensure_encodable(
                [error.message, error.data], allow_surrogates=allow_surrogates
            )
        except RemoteError:
            message = ensure_encodable(error.message, allow_surrogates=allow_surrogates)
            given = "what came with this error cannot be passed on"
        if error.has_data and given is None:
            data = _EXPLICIT_NULL
        else:
            data = given
        return MCPError(code=error.code, message=message, data=data)
    told: Raw = {"kind": error.kind, "retryable": error.retryable}
    if error.retry_after_s is not None:
        told["retry_after_s"] = error.retry_after_s
    return MCPError(code=error.code, message=str(error), data=told)
