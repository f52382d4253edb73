"""The search index on disk: one file, replaced atomically and read through a memory map.

A cache of the manifests: an unreadable file counts as missing.
"""

import contextlib
import logging
import mmap
import os
import sys
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)


def release_memory(view: memoryview) -> None:
    """Release the memory of a mapped view; pages are mapped again on use."""
    mapped = view.obj
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        mapped.madvise(mmap.MADV_DONTNEED)


class IndexFile:
    """File of the search index. Without a path, nothing is stored."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def load(self) -> memoryview | None:
        """Return the saved index as a view that stays valid when the file is replaced."""
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file:
                if sys.platform == "win32":  # a mapped file cannot be replaced there
                    return memoryview(file.read())
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            logger.warning("the search index %s cannot be read: %s", self._path, error)
            return None

    def save(self, body: bytes) -> None:
        """Replace the saved index."""
        if self._path is None:
            return
        temporary: Path | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A temporary file of our own: others may write the same index, and truncating a mapped
            # file would crash its reader.
            handle, name = tempfile.mkstemp(prefix=f"{self._path.name}.", dir=self._path.parent)
            temporary = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.write(body)
            temporary.replace(self._path)
        except OSError as error:
            logger.warning("the search index %s cannot be written: %s", self._path, error)
            if temporary is not None:
                with contextlib.suppress(OSError):
                    temporary.unlink()
