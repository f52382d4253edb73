"""Finds the authorization server of a server: RFC 9728, then RFC 8414 or OpenID discovery.

A server without protected resource metadata is its own authorization server (version 2025-03-26),
with the endpoints of that version where it publishes nothing.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    get_client_metadata_scopes,
    issuers_match,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import ValidationError

from portico.upstream.oauth.authorization_http import (
    AuthorizationHttp,
    AuthorizationUnavailable,
    HttpAnswer,
    SignInFailed,
    TrustedPlaces,
)
from portico.upstream.oauth.challenge import Challenge
from portico.upstream.oauth.credential import SignInTarget
from portico.upstream.transports.http_headers import redact_url

GRANT_TYPES: tuple[str, ...] = ("authorization_code", "refresh_token")


@dataclass(frozen=True)
class Discovery:
    """An authorization server, and what to ask it for."""

    metadata: OAuthMetadata
    resource: str
    is_published: bool = True
    """Whether it publishes metadata; else its endpoints are those of 2025-03-26."""
    resource_metadata: ProtectedResourceMetadata | None = None
    wants_dpop: bool = False
    """Whether the server wants tokens that are bound to a key."""

    @property
    def issuer(self) -> str:
        return str(self.metadata.issuer)

    @property
    def token_endpoint(self) -> str:
        return str(self.metadata.token_endpoint)

    def select_scope(self, target: SignInTarget, challenge: Challenge) -> str | None:
        """Return the scopes to ask for: configured, else challenged, else published ones."""
        challenged = " ".join(target.auth.scopes) or challenge.scope
        grant_types = [*GRANT_TYPES] if target.is_interactive else []
        selected = get_client_metadata_scopes(
            challenged, self.resource_metadata, self.metadata, grant_types
        )
        return " ".join((selected or "").split()) or None


async def discover(
    http: AuthorizationHttp, target: SignInTarget, trusted: TrustedPlaces, challenge: Challenge
) -> Discovery:
    """Find the authorization server of a server. Raises AuthorizationUnavailable, SignInFailed."""
    published = await _find_resource_metadata(http, target, trusted, challenge)
    resource = resource_url_from_server_url(target.url)
    issuer = target.auth.issuer
    if published is not None:
        resource = str(published.resource)
        issuer = issuer or str(published.authorization_servers[0])
    metadata = await _find_server_metadata(http, target, trusted, issuer)
    if metadata is not None:
        if target.is_interactive:
            _check_pkce(metadata)
        return Discovery(
            metadata, resource, resource_metadata=published, wants_dpop=challenge.is_dpop
        )
    if issuer is not None:
        raise _make_unpublished_error(target, issuer)
    return Discovery(_make_default_metadata(target.url), resource, is_published=False)


async def discover_issuer(
    http: AuthorizationHttp, target: SignInTarget, trusted: TrustedPlaces, issuer: str
) -> Discovery:
    """Find a configured authorization server, without asking the server that tokens are for."""
    metadata = await _find_server_metadata(http, target, trusted, issuer)
    if metadata is None:
        raise _make_unpublished_error(target, issuer)
    return Discovery(metadata, resource_url_from_server_url(target.url))


def _make_unpublished_error(target: SignInTarget, issuer: str) -> SignInFailed:
    return SignInFailed(
        f"the authorization server {redact_url(issuer)} of {target.name} publishes no metadata",
        advice="Is that the right issuer? It should answer "
        "/.well-known/oauth-authorization-server.",
    )


async def _find_resource_metadata(
    http: AuthorizationHttp, target: SignInTarget, trusted: TrustedPlaces, challenge: Challenge
) -> ProtectedResourceMetadata | None:
    trouble: HttpAnswer | None = None
    for url in build_protected_resource_metadata_discovery_urls(
        challenge.resource_metadata, target.url
    ):
        answer = await http.get(url, trusted)
        if answer.status >= 500 or answer.status == 429:
            trouble = answer
        if answer.status != 200:
            continue
        try:
            found = ProtectedResourceMetadata.model_validate_json(answer.body)
        except ValidationError:
            continue
        expected = resource_url_from_server_url(target.url)
        if not check_resource_allowed(expected, str(found.resource)):
            raise SignInFailed(
                f"{target.name} says that it is {redact_url(str(found.resource))}, "
                f"not {redact_url(target.url)}",
                advice="A token for one may not be sent to the other: use the url that it names.",
            )
        return found
    if trouble is not None:
        raise AuthorizationUnavailable(
            f"{target.name} cannot say where to sign in: HTTP {trouble.status}",
            advice="Try again in a minute.",
        )
    return None


async def _find_server_metadata(
    http: AuthorizationHttp, target: SignInTarget, trusted: TrustedPlaces, issuer: str | None
) -> OAuthMetadata | None:
    expected = issuer or _get_origin(target.url)
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, target.url):
        answer = await http.get(url, trusted)
        if answer.status >= 500 or answer.status == 429:
            raise AuthorizationUnavailable(
                f"the authorization server {redact_url(expected)} answered HTTP {answer.status}",
                advice="Try again in a minute.",
            )
        if answer.status != 200:
            continue
        try:
            found = OAuthMetadata.model_validate_json(answer.body)
        except ValidationError:
            continue
        is_same = str(found.issuer) == expected
        if issuer is None or target.auth.issuer is not None:
            # People write the address of a host with or without a slash.
            is_same = issuers_match(str(found.issuer), expected)
        if not is_same:
            raise SignInFailed(
                f"the authorization server {redact_url(expected)} says that it is "
                f"{redact_url(str(found.issuer))}: nobody signs in there",
                advice="Its operator has to correct `issuer` in its metadata.",
            )
        return found
    return None


def _check_pkce(metadata: OAuthMetadata) -> None:
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise SignInFailed(
            f"the authorization server {redact_url(str(metadata.issuer))} does not know PKCE "
            "with S256, without which nobody should sign in"
        )


def _make_default_metadata(server_url: str) -> OAuthMetadata:
    origin = _get_origin(server_url)
    return OAuthMetadata.model_validate(
        {
            "issuer": origin,
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
            "registration_endpoint": f"{origin}/register",
        }
    )


def _get_origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
