"""Opaque, signed cursors, and pages of the protocol's list methods. Pure.

A cursor is a position in a listing of one catalog version. One of another version, listing or
process is refused with advice: the key is generated per process. A model carries cursors in its
context, so they are short: 28 characters.
"""

import base64
import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable, Sequence
from typing import Any

from portico.errors import StaleCursor
from portico.upstream.backend import Raw

_KEY = secrets.token_bytes(32)
_LAYOUT = struct.Struct(">8s5s4sI")
"""Signature, listing, version, offset: 21 bytes, which base64 encodes without padding."""
_SIGNATURE_BYTES = 8
_CURSOR_CHARS = 28
PAGE_SIZE = 250


def encode(listing: str, version: str, offset: int) -> str:
    """Return a cursor that continues `listing` at `offset`."""
    body = _LAYOUT.pack(b"", _digest(listing, 5), _digest(version, 4), offset)[_SIGNATURE_BYTES:]
    return _to_text(_sign(body) + body)


def decode(cursor: str, listing: str, version: str) -> int:
    """Return the offset of a cursor; raises StaleCursor."""
    if len(cursor) != _CURSOR_CHARS:
        raise _make_unknown_cursor_error()
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


def make_list_page(
    method: str,
    key: str,
    items: Sequence[Any],
    version: str,
    params: Raw,
    meta: Raw | None = None,
    render: Callable[[Any], Any] | None = None,
) -> Raw:
    """Return the page that the params of a listing request; raises StaleCursor.

    `meta` describes the whole list. `render` turns an item into its listed form, for this page
    only.
    """
    cursor = params.get("cursor")
    offset = decode(str(cursor), method, version) if cursor is not None else 0
    page_items = items[offset : offset + PAGE_SIZE]
    page: Raw = {key: list(map(render, page_items)) if render else list(page_items)}
    if offset + PAGE_SIZE < len(items):
        page["nextCursor"] = encode(method, version, offset + PAGE_SIZE)
    if meta:
        page["_meta"] = meta
    return page
