"""An authorization server for tests, on loopback: it signs people in without a page, and can be
made slow, broken, forgetful or hostile.

async with run_authorization_server() as issuer:
    async with run_protected_server(issuer) as server:
        …  # `server.url` wants tokens of `issuer`

Tokens are opaque; the protected servers ask the object that issued them. `requests` has everything
that arrived, and `received` of a protected server every Authorization header.
"""

import asyncio
import base64
import hashlib
import secrets
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urljoin, urlsplit

import httpx2
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

TIMEOUT_S = 240.0
_MAX_REDIRECTS = 12


@dataclass
class IssuedToken:
    client_id: str
    subject: str
    scope: str
    resource: str
    ends_at: float


@dataclass
class ScriptedIssuer:
    """The authorization server; its fields may be changed while it runs."""

    issuer: str = ""
    token_s: float = 3_600.0
    rotates: bool = True
    metadata_changes: dict[str, Any] = field(default_factory=dict[str, Any])
    iss: str | None = ""
    """`iss` in the answer of the authorization endpoint; empty: the right one, None: none."""
    token_trouble: Callable[[Mapping[str, str]], "Response | None"] | None = None
    """Called with the form of each token request; a response takes the place of the real one."""
    delay_s: float = 0.0
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: token requests hang."""
    offers_refresh: bool = True
    requests: list[tuple[str, str, dict[str, str]]] = field(
        default_factory=list[tuple[str, str, dict[str, str]]]
    )
    """Method, path and parameters of each request."""
    clients: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    tokens: dict[str, IssuedToken] = field(default_factory=dict[str, IssuedToken])
    refresh_tokens: dict[str, IssuedToken] = field(default_factory=dict[str, IssuedToken])
    codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    subjects: dict[str, str] = field(default_factory=dict[str, str])
    """People by the tokens that may be exchanged."""
    assertions: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """People by an assertion and the issuer that it is for."""

    def __post_init__(self) -> None:
        self.answers.set()

    def count(self, path: str, **form: str) -> int:
        """Count requests of a path whose parameters include these."""
        return sum(
            1
            for _, asked, params in self.requests
            if asked == path and form.items() <= params.items()
        )

    def verify(self, token: str) -> IssuedToken | None:
        found = self.tokens.get(token)
        return found if found is not None and found.ends_at > time.time() else None

    def revoke_access(self) -> None:
        """End all access tokens, as when the keys that signed them change."""
        self.tokens.clear()

    def make_app(self) -> ASGIApp:
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    async def _metadata(self, request: Request) -> Response:
        self._note(request, {})
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "registration_endpoint": f"{self.issuer}/register",
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                "token_endpoint_auth_methods_supported": [
                    "none",
                    "client_secret_basic",
                    "client_secret_post",
                ],
                **self.metadata_changes,
            }
        )

    async def _register(self, request: Request) -> Response:
        asked = await request.json()
        self._note(request, {"redirect_uri": asked["redirect_uris"][0]})
        client_id = f"client-{len(self.clients)}-{secrets.token_hex(4)}"
        self.clients[client_id] = asked
        return JSONResponse({**asked, "client_id": client_id}, 201)

    async def _authorize(self, request: Request) -> Response:
        params = dict(request.query_params)
        self._note(request, params)
        client = self.clients.get(params["client_id"])
        if client is None or params["redirect_uri"] not in client["redirect_uris"]:
            return Response("unknown client", 400)
        code = secrets.token_urlsafe(16)
        self.codes[code] = params
        answer = {"code": code, "state": params["state"]}
        if self.iss is not None:
            answer["iss"] = self.iss or self.issuer
        return RedirectResponse(f"{params['redirect_uri']}?{urlencode(answer)}", 302)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        self._note(request, form)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        await self.answers.wait()
        if self.token_trouble is not None and (trouble := self.token_trouble(form)) is not None:
            return trouble
        client_id = form.get("client_id", "")
        header = request.headers.get("authorization", "")
        secret = form.get("client_secret", "")
        if header.startswith("Basic "):
            pair = base64.b64decode(header[6:]).decode()
            client_id, _, secret = (unquote(part) for part in pair.partition(":"))
        client = self.clients.get(client_id)
        if client is None or client.get("client_secret", "") != secret:
            return JSONResponse({"error": "invalid_client"}, 401)
        match form["grant_type"]:
            case "authorization_code":
                return self._redeem(client_id, form)
            case "refresh_token":
                return self._refresh(client_id, form)
            case "client_credentials":
                return self._issue(client_id, client_id, form.get("scope", ""), form["resource"])
            case "urn:ietf:params:oauth:grant-type:token-exchange":
                return self._exchange(client_id, form)
            case "urn:ietf:params:oauth:grant-type:jwt-bearer":
                subject = self.assertions.get((form["assertion"], self.issuer))
                if subject is None:
                    return JSONResponse({"error": "invalid_grant"}, 400)
                return self._issue(client_id, subject, form.get("scope", ""), form["resource"])
            case _:
                return JSONResponse({"error": "unsupported_grant_type"}, 400)

    def _exchange(self, client_id: str, form: Mapping[str, str]) -> Response:
        """Give a token, or an assertion for another authorization server, for somebody's token."""
        subject = self.subjects.get(form["subject_token"])
        if subject is None:
            return JSONResponse({"error": "invalid_grant"}, 400)
        if form["requested_token_type"] == "urn:ietf:params:oauth:token-type:id-jag":
            assertion = f"assertion-{subject}-{secrets.token_urlsafe(8)}"
            self.assertions[(assertion, form["audience"])] = subject
            return JSONResponse({"access_token": assertion, "token_type": "N_A"})
        resource = form.get("resource") or form["audience"]
        return self._issue(client_id, subject, form.get("scope", ""), resource)

    def _redeem(self, client_id: str, form: Mapping[str, str]) -> Response:
        asked = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form["redirect_uri"]
            or asked["resource"] != form["resource"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        subject = asked.get("login_hint", "ana")
        return self._issue(client_id, subject, asked.get("scope", ""), form["resource"])

    def _refresh(self, client_id: str, form: Mapping[str, str]) -> Response:
        take = self.refresh_tokens.pop if self.rotates else self.refresh_tokens.get
        found = take(form["refresh_token"], None)
        if found is None or found.client_id != client_id:
            return JSONResponse({"error": "invalid_grant"}, 400)
        return self._issue(client_id, found.subject, found.scope, form["resource"])

    def _issue(self, client_id: str, subject: str, scope: str, resource: str) -> Response:
        token = f"access-{subject}-{secrets.token_urlsafe(12)}"
        issued = IssuedToken(client_id, subject, scope, resource, time.time() + self.token_s)
        self.tokens[token] = issued
        answer: dict[str, Any] = {
            "access_token": token,
            "token_type": "bearer",
            "expires_in": int(self.token_s),
            "scope": scope,
        }
        if self.offers_refresh and subject != client_id:
            answer["refresh_token"] = f"refresh-{subject}-{secrets.token_urlsafe(12)}"
            self.refresh_tokens[answer["refresh_token"]] = issued
        return JSONResponse(answer)

    def _note(self, request: Request, params: Mapping[str, str]) -> None:
        self.requests.append((request.method, request.url.path, dict(params)))


@dataclass
class ProtectedServer:
    """An MCP server of the SDK that wants tokens of an issuer for itself."""

    url: str
    issuer: ScriptedIssuer
    received: Counter[str] = field(default_factory=Counter[str])
    """Authorization headers, and how often each came; empty: a request without one."""
    admin_scope: str = ""
    """Scope that the tool `admin` wants."""
    parties: int = 4
    """Calls of the tool `meet` that wait for each other."""
    waiting: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)

    async def verify_token(self, token: str) -> AccessToken | None:
        found = self.issuer.verify(token)
        if found is None:
            return None
        return AccessToken(
            token=token,
            client_id=found.client_id,
            scopes=found.scope.split(),
            resource=found.resource,
            subject=found.subject,
        )

    def make_app(self) -> ASGIApp:
        server = MCPServer(
            "protected",
            token_verifier=self,
            auth=AuthSettings.model_validate(
                {
                    "issuer_url": self.issuer.issuer,
                    "resource_server_url": self.url,
                    "required_scopes": [],
                    "validate_token_resource": True,
                }
            ),
        )

        @server.tool()
        async def whoami() -> str:
            """Say whose account this is."""
            token = get_access_token()
            assert token is not None
            return f"you are {token.subject}"

        @server.tool()
        async def echo(text: str) -> str:
            """Say it again."""
            return text

        @server.tool()
        async def write(text: str) -> str:
            """Say who says what."""
            token = get_access_token()
            assert token is not None
            return f"{token.subject} writes {text}"

        @server.tool()
        async def diary() -> str:
            """Say it at length."""
            token = get_access_token()
            assert token is not None
            return f"the diary of {token.subject}\n" * 4_000

        @server.tool()
        async def meet() -> str:
            """Wait until `parties` are here at once."""
            self.waiting += 1
            if self.waiting % self.parties == 0:
                self.met.set()
                self.met = asyncio.Event()
            else:
                await asyncio.wait_for(self.met.wait(), TIMEOUT_S)
            return "met"

        @server.tool()
        async def admin() -> str:
            """Do what needs more rights."""
            return "done"

        app = server.streamable_http_app()

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            self.received[headers.get("authorization", "")] += 1
            body = await Request(scope, receive).body()
            replayed = False

            async def receive_again() -> Any:
                nonlocal replayed
                if replayed:
                    return await receive()
                replayed = True
                return {"type": "http.request", "body": body, "more_body": False}

            token = self.issuer.verify(headers.get("authorization", "").removeprefix("Bearer "))
            granted = self.admin_scope.split() if token is None else token.scope.split()
            if b'"admin"' in body and self.admin_scope and self.admin_scope not in granted:
                challenge = f'Bearer error="insufficient_scope", scope="{self.admin_scope}"'
                refusal = Response(status_code=403, headers={"www-authenticate": challenge})
                return await refusal(scope, receive, send)
            await app(scope, receive_again, send)

        return watched


