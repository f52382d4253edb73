"""What an HTTP reply means that is not an answer: the JSON-RPC error in it, or advice. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, PorticoError
from portico.json_text import json_codec
from portico.upstream.backend import Raw
from portico.upstream.protocol.jsonrpc import to_remote_error
from portico.upstream.transports.http_headers import redact_url

SHOWN_BODY_CHARS = 200
EXAMINED_BODY_BYTES = 64 * 1024
MASK = "***"
MIN_SECRET_CHARS = 6
"""Characters; masking anything shorter would garble more than it hides."""


class HttpStatusError(BackendUnavailable):
    """The server answered with an HTTP status instead of a message."""

    def __init__(self, message: str, status: int, *, advice: str = "", final: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.status = status
        self.final = final
        """Another protocol era would be refused as well."""
        self.retryable = not final


class SessionExpired(HttpStatusError):
    """The server no longer knows our session, and so it did nothing of what we asked in it."""

    begun = False


def extract_secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    """What must not come back of the headers we send: each value, and what follows its scheme word;
    longest first."""
    values = {
        part.strip() for value in headers.values() for part in (value, value.partition(" ")[2])
    }
    return tuple(
        sorted((value for value in values if len(value) >= MIN_SECRET_CHARS), key=len, reverse=True)
    )


def mask_secrets(value: Any, secrets: tuple[str, ...]) -> Any:
    """What a server said, without our secrets in any of its texts."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MASK)
        return value
    if isinstance(value, list):
        return [mask_secrets(item, secrets) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            mask_secrets(key, secrets): mask_secrets(item, secrets)
            for key, item in cast(Raw, value).items()
        }
    return value


def make_status_error(
    name: str,
    url: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    credential_header: str,
    *,
    in_session: bool,
    secrets: tuple[str, ...] = (),
) -> PorticoError:
    """The error for a reply with a status of 300 and above; `credentials` names the header that
    carries ours."""
    headers = cast("Mapping[str, str]", mask_secrets(dict(headers), secrets))
    where = f"{name} ({redact_url(url)})"
    if 300 <= status < 400:
        target = headers.get("location", "")
        return HttpStatusError(
            f"{where} redirects to {redact_url(target) if '://' in target else target or 'nowhere'} (HTTP {status})",
            status,
            advice="Redirects are not followed. If that is the server you mean, put its address in the configuration.",
            final=True,
        )
    if status in (401, 403, 407):
        return _make_auth_error(
            where, status, headers, credential_header, _format_excerpt(body, secrets)
        )
    message = parse_error_response(body)
    if in_session and _indicates_lost_session(status, message):
        return SessionExpired(f"{where} no longer knows this session (HTTP {status})", status)
    if message is not None:
        return to_remote_error(mask_secrets(message["error"], secrets))
    advice = ""
    if status in (404, 405):
        advice = "Check the url: the endpoint usually ends in /mcp. A server of the older HTTP+SSE kind needs type: sse."
    return HttpStatusError(
        f"{where} answered HTTP {status}{_format_excerpt(body, secrets)}", status, advice=advice
    )


def make_invalid_response_error(
    name: str, problem: str, body: bytes = b"", secrets: tuple[str, ...] = ()
) -> BackendUnavailable:
    """A reply that arrived but makes no sense."""
    return BackendUnavailable(
        f"{name} {problem}{_format_excerpt(body, secrets)}",
        advice="The server or a proxy in front of it does not speak MCP here; check its url and its own log.",
    )


def parse_error_response(body: bytes) -> Raw | None:
    """The JSON-RPC error answer in a body, if that is what it is."""
    try:
        message: Any = json_codec.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(message, dict):
        error = cast(Raw, message).get("error")
    else:
        error = None
    if isinstance(error, dict) and isinstance(cast(Raw, error).get("code"), int):
        return message
    return None


def _indicates_lost_session(status: int, message: Raw | None) -> bool:
    if status == 404:
        return message is None or message["error"]["code"] != METHOD_NOT_FOUND
    # Widely copied examples answer 400 after a restart: "No valid session ID provided", "Server not
    # initialized".
    if message and message.get("id") is None:
        text = str(message["error"].get("message")).lower()
    else:
        text = ""
    return status == 400 and ("session" in text or "not initialized" in text)


def _make_auth_error(
    server: str, status: int, headers: Mapping[str, str], credential_header: str, excerpt: str
) -> HttpStatusError:
    wants = headers.get("www-authenticate", "").partition(" ")[0]
    if wants:
        wants = f", it wants {wants}"
    else:
        wants = ""
    if credential_header:
        advice = f"The configured {credential_header} header was not accepted: it may have expired or lack a permission."
    else:
        advice = "Give this server credentials: an Authorization header under `headers` in the configuration."
    message = f"{server} refuses access (HTTP {status}{wants}){excerpt}"
    return HttpStatusError(message, status, advice=advice, final=True)


def _format_excerpt(body: bytes, secrets: tuple[str, ...]) -> str:
    # Masked before it is cut: half a secret would not be recognised.
    text = cast(str, mask_secrets(body[:EXAMINED_BODY_BYTES].decode("utf-8", "replace"), secrets))
    text = " ".join(text[: 4 * SHOWN_BODY_CHARS].split())
    if text:
        return f": {text[:SHOWN_BODY_CHARS]}"
    return ""
