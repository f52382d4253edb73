"""Origins, server URLs of a description, and redirects. Pure."""

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from portico.upstream.backend import Raw

MAX_REDIRECTS = 5
_DEFAULT_PORTS = {"http": 80, "https": 443}
_METHOD_PRESERVING_STATUSES = (307, 308)
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_AUTHORITY = re.compile(r"[^\s\\@%\x00-\x20]+")
"""Host and port only: what precedes an @ is no host, and programs disagree on \\."""


def parse_origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port, which credentials are bound to."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme.lower(),
            (parts.hostname or "").lower(),
            parts.port or _DEFAULT_PORTS.get(parts.scheme.lower()),
        )
    except ValueError:
        return "", "", None


def format_origin(url: str) -> str:
    """Return an origin as text, always with its port."""
    scheme, host, port = parse_origin(url)
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port}"


def is_own_origin(description: str, server: str) -> bool:
    """Return whether a server has its description's origin, or the same host by https."""
    description_origin = parse_origin(description)
    server_origin = parse_origin(server)
    upgraded = ("https", description_origin[1], _DEFAULT_PORTS["https"])
    return server_origin == description_origin or (
        description_origin[0] == "http"
        and description_origin[2] == _DEFAULT_PORTS["http"]
        and server_origin == upgraded
    )


def is_url(text: str) -> bool:
    """Return whether the text is a web address; otherwise it is a file."""
    return text.lower().startswith(("http://", "https://"))


def resolve_redirect(
    method: str, url: str, status: int, location: str | None
) -> tuple[str, str] | None:
    """Return the method and URL of the next request, or None if it is not followed.

    Only within one origin, because the request carries credentials. A request that changes
    something becomes a GET only after a 303.
    """
    if not location or status not in (301, 302, 303, *_METHOD_PRESERVING_STATUSES):
        return None
    target = urljoin(url, location)
    if parse_origin(target) != parse_origin(url):
        return None
    if method in ("GET", "HEAD") or status in _METHOD_PRESERVING_STATUSES:
        return method, target
    if status == 303:
        return ("GET", target)
    return None


def find_server_url(servers: Any, document_url: str) -> str:
    """Return the first usable server as an absolute URL with variables filled in, or ""."""
    for server in cast("list[Any]", servers) if isinstance(servers, list) else []:
        if not isinstance(server, dict):
            continue
        entry = cast(Raw, server)
        url = entry.get("url")
        if not isinstance(url, str):
            continue
        variables: Any = entry.get("variables")
        if not isinstance(variables, dict):
            variables = {}
        absolute = urljoin(document_url, _fill_variables(url.strip(), cast(Raw, variables)))
        if (
            is_url(absolute)
            and parse_origin(absolute)[1]
            and _AUTHORITY.fullmatch(urlsplit(absolute).netloc)
        ):
            return absolute.rstrip("/")
    return ""


def _fill_variables(url: str, variables: Mapping[str, Any]) -> str:
    def substitute(match: re.Match[str]) -> str:
        entry = variables.get(match[1])
        variable = cast(Raw, entry) if isinstance(entry, dict) else {}
        choices = variable.get("enum")
        fallback = choices[0] if isinstance(choices, list) and choices else match[0]
        return str(variable.get("default", fallback))

    return _VARIABLE.sub(substitute, url)
