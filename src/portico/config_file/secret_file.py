"""Reads a file that holds one secret, within a limit."""

import errno
import os
import stat

MAX_SECRET_BYTES = 64 * 1024


def read_secret_file(path: str) -> str:
    """Return the text of a file, without its last line break.

    Raises OSError, also for what is no regular file, and ValueError for what is no secret.
    """
    # Without waiting: opening a pipe that nobody writes to would never end.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file", path)
        data = file.read(MAX_SECRET_BYTES + 1)
    return decode_secret(data)


def decode_secret(data: bytes) -> str:
    """Return a secret as text; raise ValueError if it is too large, empty, or not text."""
    if len(data) > MAX_SECRET_BYTES:
        raise ValueError(f"it is larger than {MAX_SECRET_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        raise ValueError("it is empty")
    if "\0" in secret:
        raise ValueError("it is not text: it has a NUL character")
    return secret
