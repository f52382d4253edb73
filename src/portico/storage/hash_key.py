"""The key that words of queries are hashed with: a file of its own beside the record of use, for
its owner alone.

The record without its key cannot be read with a dictionary. Whoever makes or renews it holds the
record's lock.
"""

import os
import secrets
import tempfile
from pathlib import Path

_SIZE = 32


def generate_key() -> bytes:
    """A key nobody has."""
    return secrets.token_bytes(_SIZE)


def read_key(path: Path) -> bytes | None:
    """The key that is there; None where there is none, or something else."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(key) == _SIZE:
        return key
    return None


def renew_key(path: Path) -> bytes:
    """A new key in place of any other: who reads meanwhile sees the one or the other, never a part."""
    handle, name = tempfile.mkstemp(
        dir=path.parent, prefix=f"{path.name}."
    )  # made for its owner alone
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(key := generate_key())
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return key
