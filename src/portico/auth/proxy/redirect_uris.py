"""Redirect URIs of clients: which may be registered, and which one a request may use. Pure."""

import re
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

MAX_CHARS = 2_000
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
_BROWSER_SCHEMES = frozenset(
    {
        *("about", "blob", "chrome", "content", "data", "file", "filesystem", "ftp", "http"),
        *("intent", "jar", "javascript", "mailto", "resource", "sms", "ssh", "tel", "vbscript"),
        *("view-source", "ws", "wss"),
    }
)
"""Schemes that browsers or systems act on themselves, and which thus belong to no client."""
_PRINTABLE = re.compile(r"[!-~]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def find_redirect_fault(uri: str) -> str:
    """Return why no client may have this redirect URI; empty if it may.

    https, http to this machine (RFC 8252 §7.3), and schemes of native clients (§7.1) are accepted.
    """
    if len(uri) > MAX_CHARS:
        return f"it has more than {MAX_CHARS:,} characters"
    if _PRINTABLE.fullmatch(uri) is None or "\\" in uri:
        return "it has characters that a URI cannot have"
    parts = _split(uri)
    if parts is None or _SCHEME.fullmatch(parts.scheme) is None:
        return "it is no absolute URI"
    if "#" in uri:
        return "it has a fragment"
    if parts.username is not None or parts.password is not None:
        return "it names a user"
    if parts.scheme == "https":
        return "" if parts.hostname else "it names no host"
    if parts.scheme == "http":
        if parts.hostname in LOOPBACK_HOSTS:
            return ""
        return "http is for redirects to this machine only (127.0.0.1, [::1], localhost)"
    if parts.scheme in _BROWSER_SCHEMES:
        return f"{parts.scheme}: is no scheme of a client"
    return ""


def can_redirect_to(uri: str, registered: tuple[str, ...]) -> bool:
    """Return whether a request may name this redirect URI: one of the registered ones, character
    by character, except for the port of a redirect to this machine (RFC 8252 §7.3)."""
    if uri in registered:
        return True
    if not is_loopback_redirect(uri):
        return False
    wanted = _strip_port(uri)
    return any(is_loopback_redirect(known) and _strip_port(known) == wanted for known in registered)


def is_loopback_redirect(uri: str) -> bool:
    """Return whether a redirect URI leads to a program on the machine of the browser, by http."""
    parts = _split(uri)
    return parts is not None and uri.startswith("http://") and parts.hostname in LOOPBACK_HOSTS


def is_web_redirect(uri: str) -> bool:
    """Return whether a redirect URI belongs to who has its host: only its owner can receive it."""
    return uri.startswith("https://")


def describe_target(uri: str) -> str:
    """Return for people where a redirect leads: a host, this machine, or a program."""
    if is_loopback_redirect(uri):
        return "a program on this computer"
    parts = urlsplit(uri)
    if is_web_redirect(uri):
        return parts.netloc
    return f"the program that opens {parts.scheme}: links"


def add_to_query(uri: str, values: dict[str, str]) -> str:
    """Return a URI with more values in its query; those that it has stay as they are."""
    parts = urlsplit(uri)
    query = f"{parts.query}&" if parts.query else ""
    return parts._replace(query=query + urlencode(values)).geturl()


def read_query(uri: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(uri).query, keep_blank_values=True))


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _strip_port(uri: str) -> tuple[str | None, str, str]:
    parts = urlsplit(uri)
    return parts.hostname, parts.path, parts.query
