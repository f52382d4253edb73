"""Which certificates an API is trusted by: those that every other server is, read once."""

import ssl
from functools import cache

import httpx2

from portico.upstream.openapi.addresses import origin


def trust(url: str) -> ssl.SSLContext:
    """The certificates for an address; reading them takes a while, and without https there is nothing to check."""
    # An empty context trusts nobody: a mistake here would be refused, not let through.
    return _all() if origin(url)[0] == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _all() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
