"""Which certificates an API is trusted by: those that every other server is, read once."""

import ssl
from functools import cache

import httpx2

from portico.upstream.backends.openapi.urls import parse_origin


def get_ssl_context(url: str) -> ssl.SSLContext:
    """The certificates for an address; reading them takes a while, and without https there is
    nothing to check."""
    # An empty context trusts nobody: a mistake here would be refused, not let through.
    if parse_origin(url)[0] == "https":
        return _load_certificates()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _load_certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
