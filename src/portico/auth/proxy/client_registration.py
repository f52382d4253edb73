"""What clients say of themselves: registrations (RFC 7591), and client id metadata documents. Pure.

All clients are public: a secret that anybody can register for proves nothing that PKCE and the
redirect URI do not. A registration that asks for a secret gets none, as RFC 7591 §3.2.1 allows.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from mcp.shared.auth import OAuthClientMetadata
from pydantic import ValidationError

from portico.auth.proxy.authorization_request import OAuthClient, OAuthError
from portico.auth.proxy.redirect_uris import find_redirect_fault

MAX_REDIRECT_URIS = 20
MAX_NAME_CHARS = 80
MAX_DOCUMENT_URL_CHARS = 500
GRANT_TYPES = ("authorization_code", "refresh_token")
_WHITESPACE = re.compile(r"\s+")


def read_registration(body: bytes) -> tuple[str, tuple[str, ...]]:
    """Return name and redirect URIs of a registration; raises OAuthError."""
    try:
        fields = json.loads(body)
        asked = OAuthClientMetadata.model_validate(fields)
    except ValidationError as error:
        raise OAuthError("invalid_client_metadata", _describe(error)) from None
    except (ValueError, RecursionError):
        raise OAuthError("invalid_client_metadata", "the body is no JSON") from None
    if "authorization_code" not in asked.grant_types or "code" not in asked.response_types:
        raise OAuthError(
            "invalid_client_metadata", "grant_types must have authorization_code, and types code"
        )
    return clean_name(asked.client_name or ""), read_redirect_uris(fields)


def read_redirect_uris(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the redirect URIs of a client as it wrote them; raises OAuthError for one that none
    may have. The types were checked."""
    uris = tuple(metadata["redirect_uris"] or ())
    if not 1 <= len(uris) <= MAX_REDIRECT_URIS:
        raise OAuthError("invalid_redirect_uri", f"register 1 to {MAX_REDIRECT_URIS} redirect URIs")
    for number, uri in enumerate(uris, 1):
        if fault := find_redirect_fault(uri):
            raise OAuthError("invalid_redirect_uri", f"redirect URI {number}: {fault}")
    return uris


def find_document_fault(client_id: str) -> str:
    """Return why an id is no address of a client id metadata document; empty if it is one."""
    if len(client_id) > MAX_DOCUMENT_URL_CHARS or not client_id.isascii():
        return "it is too long, or not ASCII"
    if not client_id.isprintable() or " " in client_id or "\\" in client_id:
        return "it has characters that a URL cannot have"
    try:
        parts = urlsplit(client_id)
        _ = parts.port
    except ValueError:
        return "it is no URL"
    if parts.scheme != "https" or not parts.hostname:
        return "it is no https URL"
    if parts.username is not None or parts.password is not None or "#" in client_id:
        return "it has a user or a fragment"
    segments = parts.path.split("/")
    if parts.path in ("", "/") or "." in segments or ".." in segments:
        return "its path is empty, or has dots"
    return ""


def read_document(client_id: str, document: Any) -> OAuthClient:
    """Return the client that the document at the address `client_id` describes.

    Raises OAuthError: also for a document that says it is another's, or that has a secret.
    """
    if not isinstance(document, dict) or document.get("client_id") != client_id:
        raise OAuthError("invalid_client", "the client's document does not have its client_id")
    if "client_secret" in document or "client_secret_expires_at" in document:
        raise OAuthError("invalid_client", "the client's document has a secret, which is public")
    if document.get("token_endpoint_auth_method", "none") != "none":
        raise OAuthError(
            "invalid_client", "the client's document must have token_endpoint_auth_method none"
        )
    try:
        metadata = OAuthClientMetadata.model_validate(document)
    except ValidationError as error:
        raise OAuthError("invalid_client", f"the client's document: {_describe(error)}") from None
    uris = read_redirect_uris(document)
    return OAuthClient(client_id, clean_name(metadata.client_name or ""), uris, is_document=True)


def clean_name(text: str) -> str:
    """Return a name that a client claims as one short line, without characters that are not seen
    or change the order of others."""
    one_line = _WHITESPACE.sub(" ", text)
    visible = "".join(char for char in one_line if not unicodedata.category(char).startswith("C"))
    return visible.strip()[:MAX_NAME_CHARS]


def _describe(error: ValidationError) -> str:
    """Return which field is wrong, without its value."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the document"
    return f"{place}: {first['msg']}"
