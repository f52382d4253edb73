"""Keys: credentials of named people and programs, of which only a digest is kept. Pure.

A key is `portico_<id>_<secret>`: the prefix lets scanners of repositories recognise it, the id is
shown in lists, and the secret has 256 random bits, so that a plain digest of it cannot be guessed.
"""

import hashlib
import hmac
import re
import secrets
from typing import Literal

from portico.callers import KEY_ISSUER, Principal
from portico.errors import PorticoError
from portico.storage.rows import KeyRow

PREFIX = "portico_"
MAX_KEYS = 10_000
_ID_BYTES = 5
_SECRET_BYTES = 32
_TEXT = re.compile(rf"{PREFIX}([0-9a-f]{{{2 * _ID_BYTES}}})_([A-Za-z0-9_-]{{43}})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_DURATION = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

KeyState = Literal["valid", "expired", "revoked"]


def get_key_state(key: KeyRow, now: float) -> KeyState:
    if key.revoked_at is not None and key.revoked_at <= now:
        return "revoked"
    if key.expires_at is not None and key.expires_at <= now:
        return "expired"
    return "valid"


def to_principal(key: KeyRow) -> Principal:
    return Principal(
        KEY_ISSUER,
        key.name,
        key.name,
        credential=key.id,
        profiles=key.profiles,
        is_read_only=key.is_read_only,
    )


def create_key(
    name: str,
    now: float,
    *,
    profiles: tuple[str, ...] = (),
    is_read_only: bool = False,
    expires_at: float | None = None,
) -> tuple[KeyRow, str]:
    """Create a key; returns it and its text, which is not kept. Raises PorticoError for a name."""
    if _NAME.fullmatch(name) is None:
        raise PorticoError(
            f"{name!r} cannot be the name of a key",
            advice="Use up to 64 letters, digits and . _ @ + -, as in ana@example.org or ci-build.",
        )
    key_id = secrets.token_hex(_ID_BYTES)
    text = f"{PREFIX}{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    key = KeyRow(key_id, name, compute_digest(text), now, profiles, is_read_only, expires_at)
    return key, text


def compute_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def parse_key_id(text: str) -> str:
    """Return the id of a key from its text, or an empty string if it is none."""
    found = _TEXT.fullmatch(text)
    return found[1] if found is not None else ""


def is_text_of(key: KeyRow, text: str) -> bool:
    """Return whether `text` is the text of this key; takes constant time."""
    return hmac.compare_digest(key.digest, compute_digest(text))


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `90d` or `12h`; raises PorticoError."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or not int(found[1]):
        raise PorticoError(
            f"{text!r} is no duration", advice="Write 30m, 12h, 90d or 52w (at most six digits)."
        )
    return float(int(found[1]) * _UNIT_S[found[2]])
