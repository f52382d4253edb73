"""The ASGI application: `/mcp` for the default profile, `/mcp/p/{profile}` for each profile (both
eras on each), `/api`, the registry at `/v0.1`, and the console.

Listens on loopback by default. Host and Origin are checked on every request, so that no web page
can reach a gateway on localhost; any other address needs a bearer token that is not easy to guess.
Unread responses are spooled to disk.
"""

import asyncio
import ipaddress
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.auth import permissions
from portico.auth.authenticator import Authenticator, KeyRing
from portico.auth.console_sessions import ConsoleSessions
from portico.auth.token_verifier import TokenVerifier
from portico.callers import Principal
from portico.config.limits import LimitsConfig
from portico.errors import ConfigError
from portico.events import TokensRefused
from portico.observability.metrics import Metrics
from portico.server.http.auth import (
    BearerAuthMiddleware,
    CallerQuota,
    make_problem_refusal,
)
from portico.server.http.auth_failures import AuthFailureLimiter
from portico.server.http.body_limit import BodyLimitMiddleware
from portico.server.http.console_sign_in import SESSION_PATH, ConsoleSignIn
from portico.server.http.endpoints import HttpEndpoints
from portico.server.http.monitoring import GatewayHealth, monitoring_routes
from portico.server.http.origins import (
    HostOriginMiddleware,
    PrefixRoute,
    SameOriginMiddleware,
)
from portico.server.http.resource_metadata import ResourceMetadata
from portico.server.http.slow_clients import (
    ConnectionLimits,
    compute_max_connections,
    make_protocol_class,
)
from portico.server.http.spooled_responses import MAX_SPOOL_BYTES, ResponseSpool, SpoolMiddleware
from portico.server.profile_endpoint import ProfileEndpoint

if TYPE_CHECKING:
    from portico.auth.proxy.authorization_server import AuthorizationServer
    from portico.server.http.server_sign_in import ServerSignIns

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_IN_FLIGHT = 1_664
SPARE_REQUESTS = 128
"""HTTP requests beyond those that run or wait in a queue: lists, searches, and bodies being read.

As many are reserved for other callers when one caller has reached its limit."""
MIN_TOKEN_CHARS = 16
MIN_TOKEN_BITS = 56
"""Minimum estimated entropy of a token where the gateway listens beyond this machine."""
STREAM_GRACE_S = 1
"""Seconds that streams may stay open at shutdown; calls in flight have been drained before."""


class LazyApp:
    """Builds an application once; requests that arrive meanwhile wait for it."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        """`make` runs in a thread, because it may import much; if it fails, the next request
        retries."""
        self._make = make
        self._app: ASGIApp | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            async with self._lock:
                if self._app is None:
                    self._app = await asyncio.to_thread(self._make)
        await self._app(scope, receive, send)


def check_exposure(host: str, token: str | None, *, has_others: bool = False) -> None:
    """Raise ConfigError for an empty token, or for a missing or weak one beyond this machine.

    Where there are other credentials (`portico keys`, `auth`), no token is needed.
    """
    if token is not None and not token.strip():
        raise ConfigError(
            "gateway.token is empty",
            advice="Give it a value, or leave it out to serve this machine only.",
            key="gateway.token",
        )
    if token is None and not has_others and not is_loopback(host):
        raise ConfigError(
            f"listening on {host} would let anyone on the network run your tools",
            advice=(
                "Make a key (`portico keys add NAME`), set gateway.token (or PORTICO_TOKEN) or "
                "auth, or listen on 127.0.0.1."
            ),
        )
    if token is not None and not is_loopback(host) and is_weak_token(token):
        raise ConfigError(
            f"the token is too easy to guess for listening on {host}",
            advice=(
                f"Make one of {MIN_TOKEN_CHARS} characters or more: "
                "export PORTICO_TOKEN=$(openssl rand -hex 32)"
            ),
            key="gateway.token",
        )


def is_weak_token(token: str) -> bool:
    """Return whether a token is short, or has so few different characters that it could be
    guessed."""
    size = len(token.strip())
    if size < MIN_TOKEN_CHARS:
        return True
    bits = -sum(count * math.log2(count / size) for count in Counter(token.strip()).values())
    return bits < MIN_TOKEN_BITS


def is_loopback(host: str) -> bool:
    """Return whether an address stays on this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def compute_max_in_flight(limits: LimitsConfig) -> int:
    """Return the maximum number of HTTP requests; more could not even be queued."""
    return limits.requests + limits.waiting + SPARE_REQUESTS


