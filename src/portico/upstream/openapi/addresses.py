"""Where a request may go: origins, the servers of a description, redirects. Pure."""

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from portico.upstream.backend import Raw

MAX_REDIRECTS = 5
_PORTS = {"http": 80, "https": 443}
_SAME_METHOD = (307, 308)
_VARIABLE = re.compile(r"\{([^{}]*)\}")


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: what credentials are meant for."""
    try:
        parts = urlsplit(url)
        return parts.scheme.lower(), (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme.lower())
    except ValueError:
        return "", "", None


def is_url(text: str) -> bool:
    """Whether it is an address of the web; else it is a file."""
    return text.lower().startswith(("http://", "https://"))


def redirected(method: str, url: str, status: int, location: str | None) -> tuple[str, str] | None:
    """The method and address of the next request; None where the redirect is not followed.

    Only within one origin, because the request carries credentials, and never so that a request that changes something
    silently becomes one that does not.
    """
    if not location or status not in (301, 302, 303, *_SAME_METHOD):
        return None
    target = urljoin(url, location)
    if origin(target) != origin(url):
        return None
    if method in ("GET", "HEAD") or status in _SAME_METHOD:
        return method, target
    return ("GET", target) if status == 303 else None


def server_url(servers: Any, document: str) -> str:
    """The first server of a list that can be used, its variables filled in, whole; empty where there is none."""
    for server in cast("list[Any]", servers) if isinstance(servers, list) else []:
        entry = cast(Raw, server) if isinstance(server, dict) else {}
        url = entry.get("url")
        if not isinstance(url, str):
            continue
        variables = entry.get("variables")
        whole = urljoin(document, _filled(url.strip(), cast(Raw, variables) if isinstance(variables, dict) else {}))
        if is_url(whole) and origin(whole)[1]:
            return whole.rstrip("/")
    return ""


def _filled(url: str, variables: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        entry = variables.get(match[1])
        known = cast(Raw, entry) if isinstance(entry, dict) else {}
        choices = known.get("enum")
        default = known.get("default", choices[0] if isinstance(choices, list) and choices else match[0])
        return str(default)

    return _VARIABLE.sub(value, url)
