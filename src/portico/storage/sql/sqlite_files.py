"""The store's SQLite file: created for its owner only, and set aside when it is damaged."""

import contextlib
import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)


def prepare_file(path: Path) -> int:
    """Create the file if it is missing; return its inode. Raises OSError if not writable."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # An existing file is not opened: closing it would drop SQLite's locks on it in this process.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.suppress(OSError):
        path.chmod(0o600)
    return path.stat().st_ino


def set_aside(path: Path, inode: int, reason: str) -> None:
    """Rename a damaged file, unless another gateway has done so."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_ino != inode:
            return
        aside = path.with_name(f"{path.name}.unreadable")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
        logger.warning("%s It is now %s, and begun anew.", reason, aside.name)
