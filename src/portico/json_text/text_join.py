"""Joining of long text in steps, so that none holds the interpreter's lock for long.

`"".join` of 64 MB is one step of 40 ms and more: the system provides every page of the new text
while the lock is held. CPython's C API allocates the text first and fills it piece by piece.
"""

import functools
import sys
from collections.abc import Sequence
from typing import Any

LONG = 2 * 1024**2
"""Length from which text is joined in steps."""
_ASCII = 0x7F
_LATIN_1 = 0xFF
_TWO_BYTES = 0xFFFF
_FOUR_BYTES = 0x10FFFF
"""The last characters of the four storage formats of CPython's text.

The narrowest that fits is required: texts in different formats are never equal.
"""


def join_text(pieces: Sequence[str]) -> str:
    """Return the same as `"".join(pieces)`; one step takes as long as the longest piece."""
    size = sum(map(len, pieces))
    if size < LONG:
        return "".join(pieces)
    functions = _load_functions()
    if functions is None:
        return "".join(pieces)
    create, copy, to_object, release = functions
    text = create(size, max(map(_find_width, pieces)))
    try:
        position = 0
        for piece in pieces:
            position += copy(text, position, piece, 0, len(piece))
        return to_object(text)
    finally:
        release(text)


def _find_width(piece: str) -> int:
    """Return the last character of the narrowest format for a piece."""
    if piece.isascii():
        return _ASCII
    try:
        piece.encode("latin-1")
    except UnicodeEncodeError:
        pairs = len(piece.encode("utf-16-le", "surrogatepass")) > 2 * len(piece)
        if pairs:
            return _FOUR_BYTES
        return _TWO_BYTES
    return _LATIN_1


@functools.cache
def _load_functions() -> tuple[Any, ...] | None:
    """Return the functions that create, fill, convert and release a text; None on other Pythons.

    Until it is converted to an object a text is a plain address: CPython refuses to fill one with
    two references.
    """
    if sys.implementation.name != "cpython":
        return None
    try:
        import ctypes  # imported here, because it slows start-up
    except ImportError:
        return None
    address = ctypes.c_void_p
    size = ctypes.c_ssize_t
    value = ctypes.py_object
    interface = ctypes.pythonapi
    create = ctypes.PYFUNCTYPE(address, size, ctypes.c_uint32)(("PyUnicode_New", interface))
    copying = ctypes.PYFUNCTYPE(size, address, size, value, size, size)
    copy = copying(("PyUnicode_CopyCharacters", interface))
    release = ctypes.PYFUNCTYPE(None, address)(("Py_DecRef", interface))

    def to_object(text: int) -> Any:
        return ctypes.cast(text, value).value

    return create, copy, to_object, release
