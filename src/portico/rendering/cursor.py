"""Opaque, signed cursors: the position in a listing, valid for one catalog version. Pure.

The key is generated per process. A cursor of another catalog version, listing or process is refused
with advice. A model carries cursors in its context, so they are short: 28 characters.
"""

import base64
import hashlib
import hmac
import secrets
import struct

from portico.errors import StaleCursor

_KEY = secrets.token_bytes(32)
_LAYOUT = struct.Struct(">8s5s4sI")
"""Signature, listing, version, offset: 21 bytes, which base64 encodes without padding."""
_SIGNATURE_BYTES = 8


def encode(listing: str, version: str, offset: int) -> str:
    """Return a cursor that continues `listing` at `offset`."""
    body = _LAYOUT.pack(b"", _digest(listing, 5), _digest(version, 4), offset)[_SIGNATURE_BYTES:]
    return _to_text(_sign(body) + body)


def decode(cursor: str, listing: str, version: str) -> int:
    """Return the offset of a cursor; raises StaleCursor."""
    try:
        raw = base64.urlsafe_b64decode(cursor)
        signature, listing_digest, version_digest, offset = _LAYOUT.unpack(raw)
    except (ValueError, struct.error):
        raise _make_unknown_cursor_error() from None
    # Base64 accepts several spellings of the same bytes; only the canonical one is accepted.
    if _to_text(raw) != cursor or not hmac.compare_digest(signature, _sign(raw[_SIGNATURE_BYTES:])):
        raise _make_unknown_cursor_error()
    if listing_digest != _digest(listing, 5):
        raise StaleCursor(
            "this cursor belongs to another question", advice="Repeat the question it came with."
        )
    if version_digest != _digest(version, 4):
        raise StaleCursor(
            "the tools changed since this cursor was made, or their order did",
            advice="Ask again without a cursor.",
        )
    return offset


def _make_unknown_cursor_error() -> StaleCursor:
    return StaleCursor("this cursor was not made here", advice="Ask again without a cursor.")


def _to_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=size).digest()


def _sign(body: bytes) -> bytes:
    return hmac.digest(_KEY, body, "sha256")[:_SIGNATURE_BYTES]
