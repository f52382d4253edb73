"""Which client Portico is at an authorization server: the configured one, one that a document
describes, or one that it registers; in this order, as the specification demands."""

import time
from typing import Any, cast, get_args

from mcp.client.auth.utils import is_valid_client_metadata_url, should_use_client_metadata_url
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import TypeAdapter, ValidationError

from portico.json_text import json_codec
from portico.json_text.json_codec import to_object
from portico.storage.credential_store import CredentialStore
from portico.upstream.oauth.authorization_http import (
    AuthorizationHttp,
    AuthorizationUnavailable,
    SignInFailed,
    TrustedPlaces,
)
from portico.upstream.oauth.credential import (
    AuthMethod,
    RegisteredClient,
    SignInTarget,
    get_registration_slot,
)
from portico.upstream.oauth.discovery import GRANT_TYPES, Discovery
from portico.upstream.oauth.token_requests import ClientSecrets, choose_auth_method, describe_error

_CLIENTS = TypeAdapter(RegisteredClient)
_SECRET_MARGIN_S = 86_400.0
"""Seconds before the end of a registered client's secret from when on another is registered."""


async def choose_client(
    http: AuthorizationHttp,
    store: CredentialStore,
    target: SignInTarget,
    trusted: TrustedPlaces,
    found: Discovery,
    client_secrets: ClientSecrets,
    redirect_uri: str = "",
    document_url: str = "",
) -> RegisteredClient:
    """Return the client to sign in with at the authorization server that was found.

    `document_url`: a client id metadata document that describes this gateway. Raises SignInFailed,
    AuthorizationUnavailable, StoreUnavailable.
    """
    client_id = target.auth.client_id
    supported = found.metadata.token_endpoint_auth_methods_supported
    has_proof = client_secrets != ClientSecrets()
    if client_id is not None and (has_proof or not is_valid_client_metadata_url(client_id)):
        method = choose_auth_method(client_secrets, supported)
        return RegisteredClient(client_id, method, redirect_uri=redirect_uri, is_configured=True)
    for url in (client_id, document_url):
        if url and should_use_client_metadata_url(found.metadata, url):
            return RegisteredClient(url, redirect_uri=redirect_uri, is_configured=True)
    return await _find_or_register(http, store, trusted, found, redirect_uri)


async def find_registered(
    store: CredentialStore, issuer: str, redirect_uri: str
) -> RegisteredClient | None:
    """Return the client that was registered for this redirect, whatever its loopback port."""
    stored = await store.read(get_registration_slot(issuer, redirect_uri))
    if stored is None:
        return None
    try:
        client = _CLIENTS.validate_json(stored[0])
    except ValidationError:
        return None
    if client.expires_at is not None and client.expires_at - time.time() < _SECRET_MARGIN_S:
        return None
    return client


async def _find_or_register(
    http: AuthorizationHttp,
    store: CredentialStore,
    trusted: TrustedPlaces,
    found: Discovery,
    redirect_uri: str,
) -> RegisteredClient:
    known = await find_registered(store, found.issuer, redirect_uri)
    if known is not None and known.redirect_uri == redirect_uri:
        return known
    endpoint = found.metadata.registration_endpoint
    if endpoint is None:
        raise SignInFailed(
            f"the authorization server {found.issuer} registers no clients by itself",
            advice="Register Portico there by hand, with the redirect address "
            f"{redirect_uri}, and put what it gives into the configuration: "
            "`auth: {client_id: …, client_secret: …}`.",
        )
    answer = await http.post_json(str(endpoint), trusted, _build_registration(found, redirect_uri))
    if answer.status >= 500 or answer.status == 429:
        raise AuthorizationUnavailable(
            f"the authorization server {found.issuer} could not register Portico: "
            f"HTTP {answer.status}",
            advice="Try again in a minute.",
        )
    client = _parse_registration(answer.status, answer.body, found.issuer, redirect_uri)
    slot = get_registration_slot(found.issuer, redirect_uri)
    await store.write(slot, _CLIENTS.dump_json(client).decode())
    return client


def _build_registration(found: Discovery, redirect_uri: str) -> dict[str, Any]:
    supported = found.metadata.token_endpoint_auth_methods_supported
    # Without metadata the standard's default is client_secret_basic.
    order = ("none", "client_secret_basic", "client_secret_post")
    method = next((one for one in order if one in (supported or ())), "none")
    is_web = redirect_uri.startswith("https://")
    return {
        "client_name": "Portico",
        "redirect_uris": [redirect_uri],
        "grant_types": list(GRANT_TYPES),
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "web" if is_web else "native",
    }


def _parse_registration(
    status: int, body: bytes, issuer: str, redirect_uri: str
) -> RegisteredClient:
    try:
        answered = to_object(json_codec.loads(body))
    except (ValueError, RecursionError):
        answered = {}
    try:
        if status not in (200, 201):
            raise ValueError
        client = OAuthClientInformationFull.model_validate(answered)
    except ValueError:
        reason = describe_error(answered) or f"HTTP {status}"
        raise SignInFailed(
            f"the authorization server {issuer} did not register Portico: {reason}",
            advice="Register Portico there by hand, and put what it gives into the configuration: "
            "`auth: {client_id: …, client_secret: …}`.",
        ) from None
    method = client.token_endpoint_auth_method
    if method not in get_args(AuthMethod) or method == "private_key_jwt":
        method = "client_secret_basic" if client.client_secret else "none"
    if not client.client_secret:
        method = "none"
    return RegisteredClient(
        client.client_id,
        cast(AuthMethod, method),
        client.client_secret or "",
        redirect_uri,
        expires_at=client.client_secret_expires_at or None,
    )
