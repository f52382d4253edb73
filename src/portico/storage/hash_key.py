"""Key for hashing the words of queries: a separate file readable only by its owner.

Without the key, stored hashes cannot be attacked with a dictionary. The key is created and renewed
under the learning store's lock.
"""

import os
import secrets
import tempfile
from pathlib import Path

_SIZE = 32


def generate_key() -> bytes:
    """Return a new random key."""
    return secrets.token_bytes(_SIZE)


def read_key(path: Path) -> bytes | None:
    """Return the stored key; None if there is none or it is invalid."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(key) == _SIZE:
        return key
    return None


def renew_key(path: Path) -> bytes:
    """Replace the key atomically: readers see the old or the new one, never a part."""
    # mkstemp makes it readable by its owner only.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
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
