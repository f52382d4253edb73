"""Codes and tokens that the authorization server issues, and what they seal. Pure.

A code or refresh token is `portico-ac-<sign-in>_<secret>` or `portico-rt-<sign-in>_<secret>`. The
first part finds the sign-in, and tells a credential that was used before from one that never was.
Of both parts only a digest is kept. Each has 128 or 256 random bits, so that nothing can be guessed
and a plain digest is enough.

What the identity provider issued is encrypted with a key made from the code or refresh token that
the client holds. So nothing that is stored opens it, and there is no key to keep.
"""

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

ACCESS_PREFIX = "portico-at-"
CODE_PREFIX = "portico-ac-"
REFRESH_PREFIX = "portico-rt-"
PREFIXES = (ACCESS_PREFIX, CODE_PREFIX, REFRESH_PREFIX)
_ACCESS = re.compile(rf"{ACCESS_PREFIX}[A-Za-z0-9_-]{{43}}")
_GRANT = re.compile(rf"({CODE_PREFIX}|{REFRESH_PREFIX})([0-9a-f]{{32}})_[A-Za-z0-9_-]{{43}}")
_NONCE_BYTES = 12


@dataclass(frozen=True)
class GrantCredential:
    """A code or refresh token that has the form of one; nothing says that it was ever issued."""

    text: str
    is_code: bool
    handle: str
    """The part that names its sign-in; secret."""

    @property
    def grant_id(self) -> str:
        return to_grant_id(self.handle)


def create_handle() -> str:
    return secrets.token_hex(16)


def to_grant_id(handle: str) -> str:
    """Return the id of a sign-in, which may be shown, from the handle in its credentials."""
    return compute_digest(handle)[:32]


def create_credential(prefix: str, handle: str) -> str:
    return f"{prefix}{handle}_{secrets.token_urlsafe(32)}"


def create_access_token() -> str:
    return ACCESS_PREFIX + secrets.token_urlsafe(32)


def is_access_token(text: str) -> bool:
    """Return whether a text has the form of an access token."""
    return _ACCESS.fullmatch(text) is not None


def parse_credential(text: str) -> GrantCredential | None:
    """Return a code or refresh token from its text; None for anything else."""
    found = _GRANT.fullmatch(text)
    if found is None:
        return None
    return GrantCredential(text, found[1] == CODE_PREFIX, found[2])


def compute_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def compute_challenge(verifier: str) -> str:
    """Return the PKCE challenge of a verifier (S256)."""
    digest = hashlib.sha256(verifier.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def seal(text: str, credential: str) -> bytes:
    """Encrypt a text so that only who has the credential can read it."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(_derive_key(credential)).encrypt(nonce, text.encode(), None)


def unseal(sealed: bytes, credential: str) -> str:
    """Decrypt what `seal` made; raises ValueError if it is damaged or the credential another."""
    try:
        opened = AESGCM(_derive_key(credential)).decrypt(
            sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None
        )
    except InvalidTag:
        raise ValueError("what is sealed cannot be read with this credential") from None
    return opened.decode()


def _derive_key(credential: str) -> bytes:
    derivation = HKDF(SHA256(), 32, salt=None, info=b"portico identity provider token")
    return derivation.derive(credential.encode())
