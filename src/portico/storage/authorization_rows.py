"""Rows of what the authorization server keeps: clients, sign-ins under way, grants, consents."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OAuthClientRow:
    """A client that registered itself."""

    id: str
    name: str
    """The name that it gives itself."""
    redirect_uris: tuple[str, ...]
    created_at: float
    used_at: float | None = None
    """When somebody last signed in with it."""


@dataclass(frozen=True, slots=True)
class SignInRow:
    """A person who was sent to the identity provider, and what the client asked for."""

    state_digest: str
    browser_digest: str
    client_id: str
    redirect_uri: str
    client_state: str
    """The client's own `state`; empty: it sent none."""
    challenge: str
    resource: str
    expires_at: float
    person: str = ""
    """Issuer and subject of the person who agreed earlier in this browser; empty: they agreed just
    now."""


@dataclass(frozen=True, slots=True)
class GrantRow:
    """One sign-in of a person with a client. Its code, then its refresh token, is one at a time."""

    id: str
    digest: str
    """Of the code or refresh token that is valid now."""
    is_code: bool
    expires_at: float
    """When the code or refresh token expires."""
    ends_at: float
    """When it can no longer be renewed."""
    client_id: str
    redirect_uri: str
    challenge: str
    resource: str
    issuer: str
    subject: str
    claims: str
    """JSON: what the identity provider says of the person."""
    confirmed_at: float
    """When the identity provider last said that the person is still there."""
    sealed: bytes
    """Encrypted with the code or refresh token: what the identity provider confirms it by. Empty:
    nothing."""


@dataclass(frozen=True, slots=True)
class ConsentRow:
    """A person agreed in a browser that a client signs in with a redirect URI."""

    browser_digest: str
    client_id: str
    redirect_uri: str
    person: str
    """Issuer and subject."""
    expires_at: float
