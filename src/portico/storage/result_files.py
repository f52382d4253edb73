"""Bodies of large results, one file each, readable only by the owner and deleted after expiry.

A file's modification time is its expiry: any gateway that sweeps a shared folder knows which files
are no longer needed. Files left by a crash are swept at the next start.
"""

import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

logger = logging.getLogger(__name__)

GRACE_S = 600.0
"""Seconds after expiry before a file is swept: clocks differ, and a file being written has no
expiry yet."""
_BATCH = 256 * 1024
_SUFFIX = ".result"


class ResultBodyTooLarge(Exception):
    """A body exceeds the size limit."""


class ResultFiles:
    """A folder of result bodies. Calls block on the disk; use a thread."""

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.time) -> None:
        """Without a folder, a temporary one is used until `close`."""
        self._folder = folder
        self._temporary: Path | None = None
        self._clock = clock

    def write(self, name: str, texts: Iterable[str], expires: float, limit: int) -> int:
        """Write a body and return its size; on any error nothing remains.

        Raises ResultBodyTooLarge, OSError, and whatever `texts` raises.
        """
        path = self._get_path(name)
        size = 0
        try:
            handle = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600
            )
            with os.fdopen(handle, "wb", buffering=_BATCH) as file:
                for text in texts:
                    body = text.encode(errors="replace")
                    size += len(body)
                    if size > limit:
                        raise ResultBodyTooLarge(f"it has more than {limit} bytes")
                    file.write(body)
            os.utime(path, (expires, expires))
        except BaseException:
            self.delete(name)
            raise
        return size

    def read(self, name: str, start: int = 0, size: int = -1) -> bytes:
        """Return a part of a body; raises FileNotFoundError if it is gone."""
        with self._get_path(name).open("rb") as file:
            file.seek(start)
            return file.read(size)

    def delete(self, name: str) -> None:
        """Delete a body, if it exists."""
        # One that is being read on Windows is deleted by the next sweep.
        with contextlib.suppress(OSError):
            self._get_path(name).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Delete expired bodies of any gateway; return their number."""
        if self._folder is None or not self._folder.is_dir():
            return 0
        swept = 0
        try:
            for path in self._folder.glob(f"*{_SUFFIX}"):
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime + GRACE_S < self._clock():
                        path.unlink()
                        swept += 1
        except OSError as error:
            logger.warning("old results in %s cannot be swept: %s", self._folder, error)
        return swept

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _get_path(self, name: str) -> Path:
        folder = self._folder or self._temporary
        if folder is None:
            folder = self._temporary = Path(tempfile.mkdtemp(prefix="portico-results-"))
        elif not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder / f"{name}{_SUFFIX}"