def make_app(
    endpoints: Mapping[str, ProfileEndpoint],
    *,
    token: str | None = None,
    keys: KeyRing | None = None,
    verifiers: Sequence[TokenVerifier] = (),
    public_url: str | None = None,
    authorization_server: "AuthorizationServer | None" = None,
    server_sign_ins: "ServerSignIns | None" = None,
    allowed_hosts: tuple[str, ...] = (),
    allowed_origins: tuple[str, ...] = (),
    max_request_bytes: int = 4 * 2**20,
    max_request_values: int = 25_000,
    api: ASGIApp | None = None,
    console: ASGIApp | None = None,
    sessions: ConsoleSessions | None = None,
    max_in_flight: int = MAX_IN_FLIGHT,
    spool_bytes: int = MAX_SPOOL_BYTES,
    spool_folder: Path | None = None,
    metrics: Callable[[], Metrics] | None = None,
    health: Callable[[], GatewayHealth] | None = None,
    publish: Callable[[TokensRefused], None] | None = None,
    on_verified: Callable[[Principal, str], None] | None = None,
) -> Starlette:
    """Build the ASGI application over these endpoints; the empty name is the default profile.

    `token`, `keys` and tokens of the `verifiers` are the credentials that are accepted; without
    any, none is required. Clients know the gateway by `public_url`, and get tokens at its
    `authorization_server`. They sign in to servers on pages of `server_sign_ins`. `api` is served
    under `/api`, `console` under `/console`, whose users have `sessions`. `publish` receives
    reports of wrong tokens, `on_verified` each token that a verifier accepted. `state` of the
    application has its endpoints, the quota of requests and the spool of responses; all can be
    changed while it runs.
    """
    security = _make_security(allowed_hosts, allowed_origins)
    http_endpoints = HttpEndpoints(endpoints, security)
    failure_limiter = AuthFailureLimiter(publish)
    in_flight = CallerQuota(max_in_flight, SPARE_REQUESTS)
    body_limit = BodyLimitMiddleware(
        http_endpoints, max_request_bytes, max_request_values, in_flight
    )
    sessions = sessions or ConsoleSessions()
    authenticator = Authenticator(
        token, keys, verifiers, sessions=sessions, on_verified=on_verified
    )
    sign_in = ConsoleSignIn(authenticator, sessions, failure_limiter)
    metadata = ResourceMetadata(verifiers, public_url)
    authenticated = BearerAuthMiddleware(
        body_limit,
        authenticator,
        failure_limiter=failure_limiter,
        can_open=lambda principal, scope: permissions.can_open_profile(
            principal, scope["path_params"].get("profile", "")
        ),
        metadata=metadata,
    )
    routes: list[BaseRoute] = [
        Route("/mcp", endpoint=authenticated),
        Route("/mcp/p/{profile}", endpoint=authenticated),
        *metadata.list_routes(),
    ]
    if authorization_server is not None:
        # Imported late: most gateways have none.
        from portico.server.http.authorization_endpoints import AuthorizationEndpoints

        routes += AuthorizationEndpoints(authorization_server).list_routes()

    def with_host_check(app: ASGIApp) -> ASGIApp:
        checked = HostOriginMiddleware(app, security)
        return BearerAuthMiddleware(checked, Authenticator(), make_problem_refusal, failure_limiter)

    def with_auth(
        app: ASGIApp,
        can_open: Callable[[Principal, Scope], bool] = lambda principal, _: (
            permissions.can_open_gateway(principal)
        ),
    ) -> ASGIApp:
        checked = HostOriginMiddleware(app, security)
        return BearerAuthMiddleware(
            checked,
            authenticator,
            make_problem_refusal,
            failure_limiter,
            can_open,
            metadata,
            sign_in.find_principal,
        )

    if server_sign_ins is not None:
        # Imported late, as above.
        from portico.server.http.server_sign_in import ServerSignInPages

        pages = ServerSignInPages(
            server_sign_ins, authenticator, failure_limiter, authorization_server
        )
        routes += pages.list_routes(with_host_check)
    if health is not None:
        routes += monitoring_routes(
            metrics,
            health,
            with_auth=with_auth,
            with_host_check=with_host_check,
            is_authorized=authenticated.is_authorized,
        )
    if api is not None:

        def can_open_api(principal: Principal, scope: Scope) -> bool:
            return permissions.can_open_api(principal, scope["method"], scope["path"])

        checked_api = with_auth(SameOriginMiddleware(api), can_open_api)
        routes += [PrefixRoute("/api", checked_api), PrefixRoute("/v0.1", checked_api)]
    if console is not None:
        checked_sign_in = with_host_check(SameOriginMiddleware(sign_in))
        routes += [
            PrefixRoute(SESSION_PATH, checked_sign_in),
            PrefixRoute("/console", with_host_check(console)),
            Route("/", endpoint=with_host_check(RedirectResponse("/console", 307))),
        ]
    spool = ResponseSpool(spool_bytes, spool_folder)
    app = Starlette(
        routes=routes,
        lifespan=_make_lifespan(http_endpoints, failure_limiter, authenticator),
        middleware=[Middleware(SpoolMiddleware, spool)],
    )
    app.state.endpoints = http_endpoints
    app.state.in_flight = in_flight
    app.state.spool = spool
    return app


