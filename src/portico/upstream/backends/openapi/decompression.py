"""Replies that were compressed although nobody asked for it, unpacked no further than a bound.
Pure.

The HTTP client would unpack a piece at once and whole, through as many layers as a server names: a
few kilobytes can be gigabytes. Some hosts keep what they have compressed and send it so to
everybody, hence one layer is taken.
"""

import zlib

_IDENTITY_ENCODINGS = ("", "identity")
_ZLIB_ENCODINGS = ("gzip", "x-gzip", "deflate")
_AUTO_HEADER_WBITS = zlib.MAX_WBITS | 32
"""A gzip header or zlib's own."""


class DecompressionError(Exception):
    """Says why."""


class BoundedDecompressor:
    """The pieces of one reply, as they were before they were compressed."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        """`encoding` is the header that names it."""
        self.is_over_limit = False
        """Whether there is more than the limit."""
        self._remaining_bytes = max_bytes
        named = encoding.strip().lower()
        if named not in (*_IDENTITY_ENCODINGS, *_ZLIB_ENCODINGS):
            raise DecompressionError(
                f"it was compressed ({named[:50]}), though it was asked for plainly"
            )
        if named in _ZLIB_ENCODINGS:
            self._decompressor = zlib.decompressobj(_AUTO_HEADER_WBITS)
        else:
            self._decompressor = None

    def decompress(self, piece: bytes) -> bytes:
        """One piece; once the reply is `full`, what of it is within the limit."""
        if self._decompressor is not None:
            try:
                piece = self._decompressor.decompress(piece, self._remaining_bytes + 1)
            except zlib.error:
                raise DecompressionError(
                    "it says that it was compressed, but cannot be unpacked"
                ) from None
        self.is_over_limit = len(piece) > self._remaining_bytes
        self._remaining_bytes -= len(piece)
        return piece
