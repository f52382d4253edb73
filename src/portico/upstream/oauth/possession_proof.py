"""Proofs that a token is used by whom it was issued to (DPoP, RFC 9449): a key for each sign-in,
and a signed statement for each request."""

import base64
import hashlib
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ALGORITHM = "ES256"
NONCE_WANTED = "use_dpop_nonce"
_COORDINATE_BYTES = 32


def make_key() -> str:
    """Return a new private key, in PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def make_proof(
    key: str, method: str, url: str, now: float, *, access_token: str = "", nonce: str = ""
) -> str:
    """Return the `DPoP` header of one request. It is not used twice."""
    import jwt

    private_key, public_key = _load_key(key)
    parts = urlsplit(url)
    claims: dict[str, Any] = {
        "jti": secrets.token_urlsafe(16),
        "htm": method,
        "htu": urlunsplit(parts._replace(query="", fragment="")),
        "iat": int(now),
    }
    if access_token:
        claims["ath"] = _encode(hashlib.sha256(access_token.encode()).digest())
    if nonce:
        claims["nonce"] = nonce
    headers = {"typ": "dpop+jwt", "jwk": public_key}
    return jwt.encode(claims, private_key, algorithm=ALGORITHM, headers=headers)


@lru_cache(maxsize=256)
def _load_key(key: str) -> "tuple[EllipticCurvePrivateKey, dict[str, str]]":
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    private_key = load_pem_private_key(key.encode(), None)
    assert isinstance(private_key, ec.EllipticCurvePrivateKey)
    numbers = private_key.public_key().public_numbers()
    public_key = {
        "kty": "EC",
        "crv": "P-256",
        "x": _encode(numbers.x.to_bytes(_COORDINATE_BYTES, "big")),
        "y": _encode(numbers.y.to_bytes(_COORDINATE_BYTES, "big")),
    }
    return private_key, public_key


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
