"""What identity providers do differently, as data, by their issuer. Pure.

Keycloak, Okta, Auth0, Entra and others that speak OpenID Connect need nothing here. `resource` (RFC
8707) is sent to none: the gateway wants to know who somebody is, and needs no token for another
service. Entra would refuse the request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from portico.config.auth_proxy import GITHUB, GOOGLE


@dataclass(frozen=True)
class ProviderQuirks:
    scopes: tuple[str, ...] = ("openid", "profile", "email", "offline_access")
    """Scopes asked for, unless the configuration names others."""
    authorize_params: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parameters of its own in authorization requests."""
    other_issuers: tuple[str, ...] = ()
    """What its id tokens may say instead of its issuer."""
    has_openid: bool = True
    """Whether it speaks OpenID Connect; else it is read as GitHub's API."""
    endpoints: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where it has no metadata: its endpoints, by their names there."""
    api: str = ""
    """Root of the API that says who somebody is, where there is no OpenID Connect."""


_QUIRKS: Mapping[str, ProviderQuirks] = {
    # A refresh token is a parameter, not a scope, and comes only with consent.
    GOOGLE: ProviderQuirks(
        scopes=("openid", "profile", "email"),
        authorize_params={"access_type": "offline", "prompt": "consent"},
        other_issuers=("accounts.google.com",),
    ),
    # Tokens of OAuth apps do not expire; whether the person is still there is asked with them.
    GITHUB: ProviderQuirks(
        scopes=("read:user", "read:org"),
        has_openid=False,
        endpoints={
            "authorization_endpoint": "https://github.com/login/oauth/authorize",
            "token_endpoint": "https://github.com/login/oauth/access_token",
        },
        api="https://api.github.com",
    ),
}


def find_quirks(issuer: str) -> ProviderQuirks:
    return _QUIRKS.get(issuer, ProviderQuirks())
