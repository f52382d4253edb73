"""What one sign-in gave, as it is stored, and the slots of the store. Pure."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Literal

from portico.config.server_auth import MACHINE_GRANTS, ServerAuth

AuthMethod = Literal["none", "client_secret_post", "client_secret_basic", "private_key_jwt"]
MAX_REFRESH_AHEAD_S = 60.0
REFRESH_AHEAD_SHARE = 0.25
"""Share of a token's lifetime before whose end it is renewed, at most `MAX_REFRESH_AHEAD_S`."""


@dataclass(frozen=True)
class SignInTarget:
    """One server to sign in to, on behalf of one person."""

    name: str
    url: str = field(repr=False)
    auth: ServerAuth = field(default_factory=ServerAuth)
    is_required: bool = False
    """Whether the configuration says that it must be signed in to; else its answers say so."""
    person: str = ""
    """Id of the principal whose account it is; empty: the gateway's."""

    @property
    def slot(self) -> str:
        """Where its credential is stored."""
        auth = self.auth
        more = (auth.audience, auth.identity_provider, auth.identity_client_id)
        return _hash(
            *("tokens", self.url, auth.issuer, auth.client_id, auth.grant, self.person),
            *(more if auth.is_exchanged else ()),
        )

    @property
    def challenge_slot(self) -> str:
        """Where it is stored what the server said when it last refused a request."""
        return _hash("challenge", self.slot)

    @property
    def is_machine(self) -> bool:
        """Whether Portico signs in as itself, without a person."""
        return self.auth.grant in MACHINE_GRANTS

    @property
    def is_interactive(self) -> bool:
        """Whether a person has to sign in, in a browser."""
        return not (self.is_machine or self.auth.is_exchanged)


@dataclass(frozen=True)
class RegisteredClient:
    """The client that Portico is at one authorization server."""

    client_id: str
    auth_method: AuthMethod = "none"
    client_secret: str = field(default="", repr=False)
    """Of a client that registered itself; a configured one is read when it is needed."""
    redirect_uri: str = ""
    is_configured: bool = False
    expires_at: float | None = None


@dataclass(frozen=True)
class OAuthCredential:
    """Tokens, and to what they belong: they are never sent elsewhere."""

    issuer: str
    token_endpoint: str
    resource: str
    client: RegisteredClient
    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    scope: str = ""
    """Scopes that were granted."""
    obtained_at: float = 0.0
    expires_at: float | None = None
    refresh_problem: str = ""
    """Why it cannot be renewed any more; empty: it can."""
    dpop_key: str = field(default="", repr=False)
    """Private key to which the tokens are bound; empty: they are bearer tokens."""
    wanted_scope: str = ""
    """Scopes to ask for at the next sign-in, because a call was refused for lack of them."""

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def is_due(self, now: float, jitter: float) -> bool:
        """Return whether to renew it, ahead of its end; `jitter` (0 … 1) spreads replicas."""
        if self.expires_at is None:
            return False
        lifetime = max(0.0, self.expires_at - self.obtained_at)
        ahead = min(MAX_REFRESH_AHEAD_S, lifetime * REFRESH_AHEAD_SHARE) * (1 - 0.4 * jitter)
        return now >= self.expires_at - ahead


@dataclass(frozen=True)
class SubjectTokens:
    """By which a person came to the gateway: what their identity provider issued."""

    issuer: str
    access_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    expires_at: float = 0.0


def get_subject_slot(person: str) -> str:
    """Return where the tokens are stored by which a person came last."""
    return _hash("subject", person)


def get_registration_slot(issuer: str, redirect_uri: str) -> str:
    """Return where the client that registered itself at an issuer is stored.

    Loopback addresses share one, whatever their port.
    """
    return _hash("registration", issuer, strip_loopback_port(redirect_uri))


def strip_loopback_port(redirect_uri: str) -> str:
    for host in ("http://127.0.0.1:", "http://localhost:"):
        if redirect_uri.startswith(host):
            return host[:-1] + redirect_uri.removeprefix(host).lstrip("0123456789")
    return redirect_uri


def _hash(*parts: str | None) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
