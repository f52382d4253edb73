"""The REST API of a gateway, for the profile that a request may see; made on first use."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Receive, Scope, Send

from portico.auth.authenticator import Authenticator
from portico.auth.console_sessions import ConsoleSessions
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, SESSION_KEY, Caller, Principal
from portico.calls.call import CallContext
from portico.gateway.runtime import GatewayRuntime
from portico.profiles.view import ProfileView
from portico.server.http.app import LazyApp
from portico.server.http.auth import make_problem_refusal
from portico.server.http.spooled_responses import CONNECTION_KEY
from portico.upstream.backend import Raw
from portico.upstream.oauth.server_accounts import make_target

if TYPE_CHECKING:
    from portico.api.event_feed import EventFeed
    from portico.api.gateway_services import (
        ClientInstalling,
        ConfigEditing,
        ConfigReport,
        GatewayServices,
    )
    from portico.upstream.oauth.credential import SignInTarget


MAX_APPS = 16
"""What different callers are shown, of which the application is kept."""


def _open_nothing() -> None:
    return None


class RestApp:
    """The REST API of one gateway.

    It shows a principal what the main endpoint shows it, and a key of certain profiles what the
    first of these does.
    """

    def __init__(
        self,
        gateway: GatewayRuntime,
        get_config: "Callable[[], ConfigReport] | None" = None,
        sessions: ConsoleSessions | None = None,
        open_config_editing: "Callable[[], ConfigEditing | None]" = _open_nothing,
        open_clients: "Callable[[], ClientInstalling | None]" = _open_nothing,
    ) -> None:
        """`get_config` says where the configuration came from, `sessions` are the console's. What
        changes files, of the configuration and of clients, is opened when it is asked for."""
        self._open_clients = open_clients
        self._open_config_editing = open_config_editing
        self._sessions = sessions
        self._gateway = gateway
        self._get_config = get_config
        self._apps: OrderedDict[ProfileView, LazyApp] = OrderedDict()
        """By what is shown; the latest used."""
        self._feed: EventFeed | None = None

    def close(self) -> None:
        """End the streams of events."""
        if self._feed is not None:
            self._feed.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal: Principal = scope.get(PRINCIPAL_KEY, LOCAL_USER)
        profile = ""
        if principal.profiles:
            profiles = self._gateway.config.profiles
            existing = [name for name in principal.profiles if name in profiles]
            if not existing:
                refusal = make_problem_refusal(403, "the profiles of this key are gone", "", {})
                await refusal(scope, receive, send)
                return
            profile = existing[0]
        view = self._gateway.get_view(profile, Caller(profile=profile, principal=principal))
        await view.profile_state.load_snapshot()
        if view not in self._apps:
            self._apps[view] = LazyApp(partial(self._make, view, profile))
            if len(self._apps) > MAX_APPS:
                self._apps.popitem(last=False)
        self._apps.move_to_end(view)
        await self._apps[view](scope, receive, send)

    def _make(self, view: ProfileView, profile: str) -> ASGIApp:
        from portico.api.app import make_api

        return make_api(
            view.profile_state,
            view.search_service,
            self._gateway.store,
            services=self._make_services(view, profile),
        )

    def _make_services(self, view: ProfileView, profile: str) -> "GatewayServices":
        from portico.api.event_feed import EventFeed
        from portico.api.gateway_services import ConfigReport, GatewayServices, RuleServices

        gateway = self._gateway
        if self._feed is None:
            self._feed = EventFeed(gateway.bus, lambda: gateway.usage_data.ledger.total)
        return GatewayServices(
            upstreams=gateway.upstreams,
            get_audit=lambda: gateway.calls.recorder.audit,
            failed_calls=gateway.calls.recorder.failed_calls,
            feed=self._feed,
            run_tool=partial(self._run_tool, view, profile),
            measure_load=lambda: gateway.ensure_monitoring().load.measure(),
            get_listing_costs=lambda: gateway.get_listing_costs(view.snapshot),
            keys=gateway.keys.store,
            reload_keys=lambda: gateway.keys.load(),
            trust=gateway.catalog.trust,
            approvals=gateway.approvals,
            rules=RuleServices(
                lambda: gateway.calls.enforcement.rules,
                lambda name, caller: gateway.get_view(name, caller).snapshot,
            ),
            config_editing=self._open_config_editing(),
            clients=self._open_clients(),
            sign_ins=gateway.servers.sign_ins,
            find_sign_in_target=self._find_sign_in_target,
            get_config=self._get_config or (lambda: ConfigReport(gateway.config)),
            accepts=self._accepts,
            is_behind=is_behind,
        )

    def _accepts(self, scope: Scope) -> bool:
        """Return whether a request that was let in would be let in now."""
        token = self._gateway.config.gateway.token
        text = token.get_secret_value() if token is not None else None
        gateway = self._gateway
        authenticator = Authenticator(
            text, gateway.keys, gateway.verifiers, sessions=self._sessions
        )
        principal: Principal = scope.get(PRINCIPAL_KEY, LOCAL_USER)
        if (session_id := scope.get(SESSION_KEY)) is not None:
            return authenticator.is_session_open(session_id, principal)
        return authenticator.accepts(principal)

    def _find_sign_in_target(self, server: str, person: str) -> "SignInTarget | None":
        settings = self._gateway.config.servers.get(server)
        return None if settings is None else make_target(server, settings, person)

    async def _run_tool(
        self,
        view: ProfileView,
        profile: str,
        tool: str,
        arguments: Any,
        caller: Caller,
        call_id: str,
    ) -> Raw:
        """Run a tool when the gateway admits the call, like a request over MCP."""
        admission = self._gateway.admission
        caller = replace(caller, profile=profile)
        queued_s = await admission.acquire(caller.owner, "place")
        try:
            context = CallContext(caller, queued_s=queued_s, via="rest", call_id=call_id)
            return await view.run_tool(tool, arguments, context)
        finally:
            admission.release(caller.owner, "place")


def is_behind(scope: Scope) -> bool:
    """Return whether a client does not read what was sent to it."""
    connection = scope.get(CONNECTION_KEY)
    return connection is not None and connection.flow.write_paused
