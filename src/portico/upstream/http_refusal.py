"""What an HTTP reply means that is not an answer: the JSON-RPC error in it, or advice. Pure."""

from collections.abc import Mapping
from typing import Any, cast

import orjson

from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, PorticoError
from portico.upstream.backend import Raw
from portico.upstream.http_headers import safe_url
from portico.upstream.jsonrpc import remote_error

SHOWN_BODY_CHARS = 200


class HttpRefusal(BackendUnavailable):
    """The server answered with an HTTP status instead of a message."""

    def __init__(self, message: str, status: int, *, advice: str = "", final: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.status = status
        self.final = final
        """Another protocol era would be refused as well."""
        self.retryable = not final


class SessionGone(HttpRefusal):
    """The server no longer knows our session."""


def refusal(
    name: str, url: str, status: int, headers: Mapping[str, str], body: bytes, credentials: str, *, in_session: bool
) -> PorticoError:
    """The error for a reply with a status of 300 and above; `credentials` names the header that carries ours."""
    where = f"{name} ({safe_url(url)})"
    if 300 <= status < 400:
        target = headers.get("location", "")
        return HttpRefusal(
            f"{where} redirects to {safe_url(target) if '://' in target else target or 'nowhere'} (HTTP {status})",
            status,
            advice="Redirects are not followed. If that is the server you mean, put its address in the configuration.",
            final=True,
        )
    if status in (401, 403, 407):
        return _unauthorized(where, status, headers, credentials, body)
    message = error_message(body)
    if in_session and _names_lost_session(status, message):
        return SessionGone(f"{where} no longer knows this session (HTTP {status})", status)
    if message is not None:
        return remote_error(message["error"])
    advice = ""
    if status in (404, 405):
        advice = (
            "Check the url: the endpoint usually ends in /mcp. A server of the older HTTP+SSE kind needs type: sse."
        )
    return HttpRefusal(f"{where} answered HTTP {status}{_excerpt(body)}", status, advice=advice)


def not_an_answer(name: str, what: str, body: bytes = b"") -> BackendUnavailable:
    """A reply that arrived but makes no sense."""
    return BackendUnavailable(
        f"{name} {what}{_excerpt(body)}",
        advice="The server or a proxy in front of it does not speak MCP here; check its url and its own log.",
    )


def error_message(body: bytes) -> Raw | None:
    """The JSON-RPC error answer in a body, if that is what it is."""
    try:
        message: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    error = cast(Raw, message).get("error") if isinstance(message, dict) else None
    return message if isinstance(error, dict) and isinstance(cast(Raw, error).get("code"), int) else None


def _names_lost_session(status: int, message: Raw | None) -> bool:
    if status == 404:
        return message is None or message["error"]["code"] != METHOD_NOT_FOUND
    # Widely copied examples answer 400 after a restart: "No valid session ID provided", "Server not initialized".
    text = str(message["error"].get("message")).lower() if message and message.get("id") is None else ""
    return status == 400 and ("session" in text or "not initialized" in text)


def _unauthorized(where: str, status: int, headers: Mapping[str, str], credentials: str, body: bytes) -> HttpRefusal:
    wants = headers.get("www-authenticate", "").partition(" ")[0]
    wants = f", it wants {wants}" if wants else ""
    if credentials:
        advice = f"The configured {credentials} header was not accepted: it may have expired or lack a permission."
    else:
        advice = "Give this server credentials: an Authorization header under `headers` in the configuration."
    message = f"{where} refuses access (HTTP {status}{wants}){_excerpt(body)}"
    return HttpRefusal(message, status, advice=advice, final=True)


def _excerpt(body: bytes) -> str:
    text = " ".join(body[: 4 * SHOWN_BODY_CHARS].decode("utf-8", "replace").split())
    return f": {text[:SHOWN_BODY_CHARS]}" if text else ""
