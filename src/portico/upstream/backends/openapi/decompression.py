"""Unpacks responses that were compressed unasked, up to a limit. Pure.

The HTTP client would unpack a piece at once and in full, through as many layers as a server names:
a few kilobytes can become gigabytes. Some hosts store responses compressed and send them so to
every client, hence one layer is accepted.
"""

import zlib

_IDENTITY_ENCODINGS = ("", "identity")
_ZLIB_ENCODINGS = ("gzip", "x-gzip", "deflate")
_AUTO_HEADER_WBITS = zlib.MAX_WBITS | 32
"""Accepts both gzip and zlib headers."""


class DecompressionError(Exception):
    """The response cannot be unpacked; the message says why."""


class BoundedDecompressor:
    """Unpacks the pieces of one response."""

    def __init__(self, encoding: str, max_bytes: int) -> None:
        """`encoding` is the value of the `content-encoding` header."""
        self.is_over_limit = False
        """Whether there is more data than the limit."""
        self._remaining_bytes = max_bytes
        codec = encoding.strip().lower()
        if codec not in (*_IDENTITY_ENCODINGS, *_ZLIB_ENCODINGS):
            raise DecompressionError(
                f"it was compressed ({codec[:50]}), though it was asked for plainly"
            )
        if codec in _ZLIB_ENCODINGS:
            self._decompressor = zlib.decompressobj(_AUTO_HEADER_WBITS)
        else:
            self._decompressor = None

    def decompress(self, piece: bytes) -> bytes:
        """Return one unpacked piece; sets `is_over_limit` if there is more than the limit."""
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
