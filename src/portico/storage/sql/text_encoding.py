"""Text that any database takes, and back. Names come from servers, and those may put anything into
them.

PostgreSQL refuses NUL, no driver takes half a surrogate pair, and an index takes no long name. The
first two are escaped, and come back as they were; rows are found by the hash of a name, so that any
length will do.
"""

import re
from hashlib import blake2b

_ESCAPE = "\x1a"
_REFUSED = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


def escape_text(text: str) -> str:
    """The text without what databases refuse."""
    if text.isascii() and text.isprintable():  # nearly always, and several times as fast
        return text
    return _REFUSED.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def unescape_text(text: str) -> str:
    """The text as it was before it was made storable."""
    if _ESCAPE in text:
        return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    return text


def compute_name_key(*names: str) -> bytes:
    """What rows about these names are found by."""
    return compute_digest(*names, size=16)


def compute_digest(*parts: str | bytes, size: int = 32) -> bytes:
    """A hash of these parts in this order; what is in one part never reads like another one's
    beginning."""
    made = blake2b(digest_size=size)
    for part in parts:
        if isinstance(part, bytes):
            body = part
        else:
            body = part.encode("utf-8", "surrogatepass")
        made.update(len(body).to_bytes(8))
        made.update(body)
    return made.digest()