def _make_lifespan(
    endpoints: HttpEndpoints, failure_limiter: AuthFailureLimiter, authenticator: Authenticator
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def run(_: Starlette) -> AsyncGenerator[None]:
        async with endpoints.run():
            watching = asyncio.create_task(
                endpoints.end_refused_streams(authenticator), name="end refused streams"
            )
            yield
            watching.cancel()
        failure_limiter.close()

    return run


def _make_security(
    allowed_hosts: tuple[str, ...], allowed_origins: tuple[str, ...]
) -> TransportSecuritySettings:
    """Return the hosts and origins that are accepted: those of this machine, and the given ones."""
    hosts = [*LOOPBACK, *allowed_hosts]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in LOOPBACK]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*hosts, *(f"{host}:*" for host in hosts)],
        allowed_origins=[*origins, *(f"{origin}:*" for origin in origins), *allowed_origins],
    )


class _SignalFreeServer(uvicorn.Server):
    """A uvicorn server without signal handlers: the gateway handles signals, to drain first."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def make_server(
    app: Starlette, host: str, port: int, connection_limits: ConnectionLimits | None = None
) -> uvicorn.Server:
    """Build a uvicorn server over the application, with a short grace for open streams.

    `connection_limits` bound slow clients; without it the defaults apply.
    """
    limits = connection_limits or ConnectionLimits(max_connections=compute_max_connections())
    return _SignalFreeServer(
        uvicorn.Config(
            app,
            ws="none",
            http=make_protocol_class(limits),
            host=host,
            port=port,
            log_config=None,  # the gateway's own configuration masks secrets
            access_log=False,
            timeout_graceful_shutdown=STREAM_GRACE_S,
            timeout_keep_alive=math.ceil(limits.idle_s),
            server_header=False,
            # X-Forwarded-For can be forged: limits go by the address of the connection.
            proxy_headers=False,
        )
    )
