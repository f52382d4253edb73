"""The gateway's own authorization server, in front of an identity provider."""

import re
from typing import Any

from pydantic import Field, SecretStr, field_validator

from portico.config.section import Section, list_names, setting

GOOGLE = "https://accounts.google.com"
GITHUB = "https://github.com"
OPEN_ISSUERS = (GOOGLE, GITHUB)
"""Where anybody in the world can have an account."""
SHARED_TENANT = re.compile(
    r"https://login\.microsoftonline\.com/(?:common|organizations|consumers)(?:/.*)?"
)
"""Of Entra, whose tokens there have the issuer of each tenant."""


class ProxyConfig(Section):
    """Clients register with the gateway, and people sign in at the identity provider."""

    client_id: str = Field(
        description="Client as which the gateway is registered there, with the redirect URI"
        " `PUBLIC_URL/oauth/callback`.",
        min_length=1,
        max_length=500,
    )
    client_secret: SecretStr | None = setting(
        None, "Its secret; without one, the gateway is a public client."
    )
    scopes: tuple[str, ...] | None = setting(
        None, "Scopes the gateway asks the provider for; by default those that it needs there."
    )

    @field_validator("scopes", mode="before")
    @classmethod
    def _list_scopes(cls, value: Any) -> Any:
        return list_names(value)
