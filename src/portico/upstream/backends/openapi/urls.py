"""Where a request may go: origins, the servers of a description, redirects. Pure."""

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
"""Host and port and nothing else: what stands before an @ looks like a host and is none, and
programs differ on \\."""


def parse_origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: what credentials are meant for."""
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
    """An origin as text, its port always written out."""
    scheme, host, port = parse_origin(url)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def is_own_origin(description: str, server: str) -> bool:
    """Whether a server is on the origin that its description comes from, or on the same host by
    https."""
    own = parse_origin(description)
    other = parse_origin(server)
    upgraded = ("https", own[1], _DEFAULT_PORTS["https"])
    return other == own or (
        own[0] == "http" and own[2] == _DEFAULT_PORTS["http"] and other == upgraded
    )


def is_url(text: str) -> bool:
    """Whether it is an address of the web; else it is a file."""
    return text.lower().startswith(("http://", "https://"))


def resolve_redirect(
    method: str, url: str, status: int, location: str | None
) -> tuple[str, str] | None:
    """The method and address of the next request; None where the redirect is not followed.

    Only within one origin, because the request carries credentials, and never so that a request
    that changes something silently becomes one that does not.
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
    """The first server of a list that can be used, its variables filled in, whole; empty where
    there is none."""
    for server in cast("list[Any]", servers) if isinstance(servers, list) else []:
        if isinstance(server, dict):
            entry = cast(Raw, server)
        else:
            entry = {}
        url = entry.get("url")
        if not isinstance(url, str):
            continue
        variables = entry.get("variables")
        whole = urljoin(
            document_url,
            _fill_variables(
                url.strip(), cast(Raw, variables) if isinstance(variables, dict) else {}
            ),
        )
        if (
            is_url(whole)
            and parse_origin(whole)[1]
            and _AUTHORITY.fullmatch(urlsplit(whole).netloc)
        ):
            return whole.rstrip("/")
    return ""


def _fill_variables(url: str, variables: Mapping[str, Any]) -> str:
    def substitute(match: re.Match[str]) -> str:
        entry = variables.get(match[1])
        if isinstance(entry, dict):
            known = cast(Raw, entry)
        else:
            known = {}
        choices = known.get("enum")
        default = known.get(
            "default", choices[0] if isinstance(choices, list) and choices else match[0]
        )
        return str(default)

    return _VARIABLE.sub(substitute, url)