@asynccontextmanager
async def serve_at_url(make_app: Callable[[str], ASGIApp], port: int = 0) -> AsyncGenerator[str]:
    """Serve an application that has to know its own address."""
    listening = socket.create_server(("127.0.0.1", port))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    config = uvicorn.Config(
        make_app(url),
        log_level="error",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,  # longer than clients keep an idle connection
        ws="none",
    )
    config.load()
    server = uvicorn.Server(config)
    # What `Server.serve` does, without taking the signals from pytest.
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])
    running = asyncio.create_task(server.main_loop())
    try:
        yield url
    finally:
        server.should_exit = True
        async with asyncio.timeout(TIMEOUT_S):
            await running
            await server.shutdown(sockets=[listening])


@asynccontextmanager
async def run_authorization_server(
    issuer: ScriptedIssuer | None = None, port: int = 0
) -> AsyncGenerator[ScriptedIssuer]:
    """Run it; what it issued is in the object, so that it can be run again at the same port."""
    found = issuer or ScriptedIssuer()

    def make_app(url: str) -> ASGIApp:
        found.issuer = url
        return found.make_app()

    async with serve_at_url(make_app, port):
        yield found


@asynccontextmanager
async def run_protected_server(issuer: ScriptedIssuer) -> AsyncGenerator[ProtectedServer]:
    server = ProtectedServer("", issuer)

    def make_app(url: str) -> ASGIApp:
        server.url = f"{url}/mcp"
        return server.make_app()

    async with serve_at_url(make_app):
        yield server


async def visit(url: str, redirect_uri: str) -> str:
    """Do what a browser would: return the address at which the sign-in ends."""
    async with httpx2.AsyncClient(timeout=TIMEOUT_S) as browser:
        for _ in range(_MAX_REDIRECTS):
            reply = await browser.get(url)
            assert reply.is_redirect, f"{reply.status_code} {reply.text}"
            url = urljoin(url, reply.headers["location"])
            if url.startswith(redirect_uri):
                return url
    raise AssertionError(f"no end of redirects: {url}")


def get_query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))
