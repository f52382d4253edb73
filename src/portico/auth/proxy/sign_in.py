"""A sign-in of a person with a client: consent, the identity provider, and back to the client.

The browser that agreed is the one that comes back: a secret in its cookie makes the form's token,
and the PKCE verifier and nonce for the identity provider, so that none of them is stored.

Consent is remembered for a browser, person, client and redirect URI, where the redirect URI is of a
website: only there it is certain who gets the answer (RFC 8252 §8.6).
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from portico.auth.issuer_client import IssuerUnavailable
from portico.auth.proxy.authorization_request import (
    AuthorizationRequest,
    OAuthClient,
    OAuthError,
    RedirectedError,
    build_redirect,
    read_request,
)
from portico.auth.proxy.client_directory import ClientDirectory
from portico.auth.proxy.consent_page import compute_form_token
from portico.auth.proxy.credentials import compute_challenge, compute_digest
from portico.auth.proxy.identity_provider import IdentityProvider, IdentityUnconfirmed
from portico.auth.proxy.json_requests import RequestFailed
from portico.auth.proxy.redirect_uris import is_web_redirect
from portico.auth.proxy.token_service import TokenService
from portico.callers import Principal
from portico.storage.authorization_rows import ConsentRow, SignInRow
from portico.storage.authorization_store import AuthorizationStore

SIGN_IN_S = 600.0
"""Seconds that a person may take at the identity provider."""
CONSENT_S = 90 * 86_400.0
CALLBACK_PATH = "/oauth/callback"
_UNAVAILABLE = (IssuerUnavailable, RequestFailed)
_BEGIN_AGAIN = "this sign-in has ended, or began in another browser"


@dataclass(frozen=True)
class ConsentNeeded:
    request: AuthorizationRequest
    form_token: str
    browser_secret: str
    """For the browser's cookie."""


@dataclass(frozen=True)
class Redirect:
    url: str


GATEWAY_CLIENT = "gateway"
"""Client id of the gateway's own pages; no client that registers has such a one."""


