"""The search index on disk: one file, replaced whole, read through a memory map so that a large one
loads at once.

A cache of what manifests say: a file that cannot be read is a file that is not there.
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
    """Give back the memory of a view that was read from end to end; what is needed of it is mapped
    again."""
    mapped = view.obj
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        mapped.madvise(mmap.MADV_DONTNEED)


class IndexFile:
    """Where the index is kept. Without a path, nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def load(self) -> memoryview | None:
        """What was saved last, as a view that stays good when the file is replaced."""
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file:
                if sys.platform == "win32":  # a file that is mapped cannot be replaced there
                    return memoryview(file.read())
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            logger.warning("the search index %s cannot be read: %s", self._path, error)
            return None

    def save(self, body: bytes) -> None:
        """Keep an index in place of the last one."""
        if self._path is None:
            return
        beside: Path | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A file of one's own, whoever else writes the same index: one that was cut short while
            # it is mapped would end its reader's process.
            handle, name = tempfile.mkstemp(prefix=f"{self._path.name}.", dir=self._path.parent)
            beside = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.write(body)
            beside.replace(self._path)
        except OSError as error:
            logger.warning("the search index %s cannot be written: %s", self._path, error)
            if beside is not None:
                with contextlib.suppress(OSError):
                    beside.unlink()
