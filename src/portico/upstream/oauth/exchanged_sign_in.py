"""Signs a person in to a server by the token with which they came to the gateway, without asking
them: token exchange at their identity provider (RFC 8693; Entra's on-behalf-of), and
enterprise-managed authorization (an assertion from there, and a token of the server's own
authorization server for that).

Who the authorization servers are is configured, never found out from the server. What a person came
with goes to its issuer and nowhere else.
"""

import time
from urllib.parse import urlsplit

from mcp.client.auth.utils import union_scopes

from portico.errors import SignInNeeded
from portico.upstream.oauth.authorization_http import SignInFailed, TrustedPlaces
from portico.upstream.oauth.credential import (
    OAuthCredential,
    RegisteredClient,
    SignInTarget,
    SubjectTokens,
)
from portico.upstream.oauth.discovery import Discovery, discover_issuer
from portico.upstream.oauth.token_requests import (
    ACCESS_TOKEN_TYPE,
    ID_JAG_TYPE,
    ClientSecrets,
    TokenAnswer,
    TokenRefused,
    authenticate,
    build_assertion_form,
    build_exchange_form,
    build_on_behalf_of_form,
    choose_auth_method,
    make_credential,
    parse_token_answer,
)
from portico.upstream.oauth.token_store import TokenStore, make_trusted_places

ENTRA_HOST = "login.microsoftonline.com"


async def exchange_credential(
    store: TokenStore, target: SignInTarget, wanted_scope: str
) -> OAuthCredential:
    """Get a token; nothing is stored. Raises AuthorizationUnavailable, SignInFailed,
    SignInNeeded."""
    exchange = _Exchange(store, target, make_trusted_places(target), time.time())
    scope = union_scopes(wanted_scope, " ".join(target.auth.scopes) or None)
    if target.auth.grant == "token_exchange":
        return await exchange.exchange_at_provider(scope)
    return await exchange.exchange_assertion(scope)


class _Exchange:
    def __init__(
        self, store: TokenStore, target: SignInTarget, trusted: TrustedPlaces, now: float
    ) -> None:
        self._store = store
        self._target = target
        self._trusted = trusted
        self._now = now

    async def exchange_at_provider(self, scope: str | None) -> OAuthCredential:
        auth = self._target.auth
        found, client, secrets = await self._find(
            auth.issuer or "", auth.client_id or "", await self._read_own_secrets()
        )
        subject = await self._read_subject(found.issuer)
        if urlsplit(found.issuer).hostname == ENTRA_HOST:
            form = build_on_behalf_of_form(subject, scope)
        else:
            resource = "" if auth.audience else found.resource
            form = build_exchange_form(
                subject, ACCESS_TOKEN_TYPE, auth.audience or "", resource, scope
            )
        answer = await self._request(form, found, client, secrets)
        return self._make_credential(answer, found, client, scope)

    async def exchange_assertion(self, scope: str | None) -> OAuthCredential:
        auth = self._target.auth
        found, client, secrets = await self._find(
            auth.issuer or "", auth.client_id or "", await self._read_own_secrets()
        )
        own = ClientSecrets(await self._store.read_secret(auth.identity_client_secret))
        provider, provider_client, provider_secrets = await self._find(
            auth.identity_provider or "", auth.identity_client_id or "", own
        )
        subject = await self._read_subject(provider.issuer)
        form = build_exchange_form(subject, ID_JAG_TYPE, found.issuer, found.resource, scope)
        # The assertion is no access token, and has no token type (RFC 8693 §2.2.1).
        assertion = await self._request(form, provider, provider_client, provider_secrets, "n_a")
        form = build_assertion_form(client, assertion.access_token, scope, found.resource)
        answer = await self._request(form, found, client, secrets)
        return self._make_credential(answer, found, client, scope)

    async def _read_subject(self, issuer: str) -> SubjectTokens:
        """Return with what the person came, if it is of this issuer. Raises SignInNeeded."""
        target = self._target
        subject = await self._store.read_subject(target.person, self._now)
        if subject is None or subject.issuer.rstrip("/") != issuer.rstrip("/"):
            raise SignInNeeded(
                f"{target.name} is used as the person that {issuer} says you are: you came without "
                "a valid token of it",
                advice="Sign in to the gateway there, in your client; a key is not enough.",
            )
        return subject

    async def _read_own_secrets(self) -> ClientSecrets:
        return await self._store.read_client_secrets(self._target)

    async def _find(
        self, issuer: str, client_id: str, secrets: ClientSecrets
    ) -> tuple[Discovery, RegisteredClient, ClientSecrets]:
        found = await discover_issuer(self._store.http, self._target, self._trusted, issuer)
        supported = found.metadata.token_endpoint_auth_methods_supported
        method = choose_auth_method(secrets, supported)
        return found, RegisteredClient(client_id, method, is_configured=True), secrets

    async def _request(
        self,
        form: dict[str, str],
        found: Discovery,
        client: RegisteredClient,
        secrets: ClientSecrets,
        expected_type: str = "bearer",
    ) -> TokenAnswer:
        form, headers = authenticate(form, client, secrets, found.issuer, self._now)
        endpoint = found.token_endpoint
        answer = await self._store.http.post_form(endpoint, self._trusted, form, headers)
        try:
            return parse_token_answer(answer, endpoint, expected_type)
        except TokenRefused as error:
            raise SignInFailed(
                f"{found.issuer} gives this person no token for {self._target.name}: "
                f"{error.reason}",
                advice=f"Check `auth` of {self._target.name}, and what its client may exchange.",
            ) from error

    def _make_credential(
        self, answer: TokenAnswer, found: Discovery, client: RegisteredClient, scope: str | None
    ) -> OAuthCredential:
        return make_credential(
            answer,
            client,
            issuer=found.issuer,
            token_endpoint=found.token_endpoint,
            resource=found.resource,
            requested_scope=scope,
            now=self._now,
        )