class SignInFlow:
    """For one event loop. All methods raise OAuthError."""

    def __init__(
        self,
        public_url: str,
        store: AuthorizationStore,
        clients: ClientDirectory,
        provider: IdentityProvider,
        tokens: TokenService,
        *,
        has_profile: Callable[[str], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = public_url
        self._store = store
        self._clients = clients
        self._provider = provider
        self._tokens = tokens
        self._has_profile = has_profile
        self._clock = clock

    async def begin(
        self, params: Mapping[str, str], browser_secret: str
    ) -> ConsentNeeded | Redirect:
        """Answer an authorization request; `browser_secret` is empty in a new browser."""
        request = await self._read(params)
        if browser_secret:
            person = await self._store.find_consent(
                compute_digest(browser_secret),
                request.client.id,
                request.redirect_uri,
                self._clock(),
            )
            if person:
                return await self._go_to_provider(request, browser_secret, person)
        secret = browser_secret or secrets.token_urlsafe(32)
        return ConsentNeeded(request, compute_form_token(secret, request.to_params()), secret)

    async def identify(self, redirect_uri: str, state: str, browser_secret: str) -> Redirect:
        """Send a person of one of the gateway's own pages to the identity provider: the page has
        asked them. The code that comes back is for `redeem`."""
        challenge = compute_challenge(_derive(browser_secret, "identify", state))
        client = OAuthClient(GATEWAY_CLIENT, "", (redirect_uri,))
        request = AuthorizationRequest(client, redirect_uri, state, challenge, f"{self._url}/mcp")
        return await self._go_to_provider(request, browser_secret, "")

    async def redeem(
        self, code: str, redirect_uri: str, state: str, browser_secret: str
    ) -> Principal:
        """Return who has come back to one of the gateway's own pages, in the same browser."""
        form = {
            "grant_type": "authorization_code",
            "client_id": GATEWAY_CLIENT,
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": _derive(browser_secret, "identify", state),
        }
        answer = await self._tokens.exchange(form)
        principal = await self._tokens.verify(answer["access_token"])
        await self._tokens.revoke({"token": answer["refresh_token"], "client_id": GATEWAY_CLIENT})
        if not isinstance(principal, Principal):
            raise OAuthError("access_denied", "this person may not come in", status=403)
        return principal

    async def decide(self, form: Mapping[str, str], browser_secret: str) -> Redirect:
        """Answer what a person decided on the consent page."""
        request = await self._read(form)
        token = compute_form_token(browser_secret, request.to_params())
        if not browser_secret or not _is_same(form.get("form_token", ""), token):
            raise OAuthError("access_denied", "the form is not of this browser", status=403)
        if form.get("decision") != "allow":
            raise RedirectedError(
                "access_denied", "the person denied it", request.redirect_uri, request.state
            )
        return await self._go_to_provider(request, browser_secret, "")

    async def finish(self, params: Mapping[str, str], browser_secret: str) -> Redirect:
        """Answer a person who comes back from the identity provider."""
        state = params.get("state", "")
        sign_in = await self._store.take_sign_in(compute_digest(state))
        if sign_in is None or not browser_secret or sign_in.expires_at <= self._clock():
            raise OAuthError("invalid_request", _BEGIN_AGAIN)
        if not _is_same(compute_digest(browser_secret), sign_in.browser_digest):
            raise OAuthError("invalid_request", _BEGIN_AGAIN, status=403)

        def refuse(error: str, description: str) -> RedirectedError:
            return RedirectedError(error, description, sign_in.redirect_uri, sign_in.client_state)

        try:
            await self._provider.check_answer(params)
            if "error" in params or not params.get("code"):
                raise refuse("access_denied", "the identity provider did not let the person in")
            person = await self._provider.redeem(
                params["code"],
                _derive(browser_secret, "verifier", state),
                _derive(browser_secret, "nonce", state),
                self._url + CALLBACK_PATH,
            )
            code, name = await self._tokens.create_code(sign_in, person)
        except _UNAVAILABLE as error:
            raise refuse("temporarily_unavailable", str(error)) from error
        except IdentityUnconfirmed as error:
            raise refuse("access_denied", error.message) from error
        if sign_in.person and sign_in.person != name:
            await self._store.end_consent(
                sign_in.browser_digest, sign_in.client_id, sign_in.redirect_uri
            )
            raise OAuthError(
                "access_denied", "somebody else signed in than who agreed to this", status=403
            )
        if is_web_redirect(sign_in.redirect_uri):
            await self._store.add_consent(
                ConsentRow(
                    sign_in.browser_digest,
                    sign_in.client_id,
                    sign_in.redirect_uri,
                    name,
                    self._clock() + CONSENT_S,
                ),
                self._clock(),
            )
        return Redirect(
            build_redirect(sign_in.redirect_uri, sign_in.client_state, self._url, {"code": code})
        )

    async def _read(self, params: Mapping[str, str]) -> AuthorizationRequest:
        client = await self._clients.find(params.get("client_id", ""))
        return read_request(params, client, self._is_resource, f"{self._url}/mcp")

    def _is_resource(self, resource: str) -> bool:
        address = resource.rstrip("/")
        root = f"{self._url}/mcp/p/"
        if address.startswith(root):
            return self._has_profile(address.removeprefix(root))
        return address in (self._url, f"{self._url}/mcp")

    async def _go_to_provider(
        self, request: AuthorizationRequest, browser_secret: str, person: str
    ) -> Redirect:
        state = secrets.token_urlsafe(32)
        challenge = compute_challenge(_derive(browser_secret, "verifier", state))
        nonce = _derive(browser_secret, "nonce", state)
        try:
            url = await self._provider.build_authorization_url(
                self._url + CALLBACK_PATH, state, challenge, nonce
            )
        except _UNAVAILABLE as error:
            raise RedirectedError(
                "temporarily_unavailable", str(error), request.redirect_uri, request.state
            ) from error
        now = self._clock()
        sign_in = SignInRow(
            compute_digest(state),
            compute_digest(browser_secret),
            request.client.id,
            request.redirect_uri,
            request.state,
            request.challenge,
            request.resource,
            now + SIGN_IN_S,
            person,
        )
        await self._store.add_sign_in(sign_in, now)
        return Redirect(url)


def _derive(browser_secret: str, purpose: str, state: str) -> str:
    """Return a secret that only this browser and state give again."""
    digest = hmac.new(browser_secret.encode(), f"{purpose} {state}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())
