"""TLS context for APIs: the certificates that all other servers use, read once."""

import ssl
from functools import cache

import httpx2

from portico.upstream.backends.openapi.urls import parse_origin


def get_ssl_context(url: str) -> ssl.SSLContext:
    """Return the TLS context for a URL; loading certificates is slow, so only for https."""
    # An empty context trusts nobody: a mistake here leads to a refusal, not to a leak.
    if parse_origin(url)[0] == "https":
        return _load_certificates()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _load_certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
