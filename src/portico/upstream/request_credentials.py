"""Contract of what adds credentials to HTTP requests of one server, and of what a refusal says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Refusal:
    """A response with status 401 or 403."""

    status: int
    challenge: str
    """Its `WWW-Authenticate` header; empty if it has none."""
    sent: Mapping[str, str]
    """The credentials that the request carried."""
    nonce: str = ""
    """Its `DPoP-Nonce` header."""


class RequestCredentials(Protocol):
    """Credentials of one server, added to each request to its origin."""

    async def get_headers(self, method: str) -> Mapping[str, str]:
        """Return the headers to add to a request of an HTTP method. Raises BackendUnavailable where
        there are none."""
        ...

    async def renew(self, refusal: Refusal) -> bool:
        """Return whether other credentials are there now, so that the request can be repeated.

        Raises BackendUnavailable where a person must do something first.
        """
        ...
