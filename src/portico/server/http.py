"""Streamable HTTP: `/mcp` for the default view, `/mcp/p/{profile}` for each profile; both eras on each. `/api` beside.

Loopback by default. Host and Origin are checked on every request, so that no web page can reach a gateway on localhost;
any other address needs a bearer token.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus

import uvicorn
from mcp.server.streamable_http import EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import URLPath
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, NoMatchFound, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.errors import ConfigError
from portico.server.door import Door
from portico.server.replay import RecentEvents
from portico.server.sessions import IDENTITY

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
RETRY_MS = 500
MAX_SESSIONS = 1_000
SESSION_IDLE_S = 30 * 60.0
GRACE_S = 3
_SALT = secrets.token_bytes(32)
_PORT = re.compile(rb"^(?:\[[^]]*\]|[^:\[]*):(.*)$", re.DOTALL)


def check_exposure(host: str, token: str | None) -> None:
    """Refuse to listen beyond this machine without a token, and anywhere with an empty one."""
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


def is_loopback(host: str) -> bool:
    """Whether an address stays on this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def make_app(
    doors: Mapping[str, Door],
    *,
    token: str | None = None,
    allowed_hosts: tuple[str, ...] = (),
    allowed_origins: tuple[str, ...] = (),
    max_request_bytes: int = 4 * 2**20,
    api: ASGIApp | None = None,
) -> Starlette:
    """The ASGI application over these doors; the empty name is the default one. `api` is what answers under `/api`."""
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[pattern for host in (*LOOPBACK, *allowed_hosts) for pattern in (host, f"{host}:*")],
        allowed_origins=[
            *(f"{scheme}://{host}{port}" for scheme in ("http", "https") for host in LOOPBACK for port in ("", ":*")),
            *allowed_origins,
        ],
    )
    managers = {
        name: _SessionManager(
            door.server,
            retry_interval=RETRY_MS,
            max_sessions=MAX_SESSIONS,
            session_idle_timeout=SESSION_IDLE_S,
            security_settings=security,
            max_request_body_size=max_request_bytes,
        )
        for name, door in doors.items()
    }

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for manager in managers.values():
                await stack.enter_async_context(manager.run())
            yield

    routes: list[BaseRoute] = [
        Route(f"/mcp/p/{name}" if name else "/mcp", endpoint=_Guarded(_Endpoint(manager), token))
        for name, manager in managers.items()
    ]
    if api is not None:
        routes.append(_SideDoor(_Guarded(_Addressed(api, security), token, _problem)))
    return Starlette(routes=routes, lifespan=lifespan)


class _SessionManager(StreamableHTTPSessionManager):
    """The SDK's manager, which asks for the event store once for each session that opens."""

    @property
    def event_store(self) -> EventStore | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A store that no other session can be resumed from."""
        return RecentEvents()

    @event_store.setter
    def event_store(self, value: EventStore | None) -> None:
        """The base class sets the one that all would share."""


class _Endpoint:
    """A session manager as an ASGI application (Starlette would take a bare method for a handler)."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


def _misaddressed(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """The status of a request whose Host or Origin could be read in two ways; the SDK checks the names in them."""
    given = list(headers)
    for header, status in ((b"host", 421), (b"origin", 403)):
        values = [value for name, value in given if name == header]
        if len(values) > 1:
            return 400
        for value in values:
            port = _PORT.match(value if header == b"host" else value.partition(b"://")[2])
            if port is not None and not port[1].isdigit():
                return status
    return None


Refuse = Callable[[int, str, str, Mapping[str, str]], Response]
"""Status, what is wrong, what to do about it, and headers."""


def _plainly(status: int, wrong: str, advice: str, headers: Mapping[str, str]) -> Response:
    return JSONResponse({"error": wrong, "advice": advice}, status, headers)


def _problem(status: int, wrong: str, advice: str, headers: Mapping[str, str]) -> Response:
    """The same as the API refuses (RFC 9457)."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": wrong}
    around = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Vary": "Authorization", **headers}
    return JSONResponse({**body, "advice": advice}, status, around, "application/problem+json")


class _SideDoor(BaseRoute):
    """Everything under `/api`, whatever characters are in it; the doors are tried before."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["path"] if scope["type"] == "http" else ""
        return (Match.FULL if path == "/api" or path.startswith("/api/") else Match.NONE), {}

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class _Addressed:
    """Lets requests through that are for this host and of no strange page; the SDK does so for the doors."""

    def __init__(self, app: ASGIApp, security: TransportSecuritySettings) -> None:
        self._app = app
        self._security = TransportSecurityMiddleware(security)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = await self._security.validate_request(Request(scope))
        if refused is None:
            await self._app(scope, receive, send)
            return
        advice = "gateway.allowed_hosts and gateway.allowed_origins name who else may come in."
        await _problem(refused.status_code, bytes(refused.body).decode(), advice, {})(scope, receive, send)


class _Guarded:
    """Lets requests through that are addressed in one clear way and have the right bearer token."""

    def __init__(self, app: ASGIApp, token: str | None, refuse: Refuse = _plainly) -> None:
        self._app = app
        self._refuse = refuse
        self._expected = token.encode() if token is not None else None
        # Who came in by which token, where the token itself must not be: this goes into events and keys.
        self._identity = hashlib.blake2b(self._expected or b"", key=_SALT, digest_size=16).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Field values are without the blanks around them (RFC 9110 §5.5); the parser leaves those at the end.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        if (status := _misaddressed(scope["headers"])) is not None:
            wrong = "Host or Origin is given twice, or what follows its colon is no port"
            refused = self._refuse(status, wrong, "Send each once, as in http://127.0.0.1:8420.", {})
            await refused(scope, receive, send)
            return
        if self._expected is not None:
            given = next((value for key, value in scope["headers"] if key == b"authorization"), b"")
            scheme, _, token = given.partition(b" ")
            known = scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._expected)
            if not known or not self._expected:
                refused = self._refuse(
                    401,
                    "unauthorized",
                    "Send the gateway's token: Authorization: Bearer …",
                    {"WWW-Authenticate": 'Bearer realm="portico"'},
                )
                await refused(scope, receive, send)
                return
            scope[IDENTITY] = self._identity
        await self._app(scope, receive, send)


def make_server(app: Starlette, host: str, port: int) -> uvicorn.Server:
    """A uvicorn server over the application, quiet, with a short grace for open streams."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_S,
            server_header=False,
        )
    )
