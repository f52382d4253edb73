"""One SDK server per view, answered raw.

A middleware stands before the SDK's typed handlers and answers every request itself, so that no typed model comes
between an upstream's wire and the client's. The SDK keeps what it is good at: transports, handshake, both eras,
cancellation.
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
from portico.disclosure.own_state import brought, new_handle, told
from portico.disclosure.view import Face, View
from portico.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PorticoError, RemoteError
from portico.events import (
    Bus,
    CatalogChanged,
    Event,
    ListAnnounced,
    MeaningsKnown,
    ResourceUpdated,
    StandingsChanged,
    UpstreamLost,
    UpstreamReady,
)
from portico.execution.call import Origin
from portico.execution.questions import IN_ROUNDS
from portico.server.admission import Admission, visit
from portico.server.envelope import finish
from portico.server.large_text import shorten
from portico.server.parked import Parking
from portico.server.passable import passable
from portico.server.relay import ClientRelay
from portico.server.rounds import in_rounds
from portico.server.sessions import (
    Session,
    Sessions,
    Watchers,
    connection_of,
    identity_of,
    session_of,
)
from portico.server.spans import traced
from portico.server.watching import Watching
from portico.upstream.backend import Era, Raw
from portico.upstream.envelope import wanting_log, without_answers
from portico.upstream.supervisor import Upstream

logger = logging.getLogger(__name__)

FAREWELL_S = 10.0
"""How long the end of a conversation waits for what was its own to end."""
SERVER_INFO: Mapping[str, Any] = {"name": "portico", "title": "Portico", "version": __version__}


class Door:
    """Serves one view over any transport."""

    def __init__(
        self,
        view: View,
        upstreams: Mapping[str, Upstream],
        bus: Bus,
        watchers: Watchers,
        admission: Admission | None = None,
        parking: Parking | None = None,
    ) -> None:
        """`parking` is shared with the gateway's other doors."""
        self.view = view
        self.parking = parking if parking is not None else Parking()
        self.admission = admission
        self.sessions = Sessions()
        self._watching = Watching(view, upstreams, self.sessions, watchers)
        self._upstreams = upstreams
        self._forget = bus.subscribe(
            self._heard,
            CatalogChanged,
            MeaningsKnown,
            ListAnnounced,
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
            lifespan=self._conversation,
        )
        # In place of the SDK's own, which traces every request whether anybody listens or not.
        self.server.middleware[:] = [traced, self]
        self.server.get_tool_input_schema = view.input_schema

    def wear(self, face: Face) -> None:
        """Show another face from now on; clients whose lists are others then are told."""
        if face != self.view.face:
            self.view.wear(face)
            self.sessions.changed("tools", "resources", "prompts")

    async def close(self) -> None:
        """Stop hearing and telling."""
        self._forget()
        await self.sessions.close()
        await self._watching.close()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
        """Answer one message."""
        if ctx.request_id is None:
            return await self._notified(ctx, call_next)
        if ctx.method == "initialize":
            introduced = self._introduced(await call_next(ctx))
            # Who it is, the SDK knows only with the next request.
            named = str((ctx.params or {}).get("clientInfo", {}).get("name", ""))
            self.view.tell(replace(self._caller(ctx, "legacy"), name=named), introduced.get("instructions"))
            self._clear_up_after(ctx)
            try:
                return passable(introduced, escaped=ctx.request is None)
            except RemoteError as error:
                raise _on_the_wire(error) from error
        if ctx.method == "subscriptions/listen":
            try:
                return await call_next(ctx)
            except PorticoError as error:
                raise _on_the_wire(error, escaped=ctx.request is None) from error
        if ctx.method == "ping":
            return await call_next(ctx)
        era: Era = "modern" if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"
        try:
            finished = finish(await self._admitted(ctx, era), ctx.method, era, self._server_info)
            return await shorten(finished, ctx.request and ctx.request.scope, era)
        except PorticoError as error:
            raise _on_the_wire(error, escaped=ctx.request is None) from error
        except MCPError:
            raise
        except Exception as error:
            # The SDK would put the text of whatever went wrong on the wire.
            logger.exception("%s failed", ctx.method)
            raise MCPError(INTERNAL_ERROR, f"the gateway failed on {ctx.method}; its log says why") from error

    async def _admitted(self, ctx: ServerRequestContext[Any, Any], era: Era) -> Mapping[str, Any]:
        if self.admission is None:
            return await self._answer(ctx, era)
        request = visit(ctx, self._caller(ctx, era), self.view.face.enabled)
        return await self.admission.answered(request, lambda waited: self._answer(ctx, era, waited))

    async def _answer(self, ctx: ServerRequestContext[Any, Any], era: Era, waited: float = 0.0) -> Mapping[str, Any]:
        given, params = brought(ctx.params or {})
        session = session_of(ctx)
        _well_formed(ctx, era)
        if ctx.method == "server/discover":
            found = self._discovered()
            self.view.tell(self._caller(ctx, era), found.get("instructions"))
            return found
        rounds, caller = ctx.method in IN_ROUNDS, self._caller(ctx, era)
        relay = ClientRelay(
            ctx,
            era,
            session.id,
            session.log_level,
            transparent=self.view.sole is not None,
            question_s=self.parking.question_s,
        )

        async def work(params: Raw) -> Mapping[str, Any]:
            sealed, params = brought(params)
            extra = {key: value for key, value in params.items() if key not in ("name", "arguments")}
            origin = Origin(caller, relay, extra, waited=waited, in_rounds=rounds and era == "modern")
            result = await self._handled(ctx.method, sealed if given is None else given, params, origin, era)
            await relay.flush()
            return result

        if ctx.method in ("resources/subscribe", "resources/unsubscribe"):
            return await self._watching.asked(ctx.method, params, session, Origin(caller, relay, params), era)
        if rounds and era == "modern":
            return await in_rounds(self.parking, ctx, params, caller, relay, work)
        try:
            # Only the modern era answers questions with a request: of another, no server may see what looks like it.
            result = await work(wanting_log(without_answers(params), session.log_level) if rounds else params)
        finally:
            relay.end()
        if ctx.method == "logging/setLevel":
            session.log_level = params.get("level")
        return result

    async def _handled(self, method: str, given: Any, params: Raw, origin: Origin, era: Era) -> Mapping[str, Any]:
        if given is not None:
            origin = replace(origin, caller=replace(origin.caller, handle=self.view.state.redeem(given)))
        if not origin.caller.state and (self.view.stores(method, params) or self.view.sight.isolated):
            return await self._by_a_stranger(method, params, origin, era)
        return await self.view.handle(method, params, origin, era)

    async def _listen(
        self, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        given, _ = brought(ctx.params or {})
        caller = self._caller(ctx, "modern")
        if given is not None:
            caller = replace(caller, handle=self.view.state.redeem(given))
        return await self._watching.listen(ctx, params, Origin(caller))

    def _caller(self, ctx: ServerRequestContext[Any, Any], era: Era) -> Caller:
        info = ctx.session.client_params
        name, profile = info.client_info.name if info else "", self.view.face.profile
        if era == "legacy" or ctx.request is None:
            return Caller(session_of(ctx).id, name, profile)
        # Over HTTP a modern request stands alone. Its token and name say whom it counts for, not whose anything is.
        return Caller("", name, profile, identity_of(ctx, profile, name))

    async def _by_a_stranger(self, method: str, params: Raw, origin: Origin, era: Era) -> Mapping[str, Any]:
        """Answer who cannot be told from others: what it begins is its own, and it is told how to come back to it."""
        handle = new_handle()
        caller = replace(origin.caller, handle=handle.key)
        try:
            result = await self.view.handle(method, params, replace(origin, caller=caller), era)
        except BaseException:
            # It is not told its handle: nobody can come back to what it began.
            for upstream in self._isolated():
                upstream.let_go(handle.key)
            raise
        begun = any(upstream.has(handle.key) for upstream in self._isolated())
        if not begun and not self.view.has_stored(caller):
            return result
        self.view.state.issue(handle, caller.owner)
        return told(result, handle, in_words=method == "tools/call" and params.get("name") in self.view.face.enabled)

    def _isolated(self) -> list[Upstream]:
        return [upstream for upstream in self._upstreams.values() if upstream.isolated]

    async def _notified(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
        if ctx.method == "notifications/initialized":
            self.sessions.add(connection_of(ctx), session_of(ctx))
        elif ctx.method == "notifications/roots/list_changed" and self.view.sole:
            await self._upstreams[self.view.sole].notify(ctx.method, dict(ctx.params or {}), session_of(ctx).id)
        return await call_next(ctx)

    def _clear_up_after(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """When the client has gone, so has what was its own."""
        stack, session = connection_of(ctx).exit_stack, session_of(ctx)
        self._watching.end_with(connection_of(ctx), session)
        stack.push_async_callback(self._end_instances, session)

    async def _end_instances(self, session: Session) -> None:
        # Asked for at the end: a server may have been replaced since the client came.
        for upstream in self._isolated():
            await upstream.end_session(session.id)

    @asynccontextmanager
    async def _conversation(self, _: Server[Any]) -> AsyncGenerator[Session]:
        """One client over a pipe, from its first word to its last; over HTTP all together, who have no session here."""
        session = Session()
        try:
            yield session
        finally:
            with anyio.move_on_after(FAREWELL_S, shield=True):
                await self.parking.forget(session.id)
                await self._end_instances(session)

    def _introduced(self, result: Any) -> Raw:
        introduced: Raw = dict(result)
        introduced["capabilities"] = self.view.capabilities("legacy")
        introduced["serverInfo"] = self._server_info
        introduced["instructions"] = self.view.instructions()
        if not introduced["instructions"]:
            del introduced["instructions"]
        return introduced

    def _discovered(self) -> Raw:
        found: Raw = {
            "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
            "capabilities": self.view.capabilities("modern"),
        }
        if instructions := self.view.instructions():
            found["instructions"] = instructions
        return found

    @property
    def _server_info(self) -> Mapping[str, Any]:
        hello = self.view.snapshot.servers[self.view.sole].hello if self.view.sole else None
        return hello.server_info if hello and hello.server_info else SERVER_INFO

    def _heard(self, event: Event) -> None:
        servers = self.view.snapshot.servers
        if isinstance(event, CatalogChanged) and self.view.face.scope.sees_server(event.server):
            self.sessions.changed(*self.view.changed_lists(event))
        elif isinstance(event, MeaningsKnown) and self.view.reconsidered():
            self.sessions.changed("tools")
        elif isinstance(event, ListAnnounced) and event.server == self.view.sole:
            # Whoever looks through us hears what the server says, even if we found nothing new.
            self.sessions.changed(event.kind)
        elif isinstance(event, ResourceUpdated) and event.server in servers:
            self._watching.updated(event)
        if isinstance(event, StandingsChanged) or getattr(event, "server", None) in servers:
            self.sessions.touched(lambda uri: self.view.touched(uri, event))


def _well_formed(ctx: ServerRequestContext[Any, Any], era: Era) -> None:
    """What the SDK would have checked before its handlers."""
    if era == "legacy" and ctx.session.client_params is None:
        raise RemoteError(INVALID_REQUEST, "the first request must be initialize")
    if ctx.method == "tools/call":
        # By hand: validating a large arguments object against a model costs more than the call.
        params = ctx.params or {}
        if not isinstance(params.get("name"), str) or not isinstance(params.get("arguments", {}), dict | None):
            raise RemoteError(INVALID_PARAMS, "tools/call takes a name and an object of arguments")
    elif ctx.method in spec.SPEC_CLIENT_METHODS:
        try:
            spec.validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
        except KeyError:
            raise RemoteError(METHOD_NOT_FOUND, "Method not found", ctx.method) from None
        except ValidationError as error:
            raise RemoteError(INVALID_PARAMS, f"Invalid params of {ctx.method}: {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_input=False, include_url=False)[0]
    return ": ".join(part for part in (".".join(map(str, problem["loc"])), problem["msg"]) if part)


class _Null(RootModel[None]):
    """A null that stays: the SDK takes an error's `data` of None for one that has none."""


_NULL = _Null(None)


def _on_the_wire(error: PorticoError, *, escaped: bool = False) -> MCPError:
    if isinstance(error, RemoteError):
        try:
            message, given = passable([error.message, error.data], escaped=escaped)
        except RemoteError:
            message, given = passable(error.message, escaped=escaped), "what came with this error cannot be passed on"
        data = _NULL if error.has_data and given is None else given
        return MCPError(code=error.code, message=message, data=data)
    told: Raw = {"kind": error.kind, "retryable": error.retryable}
    if error.retry_after_s is not None:
        told["retry_after_s"] = error.retry_after_s
    return MCPError(code=error.code, message=str(error), data=told)
