"""Identity providers whose tokens open the gateway over HTTP."""

import re
from typing import Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from portico.config.auth_proxy import OPEN_ISSUERS, SHARED_TENANT, ProxyConfig
from portico.config.section import Section, list_names, setting

Algorithm = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]
"""Signatures by a private key. None by a shared secret: whoever checks it could forge it."""
EVERY_PROFILE = "*"
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
_GRANT = re.compile(r"(?:scope|group):\S.{0,399}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
"""A scope by RFC 6749."""


class IntrospectionConfig(Section):
    """Asking an issuer about tokens that only it understands (RFC 7662)."""

    url: str | None = setting(None, "Where to ask; by default what the issuer's metadata say.")
    client_id: str = Field(description="Client as which the gateway asks.", min_length=1)
    client_secret: SecretStr = Field(description="Its secret.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        return check_url(value) if value is not None else None


class IssuerConfig(Section):
    """An identity provider or authorization server, and what its tokens open."""

    issuer: str = Field(
        description="Its issuer, exactly as its tokens and its metadata write it: https, or http"
        " on this machine."
    )
    audience: tuple[str, ...] = setting(
        (),
        "Audiences of tokens that are meant for this gateway. Beside them, those that"
        " `gateway.public_url` makes: the address of an endpoint.",
    )
    jwks_uri: str | None = setting(
        None, "Where its public keys are; by default what its metadata say."
    )
    algorithms: tuple[Algorithm, ...] = setting(
        get_args(Algorithm), "Signatures that are accepted.", min_length=1
    )
    introspection: IntrospectionConfig | None = setting(
        None, "For tokens that are no JWT: ask the issuer. One issuer at most may have it."
    )
    proxy: ProxyConfig | None = setting(
        None,
        "Let clients register with the gateway, for a provider where they cannot: it has an"
        " authorization server of its own, and people sign in at this issuer.",
    )
    subject_claim: str = setting("sub", "Claim that says who it is, the same for ever.")
    name_claim: tuple[str, ...] = setting(
        ("name", "preferred_username", "email"), "Claims with a name to show; the first is used."
    )
    groups_claim: str = setting(
        "groups", "Claim with the groups of a person; a path such as `realm_access.roles`."
    )
    required_scopes: tuple[str, ...] = setting((), "Scopes that every token must have.")
    profiles: dict[str, tuple[str, ...]] = setting(
        {},
        "Profile → `group:NAME` or `scope:NAME`, of which any opens it; `*` stands for all"
        " profiles and the default endpoint. Not given: every token opens everything.",
    )
    read_only: bool = setting(False, "Its tokens call only tools that are known to be read-only.")

    @field_validator("audience", "name_claim", "required_scopes", mode="before")
    @classmethod
    def _list_texts(cls, value: Any) -> Any:
        return list_names(value)

    @field_validator("issuer", "jwks_uri")
    @classmethod
    def _check_urls(cls, value: str | None) -> str | None:
        return check_url(value) if value is not None else None

    @field_validator("audience", "name_claim")
    @classmethod
    def _check_texts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not text.strip() for text in value):
            raise ValueError("an entry is empty")
        return value

    @field_validator("required_scopes")
    @classmethod
    def _check_scopes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for scope in value:
            _check_scope(scope)
        return value

    @field_validator("profiles")
    @classmethod
    def _check_grants(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for grants in value.values():
            for grant in grants:
                if _GRANT.fullmatch(grant) is None:
                    raise ValueError(f"{grant!r} opens nothing: write group:NAME or scope:NAME")
                kind, _, name = grant.partition(":")
                if kind == "scope":
                    _check_scope(name)
        return value

    @model_validator(mode="after")
    def _check_proxy(self) -> Self:
        if self.proxy is None:
            return self
        grants = [grant for listed in self.profiles.values() for grant in listed]
        if self.required_scopes or any(grant.startswith("scope:") for grant in grants):
            raise ValueError(
                "with proxy, profiles open by group:NAME: the gateway gives out no scopes"
            )
        if self.issuer in OPEN_ISSUERS and not grants:
            raise ValueError(
                f"anybody can have an account at {self.issuer}: name in profiles the groups that"
                " may come in"
            )
        if SHARED_TENANT.fullmatch(self.issuer):
            raise ValueError("name the tenant in the issuer: its id tokens do")
        return self


def check_url(text: str) -> str:
    """Return an address to which nothing secret is sent in the clear; raises ValueError."""
    try:
        parts = urlsplit(text)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        raise ValueError("it is no URL") from None
    if not host or parts.scheme not in ("https", "http") or not text.isprintable() or " " in text:
        raise ValueError("write a whole URL, as in https://id.example.org/realms/acme")
    if parts.scheme == "http" and host not in _LOOPBACK_HOSTS:
        raise ValueError("it must be https: http is for addresses of this machine")
    if parts.fragment or parts.username is not None:
        raise ValueError("it must have no user, password or fragment")
    return text


def _check_scope(scope: str) -> None:
    if _SCOPE.fullmatch(scope) is None:
        raise ValueError(f'{scope!r} is no scope: use visible ASCII without spaces, " and \\')
