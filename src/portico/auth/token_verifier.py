"""What checks the tokens of an authorization server, and why a token is refused."""

from dataclasses import dataclass
from typing import Literal, Protocol

from portico.callers import Principal

MAX_TOKEN_CHARS = 16_384
"""A longer credential is refused unread."""
WRONG_TOKEN = "the token is not valid here"  # noqa: S105 - not a token


@dataclass(frozen=True)
class Rejection:
    """Why a token opens nothing."""

    reason: str
    """For the client; nothing of the token is in it."""
    status: Literal[401, 403, 503] = 401
    """401: get another token. 403: it is of somebody who may not. 503: cannot be told now."""
    is_forged: bool = True
    """Whether it counts as a guess. False for a token that its issuer signed, such as an expired
    one, and where it cannot be told."""


class TokenVerifier(Protocol):
    """Checks the tokens of authorization servers."""

    @property
    def authorization_servers(self) -> tuple[str, ...]:
        """Issuers to which clients are sent for a token."""
        ...

    def list_scopes(self, profile: str) -> tuple[str, ...]:
        """Return the scopes a token should have for the endpoint of a profile; empty: the default
        endpoint."""
        ...

    async def verify(self, token: str) -> Principal | Rejection | None:
        """Return on whose behalf a token is, or why not; None: it is not of these issuers.

        The principal has `expires_at`. Bounded in time and memory, whatever the token is.
        """
        ...

    def accepts(self, principal: Principal) -> bool:
        """Return whether a principal that was returned would be returned now."""
        ...

    async def close(self) -> None:
        """End what is under way."""
        ...
