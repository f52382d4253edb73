"""What an HTTP reply means that is not an answer: the JSON-RPC error in it, or advice. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, PorticoError
from portico.upstream import jsontext
from portico.upstream.backend import Raw
from portico.upstream.http_headers import safe_url
from portico.upstream.jsonrpc import remote_error

SHOWN_BODY_CHARS = 200
EXAMINED_BODY_BYTES = 64 * 1024
MASK = "***"
SHORTEST_SECRET = 6
"""Characters; masking anything shorter would garble more than it hides."""


class HttpRefusal(BackendUnavailable):
    """The server answered with an HTTP status instead of a message."""

    def __init__(self, message: str, status: int, *, advice: str = "", final: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.status = status
        self.final = final
        """Another protocol era would be refused as well."""
        self.retryable = not final


class SessionGone(HttpRefusal):
    """The server no longer knows our session, and so it did nothing of what we asked in it."""

    begun = False


def secrets_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """What must not come back of the headers we send: each value, and what follows its scheme word; longest first."""
    values = {part.strip() for value in headers.values() for part in (value, value.partition(" ")[2])}
    return tuple(sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True))


def masked(said: Any, secrets: tuple[str, ...]) -> Any:
    """What a server said, without our secrets in any of its texts."""
    if isinstance(said, str):
        for secret in secrets:
            said = said.replace(secret, MASK)
        return said
    if isinstance(said, list):
        return [masked(item, secrets) for item in cast("list[Any]", said)]
    if isinstance(said, dict):
        return {masked(key, secrets): masked(item, secrets) for key, item in cast(Raw, said).items()}
    return said


def refusal(
    name: str,
    url: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    credentials: str,
    *,
    in_session: bool,
    secrets: tuple[str, ...] = (),
) -> PorticoError:
    """The error for a reply with a status of 300 and above; `credentials` names the header that carries ours."""
    headers = cast("Mapping[str, str]", masked(dict(headers), secrets))
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
        return _unauthorized(where, status, headers, credentials, _excerpt(body, secrets))
    message = error_message(body)
    if in_session and _names_lost_session(status, message):
        return SessionGone(f"{where} no longer knows this session (HTTP {status})", status)
    if message is not None:
        return remote_error(masked(message["error"], secrets))
    advice = ""
    if status in (404, 405):
        advice = (
            "Check the url: the endpoint usually ends in /mcp. A server of the older HTTP+SSE kind needs type: sse."
        )
    return HttpRefusal(f"{where} answered HTTP {status}{_excerpt(body, secrets)}", status, advice=advice)


def not_an_answer(name: str, what: str, body: bytes = b"", secrets: tuple[str, ...] = ()) -> BackendUnavailable:
    """A reply that arrived but makes no sense."""
    return BackendUnavailable(
        f"{name} {what}{_excerpt(body, secrets)}",
        advice="The server or a proxy in front of it does not speak MCP here; check its url and its own log.",
    )


def error_message(body: bytes) -> Raw | None:
    """The JSON-RPC error answer in a body, if that is what it is."""
    try:
        message: Any = jsontext.loads(body)
    except (ValueError, RecursionError):
        return None
    error = cast(Raw, message).get("error") if isinstance(message, dict) else None
    return message if isinstance(error, dict) and isinstance(cast(Raw, error).get("code"), int) else None


def _names_lost_session(status: int, message: Raw | None) -> bool:
    if status == 404:
        return message is None or message["error"]["code"] != METHOD_NOT_FOUND
    # Widely copied examples answer 400 after a restart: "No valid session ID provided", "Server not initialized".
    text = str(message["error"].get("message")).lower() if message and message.get("id") is None else ""
    return status == 400 and ("session" in text or "not initialized" in text)


def _unauthorized(where: str, status: int, headers: Mapping[str, str], credentials: str, excerpt: str) -> HttpRefusal:
    wants = headers.get("www-authenticate", "").partition(" ")[0]
    wants = f", it wants {wants}" if wants else ""
    if credentials:
        advice = f"The configured {credentials} header was not accepted: it may have expired or lack a permission."
    else:
        advice = "Give this server credentials: an Authorization header under `headers` in the configuration."
    message = f"{where} refuses access (HTTP {status}{wants}){excerpt}"
    return HttpRefusal(message, status, advice=advice, final=True)


def _excerpt(body: bytes, secrets: tuple[str, ...]) -> str:
    # Masked before it is cut: half a secret would not be recognised.
    text = cast(str, masked(body[:EXAMINED_BODY_BYTES].decode("utf-8", "replace"), secrets))
    text = " ".join(text[: 4 * SHOWN_BODY_CHARS].split())
    return f": {text[:SHOWN_BODY_CHARS]}" if text else ""
