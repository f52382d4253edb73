"""The authorization server over HTTP: metadata (RFC 8414), registration, authorization with its
consent page, tokens and revocation.

Programs may call metadata, registration, tokens and revocation from any page: none of them reads a
cookie. The pages that people see read one, and answer no other page.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from portico.auth.proxy.authorization_request import OAuthError, RedirectedError, build_redirect
from portico.auth.proxy.authorization_server import AuthorizationServer
from portico.auth.proxy.client_registration import GRANT_TYPES
from portico.auth.proxy.consent_page import (
    PAGE_HEADERS,
    render_consent_page,
    render_continue_page,
)
from portico.auth.proxy.sign_in import CALLBACK_PATH, ConsentNeeded
from portico.server.http.auth import identify_network
from portico.server.http.browser_pages import (
    BrowserCookie,
    read_body,
    read_form,
    read_once,
    show_error,
)
from portico.server.http.network_rate_limiter import NetworkRateLimiter
from portico.storage.gateway_store import StoreUnavailable

METADATA_PATH = "/.well-known/oauth-authorization-server"
AUTHORIZE_PATH = "/oauth/authorize"
CONSENT_PATH = "/oauth/consent"
TOKEN_PATH = "/oauth/token"  # noqa: S105 - a path
REGISTER_PATH = "/oauth/register"
REVOKE_PATH = "/oauth/revoke"
METADATA_MAX_AGE_S = 300
_CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "*",
}
_NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
logger = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


class AuthorizationEndpoints:
    def __init__(self, server: AuthorizationServer) -> None:
        self._server = server
        self._url = server.public_url
        self._cookie = BrowserCookie(self._url)
        self._registrations = NetworkRateLimiter(60, 10.0)
        self._token_requests = NetworkRateLimiter(300, 0.2)
        self._sign_ins = NetworkRateLimiter(120, 1.0)

    def list_routes(self) -> list[BaseRoute]:
        pages = {
            AUTHORIZE_PATH: (self._authorize, "GET"),
            CONSENT_PATH: (self._consent, "POST"),
            CALLBACK_PATH: (self._callback, "GET"),
        }
        programs = {
            REGISTER_PATH: (self._register, self._registrations),
            TOKEN_PATH: (self._token, self._token_requests),
            REVOKE_PATH: (self._revoke, self._token_requests),
        }
        metadata_path = METADATA_PATH + urlsplit(self._url).path
        routes: list[BaseRoute] = [Route(metadata_path, self._metadata, methods=["GET", "OPTIONS"])]
        for path, (answer, method) in pages.items():
            routes.append(Route(path, self._as_page(answer), methods=[method]))
        for path, (answer, limiter) in programs.items():
            handler = _as_program(answer, limiter)
            routes.append(Route(path, handler, methods=["POST", "OPTIONS"]))
        return routes

    async def _metadata(self, request: Request) -> Response:
        document = {
            "issuer": self._url,
            "authorization_endpoint": self._url + AUTHORIZE_PATH,
            "token_endpoint": self._url + TOKEN_PATH,
            "registration_endpoint": self._url + REGISTER_PATH,
            "revocation_endpoint": self._url + REVOKE_PATH,
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": list(GRANT_TYPES),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
        }
        headers = {**_CORS_HEADERS, "Cache-Control": f"max-age={METADATA_MAX_AGE_S}"}
        return JSONResponse(document, headers=headers)

    async def _register(self, request: Request) -> Response:
        client = await self._server.clients.register(await read_body(request))
        answer = {
            "client_id": client.id,
            "client_id_issued_at": int(client.created_at),
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "grant_types": GRANT_TYPES,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        return JSONResponse(answer, 201, {**_CORS_HEADERS, **_NO_STORE})

    async def _token(self, request: Request) -> Response:
        answer = await self._server.tokens.exchange(await read_form(request))
        return JSONResponse(answer, headers={**_CORS_HEADERS, **_NO_STORE})

    async def _revoke(self, request: Request) -> Response:
        await self._server.tokens.revoke(await read_form(request))
        return Response(headers={**_CORS_HEADERS, **_NO_STORE})

    async def _authorize(self, request: Request) -> Response:
        params = read_once(request.url.query)
        step = await self._server.sign_in.begin(params, self._cookie.read(request))
        if not isinstance(step, ConsentNeeded):
            return RedirectResponse(step.url, 302, _NO_STORE)
        page = render_consent_page(
            step.request,
            # Relative, so that the browser sends it to where it has the cookie of.
            urlsplit(self._url + CONSENT_PATH).path,
            step.form_token,
            self._server.provider_name,
        )
        answer = HTMLResponse(page, headers=PAGE_HEADERS)
        self._cookie.set(answer, step.browser_secret)
        return answer

    async def _consent(self, request: Request) -> Response:
        self._cookie.check_origin(request)
        form = await read_form(request)
        step = await self._server.sign_in.decide(form, self._cookie.read(request))
        page = render_continue_page(step.url, self._server.provider_name)
        return HTMLResponse(page, headers=PAGE_HEADERS)

    async def _callback(self, request: Request) -> Response:
        params = read_once(request.url.query)
        step = await self._server.sign_in.finish(params, self._cookie.read(request))
        return RedirectResponse(step.url, 302, _NO_STORE)

    def _as_page(self, answer: Handler) -> Handler:
        """Return a handler that shows errors to people, or brings them to the client."""

        async def handle(request: Request) -> Response:
            if wait := self._sign_ins.take(identify_network(request.scope.get("client"))):
                return show_error("too many sign-ins came from this network", 429, wait)
            try:
                return await answer(request)
            except RedirectedError as error:
                values = {"error": error.error, "error_description": error.message}
                url = build_redirect(error.redirect_uri, error.state, self._url, values)
                return RedirectResponse(url, 302, _NO_STORE)
            except OAuthError as error:
                return show_error(error.message, error.status)
            except (StoreUnavailable, OSError) as error:
                logger.error("a sign-in failed: %s", error)
                return show_error("the gateway cannot keep sign-ins now", 503)

        return handle


def _as_program(answer: Handler, limiter: NetworkRateLimiter) -> Handler:
    """Return a handler that answers errors as OAuth has them (RFC 6749 §5.2)."""

    async def handle(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=_CORS_HEADERS)
        if wait := limiter.take(identify_network(request.scope.get("client"))):
            error = OAuthError("slow_down", "too many requests from this network", status=429)
            return _refuse(error, {"Retry-After": str(math.ceil(wait))})
        try:
            return await answer(request)
        except OAuthError as error:
            headers = {"Retry-After": "5"} if error.status == 503 else {}
            return _refuse(error, headers)
        except (StoreUnavailable, OSError) as error:
            logger.error("a request for tokens failed: %s", error)
            unavailable = "the gateway cannot keep tokens now"
            return _refuse(
                OAuthError("temporarily_unavailable", unavailable, status=503),
                {"Retry-After": "5"},
            )

    return handle


def _refuse(error: OAuthError, headers: Mapping[str, str]) -> Response:
    body = {"error": error.error, "error_description": error.message}
    return JSONResponse(body, error.status, {**_CORS_HEADERS, **_NO_STORE, **headers})
