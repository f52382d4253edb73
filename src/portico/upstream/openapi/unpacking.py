"""Replies that were compressed although nobody asked for it, unpacked no further than a bound. Pure.

The HTTP client would unpack a piece at once and whole, through as many layers as a server names: a few kilobytes can be
gigabytes. Some hosts keep what they have compressed and send it so to everybody, hence one layer is taken.
"""

import zlib

_PLAIN = ("", "identity")
_PACKED = ("gzip", "x-gzip", "deflate")
_EITHER = zlib.MAX_WBITS | 32
"""A gzip header or zlib's own."""


class NotUnpacked(Exception):
    """Says why."""


class Unpacking:
    """The pieces of one reply, as they were before they were compressed."""

    def __init__(self, encoding: str, limit: int) -> None:
        """`encoding` is the header that names it."""
        self.full = False
        """Whether there is more than the limit."""
        self._left = limit
        named = encoding.strip().lower()
        if named not in (*_PLAIN, *_PACKED):
            raise NotUnpacked(f"it was compressed ({named[:50]}), though it was asked for plainly")
        self._unpacker = zlib.decompressobj(_EITHER) if named in _PACKED else None

    def unpacked(self, piece: bytes) -> bytes:
        """One piece; once the reply is `full`, what of it is within the limit."""
        if self._unpacker is not None:
            try:
                piece = self._unpacker.decompress(piece, self._left + 1)
            except zlib.error:
                raise NotUnpacked("it says that it was compressed, but cannot be unpacked") from None
        self.full = len(piece) > self._left
        self._left -= len(piece)
        return piece
