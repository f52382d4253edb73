"""Translates HTTP error responses: to the JSON-RPC error in the body, or to advice. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, PorticoError
from portico.json_text import json_codec
from portico.json_text.json_codec import to_object
from portico.upstream.backend import Raw
from portico.upstream.protocol.jsonrpc import to_remote_error
from portico.upstream.transports.http_headers import redact_url
from portico.upstream.transports.message_streams import EventTooLarge
from portico.upstream.transports.wire import (
    OriginUnreachable,
    ResponseTooLarge,
    StaleConnection,
    WireError,
)

SHOWN_BODY_CHARS = 200
EXAMINED_BODY_BYTES = 64 * 1024
MASK = "***"
MIN_SECRET_CHARS = 6
"""Shortest secret that is masked; masking shorter ones would garble more than it hides."""


class HttpStatusError(BackendUnavailable):
    def __init__(self, message: str, status: int, *, advice: str = "", final: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.status = status
        self.final = final
        """Whether another protocol era would be refused as well."""
        self.retryable = not final


class SessionExpired(HttpStatusError):
    """The server no longer knows the session, so it did not process the request."""

    may_have_begun = False


class ServerUnreachable(BackendUnavailable):
    was_sent = False


class StreamInterrupted(BackendUnavailable):
    """The connection broke while a response was being received."""


def make_wire_error(
    name: str, url: str, limit: int, error: WireError | EventTooLarge
) -> BackendUnavailable:
    where = f"{name} ({redact_url(url)})"
    if isinstance(error, EventTooLarge | ResponseTooLarge):
        return BackendUnavailable(
            f"{name} sent a message over {limit} bytes",
            advice="Ask for less at once, or raise limits.max_message_bytes.",
        )
    if isinstance(error, OriginUnreachable):
        return ServerUnreachable(
            f"{where} cannot be reached: {error}",
            advice="Check that the server runs and that its url is right.",
        )
    advice = ""
    if isinstance(error, StaleConnection):
        advice = "Whether the request was carried out is not known."
    return StreamInterrupted(f"{where}: {error}", advice=advice)


def extract_secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets in request headers, longest first.

    These are each value, and the part of it that follows a scheme word.
    """
    values: set[str] = set()
    for value in headers.values():
        values |= {value.strip(), value.partition(" ")[2].strip()}
    secrets = [value for value in values if len(value) >= MIN_SECRET_CHARS]
    return tuple(sorted(secrets, key=len, reverse=True))


def mask_secrets(value: Any, secrets: tuple[str, ...]) -> Any:
    """Replace secrets in all texts of a JSON value."""
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
    """Return the error for a response with status 300 or above.

    `credential_header` names the configured header that carries credentials, if any.
    """
    headers = cast("Mapping[str, str]", mask_secrets(dict(headers), secrets))
    where = f"{name} ({redact_url(url)})"
    if 300 <= status < 400:
        target = headers.get("location", "")
        if "://" in target:
            target = redact_url(target)
        return HttpStatusError(
            f"{where} redirects to {target or 'nowhere'} (HTTP {status})",
            status,
            advice="Redirects are not followed. If that is the server you mean, "
            "put its address in the configuration.",
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
        advice = (
            "Check the url: the endpoint usually ends in /mcp. "
            "A server of the older HTTP+SSE kind needs type: sse."
        )
    return HttpStatusError(
        f"{where} answered HTTP {status}{_format_excerpt(body, secrets)}", status, advice=advice
    )


def make_invalid_response_error(
    name: str, problem: str, body: bytes = b"", secrets: tuple[str, ...] = ()
) -> BackendUnavailable:
    return BackendUnavailable(
        f"{name} {problem}{_format_excerpt(body, secrets)}",
        advice="The server or a proxy in front of it does not speak MCP here; "
        "check its url and its own log.",
    )


def parse_error_response(body: bytes) -> Raw | None:
    """Return the JSON-RPC error response in a body, or None."""
    try:
        message = to_object(json_codec.loads(body))
    except (ValueError, RecursionError):
        return None
    if isinstance(to_object(message.get("error")).get("code"), int):
        return message
    return None


def _indicates_lost_session(status: int, message: Raw | None) -> bool:
    if status == 404:
        return message is None or message["error"]["code"] != METHOD_NOT_FOUND
    # Widely copied examples answer 400 after a restart: "No valid session ID provided",
    # "Server not initialized".
    text = ""
    if message and message.get("id") is None:
        text = str(message["error"].get("message")).lower()
    return status == 400 and ("session" in text or "not initialized" in text)


def _make_auth_error(
    server: str, status: int, headers: Mapping[str, str], credential_header: str, excerpt: str
) -> HttpStatusError:
    challenge = headers.get("www-authenticate", "")
    scheme = challenge.partition(" ")[0]
    wants = f", it wants {scheme}" if scheme else ""
    # RFC 9728: this is how a server says where to sign in.
    is_oauth = "resource_metadata" in challenge.lower()
    if is_oauth:
        wants = ", it wants you to sign in with OAuth"
    if credential_header:
        advice = (
            f"The configured {credential_header} header was not accepted: "
            "it may have expired or lack a permission."
        )
    elif is_oauth:
        advice = (
            "`portico login NAME` signs in to a configured server. Or put a token of yours in an "
            "Authorization header under `headers`."
        )
    else:
        advice = (
            "Give this server credentials: "
            "an Authorization header under `headers` in the configuration."
        )
    message = f"{server} refuses access (HTTP {status}{wants}){excerpt}"
    return HttpStatusError(message, status, advice=advice, final=True)


def _format_excerpt(body: bytes, secrets: tuple[str, ...]) -> str:
    # Masked before it is cut: half a secret would not be recognised.
    text = cast(str, mask_secrets(body[:EXAMINED_BODY_BYTES].decode("utf-8", "replace"), secrets))
    text = " ".join(text[: 4 * SHOWN_BODY_CHARS].split())
    if text:
        return f": {text[:SHOWN_BODY_CHARS]}"
    return ""
