"""Streamable HTTP: `/mcp` for the default view, `/mcp/p/{profile}` for each profile; both eras on
each. `/api` beside.

Loopback by default. Host and Origin are checked on every request, so that no web page can reach a
gateway on localhost; any other address needs a bearer token that is not easy to guess. Answers that
clients leave unread wait on disk.
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
"""Requests over HTTP beside those that have a place or wait for one: lists, searches, and what is
being read.

So many are also left for the others when one caller has all that it can have."""
MIN_TOKEN_CHARS = 16
MIN_TOKEN_BITS = 56
"""Of a token where the gateway listens beyond this machine, as its characters let estimate."""
STREAM_GRACE_S = 2
"""How long streams that only listen are waited for at the end; calls under way have had their time
by then."""


def check_exposure(host: str, token: str | None) -> None:
    """Refuse to listen beyond this machine without a token or with a weak one, and anywhere with an
    empty one."""
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
            advice=f"Make one of {MIN_TOKEN_CHARS} characters or more: export PORTICO_TOKEN=$(openssl rand -hex 32)",
            key="gateway.token",
        )


def is_weak_token(token: str) -> bool:
    """Whether a token is short, or has so few different characters that it could be guessed."""
    size = len(token.strip())
    if size < MIN_TOKEN_CHARS:
        return True
    bits = -sum(count * math.log2(count / size) for count in Counter(token.strip()).values())
    return bits < MIN_TOKEN_BITS


def is_loopback(host: str) -> bool:
    """Whether an address stays on this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def compute_max_in_flight(limits: LimitsConfig) -> int:
    """How many requests over HTTP are taken in; more could not even wait."""
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
    """The ASGI application over these doors; the empty name is the default one. `api` is what
    answers under `/api`.
    `publish` is told of wrong tokens.

    `state.entrances` of the application are its doors, `state.under_way` how many requests are taken in and
    `state.unread` what waits to be read; all may become others while it runs.
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
    entrances = HttpEndpoints(endpoints, security)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with entrances.run():
            yield
        guard.close()

    guard = AuthFailureLimiter(publish)
    crowd = CallerQuota(max_in_flight, SPARE_REQUESTS)
    whole = BodyLimitMiddleware(entrances, max_request_bytes, max_request_values, crowd)
    inside = BearerAuthMiddleware(whole, token, failure_limiter=guard)
    routes: list[BaseRoute] = [
        Route("/mcp", endpoint=inside),
        Route("/mcp/p/{profile}", endpoint=inside),
    ]
    if health is not None:
        routes += monitoring_routes(
            metrics,
            health,
            with_auth=lambda app: BearerAuthMiddleware(
                HostOriginMiddleware(app, security), token, make_problem_refusal, guard
            ),
            with_host_check=lambda app: BearerAuthMiddleware(
                HostOriginMiddleware(app, security), None, make_problem_refusal
            ),
            is_authorized=inside.is_authorized,
        )
    if api is not None:
        routes.append(
            ApiRoute(
                BearerAuthMiddleware(
                    HostOriginMiddleware(SameOriginMiddleware(api), security),
                    token,
                    make_problem_refusal,
                    guard,
                )
            )
        )
    unread = ResponseSpool(spool_bytes, spool_folder)
    app = Starlette(
        routes=routes, lifespan=lifespan, middleware=[Middleware(SpoolMiddleware, unread)]
    )
    app.state.entrances = entrances
    app.state.under_way = crowd
    app.state.unread = unread
    return app


class _SignalFreeServer(uvicorn.Server):
    """uvicorn's, which leaves signals to whoever runs it: they mean to drain first."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def make_server(
    app: Starlette, host: str, port: int, connection_limits: ConnectionLimits | None = None
) -> uvicorn.Server:
    """A uvicorn server over the application, quiet, with a short grace for open streams.

    `patience` is for clients that do not keep up; without it, as much as the defaults say.
    """
    return _SignalFreeServer(
        uvicorn.Config(
            app,
            ws="none",  # nobody speaks it here
            http=make_protocol_class(
                connection_limits or ConnectionLimits(max_connections=compute_max_connections())
            ),
            host=host,
            port=port,
            log_config=None,  # ours masks what is secret
            access_log=False,
            timeout_graceful_shutdown=STREAM_GRACE_S,
            server_header=False,
            proxy_headers=False,  # X-Forwarded-For is a claim: limits go by the address of the connection
        )
    )
