"""Opaque, signed cursors: where a listing goes on, for one catalog only. Pure.

The key lives as long as the process. A cursor of another catalog, another question or another process is refused with
advice, never misread.
"""

import base64
import hashlib
import hmac
import secrets

import orjson

from portico.errors import StaleCursor

_KEY = secrets.token_bytes(32)
_SIGNATURE_BYTES = 8


def encode(question: str, version: str, offset: int) -> str:
    """A cursor that continues `question` at `offset`."""
    body = orjson.dumps([_brand(question), version, offset])
    return base64.urlsafe_b64encode(_sign(body) + body).decode().rstrip("=")


def decode(cursor: str, question: str, version: str) -> int:
    """The offset a cursor stands for; raises StaleCursor."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        signature, body = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, _sign(body)):
            raise ValueError("signature")
        brand, made_for, offset = orjson.loads(body)
    except (ValueError, TypeError):
        raise StaleCursor("this cursor was not made here", advice="Ask again without a cursor.") from None
    if brand != _brand(question):
        raise StaleCursor("this cursor belongs to another question", advice="Repeat the question it came with.")
    if made_for != version:
        raise StaleCursor("the tools changed since this cursor was made", advice="Ask again without a cursor.")
    return offset


def _brand(question: str) -> str:
    return hashlib.blake2b(question.encode(), digest_size=6).hexdigest()


def _sign(body: bytes) -> bytes:
    return hmac.digest(_KEY, body, "sha256")[:_SIGNATURE_BYTES]
