"""Reads signed tokens (JWT in compact form) strictly, before anything in them is believed. Pure."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.auth.token_verifier import MAX_TOKEN_CHARS

MAX_HEADER_CHARS = 4_096
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_MAX_ALGORITHM_CHARS = 20
_MAX_KEY_ID_CHARS = 512
_ALLOWED_TYPES = ("", "jwt", "at+jwt", "application/at+jwt")
_CLAIMED_KEYS = ("jwk", "jku", "x5c", "x5u")
"""Header parameters by which a token brings its own key, or says where it is."""


class MalformedToken(Exception):
    """A text that is no token that could be valid; the message is for the client."""


@dataclass(frozen=True)
class SignedToken:
    """A token that is well formed; nothing is verified."""

    text: str
    algorithm: str
    key_id: str | None
    is_access_token: bool
    """Whether its type says that it is an access token (RFC 9068)."""
    claims: Mapping[str, Any]


def looks_signed(text: str) -> bool:
    """Return whether a text has the form of a signed token."""
    return len(text) <= MAX_TOKEN_CHARS and _COMPACT.fullmatch(text) is not None


def parse_signed_token(text: str) -> SignedToken:
    """Parse a token; raises MalformedToken."""
    found = _COMPACT.fullmatch(text) if len(text) <= MAX_TOKEN_CHARS else None
    if found is None or len(found[1]) > MAX_HEADER_CHARS:
        raise MalformedToken("it is no JWT of a usual size")
    header = _parse_object(found[1])
    decode_base64url(found[3])
    algorithm = header.get("alg")
    key_id = header.get("kid")
    kind = header.get("typ", "")
    if not isinstance(algorithm, str) or len(algorithm) > _MAX_ALGORITHM_CHARS:
        raise MalformedToken("it names no algorithm")
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= _MAX_KEY_ID_CHARS):
        raise MalformedToken("its kid is no text of a usual length")
    if not isinstance(kind, str) or kind.lower() not in _ALLOWED_TYPES:
        raise MalformedToken("its typ is not that of an access token")
    for name in ("crit", "b64", "zip", "enc", *_CLAIMED_KEYS):
        if name in header:
            raise MalformedToken(f"its header has {name}, which is not accepted")
    is_access_token = kind.lower().endswith("at+jwt")
    return SignedToken(text, algorithm, key_id, is_access_token, _parse_object(found[2]))


def decode_base64url(text: str) -> bytes:
    """Decode base64url without padding; raises MalformedToken for any text but the one that
    encoding gives."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise MalformedToken("a part of it is no base64url") from None
    if base64.urlsafe_b64encode(data).rstrip(b"=") != text.encode():
        raise MalformedToken("a part of it is no base64url")
    return data


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(
            decode_base64url(text).decode(),
            object_pairs_hook=_make_object,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        raise MalformedToken("a part of it is no JSON object with each name once") from None
    if not isinstance(value, dict):
        raise MalformedToken("a part of it is no JSON object with each name once")
    return cast("dict[str, Any]", value)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name is given twice")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
