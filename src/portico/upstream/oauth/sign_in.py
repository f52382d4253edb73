"""One sign-in of a person: begun with a URL for a browser, finished by what that brings back.

begin_sign_in(…) → PendingSignIn with the URL
finish_sign_in(pending, query) → the credential, stored
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from mcp.client.auth import OAuthFlowError, PKCEParameters
from mcp.client.auth.utils import union_scopes, validate_authorization_response_iss

from portico.upstream.oauth.authorization_http import SignInFailed, TrustedPlaces
from portico.upstream.oauth.challenge import parse_challenge
from portico.upstream.oauth.credential import OAuthCredential, RegisteredClient, SignInTarget
from portico.upstream.oauth.discovery import Discovery, discover
from portico.upstream.oauth.possession_proof import make_key
from portico.upstream.oauth.registration import choose_client, find_registered
from portico.upstream.oauth.token_requests import (
    TokenRefused,
    authenticate,
    build_code_form,
    describe_error,
    make_credential,
    parse_token_answer,
)
from portico.upstream.oauth.token_store import TokenStore, make_trusted_places
from portico.upstream.transports.http_headers import redact_url

PENDING_S = 600.0
"""Seconds within which a sign-in must be finished."""


class ClientForgotten(SignInFailed):
    """The authorization server no longer knows the client; the next sign-in registers another."""


@dataclass(frozen=True)
class PendingSignIn:
    """A sign-in that was begun. `state` binds what the browser brings back to it."""

    target: SignInTarget
    discovery: Discovery = field(repr=False)
    trusted: TrustedPlaces = field(repr=False)
    client: RegisteredClient
    redirect_uri: str
    scope: str | None
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    url: str = field(repr=False)
    begun_at: float
    dpop_key: str = field(default="", repr=False)
    """Key to which the tokens shall be bound."""


async def discover_for(
    store: TokenStore, target: SignInTarget
) -> tuple[Discovery, TrustedPlaces, str | None]:
    """Ask a server where and for what to sign in; return also the scopes to ask for."""
    trusted = make_trusted_places(target)
    challenge = parse_challenge(await store.http.ask_for_challenge(target.url))
    if not (challenge.is_bearer or challenge.is_dpop):  # some want tokens for certain requests only
        challenge = await store.read_challenge(target)
    found = await discover(store.http, target, trusted, challenge)
    scope = found.select_scope(target, challenge)
    earlier = await store.read(target)
    if earlier is not None and earlier[0].wanted_scope:
        scope = union_scopes(earlier[0].wanted_scope, scope)
    return found, trusted, scope


async def find_registered_redirect(store: TokenStore, found: Discovery, redirect: str) -> str:
    """Return the loopback address that was registered in place of this one, or this one."""
    client = await find_registered(store.credentials, found.issuer, redirect)
    return redirect if client is None else client.redirect_uri


async def begin_sign_in(
    store: TokenStore,
    target: SignInTarget,
    found: Discovery,
    trusted: TrustedPlaces,
    scope: str | None,
    redirect_uri: str,
    document_url: str = "",
    state_prefix: str = "",
) -> PendingSignIn:
    """Choose the client, registering it if needed, and make the URL for the browser."""
    client_secrets = await store.read_client_secrets(target)
    client = await choose_client(
        store.http,
        store.credentials,
        target,
        trusted,
        found,
        client_secrets,
        redirect_uri,
        document_url,
    )
    pkce = PKCEParameters.generate()
    state = f"{state_prefix}{secrets.token_urlsafe(32)}"
    params = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": pkce.code_challenge,
        "code_challenge_method": "S256",
        "resource": found.resource,
    }
    if scope:
        params["scope"] = scope
        if "offline_access" in scope.split():
            params["prompt"] = "consent"
    endpoint = urlsplit(str(found.metadata.authorization_endpoint))
    if endpoint.scheme not in ("https", "http"):
        raise SignInFailed(f"{redact_url(endpoint.geturl())} is no address to sign in at")
    await trusted.check(endpoint.geturl())
    query = urlencode([*parse_qsl(endpoint.query, keep_blank_values=True), *params.items()])
    url = urlunsplit(endpoint._replace(query=query, fragment=""))
    return PendingSignIn(
        target,
        found,
        trusted,
        client,
        redirect_uri,
        scope,
        state,
        pkce.code_verifier,
        url,
        time.time(),
        make_key() if found.wants_dpop else "",
    )


async def finish_sign_in(
    store: TokenStore, pending: PendingSignIn, query: Mapping[str, str]
) -> OAuthCredential:
    """Redeem the code that the browser brought back, and store the tokens.

    Raises SignInFailed, ClientForgotten, AuthorizationUnavailable, StoreUnavailable.
    """
    code = check_answer(pending, query)
    found = pending.discovery
    form = build_code_form(
        pending.client, code, pending.verifier, pending.redirect_uri, found.resource
    )
    now = time.time()
    client_secrets = await store.read_client_secrets(pending.target)
    form, headers = authenticate(form, pending.client, client_secrets, found.issuer, now)
    key = pending.dpop_key
    endpoint = found.token_endpoint
    answer = await store.http.post_form(endpoint, pending.trusted, form, headers, key)
    try:
        tokens = parse_token_answer(answer, endpoint, may_be_bound=bool(key))
    except TokenRefused as error:
        raise await _to_failure(store, pending, error) from error
    credential = make_credential(
        tokens,
        pending.client,
        issuer=found.issuer,
        token_endpoint=found.token_endpoint,
        resource=found.resource,
        requested_scope=pending.scope,
        now=now,
        dpop_key=key,
    )
    await store.write(pending.target, credential)
    return credential


def check_answer(pending: PendingSignIn, query: Mapping[str, str]) -> str:
    """Return the code of what the browser brought back. Raises SignInFailed.

    State and issuer are checked before anything else is looked at, errors included.
    """
    if not secrets.compare_digest(query.get("state", "").encode(), pending.state.encode()):
        raise SignInFailed(
            "what came back does not belong to this sign-in", advice="Begin it again."
        )
    if time.time() - pending.begun_at > PENDING_S:
        raise SignInFailed(
            f"the sign-in took longer than {PENDING_S / 60:g} minutes", advice="Begin it again."
        )
    try:
        validate_authorization_response_iss(query.get("iss"), pending.discovery.metadata)
    except OAuthFlowError:
        raise SignInFailed(
            "what came back is from another authorization server than the one that was asked "
            f"({redact_url(pending.discovery.issuer)}): nothing was sent to it",
            advice="Begin it again; if it happens again, tell the operator of the server.",
        ) from None
    if "error" in query:
        raise SignInFailed(
            f"{pending.target.name} was not signed in to: {describe_error(query)}",
            advice="Begin it again, and allow access.",
        )
    code = query.get("code", "")
    if not code:
        raise SignInFailed("what came back has no code", advice="Begin it again.")
    return code


async def _to_failure(
    store: TokenStore, pending: PendingSignIn, error: TokenRefused
) -> SignInFailed:
    target = pending.target
    if error.what == "client" and not pending.client.is_configured:
        issuer = pending.discovery.issuer
        await store.forget_client(issuer, pending.redirect_uri)
        return ClientForgotten(
            f"the authorization server of {target.name} no longer knows this client",
            advice="Begin the sign-in again: Portico registers anew.",
        )
    advice = "Begin it again."
    if error.what == "client":
        advice = f"Check client_id and client_secret of {target.name} in the configuration."
    return SignInFailed(f"{target.name} was not signed in to: {error.reason}", advice=advice)
