"""Descriptions of HTTP APIs: there, and with credentials that go where they should."""

import os
from collections.abc import Iterator

from portico.cli.doctor.finding import Finding, Places
from portico.cli.doctor.secrets import is_secret
from portico.config import BackendConfig
from portico.upstream.http_headers import safe_url
from portico.upstream.openapi.addresses import is_url, origin

_HERE = ("localhost", "127.0.0.1", "::1")


def check(name: str, server: BackendConfig, places: Places) -> Iterator[Finding]:
    """What can be seen of an API without asking it."""
    place, base = server.openapi or "", server.base_url
    if not is_url(place) and not os.path.isfile(os.path.expanduser(place)):
        yield Finding(
            "openapi.missing",
            "broken",
            f"the description {place} does not exist",
            "Correct the path (it is relative to the configuration file), or write the URL of the description.",
            **places.server(name, "openapi"),
        )
    if base is not None and (not is_url(base) or not origin(base)[1]):
        yield Finding(
            "openapi.base_url",
            "broken",
            f"base_url {safe_url(base) if '://' in base else base!r} is no address of an API",
            "Write it in full: https://api.example.com/v1.",
            **places.server(name, "base_url"),
        )
    credentials = any(is_secret(key, value) for key, value in (*server.headers.items(), *server.query.items()))
    if credentials and base is None and is_url(place):
        yield Finding(
            "openapi.credentials_follow",
            "note",
            "its credentials go to the origin of its description, because nothing here says where the API is",
            "Write the address of the API as `base_url`: then they go there, whatever the description says.",
            **places.server(name, "openapi"),
        )
    if credentials and base is not None and origin(base)[0] == "http" and origin(base)[1] not in _HERE:
        yield Finding(
            "openapi.plain_http",
            "warning",
            f"its credentials are sent to {safe_url(base)} without encryption",
            "Write https:// in `base_url`.",
            **places.server(name, "base_url"),
        )
