"""Checks OpenAPI backends: the description exists, and credentials go to the intended origin."""

import os
from collections.abc import Iterator

from portico.cli.doctor.checks.secrets import is_secret
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.config import BackendConfig
from portico.upstream.backends.openapi.urls import is_url, parse_origin
from portico.upstream.transports.http_headers import redact_url

_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


def check(name: str, server: BackendConfig, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Yield what is wrong with an API, without a request to it."""
    description_url = server.openapi or ""
    base = server.base_url
    if not is_url(description_url) and not os.path.isfile(os.path.expanduser(description_url)):
        yield DoctorFinding(
            "openapi.missing",
            "broken",
            f"the description {description_url} does not exist",
            "Correct the path (it is relative to the configuration file), or write the URL of "
            "the description.",
            **locations.locate_server(name, "openapi"),
        )
    if base is not None and (not is_url(base) or not parse_origin(base)[1]):
        yield DoctorFinding(
            "openapi.base_url",
            "broken",
            f"base_url {redact_url(base) if '://' in base else base!r} is no address of an API",
            "Write it in full: https://api.example.com/v1.",
            **locations.locate_server(name, "base_url"),
        )
    credentials = any(
        is_secret(key, value) for key, value in (*server.headers.items(), *server.query.items())
    )
    if credentials and base is None and is_url(description_url):
        yield DoctorFinding(
            "openapi.credentials_follow",
            "note",
            "its credentials go to the origin of its description, because nothing here says "
            "where the API is",
            "Write the address of the API as `base_url`: then they go there, whatever the "
            "description says.",
            **locations.locate_server(name, "openapi"),
        )
    if (
        credentials
        and base is not None
        and parse_origin(base)[0] == "http"
        and parse_origin(base)[1] not in _LOOPBACK_HOSTS
    ):
        yield DoctorFinding(
            "openapi.plain_http",
            "warning",
            f"its credentials are sent to {redact_url(base)} without encryption",
            "Write https:// in `base_url`.",
            **locations.locate_server(name, "base_url"),
        )
