"""The ASGI application: `/mcp` for the default profile, `/mcp/p/{profile}` for each profile (both
eras on each), and `/api`.

Listens on loopback by default. Host and Origin are checked on every request, so that no web page
can reach a gateway on localhost; any other address needs a bearer token that is not easy to guess.
Unread responses are spooled to disk.
"""

import ipaddress
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from portico.config.limits import LimitsConfig
from portico.errors import ConfigError
from portico.events import TokensRefused
from portico.observability.metrics import Metrics
from portico.server.http.auth import (
    ApiRoute,
    BearerAuthMiddleware,
    HostOriginMiddleware,
    SameOriginMiddleware,
    make_problem_refusal,
)
from portico.server.http.auth_failures import AuthFailureLimiter
from portico.server.http.body_limit import BodyLimitMiddleware
from portico.server.http.callers import CallerQuota
from portico.server.http.endpoints import HttpEndpoints
from portico.server.http.monitoring import GatewayHealth, monitoring_routes
from portico.server.http.slow_clients import (
    ConnectionLimits,
    compute_max_connections,
    make_protocol_class,
)
from portico.server.http.spooled_responses import MAX_SPOOL_BYTES, ResponseSpool, SpoolMiddleware
from portico.server.profile_endpoint import ProfileEndpoint

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_IN_FLIGHT = 1_664
SPARE_REQUESTS = 128
"""HTTP requests beyond those that run or wait in a queue: lists, searches, and bodies being read.

As many are reserved for other callers when one caller has reached its limit."""
MIN_TOKEN_CHARS = 16
MIN_TOKEN_BITS = 56
"""Minimum estimated entropy of a token where the gateway listens beyond this machine."""
STREAM_GRACE_S = 2
"""Seconds that streams may stay open at shutdown; calls in flight have been drained before."""


def check_exposure(host: str, token: str | None) -> None:
    """Raise ConfigError for an empty token, or for a missing or weak one beyond this machine."""
    if token is not None and not token.strip():
        raise ConfigError(
            "gateway.token is empty",
            advice="Give it a value, or leave it out to serve this machine only.",
            key="gateway.token",
        )
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"listening on {host} would let anyone on the network run your tools",
            advice="Set gateway.token (or PORTICO_TOKEN), or listen on 127.0.0.1.",
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
    allowed_hosts: tuple[str, ...] = (),
    allowed_origins: tuple[str, ...] = (),
    max_request_bytes: int = 4 * 2**20,
    max_request_values: int = 25_000,
    api: ASGIApp | None = None,
    max_in_flight: int = MAX_IN_FLIGHT,
    spool_bytes: int = MAX_SPOOL_BYTES,
    spool_folder: Path | None = None,
    metrics: Callable[[], Metrics] | None = None,
    health: Callable[[], GatewayHealth] | None = None,
    publish: Callable[[TokensRefused], None] | None = None,
) -> Starlette:
    """Build the ASGI application over these endpoints; the empty name is the default profile.

    `api` is served under `/api`. `publish` receives reports of wrong tokens.

    `state.endpoints` of the application are its endpoints, `state.in_flight` the quota of requests
    and `state.spool` the spool of responses; all can be changed while it runs.
    """
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[
            pattern for host in (*LOOPBACK, *allowed_hosts) for pattern in (host, f"{host}:*")
        ],
        allowed_origins=[
            *(
                f"{scheme}://{host}{port}"
                for scheme in ("http", "https")
                for host in LOOPBACK
                for port in ("", ":*")
            ),
            *allowed_origins,
        ],
    )
    http_endpoints = HttpEndpoints(endpoints, security)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with http_endpoints.run():
            yield
        failure_limiter.close()

    failure_limiter = AuthFailureLimiter(publish)
    in_flight = CallerQuota(max_in_flight, SPARE_REQUESTS)
    body_limit = BodyLimitMiddleware(
        http_endpoints, max_request_bytes, max_request_values, in_flight
    )
    authenticated = BearerAuthMiddleware(body_limit, token, failure_limiter=failure_limiter)
    routes: list[BaseRoute] = [
        Route("/mcp", endpoint=authenticated),
        Route("/mcp/p/{profile}", endpoint=authenticated),
    ]
    if health is not None:
        routes += monitoring_routes(
            metrics,
            health,
            with_auth=lambda app: BearerAuthMiddleware(
                HostOriginMiddleware(app, security), token, make_problem_refusal, failure_limiter
            ),
            with_host_check=lambda app: BearerAuthMiddleware(
                HostOriginMiddleware(app, security), None, make_problem_refusal
            ),
            is_authorized=authenticated.is_authorized,
        )
    if api is not None:
        routes.append(
            ApiRoute(
                BearerAuthMiddleware(
                    HostOriginMiddleware(SameOriginMiddleware(api), security),
                    token,
                    make_problem_refusal,
                    failure_limiter,
                )
            )
        )
    spool = ResponseSpool(spool_bytes, spool_folder)
    app = Starlette(
        routes=routes, lifespan=lifespan, middleware=[Middleware(SpoolMiddleware, spool)]
    )
    app.state.endpoints = http_endpoints
    app.state.in_flight = in_flight
    app.state.spool = spool
    return app


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
    return _SignalFreeServer(
        uvicorn.Config(
            app,
            ws="none",
            http=make_protocol_class(
                connection_limits or ConnectionLimits(max_connections=compute_max_connections())
            ),
            host=host,
            port=port,
            log_config=None,  # the gateway's own configuration masks secrets
            access_log=False,
            timeout_graceful_shutdown=STREAM_GRACE_S,
            server_header=False,
            # X-Forwarded-For can be forged: limits go by the address of the connection.
            proxy_headers=False,
        )
    )
