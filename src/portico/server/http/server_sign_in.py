"""Pages on which people sign in to servers: `/sign-in/NAME`, which errors and elicitations link.

The link names nobody. Who opens it says who they are first: by the identity provider, or by the key
or token that their client uses; where the gateway asks nobody for one, it is the local user. So a
link that is passed on signs in the person who follows it, to an account of their own.

    GET  /sign-in/NAME            asks
    POST /sign-in/NAME            goes on to the identity provider, or to the server's sign-in
    GET  /oauth/identified        back from the identity provider; goes on to the server's sign-in
    GET  /oauth/server-callback   back from there: the tokens are stored
    GET  /oauth/client.json       describes the gateway to authorization servers
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from portico.auth.authenticator import Authenticator
from portico.auth.proxy.authorization_request import OAuthError
from portico.auth.proxy.consent_page import (
    PAGE_HEADERS,
    compute_form_token,
    render_continue_page,
    render_done_page,
    render_server_page,
)
from portico.auth.token_verifier import Rejection
from portico.callers import LOCAL_USER, Principal
from portico.errors import PorticoError
from portico.server.http.auth import identify_network
from portico.server.http.auth_failures import AuthFailureLimiter
from portico.server.http.browser_pages import BrowserCookie, read_form, read_once, show_error
from portico.server.http.network_rate_limiter import NetworkRateLimiter
from portico.upstream.oauth.credential import SignInTarget
from portico.upstream.oauth.token_store import TokenStore

if TYPE_CHECKING:
    from portico.auth.proxy.authorization_server import AuthorizationServer
    from portico.upstream.oauth.web_sign_in import FindTarget

PAGE_PATH = "/sign-in"
IDENTIFIED_PATH = "/oauth/identified"
CALLBACK_PATH = "/oauth/server-callback"
DOCUMENT_PATH = "/oauth/client.json"
_NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
logger = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class ServerSignIns:
    """What the pages need of a gateway."""

    url: str
    """Its address, as browsers reach it."""
    store: TokenStore
    choose_target: Callable[[str, Principal], SignInTarget]
    """Returns what a person signs in to at a server; raises PorticoError for what they may not."""
    find_target: "FindTarget"
    """Returns the target of a server and person, by the configuration of now."""
    on_signed_in: Callable[[SignInTarget], None]


class ServerSignInPages:
    def __init__(
        self,
        sign_ins: ServerSignIns,
        authenticator: Authenticator,
        failure_limiter: AuthFailureLimiter,
        authorization_server: "AuthorizationServer | None" = None,
    ) -> None:
        """People sign in at the identity provider of the `authorization_server`, if there is
        one."""
        self._sign_ins = sign_ins
        self._url = sign_ins.url
        self._authenticator = authenticator
        self._failure_limiter = failure_limiter
        self._provider = authorization_server
        self._cookie = BrowserCookie(self._url)
        self._requests = NetworkRateLimiter(120, 1.0)

    def list_routes(self, with_host_check: Callable[[ASGIApp], ASGIApp]) -> list[BaseRoute]:
        async def answer_page(request: Request) -> Response:
            answer = self._decide if request.method == "POST" else self._ask
            return await self._answer(request, answer)

        pages: list[tuple[str, Handler]] = [
            (IDENTIFIED_PATH, self._identified),
            (CALLBACK_PATH, self._finish),
        ]
        routes: list[BaseRoute] = [
            _make_route(f"{PAGE_PATH}/{{server}}", answer_page, with_host_check, "GET", "POST"),
            Route(DOCUMENT_PATH, self._describe_client, methods=["GET"]),
        ]
        for path, handler in pages:
            routes.append(_make_route(path, self._guard(handler), with_host_check, "GET"))
        return routes

    async def _describe_client(self, _: Request) -> Response:
        """A client id metadata document: what the gateway is to authorization servers."""
        document = {
            "client_id": self._url + DOCUMENT_PATH,
            "client_name": "Portico",
            "client_uri": self._url,
            "redirect_uris": [self._url + CALLBACK_PATH],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "web",
        }
        return JSONResponse(document, headers={"Cache-Control": "max-age=300"})

    def _guard(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            return await self._answer(request, handler)

        return answer

    async def _answer(self, request: Request, handler: Handler) -> Response:
        """Answer with a page, also where something goes wrong."""
        if wait := self._requests.take(identify_network(request.scope.get("client"))):
            return show_error("too many sign-ins came from this network", 429, wait)
        try:
            return await handler(request)
        except OAuthError as error:
            return show_error(error.message, error.status)
        except PorticoError as error:
            return show_error(error.message, 400, advice=error.advice)

    async def _ask(self, request: Request) -> Response:
        server = request.path_params["server"]
        secret = self._cookie.read_or_make(request)
        provider = self._provider
        page = render_server_page(
            server,
            request.url.path,
            _make_form_token(secret, server),
            provider=provider.provider_name if provider is not None else "",
            asks_key=self._authenticator.is_required,
        )
        answer = HTMLResponse(page, headers=PAGE_HEADERS)
        self._cookie.set(answer, secret)
        return answer

    async def _decide(self, request: Request) -> Response:
        self._cookie.check_origin(request)
        server = request.path_params["server"]
        form = await read_form(request)
        secret = self._cookie.read(request)
        given = form.get("form_token", "").encode("utf-8", "surrogatepass")
        expected = _make_form_token(secret, server).encode()
        if not secret or not secrets.compare_digest(given, expected):
            raise OAuthError("access_denied", "the form is not of this browser", status=403)
        credential = form.get("credential", "").strip()
        if not self._authenticator.is_required:
            principal = LOCAL_USER
        elif credential or self._provider is None:
            principal = await self._check_credential(request, credential)
        else:
            state = f"{server}.{secrets.token_urlsafe(32)}"
            step = await self._provider.sign_in.identify(self._url + IDENTIFIED_PATH, state, secret)
            page = render_continue_page(step.url, self._provider.provider_name)
            return HTMLResponse(page, headers=PAGE_HEADERS)
        url = await self._begin(server, principal, secret)
        return HTMLResponse(render_continue_page(url, server), headers=PAGE_HEADERS)

    async def _check_credential(self, request: Request, credential: str) -> Principal:
        """Return who has a key or token; raises OAuthError. Wrong ones count as everywhere."""
        peer = identify_network(request.scope.get("client"))
        if self._failure_limiter.get_wait_s(peer):
            raise OAuthError("slow_down", "too many wrong keys came from here", status=429)
        if self._authenticator.problem:
            raise OAuthError("server_error", "keys cannot be checked now", status=503)
        text = credential.encode(errors="replace")
        verdict = self._authenticator.authenticate(text) or await self._authenticator.verify(text)
        if isinstance(verdict, Rejection):
            if verdict.is_forged:
                self._failure_limiter.record_failure(peer)
            raise OAuthError("access_denied", verdict.reason, status=verdict.status)
        self._failure_limiter.record_success(peer)
        return verdict

    async def _identified(self, request: Request) -> Response:
        if self._provider is None:
            raise OAuthError("invalid_request", "nobody was asked who they are", status=404)
        query = read_once(request.url.query)
        if "error" in query or not query.get("code"):
            raise OAuthError("access_denied", query.get("error_description") or "no code came back")
        state = query.get("state", "")
        secret = self._cookie.read(request)
        principal = await self._provider.sign_in.redeem(
            query["code"], self._url + IDENTIFIED_PATH, state, secret
        )
        url = await self._begin(state.rpartition(".")[0], principal, secret)
        return RedirectResponse(url, 302, _NO_STORE)

    async def _begin(self, server: str, principal: Principal, secret: str) -> str:
        """Return where a person signs in to a server."""
        # Imported late: it takes 0.3 s.
        from portico.upstream.oauth.web_sign_in import begin_in_browser

        sign_ins = self._sign_ins
        target = sign_ins.choose_target(server, principal)
        document = self._url + DOCUMENT_PATH if self._url.startswith("https://") else ""
        return await begin_in_browser(
            sign_ins.store, target, secret, self._url + CALLBACK_PATH, document
        )

    async def _finish(self, request: Request) -> Response:
        from portico.upstream.oauth.web_sign_in import finish_in_browser  # late, as above

        query: Mapping[str, str] = read_once(request.url.query)
        sign_ins = self._sign_ins
        target = await finish_in_browser(
            sign_ins.store, query, self._cookie.read(request), sign_ins.find_target
        )
        logger.info("%s is signed in to, for %s", target.name, target.person or "everybody")
        sign_ins.on_signed_in(target)
        return HTMLResponse(render_done_page(target.name), headers=PAGE_HEADERS)


def _make_form_token(secret: str, server: str) -> str:
    return compute_form_token(secret, {"sign in to": server})


def _make_route(
    path: str, handler: Handler, with_host_check: Callable[[ASGIApp], ASGIApp], *methods: str
) -> Route:
    inner = Route(path, handler, methods=list(methods))
    return Route(path, with_host_check(inner.app), methods=list(methods))
