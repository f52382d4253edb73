"""What a client asks for at the authorization endpoint, read and checked. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from portico.auth.proxy.redirect_uris import add_to_query, can_redirect_to
from portico.errors import PorticoError

MAX_STATE_CHARS = 2_000
CHALLENGE_METHOD = "S256"
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_PRINTABLE = re.compile(r"[ -~]*")

IsResource = Callable[[str], bool]
"""Says whether an address is that of an endpoint of the gateway."""


@dataclass(frozen=True)
class OAuthClient:
    """A client of the authorization server."""

    id: str
    name: str
    """The name that it gives itself."""
    redirect_uris: tuple[str, ...]
    is_document: bool = False
    """Whether its id is the address of its description: then who has that host vouches for it."""


@dataclass(frozen=True)
class AuthorizationRequest:
    client: OAuthClient
    redirect_uri: str
    state: str
    """The client's own; empty: it sent none."""
    challenge: str
    """PKCE, S256."""
    resource: str

    def to_params(self) -> dict[str, str]:
        """Return the parameters from which `read_request` makes this request again."""
        return {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": self.challenge,
            "code_challenge_method": CHALLENGE_METHOD,
            "resource": self.resource,
        }


class OAuthError(PorticoError):
    """A request to the authorization server that is refused, as OAuth names it."""

    kind = "oauth"

    def __init__(self, error: str, description: str, *, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        """Such as `invalid_grant`."""
        self.status = status


class RedirectedError(OAuthError):
    """A refusal that goes to the client, by its redirect URI, which was checked."""

    def __init__(self, error: str, description: str, redirect_uri: str, state: str) -> None:
        super().__init__(error, description)
        self.redirect_uri = redirect_uri
        self.state = state


def check_redirect(client: OAuthClient, redirect_uri: str) -> None:
    """Raise OAuthError unless the client registered this redirect URI. Nothing is sent there."""
    if not redirect_uri:
        raise OAuthError("invalid_request", "redirect_uri is missing")
    if not can_redirect_to(redirect_uri, client.redirect_uris):
        raise OAuthError("invalid_request", "redirect_uri is none that this client registered")


def read_request(
    params: Mapping[str, str],
    client: OAuthClient,
    is_resource: IsResource,
    default_resource: str,
) -> AuthorizationRequest:
    """Read the parameters of a client; raises OAuthError, which is RedirectedError once it is
    certain where the client can be told.

    `scope` is not read: what somebody may do is decided by who they are.
    """
    redirect_uri = params.get("redirect_uri", "")
    check_redirect(client, redirect_uri)
    state = params.get("state", "")
    if len(state) > MAX_STATE_CHARS or _PRINTABLE.fullmatch(state) is None:
        raise OAuthError("invalid_request", f"state has more than {MAX_STATE_CHARS:,} characters")

    def refuse(error: str, description: str) -> RedirectedError:
        return RedirectedError(error, description, redirect_uri, state)

    if params.get("response_type") != "code":
        raise refuse("unsupported_response_type", "response_type must be code")
    if params.get("code_challenge_method") != CHALLENGE_METHOD:
        raise refuse("invalid_request", "code_challenge_method must be S256 (PKCE)")
    challenge = params.get("code_challenge", "")
    if _CHALLENGE.fullmatch(challenge) is None:
        raise refuse("invalid_request", "code_challenge is missing, or is none of S256 (PKCE)")
    if params.get("response_mode", "query") != "query":
        raise refuse("invalid_request", "response_mode must be query")
    resource = params.get("resource", "") or default_resource
    if not is_resource(resource):
        raise refuse("invalid_target", "resource is no endpoint of this gateway")
    return AuthorizationRequest(client, redirect_uri, state, challenge, resource)


def build_redirect(redirect_uri: str, state: str, issuer: str, values: dict[str, str]) -> str:
    """Return the address that carries an answer to a client, with our issuer (RFC 9207)."""
    bound = {"state": state} if state else {}
    return add_to_query(redirect_uri, {**values, **bound, "iss": issuer})
