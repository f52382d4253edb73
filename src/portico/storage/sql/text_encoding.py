"""Escapes text for any database. Names come from servers and may contain anything.

PostgreSQL refuses NUL, no driver takes lone surrogates, and an index takes no long name. The first
two are escaped reversibly; rows are found by the hash of a name, so that any length works.
"""

import re
from hashlib import blake2b

_ESCAPE = "\x1a"
_REFUSED = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


def escape_text(text: str) -> str:
    """Escape what databases refuse."""
    if text.isascii() and text.isprintable():  # the common case, several times as fast
        return text
    return _REFUSED.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def unescape_text(text: str) -> str:
    """Reverse `escape_text`."""
    if _ESCAPE in text:
        return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    return text


def compute_name_key(*names: str) -> bytes:
    """Return the key of rows about these names."""
    return compute_digest(*names, size=16)


def compute_digest(*parts: str | bytes, size: int = 32) -> bytes:
    """Hash these parts in order; lengths are included, so parts cannot run into each other."""
    digest = blake2b(digest_size=size)
    for part in parts:
        body = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        digest.update(len(body).to_bytes(8))
        digest.update(body)
    return digest.digest()
