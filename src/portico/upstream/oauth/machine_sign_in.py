"""Signs Portico in as itself, without a person: client credentials, by a secret or private key, or
the JWT of a workload."""

import time

from mcp.client.auth.utils import union_scopes

from portico.upstream.oauth.authorization_http import SignInFailed
from portico.upstream.oauth.challenge import Challenge
from portico.upstream.oauth.credential import OAuthCredential, SignInTarget
from portico.upstream.oauth.discovery import discover
from portico.upstream.oauth.possession_proof import make_key
from portico.upstream.oauth.registration import choose_client
from portico.upstream.oauth.token_requests import (
    TokenRefused,
    authenticate,
    build_assertion_form,
    build_client_credentials_form,
    make_credential,
    parse_token_answer,
)
from portico.upstream.oauth.token_store import TokenStore, make_trusted_places


async def obtain_credential(
    store: TokenStore,
    target: SignInTarget,
    challenge: Challenge,
    wanted_scope: str,
) -> OAuthCredential:
    """Get a token; nothing is stored. Raises AuthorizationUnavailable, SignInFailed."""
    trusted = make_trusted_places(target)
    found = await discover(store.http, target, trusted, challenge)
    scope = union_scopes(wanted_scope, found.select_scope(target, challenge))
    client_secrets = await store.read_client_secrets(target)
    client = await choose_client(
        store.http, store.credentials, target, trusted, found, client_secrets
    )
    now = time.time()
    form = build_client_credentials_form(client, scope, found.resource)
    if target.auth.grant == "jwt_bearer":
        assertion = await store.read_secret(target.auth.assertion)
        form = build_assertion_form(client, assertion.strip(), scope, found.resource)
    form, headers = authenticate(form, client, client_secrets, found.issuer, now)
    key = make_key() if found.wants_dpop else ""
    answer = await store.http.post_form(found.token_endpoint, trusted, form, headers, key)
    try:
        tokens = parse_token_answer(answer, found.token_endpoint, may_be_bound=bool(key))
    except TokenRefused as error:
        raise SignInFailed(
            f"the authorization server {found.issuer} of {target.name} refuses: {error.reason}",
            advice=f"Check `auth` of {target.name} in the configuration.",
        ) from error
    return make_credential(
        tokens,
        client,
        issuer=found.issuer,
        token_endpoint=found.token_endpoint,
        resource=found.resource,
        requested_scope=scope,
        now=now,
        dpop_key=key,
    )
